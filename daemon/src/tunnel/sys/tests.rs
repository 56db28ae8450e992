use std::{
    net::{IpAddr, SocketAddr, UdpSocket},
    os::fd::AsFd,
    time::Duration,
};

use isthmus_tunnel::{buffer::OuterPath, ecn::Ecn};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use super::*;

struct Rig {
    from: UdpSocket,
    to: UdpSocket,
    batch: ReceiveBatch,
}

/// A datagram with where it came from, where it came to, and its ECN.
type Seen = (Vec<u8>, SocketAddr, Option<IpAddr>, Ecn);

impl Rig {
    /// `None` without IPv6.
    fn new(loopback: &str) -> Option<Self> {
        let (from, to) = (UdpSocket::bind(loopback).ok()?, UdpSocket::bind(loopback).ok()?);
        let v6 = to.local_addr().unwrap().is_ipv6();
        report_packet_info(to.as_fd(), v6).unwrap();
        accept_merged(to.as_fd(), true).unwrap();
        Some(Self { from, to, batch: ReceiveBatch::new() })
    }

    fn message<'a>(&self, bytes: &'a [u8], segment: Option<u16>, ecn: Ecn) -> Message<'a> {
        let local = Some(self.from.local_addr().unwrap().ip());
        Message { bytes, segment, path: OuterPath { remote: self.to.local_addr().unwrap(), local }, ecn }
    }

    fn send(&self, mut messages: &[Message<'_>]) {
        let mut space = SendSpace::new();
        while !messages.is_empty() {
            messages = &messages[space.send(self.from.as_fd(), messages).unwrap()..];
        }
    }

    fn receive(&mut self, count: usize) -> Vec<Seen> {
        let mut seen = Vec::new();
        while seen.len() < count {
            let timeout = PollTimeout::try_from(Duration::from_secs(5)).unwrap();
            assert_eq!(poll(&mut [PollFd::new(self.to.as_fd(), PollFlags::POLLIN)], timeout), Ok(1));
            self.batch.receive(self.to.as_fd()).unwrap();
            seen.extend(self.batch.datagrams().map(|datagram| {
                (datagram.bytes.to_vec(), datagram.path.remote, datagram.path.local, datagram.ecn)
            }));
        }
        assert!(!self.batch.receive(self.to.as_fd()).unwrap());
        assert_eq!(self.batch.datagrams().count(), 0);
        seen
    }
}

#[test]
fn batches_keep_order_length_source_and_ecn() {
    for mut rig in ["127.0.0.1:0", "[::1]:0"].into_iter().filter_map(Rig::new) {
        let sent: Vec<Vec<u8>> = (1..=100_u8).map(|n| vec![n; usize::from(n)]).collect();
        let marks = [Ecn::NotEct, Ecn::Ect1, Ecn::Ect0, Ecn::Ce];
        let messages: Vec<Message<'_>> = sent
            .iter()
            .zip(marks.iter().cycle())
            .map(|(bytes, ecn)| rig.message(bytes, None, *ecn))
            .collect();
        rig.send(&messages);
        let own = rig.from.local_addr().unwrap();
        for ((seen, bytes), ecn) in rig.receive(100).into_iter().zip(&sent).zip(marks.iter().cycle()) {
            assert_eq!(seen, (bytes.clone(), own, Some(own.ip()), *ecn));
        }
    }
}

#[test]
fn segments_come_apart_as_they_were_put_together() {
    for mut rig in ["127.0.0.1:0", "[::1]:0"].into_iter().filter_map(Rig::new) {
        let sent: Vec<u8> = (0..=u8::MAX).cycle().take(1000 * 44 + 7).collect();
        rig.send(&[rig.message(&sent, Some(1000), Ecn::Ect0), rig.message(&sent[..1000], None, Ecn::Ect0)]);
        let seen = rig.receive(46);
        let expected: Vec<&[u8]> = sent.chunks(1000).chain([&sent[..1000]]).collect();
        assert_eq!(seen.iter().map(|(bytes, ..)| bytes.as_slice()).collect::<Vec<_>>(), expected);
        assert!(seen.iter().all(|(_, _, _, ecn)| *ecn == Ecn::Ect0));
    }
}

#[test]
fn an_address_that_is_not_ours_is_no_source() {
    let rig = Rig::new("127.0.0.1:0").unwrap();
    let mut message = rig.message(b"x", None, Ecn::NotEct);
    message.path.local = Some("192.0.2.1".parse().unwrap());
    let error = SendSpace::new().send(rig.from.as_fd(), &[message]).unwrap_err();
    assert!(matches!(error.raw_os_error(), Some(libc::EINVAL | libc::ENETUNREACH)), "{error}");
}
