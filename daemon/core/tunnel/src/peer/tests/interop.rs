//! Against another implementation.

use std::sync::atomic::AtomicU64;

use boringtun::{
    noise::{Tunn, TunnResult, rate_limiter::RateLimiter},
    x25519 as other_x25519,
};

use super::*;
use crate::noise::message::INITIATION;

/// The far end of our peer `End::new(1, 2, ..)`.
pub(super) fn other(preshared_key: Option<[u8; 32]>, handshakes_per_second: u64) -> Tunn {
    let private = other_x25519::StaticSecret::from([2; 32]);
    let limiter = RateLimiter::new(&other_x25519::PublicKey::from(&private), handshakes_per_second);
    let us = other_x25519::PublicKey::from(&other_x25519::StaticSecret::from([1; 32]));
    Tunn::new(private, us, preshared_key, None, 77, Some(Arc::new(limiter)))
}

/// What it has to say to a datagram: (to the network, to the tunnel).
pub(super) fn hear(tunn: &mut Tunn, datagram: &[u8]) -> (Vec<Vec<u8>>, Vec<Vec<u8>>) {
    let (mut network, mut tunnel, mut buffer) = (vec![], vec![], vec![0; 2000]);
    let mut result = tunn.decapsulate(Some(address(A).ip()), datagram, &mut buffer);
    loop {
        match result {
            TunnResult::WriteToNetwork(bytes) => network.push(bytes.to_vec()),
            TunnResult::WriteToTunnelV4(packet, _) | TunnResult::WriteToTunnelV6(packet, _) => {
                tunnel.push(packet.to_vec());
                break;
            }
            TunnResult::Done => break,
            TunnResult::Err(error) => panic!("{error:?}"),
        }
        result = tunn.decapsulate(None, &[], &mut buffer);
    }
    (network, tunnel)
}

pub(super) fn say(tunn: &mut Tunn, packet: &[u8]) -> Vec<u8> {
    match tunn.encapsulate(packet, &mut vec![0; 2000]) {
        TunnResult::WriteToNetwork(bytes) => bytes.to_vec(),
        other => panic!("{other:?}"),
    }
}

fn converse(a: &mut End, tunn: &mut Tunn) {
    for n in 0..20 {
        let sealed = a.seal(&[inner(n, 70 * usize::from(n)), inner(n, 3)]);
        let packets: Vec<Vec<u8>> = sealed.iter().flat_map(|datagram| hear(tunn, datagram).1).collect();
        assert_eq!(packets, [inner(n, 70 * usize::from(n)), inner(n, 3)]);
        let back = say(tunn, &inner(n, 1000));
        assert_eq!(a.open(B, &[back]).1, [inner(n, 1000)]);
    }
}

#[test]
fn we_call() {
    for preshared_key in [None, Some([9; 32])] {
        let (mut a, mut tunn) = (End::new(1, 2, preshared_key), other(preshared_key, u64::MAX));
        a.peer.set_endpoint(address(B));
        let (response, _) = hear(&mut tunn, &a.seal(&[inner(1, 40)])[0]);
        let (data, _) = a.open(B, &response);
        assert_eq!(hear(&mut tunn, &data[0]).1, [inner(1, 40)]);
        converse(&mut a, &mut tunn);
        assert_eq!(Dropped::ALL.iter().map(|reason| a.drops(*reason)).sum::<u64>(), 0);
    }
}

#[test]
fn we_are_called() {
    for preshared_key in [None, Some([9; 32])] {
        let (mut a, mut tunn) = (End::new(1, 2, preshared_key), other(preshared_key, u64::MAX));
        let initiation = say(&mut tunn, &inner(5, 0));
        assert_eq!(initiation.len(), INITIATION);
        let (response, _) = a.open(B, &[initiation]);
        let (data, _) = hear(&mut tunn, &response[0]);
        assert_eq!(a.open(B, &data).1, [inner(5, 0)]);
        converse(&mut a, &mut tunn);

        // It renews the session, and so do we.
        a.now.instant += seconds(1);
        let mut buffer = [0; 2000];
        let TunnResult::WriteToNetwork(again) = tunn.format_handshake_initiation(&mut buffer, true) else {
            panic!("no initiation")
        };
        let (response, _) = a.open(B, &[again.to_vec()]);
        let (data, _) = hear(&mut tunn, &response[0]);
        a.open(B, &data);
        converse(&mut a, &mut tunn);
        let (response, _) = hear(&mut tunn, &a.force_initiation());
        let (data, _) = a.open(B, &response);
        data.iter().for_each(|datagram| assert!(hear(&mut tunn, datagram).1.is_empty()));
        converse(&mut a, &mut tunn);
        assert_eq!(Dropped::ALL.iter().map(|reason| a.drops(*reason)).sum::<u64>(), 0);
    }
}

#[test]
fn its_cookie_opens_its_door() {
    let (mut a, mut tunn) = (End::new(1, 2, None), other(None, 0));
    a.peer.set_endpoint(address(B));
    let (cookie, _) = hear(&mut tunn, &a.seal(&[inner(1, 0)])[0]);
    assert_eq!(cookie[0].len(), 64);
    assert_eq!(a.open(B, &cookie).0, Vec::<Vec<u8>>::new());
    a.now.instant += seconds(6);
    let (response, _) = hear(&mut tunn, &a.tick()[0]);
    assert_eq!(response[0].len(), 92, "the second initiation has a valid MAC2");
    // The response proves nothing about our side of the line to us: it is as good as any.
    let (data, _) = a.open(B, &response);
    assert_eq!(hear(&mut tunn, &data[0]).1, [inner(1, 0)]);
    // Two minutes later the cookie is stale, and no MAC2 is better than a wrong one.
    a.now.instant += seconds(120);
    assert_eq!(a.force_initiation()[132..], [0; 16]);
}

#[test]
fn a_strange_preshared_key_is_no_session() {
    let (mut a, mut tunn) = (End::new(1, 2, Some([1; 32])), other(Some([2; 32]), u64::MAX));
    a.peer.set_endpoint(address(B));
    let (response, _) = hear(&mut tunn, &a.seal(&[inner(1, 40)])[0]);
    assert!(a.open(B, &response).0.is_empty());
    assert_eq!(a.drops(Dropped::HandshakeFailed), 1);
    let received: &AtomicU64 = &a.counters.received_packets;
    assert_eq!(received.load(Ordering::Relaxed), 0);
}
