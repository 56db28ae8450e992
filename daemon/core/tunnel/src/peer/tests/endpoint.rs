use boringtun::noise::{TunnResult, rate_limiter::RateLimiter};

use super::*;

#[test]
fn endpoint_follows_authentic_packets_only() {
    let (mut a, mut b) = connected();
    let endpoint = |end: &End| end.peer.status(end.now.instant).endpoint;
    assert_eq!(endpoint(&b), Some(address(A)));

    let mut forged = a.seal(&[inner(1, 0)]);
    *forged[0].last_mut().unwrap() ^= 1;
    b.open("203.0.113.66:1", &forged);
    assert_eq!(b.drops(Dropped::DecryptFailed), 1);
    assert_eq!(endpoint(&b), Some(address(A)));

    let genuine = a.seal(&[inner(1, 0)]);
    b.open("203.0.113.7:7", &genuine);
    assert_eq!(endpoint(&b), Some(address("203.0.113.7:7")));
    b.open("203.0.113.66:1", &genuine);
    assert_eq!(b.drops(Dropped::Replayed), 1);
    assert_eq!(endpoint(&b), Some(address("203.0.113.7:7")));
}

/// Inside a prefix that is routed into the tunnel, for [`captured`].
const INSIDE: &str = "10.50.0.9:51820";

fn captured(address: IpAddr) -> bool {
    address == IpAddr::from([10, 50, 0, 9])
}

#[test]
fn a_captured_source_is_heard_but_not_followed() {
    let (mut a, mut b) = connected();
    let sealed = a.seal(&[inner(1, 0), inner(2, 0)]);
    let (_, packets) = b.open_where(INSIDE, &sealed, captured);
    assert_eq!(packets, [inner(1, 0), inner(2, 0)]);
    assert_eq!(b.drops(Dropped::EndpointRefused), 2);
    let status = b.peer.status(b.now.instant);
    assert_eq!((status.endpoint, status.state), (Some(address(A)), State::Up));
    assert!(
        status.reason.ends_with(
            "it calls from 10.50.0.9:51820, which our own routes lead into the tunnel: not followed"
        ),
        "{}",
        status.reason
    );

    // A new handshake from there is answered where the peer was.
    let mut restarted = End::new(1, 2, None);
    restarted.now.unix += seconds(1);
    b.now.instant += seconds(1);
    restarted.peer.set_endpoint(address(B));
    let initiation = restarted.seal(&[inner(0, 0)]);
    let (answers, _) = b.open_where(INSIDE, &initiation, captured);
    assert_eq!(answers.iter().map(|(_, to, _)| to.remote).collect::<Vec<_>>(), [address(A)]);

    // The endpoint itself is not asked about, and the complaint ends.
    let sealed = a.seal(&[inner(3, 0)]);
    b.open_where(A, &sealed, |_| panic!("asked about the endpoint"));
    assert!(b.peer.status(b.now.instant).reason.starts_with("heard"));
    assert!(!b.peer.status(b.now.instant).reason.contains("not followed"));
}

#[test]
fn a_first_call_from_a_captured_source_gets_no_answer_and_is_no_life() {
    let (mut a, mut b) = pair(None);
    let initiation = a.seal(&[inner(0, 0)]);
    let (answers, _) = b.open_where(INSIDE, &initiation, captured);
    assert!(answers.is_empty());
    let status = b.peer.status(b.now.instant);
    assert_eq!((status.endpoint, status.state), (None, State::Idle));
    assert!(status.reason.contains("it calls from 10.50.0.9:51820"), "{}", status.reason);
    assert_eq!(b.drops(Dropped::EndpointRefused), 1);
}

#[test]
fn a_forged_packet_from_a_captured_source_changes_nothing() {
    let (mut a, mut b) = connected();
    let mut forged = a.seal(&[inner(1, 0)]);
    *forged[0].last_mut().unwrap() ^= 1;
    b.open_where(INSIDE, &forged, captured);
    assert_eq!((b.drops(Dropped::DecryptFailed), b.drops(Dropped::EndpointRefused)), (1, 0));
    assert!(!b.peer.status(b.now.instant).reason.contains("not followed"));
}

#[test]
fn cookie_reply_moves_no_endpoint_and_is_no_sign_of_life() {
    let (mut a, _) = pair(None);
    let initiation = a.seal(&[inner(0, 0)]);
    let limiter = RateLimiter::new(&PublicKey::from(&StaticSecret::from([2; 32])).to_bytes().into(), 0);
    let mut reply = [0; 64];
    let source = address("203.0.113.66:1");
    let challenged = limiter.verify_packet(Some(source.ip()), &initiation[0], &mut reply);
    assert!(matches!(challenged, Err(TunnResult::WriteToNetwork(_))));
    a.open("203.0.113.66:1", &[reply.to_vec()]);
    assert_eq!(a.counters.drops.iter().map(|(_, count)| count).sum::<u64>(), 0);
    assert_eq!(a.peer.status(a.now.instant).endpoint, Some(address(B)));
    assert!(!a.live.load(Ordering::Relaxed));
}

#[test]
fn our_own_address_is_that_which_the_peer_calls_until_nothing_comes_back() {
    let (mut a, mut b) = connected();
    let path = OuterPath { remote: address(A), local: Some([198, 51, 100, 9].into()) };
    let mut sealed = a.seal(&[inner(1, 0)]);
    let batch = sealed.iter_mut().map(|bytes| Datagram { bytes, path, ecn: Ecn::Ce });
    let (mut out, mut inbox) = (Outbox::new(), Vec::new());
    b.peer.open(batch, |_| panic!("asked about the endpoint"), b.now, &mut out, &mut inbox);
    assert_eq!(inbox[0].ecn, Ecn::Ce);
    assert_eq!(b.peer.path(), Some(path));
    b.peer.seal([Plain(&inner(2, 0))].into_iter(), b.now, &mut out);
    assert_eq!(out.entries()[0].path, path);
    out.clear();
    b.now.instant += seconds(16);
    b.peer.tick(b.now, &mut out, &mut Outbox::new());
    assert_eq!(out.entries()[0].path, OuterPath::from(address(A)), "the kernel chooses anew");

    b.peer.state().path = Some(path);
    out.clear();
    b.now.instant += seconds(6);
    b.peer.tick(b.now, &mut out, &mut Outbox::new());
    assert_eq!(out.entries()[0].path, OuterPath::from(address(A)), "and again for each attempt");
    b.peer.set_endpoint(address(B));
    assert_eq!(b.peer.path(), Some(OuterPath::from(address(B))));
}

/// Whoever recorded a call can repeat it from anywhere, once we have forgotten what we heard before.
#[test]
fn a_call_alone_is_answered_and_not_followed() {
    let (mut a, mut b) = connected();
    let endpoint = |end: &End| end.peer.status(end.now.instant).endpoint;
    for end in [&mut a, &mut b] {
        end.now.instant += seconds(1);
        end.now.unix += seconds(1);
    }
    let call = a.force_initiation();
    let (out, _) = b.open_where("203.0.113.7:7", &[call], |_| false);
    assert_eq!(out.iter().map(|(_, to, _)| to.remote).collect::<Vec<_>>(), [address("203.0.113.7:7")]);
    assert_eq!(endpoint(&b), Some(address(A)));
    // The first message of the new session shows that the answer arrived there.
    let (confirmation, _) = a.open(B, &datagrams(&out));
    b.open("203.0.113.7:7", &confirmation);
    assert_eq!(endpoint(&b), Some(address("203.0.113.7:7")));
}

#[test]
fn what_was_sent_before_crossing_calls_still_arrives() {
    let (mut a, mut b) = connected();
    for end in [&mut a, &mut b] {
        end.now.instant += seconds(1);
        end.now.unix += seconds(1);
    }
    // Twice, both call at once, and each concludes both handshakes; meanwhile packets are on their way.
    for round in 1..3 {
        let on_the_way = [a.seal(&[inner(round, 0)]), b.seal(&[inner(round, 0)])];
        let calls = [a.force_initiation(), b.force_initiation()];
        let (from_b, _) = b.open(A, &[calls[0].clone()]);
        let (from_a, _) = a.open(B, &[calls[1].clone()]);
        let (last_a, _) = a.open(B, &from_b);
        let (last_b, _) = b.open(A, &from_a);
        assert_eq!(b.open(A, &on_the_way[0]).1, [inner(round, 0)], "round {round}");
        assert_eq!(a.open(B, &on_the_way[1]).1, [inner(round, 0)], "round {round}");
        b.open(A, &last_a);
        a.open(B, &last_b);
        for end in [&mut a, &mut b] {
            end.now.instant += seconds(10);
            end.now.unix += seconds(10);
        }
    }
}
