use std::net::Ipv4Addr;

use super::*;
use crate::wire::Peering;

const V4: Family = Family::Ipv4Unicast;
const V6: Family = Family::Ipv6Unicast;

fn only(family: Family) -> Families {
    Families::from_iter([family])
}

fn seconds(n: u64) -> Duration {
    Duration::from_secs(n)
}

/// A session whose peer keeps routes for a minute.
pub(crate) fn agreement(forwarding: Families, notification: bool) -> Negotiated {
    let restart = PeerRestart {
        restarting: false,
        notification,
        time: seconds(60),
        families: Families::ALL,
        forwarding,
    };
    Negotiated {
        remote_asn: 65_002,
        remote_router_id: Ipv4Addr::new(10, 0, 0, 2),
        hold_time: seconds(9),
        keepalive: seconds(3),
        families: Families::ALL,
        four_octet: true,
        peering: Peering::External { asn: 65_002 },
        add_path: Default::default(),
        extended_next_hop: false,
        route_refresh: true,
        enhanced_refresh: true,
        restart: Some(restart),
        role: None,
        offered: Vec::new(),
        capabilities: Vec::new(),
    }
}

fn away(now: Instant) -> Keeper {
    let mut keeper = Keeper::new(KeeperConfig::default());
    let orders = keeper.handle_down(Ending::Transport, &agreement(Families::ALL, true), now);
    assert_eq!(orders, [Order::Mark(V4), Order::Mark(V6)]);
    keeper
}

#[test]
fn every_event_in_every_state() {
    let (soon, late) = (Instant::now(), Instant::now() + seconds(9));
    let (fresh, away, back) = (Kept::Fresh, Kept::Away { until: soon }, Kept::Back { until: soon });
    let orders = |make: Orders| make.iter().map(|order| order(V4)).collect::<Vec<_>>();
    let (mark, sweep, drop) = (Order::Mark(V4), Order::Sweep(V4), Order::Drop(V4));
    let lost = Event::Lost(Some(late));
    let returned = |forwarded| Event::Returned(forwarded, late);
    let table = [
        (fresh, lost, Kept::Away { until: late }, vec![mark]),
        (fresh, Event::Lost(None), fresh, vec![drop]),
        (fresh, returned(true), fresh, vec![]),
        (fresh, returned(false), fresh, vec![]),
        (fresh, Event::EndOfRib, fresh, vec![]),
        (fresh, Event::Expired, fresh, vec![]),
        (fresh, Event::Abandoned, fresh, vec![]),
        (away, lost, away, vec![]),
        (away, Event::Lost(None), fresh, vec![drop]),
        (away, returned(true), Kept::Back { until: late }, vec![]),
        (away, returned(false), fresh, vec![drop]),
        (away, Event::EndOfRib, away, vec![]),
        (away, Event::Expired, fresh, vec![drop]),
        (away, Event::Abandoned, fresh, vec![drop]),
        (back, lost, Kept::Away { until: late }, vec![sweep, mark]),
        (back, Event::Lost(None), fresh, vec![drop]),
        (back, returned(true), back, vec![]),
        (back, returned(false), fresh, vec![sweep]),
        (back, Event::EndOfRib, fresh, vec![sweep]),
        (back, Event::Expired, fresh, vec![sweep]),
        (back, Event::Abandoned, fresh, vec![sweep]),
    ];
    for (state, event, next, expected) in table {
        let (got, make) = state.next(event);
        assert_eq!((got, orders(make)), (next, expected), "{state:?}, {event:?}");
    }
}

#[test]
fn which_endings_keep_routes() {
    let soft = Ending::Notification { hard: false };
    let hard = Ending::Notification { hard: true };
    let cases = [
        (Ending::Transport, true, false, true),
        (Ending::Transport, false, false, true),
        (soft, true, false, true),
        (soft, false, false, false),
        (hard, true, false, false),
        (Ending::PathDown, true, false, false),
        (Ending::PathDown, true, true, true),
        (Ending::Stopped, true, true, false),
    ];
    for (ending, notification, keep_when_path_down, kept) in cases {
        let mut keeper = Keeper::new(KeeperConfig { keep_when_path_down, ..KeeperConfig::default() });
        let orders = keeper.handle_down(ending, &agreement(Families::ALL, notification), Instant::now());
        let expected = if kept { Order::Mark(V4) } else { Order::Drop(V4) };
        assert_eq!(orders[0], expected, "{ending:?}, N: {notification}");
        assert_eq!(!keeper.stale().is_empty(), kept);
    }
}

#[test]
fn without_agreement_or_time_nothing_is_kept() {
    let now = Instant::now();
    let mut agreed = agreement(Families::ALL, true);
    for restart in [None, agreed.restart.map(|restart| PeerRestart { time: Duration::ZERO, ..restart })] {
        agreed.restart = restart;
        let mut keeper = Keeper::new(KeeperConfig::default());
        assert_eq!(keeper.handle_down(Ending::Transport, &agreed, now), [Order::Drop(V4), Order::Drop(V6)]);
        assert_eq!(keeper.poll_timeout(), None);
    }
}

#[test]
fn families_are_kept_one_by_one() {
    let now = Instant::now();
    let mut agreed = agreement(Families::ALL, true);
    agreed.restart = agreed.restart.map(|restart| PeerRestart { families: only(V6), ..restart });
    let mut keeper = Keeper::new(KeeperConfig::default());
    assert_eq!(keeper.handle_down(Ending::Transport, &agreed, now), [Order::Drop(V4), Order::Mark(V6)]);
    // It comes back without having forwarded the one it had.
    assert_eq!(keeper.handle_up(&agreement(only(V4), true), now), [Order::Drop(V6)]);
    assert_eq!(keeper.stale(), Families::NONE);
}

#[test]
fn the_shorter_of_both_times_counts() {
    let now = Instant::now();
    for (longest, expected) in [(300, 60), (20, 20)] {
        let config = KeeperConfig { longest_absence: seconds(longest), ..KeeperConfig::default() };
        let mut keeper = Keeper::new(config);
        keeper.handle_down(Ending::Transport, &agreement(Families::ALL, true), now);
        let until = now + seconds(expected);
        assert_eq!(keeper.poll_timeout(), Some(until));
        assert_eq!(keeper.handle_timeout(until - seconds(1)), []);
        assert_eq!(keeper.handle_timeout(until), [Order::Drop(V4), Order::Drop(V6)]);
        assert_eq!(keeper.poll_timeout(), None);
    }
}

#[test]
fn end_of_rib_or_the_second_limit_sweeps() {
    let now = Instant::now();
    let mut keeper = away(now);
    assert_eq!(keeper.handle_up(&agreement(Families::ALL, true), now + seconds(50)), []);
    // The restart time is over, but the peer is back.
    assert_eq!(keeper.handle_timeout(now + seconds(61)), []);
    assert_eq!(keeper.handle_end_of_rib(V4), [Order::Sweep(V4)]);
    assert_eq!(keeper.handle_end_of_rib(V4), [], "once");
    assert_eq!(keeper.handle_timeout(now + seconds(410)), [Order::Sweep(V6)]);
    assert_eq!(keeper.poll_timeout(), None);
}

#[test]
fn a_second_restart_before_end_of_rib_gives_stale_routes_no_second_chance() {
    let now = Instant::now();
    let mut keeper = away(now);
    keeper.handle_up(&agreement(Families::ALL, true), now);
    keeper.handle_end_of_rib(V6);
    let orders = keeper.handle_down(Ending::Transport, &agreement(Families::ALL, true), now + seconds(5));
    assert_eq!(orders, [Order::Sweep(V4), Order::Mark(V4), Order::Mark(V6)]);
    assert_eq!(keeper.poll_timeout(), Some(now + seconds(65)));
}

#[test]
fn a_dead_path_ends_the_waiting() {
    let mut keeper = away(Instant::now());
    assert_eq!(keeper.handle_path_down(), [Order::Drop(V4), Order::Drop(V6)]);
    let mut keeper = away(Instant::now());
    keeper.set_config(KeeperConfig { keep_when_path_down: true, ..KeeperConfig::default() });
    assert_eq!(keeper.handle_path_down(), []);
    assert_eq!(keeper.abandon(), [Order::Drop(V4), Order::Drop(V6)]);
}

/// RFC 8538, and FRR #21822: a bare Hard Reset keeps nothing, and does not change what the next loss means.
#[test]
fn a_hard_reset_is_about_one_session() {
    let now = Instant::now();
    let agreed = agreement(Families::ALL, true);
    let mut keeper = Keeper::new(KeeperConfig::default());
    keeper.handle_up(&agreed, now);
    let hard = Ending::Notification { hard: true };
    assert_eq!(keeper.handle_down(hard, &agreed, now), [Order::Drop(V4), Order::Drop(V6)]);
    assert_eq!(keeper.handle_up(&agreed, now), []);
    assert_eq!(keeper.handle_down(Ending::Transport, &agreed, now), [Order::Mark(V4), Order::Mark(V6)]);
}
