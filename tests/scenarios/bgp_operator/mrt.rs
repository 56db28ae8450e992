//! A small reader of MRT table dumps (RFC 6396 section 4.3), with nothing of ours in it.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// A peer of the index: BGP identifier, address, AS number.
pub(crate) type Peer = (Ipv4Addr, IpAddr, u32);

/// What a file says.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Dump {
    pub(crate) collector: Option<Ipv4Addr>,
    pub(crate) peers: Vec<Peer>,
    /// Prefix as text, place of the peer, when it was heard, length of the attributes.
    pub(crate) paths: Vec<(String, u16, u32, usize)>,
}

/// Reads a whole file, and fails the test on anything that is wrong with it.
pub(crate) fn read(mut file: &[u8]) -> Dump {
    let (mut dump, mut records) = (Dump::default(), 0);
    while !file.is_empty() {
        let header = take(&mut file, 12);
        assert_eq!(header[4..6], [0, 13], "no TABLE_DUMP_V2");
        let mut body = take(&mut file, number(&header[8..]).try_into().unwrap());
        match header[7] {
            1 => index(&mut body, &mut dump),
            2 => rib(&mut body, 4, records - 1, &mut dump),
            4 => rib(&mut body, 16, records - 1, &mut dump),
            other => panic!("subtype {other}"),
        }
        assert!(body.is_empty(), "{} octets too many", body.len());
        records += 1;
    }
    dump
}

fn index(body: &mut &[u8], dump: &mut Dump) {
    assert_eq!(dump.collector, None, "a second index");
    dump.collector = Some(v4(take(body, 4)));
    let view = number(take(body, 2));
    take(body, view.try_into().unwrap());
    for _ in 0..number(take(body, 2)) {
        let kind = take(body, 1)[0];
        let id = v4(take(body, 4));
        let address = if kind & 1 == 0 { v4(take(body, 4)).into() } else { v6(take(body, 16)) };
        let asn = number(take(body, if kind & 2 == 0 { 2 } else { 4 }));
        dump.peers.push((id, address, asn.try_into().unwrap()));
    }
}

fn rib(body: &mut &[u8], size: usize, sequence: u64, dump: &mut Dump) {
    assert_eq!(number(take(body, 4)), sequence);
    let length = take(body, 1)[0];
    let mut address = take(body, usize::from(length).div_ceil(8)).to_vec();
    address.resize(size, 0);
    let address = if size == 4 { v4(&address).into() } else { v6(&address) };
    for _ in 0..number(take(body, 2)) {
        let peer = number(take(body, 2)).try_into().unwrap();
        let heard = number(take(body, 4)).try_into().unwrap();
        let attributes = number(take(body, 2)).try_into().unwrap();
        take(body, attributes);
        dump.paths.push((format!("{address}/{length}"), peer, heard, attributes));
    }
}

fn take<'a>(from: &mut &'a [u8], count: usize) -> &'a [u8] {
    from.split_off(..count).expect("the file breaks off")
}

fn number(octets: &[u8]) -> u64 {
    octets.iter().fold(0, |number, octet| number << 8 | u64::from(*octet))
}

fn v4(octets: &[u8]) -> Ipv4Addr {
    <[u8; 4]>::try_from(octets).unwrap().into()
}

fn v6(octets: &[u8]) -> IpAddr {
    Ipv6Addr::from(<[u8; 16]>::try_from(octets).unwrap()).into()
}
