use std::{cell::RefCell, net::SocketAddr};

use isthmus_tunnel::{buffer::OuterPath, ecn::Ecn};

use super::*;

/// Stands in for a kernel: takes what `refuses` has no error for, and remembers it.
struct Kernel<F> {
    refuses: F,
    sent: RefCell<Vec<Sent>>,
    calls: RefCell<usize>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Sent {
    bytes: Vec<u8>,
    segment: Option<u16>,
    from: bool,
}

impl<F: Fn(&Message<'_>) -> Option<i32>> Kernel<F> {
    fn new(refuses: F) -> Self {
        Self { refuses, sent: RefCell::default(), calls: RefCell::default() }
    }

    fn datagrams(&self) -> Vec<Vec<u8>> {
        let sent = self.sent.borrow();
        let parts = sent.iter().flat_map(|sent| {
            sent.bytes.chunks(sent.segment.map_or(sent.bytes.len(), usize::from)).map(<[u8]>::to_vec)
        });
        parts.collect()
    }
}

impl<F: Fn(&Message<'_>) -> Option<i32>> Wire for Kernel<F> {
    fn send(&self, _: &mut SendSpace, messages: &[Message<'_>]) -> io::Result<usize> {
        *self.calls.borrow_mut() += 1;
        let good = messages.iter().take_while(|message| (self.refuses)(message).is_none());
        let taken: Vec<Sent> = good
            .map(|message| Sent {
                bytes: message.bytes.to_vec(),
                segment: message.segment,
                from: message.path.local.is_some(),
            })
            .collect();
        let count = taken.len();
        self.sent.borrow_mut().extend(taken);
        match messages.get(count).and_then(|message| (self.refuses)(message)) {
            Some(code) if count == 0 => Err(io::Error::from_raw_os_error(code)),
            _ => Ok(count),
        }
    }

    fn wait(&self, _: bool, _: Duration) {}
}

fn path() -> OuterPath {
    OuterPath { remote: SocketAddr::from(([192, 0, 2, 1], 51820)), local: Some([192, 0, 2, 9].into()) }
}

/// A burst of 47 segments, each different, and a short one.
fn burst() -> (Outbox, Vec<Vec<u8>>) {
    let mut outbox = Outbox::new();
    let datagrams: Vec<Vec<u8>> = (0..48_u8).map(|n| vec![n; if n == 47 { 100 } else { 1452 }]).collect();
    datagrams.iter().for_each(|datagram| outbox.push(datagram, path(), Ecn::Ect0));
    (outbox, datagrams)
}

struct Rig {
    sender: Sender,
    offloads: Offloads,
    batches: Histogram,
    now: Instant,
}

impl Rig {
    fn new() -> Self {
        Self {
            sender: Sender::new(),
            offloads: Offloads::new(|_| true),
            batches: Histogram::default(),
            now: Instant::now(),
        }
    }

    fn send(&mut self, kernel: &impl Wire, outbox: &Outbox) -> u64 {
        self.sender.send(kernel, &self.offloads, outbox, WhenFull::Wait, self.now, &self.batches)
    }
}

#[test]
fn a_burst_needs_one_call() {
    let (outbox, datagrams) = burst();
    let (mut rig, kernel) = (Rig::new(), Kernel::new(|_| None));
    assert_eq!(rig.send(&kernel, &outbox), 0);
    assert_eq!(*kernel.calls.borrow(), 1);
    assert_eq!(kernel.sent.borrow().len(), 2);
    assert_eq!(kernel.datagrams(), datagrams);
    assert_eq!(rig.batches.sizes().packets, 48);
}

#[test]
fn what_a_link_cannot_cut_goes_singly_and_nothing_is_lost() {
    // EIO: no checksum offload on the way out; EMSGSIZE and EINVAL: the segments are larger than the route takes.
    for code in [libc::EIO, libc::EMSGSIZE, libc::EINVAL] {
        let (outbox, datagrams) = burst();
        let mut rig = Rig::new();
        let kernel = Kernel::new(|message: &Message<'_>| message.segment.map(|_| code));
        assert_eq!(rig.send(&kernel, &outbox), 0, "{code}");
        assert_eq!(kernel.datagrams(), datagrams);
        // Larger than the route takes: then somebody should measure anew. The word is given once.
        let narrow = if code == libc::EIO { vec![] } else { vec![path().remote] };
        assert_eq!((rig.sender.take_narrow(), rig.sender.take_narrow()), (narrow, vec![]));
        // The next batch does not run into it again, a second later neither.
        rig.now += Duration::from_secs(1);
        let before = *kernel.calls.borrow();
        assert_eq!(rig.send(&kernel, &outbox), 0);
        assert_eq!((*kernel.calls.borrow() - before, rig.sender.take_narrow()), (1, vec![]));
        // Later the kernel is asked again: the route may be another one.
        rig.now += Duration::from_secs(60);
        let later = Kernel::new(|_| None);
        assert_eq!(rig.send(&later, &outbox), 0);
        assert!(later.sent.borrow().iter().all(|sent| sent.segment.is_some()));
    }
}

#[test]
fn smaller_segments_of_the_same_destination_stay_merged() {
    let (large, _) = burst();
    let mut small = Outbox::new();
    (0..10).for_each(|_| small.push(&[7; 96], path(), Ecn::NotEct));
    let kernel = Kernel::new(|message: &Message<'_>| {
        message.segment.filter(|size| *size > 1200).map(|_| libc::EMSGSIZE)
    });
    let mut rig = Rig::new();
    assert_eq!(rig.send(&kernel, &large), 0);
    kernel.sent.borrow_mut().clear();
    assert_eq!(rig.send(&kernel, &small), 0);
    let expected = Sent { bytes: vec![7; 960], segment: Some(96), from: true };
    assert_eq!(*kernel.sent.borrow(), [expected]);
}

#[test]
fn a_source_that_vanished_is_replaced_and_the_burst_stays_one() {
    let (outbox, datagrams) = burst();
    let kernel = Kernel::new(|message: &Message<'_>| message.path.local.map(|_| libc::EINVAL));
    let mut rig = Rig::new();
    for _ in 0..2 {
        assert_eq!(rig.send(&kernel, &outbox), 0);
        assert_eq!(kernel.datagrams(), datagrams);
        assert!(kernel.sent.borrow().iter().all(|sent| !sent.from && sent.segment.is_some()));
        kernel.sent.borrow_mut().clear();
    }
    assert_eq!(*kernel.calls.borrow(), 1 + 2 + 1 + 1, "tried once as it was, then known");
}

#[test]
fn one_datagram_that_nothing_helps_takes_no_other_along() {
    let (outbox, mut datagrams) = burst();
    let bad = |bytes: &[u8]| bytes.chunks(1452).any(|datagram| datagram[0] == 30);
    let kernel = Kernel::new(|message: &Message<'_>| bad(message.bytes).then_some(libc::EPERM));
    assert_eq!(Rig::new().send(&kernel, &outbox), 1);
    datagrams.remove(30);
    assert_eq!(kernel.datagrams(), datagrams);
}

#[test]
fn a_datagram_that_a_probe_was_in_the_way_of_is_sent_again_as_it_was() {
    let mut outbox = Outbox::new();
    [1, 2].into_iter().for_each(|n| outbox.push(&vec![n; 1400 + usize::from(n)], path(), Ecn::NotEct));
    // It is asked twice for each call that it refuses.
    let refusals = RefCell::new(2_u8);
    let kernel =
        Kernel::new(|_| (refusals.replace_with(|left| left.saturating_sub(1)) > 0).then_some(libc::EMSGSIZE));
    let mut rig = Rig::new();
    assert_eq!(rig.send(&kernel, &outbox), 0);
    let sent = kernel.sent.borrow();
    let lengths: Vec<_> = sent.iter().map(|sent| (sent.bytes.len(), sent.from)).collect();
    assert_eq!(lengths, [(1401, true), (1402, true)]);
    assert_eq!(rig.sender.take_narrow(), []);
    // What is too big at all times is given up.
    assert_eq!(rig.send(&Kernel::new(|_| Some(libc::EMSGSIZE)), &outbox), 2);
}

#[test]
fn a_switch_that_is_off_is_off() {
    let (outbox, datagrams) = burst();
    let (mut rig, kernel) = (Rig::new(), Kernel::new(|_| None));
    rig.offloads.want(Offload::UdpGso, false);
    assert_eq!(rig.send(&kernel, &outbox), 0);
    assert_eq!(kernel.datagrams(), datagrams);
    assert!(kernel.sent.borrow().iter().all(|sent| sent.segment.is_none()));
}

#[test]
fn a_full_socket_is_waited_for_once_and_then_drops_by_the_datagram() {
    let (outbox, _) = burst();
    let kernel = Kernel::new(|_| Some(libc::ENOBUFS));
    assert_eq!(Rig::new().send(&kernel, &outbox), 48);
    let full = RefCell::new(true);
    let kernel = Kernel::new(|_| full.replace(false).then_some(libc::EAGAIN));
    assert_eq!(Rig::new().send(&kernel, &outbox), 0);
}

#[test]
fn a_link_that_cannot_cut_is_no_reason_for_another_source() {
    for code in [libc::EIO, libc::EMSGSIZE] {
        let (outbox, datagrams) = burst();
        let mut rig = Rig::new();
        let kernel = Kernel::new(|message: &Message<'_>| message.segment.map(|_| code));
        assert_eq!(rig.send(&kernel, &outbox), 0);
        assert_eq!(kernel.datagrams(), datagrams);
        assert!(kernel.sent.borrow().iter().all(|sent| sent.from), "{code}");
    }
}

#[test]
fn a_source_that_fails_towards_one_peer_stays_for_the_others() {
    let other: SocketAddr = ([192, 0, 2, 2], 7).into();
    let mut outbox = Outbox::new();
    outbox.push(&[1; 100], path(), Ecn::NotEct);
    outbox.push(&[2; 100], OuterPath { remote: other, ..path() }, Ecn::NotEct);
    let mut rig = Rig::new();
    let kernel = Kernel::new(move |message: &Message<'_>| {
        (message.path.remote != other && message.path.local.is_some()).then_some(libc::ENETUNREACH)
    });
    for _ in 0..2 {
        assert_eq!(rig.send(&kernel, &outbox), 0);
    }
    let from: Vec<bool> = kernel.sent.borrow().iter().map(|sent| sent.from).collect();
    assert_eq!(from, [false, true, false, true]);
}

#[test]
fn nothing_is_tried_datagram_by_datagram_where_nothing_goes() {
    let (outbox, _) = burst();
    let kernel = Kernel::new(|_| Some(libc::ENETUNREACH));
    assert_eq!(Rig::new().send(&kernel, &outbox), 48);
    assert!(*kernel.calls.borrow() <= 8, "{}", kernel.calls.borrow());
}

#[test]
fn who_must_not_stand_still_never_waits() {
    let (outbox, _) = burst();
    let waits = RefCell::new(0);
    struct Full<'a>(&'a RefCell<u32>);
    impl Wire for Full<'_> {
        fn send(&self, _: &mut SendSpace, messages: &[Message<'_>]) -> io::Result<usize> {
            let code = if messages[0].segment.is_some() { libc::EIO } else { libc::EAGAIN };
            Err(io::Error::from_raw_os_error(code))
        }

        fn wait(&self, _: bool, _: Duration) {
            *self.0.borrow_mut() += 1;
        }
    }
    let mut rig = Rig::new();
    let (now, offloads, batches) = (rig.now, &rig.offloads, &rig.batches);
    assert_eq!(rig.sender.send(&Full(&waits), offloads, &outbox, WhenFull::Drop, now, batches), 48);
    assert_eq!(*waits.borrow(), 0);
}
