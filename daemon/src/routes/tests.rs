use super::*;

fn net(text: &str) -> IpNet {
    text.parse().unwrap()
}

fn via(address: &str) -> Group {
    let candidate = Candidate {
        next_hop: NextHop::Address(address.parse().unwrap()),
        neighbor: Some("n".into()),
        selected: true,
    };
    [candidate].into()
}

fn none() -> Group {
    Arc::new([])
}

fn hops(board: &Board, address: &str) -> Vec<Hop> {
    board.lookup(address.parse().unwrap()).map(|r| r.selected().cloned().collect()).unwrap_or_default()
}

#[test]
fn next_hop_resolves_through_allowed_ips_only() {
    let board = Board::new();
    board.set_static(vec![(net("10.99.0.2/32"), "azure".into())]);
    board.update_bgp(vec![(net("10.20.0.0/16"), via("10.99.0.2")), (net("192.0.2.0/24"), via("10.20.0.9"))]);
    assert_eq!(hops(&board, "10.20.1.1"), [Hop::Peer("azure".into())]);
    assert_eq!(hops(&board, "192.0.2.1"), [Hop::Gateway("10.20.0.9".parse().unwrap())]);
}

#[test]
fn static_prefix_wins_over_bgp() {
    let board = Board::new();
    board.update_bgp(vec![(net("10.20.0.0/16"), via("10.0.0.1"))]);
    board.set_static(vec![(net("10.20.0.0/16"), "azure".into())]);
    assert_eq!(hops(&board, "10.20.1.1"), [Hop::Peer("azure".into())]);
    board.set_static(vec![]);
    assert_eq!(hops(&board, "10.20.1.1"), [Hop::Gateway("10.0.0.1".parse().unwrap())]);
}

#[test]
fn host_bits_do_not_make_a_second_prefix() {
    let board = Board::new();
    board.update_bgp(vec![(net("10.20.5.1/16"), via("10.0.0.1"))]);
    board.update_bgp(vec![(net("10.20.0.0/16"), none())]);
    assert!(board.snapshot().is_empty());
}

#[test]
fn new_reader_sees_all_then_only_changes() {
    let board = Board::new();
    board.update_bgp(vec![(net("10.1.0.0/16"), via("10.0.0.1"))]);
    let mut reader = board.subscribe();
    assert!(matches!(reader.take(), Changes::All(routes) if routes.len() == 1));
    board.update_bgp(vec![(net("10.2.0.0/16"), via("10.0.0.1"))]);
    board.update_bgp(vec![(net("10.1.0.0/16"), none())]);
    board.update_bgp(vec![(net("10.2.0.0/16"), via("10.0.0.1"))]);
    let Changes::Some(changes) = reader.take() else { panic!("a reader that kept up gets changes") };
    let summary: Vec<_> = changes.iter().map(|(p, r)| (p.to_string(), r.is_some())).collect();
    assert_eq!(summary, [("10.1.0.0/16".to_string(), false), ("10.2.0.0/16".to_string(), true)]);
    assert!(matches!(reader.take(), Changes::Some(none) if none.is_empty()));
}

#[test]
fn reader_that_fell_behind_gets_everything() {
    let board = Board::new();
    let mut reader = board.subscribe();
    reader.take();
    for n in 0..=log::LENGTH {
        let prefix = IpNet::new(std::net::Ipv4Addr::from(u32::try_from(n).unwrap() << 8).into(), 24).unwrap();
        board.update_bgp(vec![(prefix, via("10.0.0.1"))]);
    }
    assert!(matches!(reader.take(), Changes::All(routes) if routes.len() == log::LENGTH + 1));
}

#[test]
fn statics_are_told_when_they_change() {
    let board = Board::new();
    let mut statics = board.statics();
    let set = |name: &str| board.set_static(vec![(net("10.99.0.2/32"), name.into())]);
    set("azure");
    assert!(statics.has_changed().unwrap());
    assert_eq!(**statics.borrow_and_update(), [(net("10.99.0.2/32"), "azure".into())]);
    set("azure");
    board.update_bgp(vec![(net("10.20.0.0/16"), via("10.99.0.2"))]);
    assert!(!statics.has_changed().unwrap(), "nothing of them did");
    set("onprem");
    assert!(statics.has_changed().unwrap());
}

#[tokio::test]
async fn reader_wakes_on_change() {
    let board = Board::new();
    let mut reader = board.subscribe();
    reader.changed().await;
    reader.take();
    board.set_settled();
    tokio::time::timeout(std::time::Duration::from_secs(5), reader.changed()).await.unwrap();
    assert!(board.settled());
}
