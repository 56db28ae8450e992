//! Whole shells on loopback addresses, and peers that the test plays itself.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use isthmus_bgp::{
    Families, Multipath, PeerConfig,
    dynamic::Template,
    fsm::{AsnSet, State},
    policy::Policy,
    wire::{AsPath, Attributes, Community, Encoding, Nlri, Open, encode_announcement, encode_keepalive},
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpSocket, TcpStream},
    time::{Duration, timeout},
};

use super::*;
use crate::routes::{Candidate, NextHop};

/// Nothing here takes that long; it turns a hang into a failure.
pub(super) const PATIENCE: Duration = Duration::from_secs(30);
/// Nobody listens on it.
const DEAD_PORT: u16 = 1;

pub(super) fn loopback(n: u8) -> IpAddr {
    Ipv4Addr::new(127, 0, 0, n).into()
}

pub(super) fn neighbor(n: u8, port: u16) -> NeighborConfig {
    let mut peer = PeerConfig::new(format!("n{n}"), loopback(n), 64_500 + u32::from(n));
    (peer.port, peer.hold_time) = (port, 3);
    (peer.import, peer.export) = (Policy::all(), Policy::all());
    NeighborConfig {
        peer,
        place: Place { address: loopback(n), interface: None },
        transport: Transport::default(),
        graceful_restart: GracefulRestart::Off,
        preset: None,
        warnings: Vec::new(),
        bfd: None,
    }
}

pub(super) fn config(n: u8, announce: &[&str], neighbors: Vec<NeighborConfig>) -> Config {
    Config {
        asn: 64_500 + u32::from(n),
        router_id: Ipv4Addr::new(10, 0, 0, n),
        cluster_id: None,
        listen: vec![SocketAddr::new(loopback(n), 0)],
        graceful_restart: Duration::from_secs(120),
        multipath: Multipath::default(),
        announce: announce.iter().map(|prefix| prefix.parse().unwrap()).collect(),
        neighbors,
        templates: Vec::new(),
    }
}

/// Whoever comes from the prefix, with numbers as [`neighbor`] has them; one that has gone is not waited for.
pub(super) fn template(name: &str, prefix: &str, settings: NeighborConfig) -> TemplateConfig {
    let mut settings = settings;
    (settings.peer.name, settings.peer.passive) = (name.into(), true);
    let template = Template {
        name: name.into(),
        prefix: prefix.parse().unwrap(),
        asns: AsnSet::new([64_501..=64_755]),
        limit: 2,
        linger: Duration::ZERO,
    };
    TemplateConfig { template, settings }
}

pub(super) struct Shell {
    pub(super) handle: Handle,
    board: Board,
    task: JoinHandle<()>,
    shutdown: CancellationToken,
}

impl Drop for Shell {
    fn drop(&mut self) {
        self.shutdown.cancel();
    }
}

impl Shell {
    pub(super) async fn start(config: Config) -> Self {
        let (board, readiness, shutdown) = (Board::new(), Readiness::new(), CancellationToken::new());
        let (handle, task) =
            start(config, board.clone(), &readiness, Families::NONE, Service::new(), shutdown.clone())
                .await
                .unwrap();
        assert!(readiness.is_ready());
        Self { handle, board, task, shutdown }
    }

    pub(super) fn port(&self) -> u16 {
        self.handle.listening()[0].port()
    }

    fn candidates(&self, prefix: &str) -> Vec<Candidate> {
        let route = self.board.get(prefix.parse().unwrap());
        route
            .map(|route| route.paths().iter().map(|path| path.candidate.clone()).collect())
            .unwrap_or_default()
    }

    /// Waits until the board is as wanted.
    pub(super) async fn until(&self, wanted: impl Fn(&Self) -> bool) {
        let mut watcher = self.board.subscribe();
        let wait = async {
            while !wanted(self) {
                watcher.changed().await;
                watcher.take();
            }
        };
        if timeout(PATIENCE, wait).await.is_err() {
            panic!("still waiting; neighbors: {:#?}", self.handle.neighbors().await);
        }
    }

    pub(super) async fn until_known(&self, prefix: &str) {
        self.until(|shell| !shell.candidates(prefix).is_empty()).await;
    }

    async fn until_gone(&self, prefix: &str) {
        self.until(|shell| shell.candidates(prefix).is_empty()).await;
    }

    pub(super) async fn neighbor(&self) -> NeighborStatus {
        self.handle.neighbors().await.remove(0)
    }
}

/// Shell 1 dials shell 2 (dialing the other way would come from the wrong loopback address).
async fn pair() -> (Shell, Shell) {
    let two = Shell::start(config(2, &["10.2.0.0/16"], vec![neighbor(1, DEAD_PORT)])).await;
    let one = Shell::start(config(1, &["10.1.0.0/16"], vec![neighbor(2, two.port())])).await;
    one.until_known("10.2.0.0/16").await;
    two.until_known("10.1.0.0/16").await;
    (one, two)
}

#[tokio::test]
async fn two_shells_exchange_prefixes() {
    let (one, two) = pair().await;
    let expected =
        Candidate { next_hop: NextHop::Address(loopback(2)), neighbor: Some("n2".into()), selected: true };
    assert_eq!(one.candidates("10.2.0.0/16"), [expected]);
    let prefix = "10.2.0.0/16".parse().unwrap();
    let noted = PathNote {
        neighbor: "n2".into(),
        next_hop: loopback(2),
        selected: true,
        reason: "best path".into(),
        as_path: "64502".into(),
    };
    assert_eq!(one.handle.paths(&[prefix]).await, [(prefix, vec![noted])].into());
    one.until(|shell| shell.board.settled()).await;
    two.until(|shell| shell.board.settled()).await;
    let status = one.neighbor().await;
    assert!(status.is_established());
    assert_eq!(status.state_reason, "hold time 3 s");
    assert_eq!((status.hold_time, status.keepalive), (Duration::from_secs(3), Duration::from_secs(1)));
    assert_eq!(status.remote_router_id, Some(Ipv4Addr::new(10, 0, 0, 2)));
    assert_eq!(status.local_address, Some(loopback(1)));
    assert_eq!(status.families, ["ipv4-unicast", "ipv6-unicast"]);
    assert_eq!((status.prefixes_received, status.prefixes_accepted, status.prefixes_sent), (1, 1, 1));
    assert_eq!(status.established_count, 1);
    assert!(status.messages_received >= 4 && status.messages_sent >= 4);
}

#[tokio::test]
async fn a_link_that_is_down_ends_its_sessions() {
    let (one, two) = pair().await;
    let down = |subnet: &str| crate::routes::DownLink {
        interface: 7,
        name: "eth7".into(),
        subnets: vec![subnet.parse().unwrap()],
        elsewhere: vec![],
    };
    one.board.set_down_links(vec![down("192.0.2.0/24")]);
    one.board.set_down_links(vec![down("127.0.0.2/32")]);
    one.until_gone("10.2.0.0/16").await;
    let status = one.neighbor().await;
    assert!(status.last_error.unwrap().contains("eth7 is down"));
    assert_eq!(status.established_count, 1, "another link is nobody's end");
    one.board.set_down_links(vec![]);
    one.until_known("10.2.0.0/16").await;
    drop(two);
}

#[tokio::test]
async fn shutdown_tells_the_neighbor_and_ends() {
    let (mut one, two) = pair().await;
    one.shutdown.cancel();
    timeout(Duration::from_secs(2), &mut one.task).await.expect("ends within two seconds").unwrap();
    two.until_gone("10.1.0.0/16").await;
    let error = two.neighbor().await.last_error.unwrap();
    assert_eq!(error, "peer sent Cease/Administrative Shutdown: \"isthmusd is stopping\"");
    assert!(one.handle.neighbors().await.is_empty());
    assert!(matches!(one.handle.apply(config(1, &[], vec![])).await, Err(Error::Stopped)));
}

#[tokio::test]
async fn reload_applies_the_difference_without_a_bounce() {
    let (one, two) = pair().await;
    let mut changed = config(1, &["10.1.0.0/16", "10.11.0.0/16"], vec![neighbor(2, two.port())]);
    assert_eq!(one.handle.apply(changed.clone()).await.unwrap(), ["10.11.0.0/16 is announced"]);
    two.until_known("10.11.0.0/16").await;
    changed.neighbors[0].peer.export = Policy::none();
    let said = one.handle.apply(changed.clone()).await.unwrap();
    assert_eq!(said, ["neighbor n2: export policy changed"]);
    two.until_gone("10.11.0.0/16").await;
    let status = one.neighbor().await;
    assert_eq!((status.state, status.established_count, status.prefixes_sent), (State::Established, 1, 0));
    let elsewhere = Config { listen: vec![], ..changed.clone() };
    assert!(matches!(one.handle.apply(elsewhere).await, Err(Error::ListenChanged)));
    changed.neighbors.clear();
    assert_eq!(one.handle.apply(changed).await.unwrap(), ["neighbor n2 removed"]);
    one.until_gone("10.2.0.0/16").await;
    assert!(one.handle.neighbors().await.is_empty());
    two.until_gone("10.1.0.0/16").await;
}

#[tokio::test]
async fn port_in_use_names_the_address_and_the_remedy() {
    let first = Shell::start(config(1, &[], vec![])).await;
    let mut second = config(1, &[], vec![]);
    second.listen = first.handle.listening();
    let readiness = Readiness::new();
    let failed =
        start(second, Board::new(), &readiness, Families::NONE, Service::new(), CancellationToken::new())
            .await;
    let text = failed.err().unwrap().to_string();
    assert!(text.contains(&format!("127.0.0.1:{}", first.port())), "{text}");
    assert!(text.contains("another program") && text.contains("change [bgp] listen"), "{text}");
}

#[tokio::test]
async fn foreign_address_says_so() {
    let mut elsewhere = config(1, &[], vec![]);
    elsewhere.listen = vec!["203.0.113.77:0".parse().unwrap()];
    let failed = start(
        elsewhere,
        Board::new(),
        &Readiness::new(),
        Families::NONE,
        Service::new(),
        CancellationToken::new(),
    )
    .await;
    assert!(failed.err().unwrap().to_string().contains("no interface of this host has the address"));
}

#[tokio::test]
async fn without_neighbors_everything_is_settled_at_once() {
    let shell = Shell::start(config(1, &["10.1.0.0/16"], vec![])).await;
    shell.until(|shell| shell.board.settled()).await;
}

#[tokio::test]
async fn an_absent_neighbor_is_waited_for_only_so_long() {
    let impatient = Config {
        graceful_restart: Duration::from_millis(300),
        ..config(1, &[], vec![neighbor(9, DEAD_PORT)])
    };
    let shell = Shell::start(impatient).await;
    assert!(!shell.board.settled());
    shell.until(|shell| shell.board.settled()).await;
    let error = shell.neighbor().await.last_error.unwrap();
    assert_eq!(error, "peer refused the connection: nothing listens on 127.0.0.9:1");
}

/// Connects to a shell from one of our loopback addresses.
async fn connect(shell: &Shell, from: u8) -> TcpStream {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind(SocketAddr::new(loopback(from), 0)).unwrap();
    socket.connect(shell.handle.listening()[0]).await.unwrap()
}

/// What neighbor `n` says to be Established.
fn greeting(n: u8, hold_time: u16) -> Vec<u8> {
    let mut bytes = Vec::new();
    let open = Open::new(64_500 + u32::from(n), hold_time, Ipv4Addr::new(10, 0, 0, n), Families::ALL);
    open.encode(&mut bytes).unwrap();
    encode_keepalive(&mut bytes);
    bytes
}

/// Shell 1 whose neighbor 7 is played by the test, and the played session, Established as far as the far side's OPEN goes.
async fn played(hold_time: u16) -> (Shell, TcpStream) {
    let shell = Shell::start(config(1, &["10.1.0.0/16"], vec![neighbor(7, DEAD_PORT)])).await;
    let mut stream = connect(&shell, 7).await;
    let mut bytes = greeting(7, hold_time);
    announce(&["10.7.0.0/16".parse().unwrap()], &mut bytes);
    stream.write_all(&bytes).await.unwrap();
    shell.until_known("10.7.0.0/16").await;
    (shell, stream)
}

fn announce(prefixes: &[Nlri], bytes: &mut Vec<u8>) {
    let mut attributes = Attributes::originated(loopback(7));
    attributes.as_path = AsPath::new(vec![64_507]);
    let mut left = prefixes;
    while !left.is_empty() {
        let count = encode_announcement(&attributes, left, &Encoding::FOUR_OCTET, bytes).unwrap();
        left = &left[count..];
    }
}

#[tokio::test]
async fn next_hops_are_judged_again_when_tunnel_peers_change() {
    let (shell, mut stream) = played(0).await;
    let mut elsewhere = Attributes::originated(loopback(9));
    elsewhere.as_path = AsPath::new(vec![64_507]);
    let mut bytes = Vec::new();
    encode_announcement(&elsewhere, &["10.8.0.0/16".parse().unwrap()], &Encoding::FOUR_OCTET, &mut bytes)
        .unwrap();
    stream.write_all(&bytes).await.unwrap();
    shell.until_known("10.8.0.0/16").await;

    let behind_azure = || vec![(loopback(7).into(), "azure".into())];
    shell.board.set_static(behind_azure());
    shell.until_gone("10.8.0.0/16").await;
    assert_eq!(shell.candidates("10.7.0.0/16").len(), 1);
    let status = shell.neighbor().await;
    assert_eq!((status.prefixes_received, status.prefixes_accepted), (2, 1));

    shell.board.set_static(Vec::new());
    shell.until_gone("10.7.0.0/16").await;
    assert_eq!(shell.neighbor().await.prefixes_accepted, 0);
    shell.board.set_static(behind_azure());
    shell.until_known("10.7.0.0/16").await;
    assert!(shell.candidates("10.8.0.0/16").is_empty());
    assert_eq!(shell.neighbor().await.established_count, 1);
}

#[tokio::test]
async fn a_connection_that_breaks_withdraws() {
    let (shell, stream) = played(0).await;
    drop(stream);
    shell.until_gone("10.7.0.0/16").await;
    let status = shell.neighbor().await;
    assert_eq!(status.state, State::Active);
    assert!(status.state_reason.starts_with("peer "), "{}", status.state_reason);
}

#[tokio::test]
async fn silence_withdraws_after_the_hold_time() {
    let (shell, _silent) = played(3).await;
    shell.until_gone("10.7.0.0/16").await;
    let error = shell.neighbor().await.last_error.unwrap();
    assert_eq!(error, "hold timer expired: nothing heard for 3 s");
}

#[tokio::test]
async fn strangers_are_closed_unheard() {
    let (shell, _peer) = played(0).await;
    let mut stranger = connect(&shell, 66).await;
    let mut heard = Vec::new();
    timeout(PATIENCE, stranger.read_to_end(&mut heard)).await.unwrap().unwrap();
    assert!(heard.is_empty());
    assert!(shell.neighbor().await.is_established());
}

#[tokio::test]
async fn random_bytes_harm_nothing() {
    let shell = Shell::start(config(1, &[], vec![neighbor(7, DEAD_PORT)])).await;
    for round in 0..20u8 {
        let mut stream = connect(&shell, 7).await;
        let mut noise = vec![0xff; if round % 2 == 0 { 16 } else { 0 }];
        noise.extend((0..200).map(|_| rand::random::<u8>()));
        // The shell may close before all of it is written.
        let _ = stream.write_all(&noise).await;
        let _ = stream.shutdown().await;
        let mut heard = Vec::new();
        let _ = timeout(PATIENCE, stream.read_to_end(&mut heard)).await.expect("the shell closes");
    }
    let status = shell.neighbor().await;
    assert_ne!(status.state, State::Established);
    assert!(status.last_error.is_some());
    assert!(!shell.task.is_finished());
}

/// Each prefix with attributes of its own, about 900 bytes a prefix.
fn flood(prefixes: u32) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut attributes = Attributes::originated(loopback(7));
    attributes.as_path = AsPath::new(vec![64_507]);
    for n in 0..prefixes {
        attributes.communities = (0..200).map(|low| Community(n << 8 | low)).collect();
        let prefix = ipnet::IpNet::new(Ipv4Addr::from(0x1400_0000 + (n << 8)).into(), 24).unwrap();
        encode_announcement(&attributes, &[prefix.into()], &Encoding::FOUR_OCTET, &mut bytes).unwrap();
    }
    bytes
}

#[tokio::test]
async fn a_deaf_peer_holds_up_nobody() {
    const FLOOD: u32 = 12_000;
    let (shell, mut peer) = played(0).await;
    let mut deaf = neighbor(8, DEAD_PORT);
    // However slow this machine is, TCP does not give it up meanwhile.
    deaf.peer.hold_time = 0;
    let both = config(1, &["10.1.0.0/16"], vec![neighbor(7, DEAD_PORT), deaf]);
    assert_eq!(shell.handle.apply(both).await.unwrap(), ["neighbor n8 added"]);
    // It says enough to be Established, and never reads a byte.
    let mut deaf = connect(&shell, 8).await;
    let mut bytes = greeting(8, 0);
    let mut attributes = Attributes::originated(loopback(8));
    attributes.as_path = AsPath::new(vec![64_508]);
    encode_announcement(&attributes, &["10.8.0.0/16".parse().unwrap()], &Encoding::FOUR_OCTET, &mut bytes)
        .unwrap();
    deaf.write_all(&bytes).await.unwrap();
    shell.until_known("10.8.0.0/16").await;
    peer.write_all(&flood(FLOOD)).await.unwrap();
    let everything = usize::try_from(FLOOD).unwrap() + 2;
    shell.until(|shell| shell.board.len() == everything).await;
    let all = timeout(PATIENCE, shell.handle.neighbors()).await.unwrap();
    assert!(all.iter().all(NeighborStatus::is_established));
    assert_eq!(all[0].prefixes_received, u64::from(FLOOD) + 1);
    assert!(all[1].prefixes_sent < u64::from(FLOOD), "more was encoded than its socket takes");
}

/// Connects from one of our loopback addresses and says enough to be Established.
async fn come(shell: &Shell, from: u8) -> TcpStream {
    let mut stream = connect(shell, from).await;
    stream.write_all(&greeting(from, 0)).await.unwrap();
    stream
}

/// Names of the neighbors with which sessions stand, once these are so many.
pub(super) async fn established(shell: &Shell, count: usize) -> Vec<String> {
    let wait = async {
        loop {
            let all = shell.handle.neighbors().await.into_iter().filter(|one| one.is_established());
            let names: Vec<_> = all.map(|one| one.name).collect();
            if names.len() == count {
                return names;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    timeout(PATIENCE, wait).await.expect("so many sessions stand")
}

/// The shell closes without a word, or with these octets of a NOTIFICATION's code and subcode after whatever else it said.
async fn last_words(stream: &mut TcpStream) -> Option<[u8; 2]> {
    let mut heard = Vec::new();
    // What we said may still lie unread at the far end: then the close is a reset.
    let _ = timeout(PATIENCE, stream.read_to_end(&mut heard)).await.expect("the shell closes");
    (!heard.is_empty()).then(|| [heard[heard.len() - 2], heard[heard.len() - 1]])
}

/// Shell 1 that neighbors from 127.0.0.8 to 127.0.0.15 may come to.
fn open_house(name: &str) -> Config {
    let template = template(name, "127.0.0.8/29", neighbor(8, DEAD_PORT));
    Config { templates: vec![template], ..config(1, &["10.1.0.0/16"], vec![]) }
}

#[tokio::test]
async fn whoever_comes_from_a_prefix_is_a_neighbor_up_to_its_limit() {
    let shell = Shell::start(open_house("pods")).await;
    let nine = come(&shell, 9).await;
    let mut ten = come(&shell, 10).await;
    assert_eq!(established(&shell, 2).await, ["pods-127.0.0.10", "pods-127.0.0.9"]);
    assert!(shell.handle.neighbors().await.iter().all(|one| one.dynamic && one.address != loopback(8)));
    let mut bytes = Vec::new();
    let mut attributes = Attributes::originated(loopback(10));
    attributes.as_path = AsPath::new(vec![64_510]);
    encode_announcement(&attributes, &["10.8.0.0/16".parse().unwrap()], &Encoding::FOUR_OCTET, &mut bytes)
        .unwrap();
    ten.write_all(&bytes).await.unwrap();
    shell.until_known("10.8.0.0/16").await;

    let mut over_the_limit = come(&shell, 11).await;
    assert_eq!(last_words(&mut over_the_limit).await, None);
    let mut outsider = come(&shell, 16).await;
    assert_eq!(last_words(&mut outsider).await, None);
    assert_eq!(shell.handle.neighbors().await.len(), 2);

    drop(nine);
    assert_eq!(established(&shell, 1).await, ["pods-127.0.0.10"]);
    let _eleven = come(&shell, 11).await;
    assert_eq!(established(&shell, 2).await, ["pods-127.0.0.10", "pods-127.0.0.11"]);
}

#[tokio::test]
async fn reload_changes_who_may_come_by_a_prefix() {
    let shell = Shell::start(open_house("pods")).await;
    let mut nine = come(&shell, 9).await;
    established(&shell, 1).await;
    let mut wider = open_house("pods");
    wider.templates[0].template.limit = 3;
    wider.templates[0].template.prefix = "127.0.0.0/27".parse().unwrap();
    assert_eq!(shell.handle.apply(wider.clone()).await.unwrap(), ["dynamic neighbors changed"]);
    let (_sixteen, _ten) = (come(&shell, 16).await, come(&shell, 10).await);
    assert_eq!(established(&shell, 3).await.len(), 3);
    let nine_status = shell.handle.neighbors().await.pop().unwrap();
    assert_eq!((&*nine_status.name, nine_status.established_count), ("pods-127.0.0.9", 1));

    let named = Config { neighbors: vec![neighbor(9, DEAD_PORT)], ..wider.clone() };
    shell.handle.apply(named).await.unwrap();
    assert_eq!(last_words(&mut nine).await, Some([6, 3]), "the configured neighbor takes its place");
    let _nine = come(&shell, 9).await;
    assert_eq!(established(&shell, 3).await, ["n9", "pods-127.0.0.10", "pods-127.0.0.16"]);
    shell.handle.apply(Config { templates: vec![], ..wider }).await.unwrap();
    assert_eq!(established(&shell, 0).await, [""; 0]);
    assert!(shell.handle.neighbors().await.is_empty());
}

#[tokio::test]
async fn those_of_a_prefix_are_counted_together() {
    let registry = crate::metrics::registry();
    let shell = Shell::start(open_house("crowd")).await;
    let both = (come(&shell, 9).await, come(&shell, 10).await);
    let until_shown = async |sessions: usize| {
        let line = format!("isthmus_bgp_session_up{{neighbor=\"crowd\"}} {sessions}\n");
        let wait = async {
            while !registry.render().contains(&line) {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        };
        assert!(timeout(PATIENCE, wait).await.is_ok(), "{line}");
    };
    until_shown(2).await;
    drop(both);
    until_shown(0).await;
    assert!(!registry.render().contains("crowd-127"), "an outsider cannot make series without end");
}
