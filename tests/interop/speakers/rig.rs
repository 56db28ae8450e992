//! Three hosts in a row, and what each of them says.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use isthmus_lab::{
    bins::Bins,
    link::veth,
    netns::Netns,
    node::Node,
    router::{Kind, Route, Router},
    wait,
};
use isthmus_proto::control::{BgpNeighbor, Candidate};

use super::config::{self, OUR_AS, Place, THIRD_AS};

/// For anything that has to happen: a session's way up takes some seconds, a busy machine takes its time.
pub(crate) const LIMIT: Duration = Duration::from_secs(40);
const OURS: [&str; 2] = ["10.10.0.0/16", "fd10::/48"];
const BEHIND_THEM: [&str; 2] = ["10.20.0.0/16", "fd20::/48"];
pub(crate) const BEHIND_THIRD: [&str; 2] = ["10.30.0.0/16", "fd30::/48"];

/// The family of the session's own addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Transport {
    V4,
    V6,
}

/// The session between theirs and ours.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Session {
    pub(crate) transport: Transport,
    /// Whose number theirs has.
    pub(crate) asn: u32,
}

impl Session {
    pub(crate) fn is_internal(self) -> bool {
        self.asn == OUR_AS
    }

    fn theirs(self) -> Place {
        let (address, us) = match self.transport {
            Transport::V4 => ("10.1.0.2", "10.1.0.1"),
            Transport::V6 => ("fd01::2", "fd01::1"),
        };
        Place { asn: self.asn, router_id: "10.1.0.2", address, us, prefixes: BEHIND_THEM }
    }

    fn third(self) -> Place {
        let (address, us) = match self.transport {
            Transport::V4 => ("10.2.0.2", "10.2.0.1"),
            Transport::V6 => ("fd02::2", "fd02::1"),
        };
        Place { asn: THIRD_AS, router_id: "10.2.0.2", address, us, prefixes: BEHIND_THIRD }
    }
}

/// All of it; it ends with the value.
pub(crate) struct Rig {
    pub(crate) ours: Node,
    pub(crate) theirs: Router,
    pub(crate) third: Router,
    pub(crate) session: Session,
    kind: Kind,
    _dir: tempfile::TempDir,
}

impl Rig {
    /// Builds and starts everything; no session need be up when this returns.
    pub(crate) fn start(kind: Kind, session: Session, bins: &Bins) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let [ours, theirs, third] = ["ours", "theirs", "third"].map(|name| Netns::create(name).unwrap());
        cable(&ours, &theirs, 1);
        cable(&ours, &third, 2);
        // Within an AS a next hop stays what it is (RFC 4271 section 5.1.3), and something else has to lead there.
        theirs.add_route("10.2.0.0/24".parse().unwrap(), "10.1.0.1".parse().unwrap()).unwrap();
        theirs.add_route("fd02::/64".parse().unwrap(), "fd01::1".parse().unwrap()).unwrap();
        let router = |netns: &Netns, place: Place| {
            Router::start(kind, netns, &dir.path().join(netns.name()), &config::text(kind, place)).unwrap()
        };
        let (theirs, third) = (router(&theirs, session.theirs()), router(&third, session.third()));
        let mut node = Node::new("isthmusd", &ours, dir.path(), bins).unwrap();
        node.start(&our_config(&node, session)).unwrap();
        let rig = Self { ours: node, theirs, third, session, kind, _dir: dir };
        rig.originate();
        rig
    }

    /// What they are to announce from the start, or again after a restart.
    pub(crate) fn originate(&self) {
        for (router, prefixes) in
            [(&self.theirs, self.theirs_to_us()), (&self.third, self.carried(BEHIND_THIRD))]
        {
            for prefix in prefixes {
                router.originate(prefix, true).unwrap();
            }
        }
    }

    /// Those of a pair that this program can announce on this session.
    ///
    /// GoBGP knows no address but the session's own: for the other family it makes up a next hop that leads nowhere.
    fn carried(&self, [v4, v6]: [&'static str; 2]) -> Vec<&'static str> {
        match (self.kind, self.session.transport) {
            (Kind::Gobgp, Transport::V4) => vec![v4],
            (Kind::Gobgp, Transport::V6) => vec![v6],
            _ => vec![v4, v6],
        }
    }

    /// What theirs announces.
    pub(crate) fn theirs_to_us(&self) -> Vec<&'static str> {
        self.carried(BEHIND_THEM)
    }

    /// What we announce, of ours and of the third.
    pub(crate) fn ours_to_them(&self) -> Vec<&'static str> {
        [OURS.to_vec(), self.carried(BEHIND_THIRD)].concat()
    }

    /// Waits for a condition; a failure has everybody's logs.
    pub(crate) fn until<T>(&mut self, what: &str, check: impl Fn(&Self) -> Result<T>) -> T {
        let found = wait::until(what, LIMIT, || check(self));
        found.unwrap_or_else(|error| {
            let [theirs, third] = [&self.theirs, &self.third].map(Router::log);
            panic!(
                "{error:#}\n--- ours:\n{}\n--- theirs:\n{theirs}\n--- third:\n{third}",
                self.ours.log_text()
            )
        })
    }

    /// Waits until both sessions are up, as both ends see them.
    pub(crate) fn wait_established(&mut self) {
        let [theirs, third] = [self.session.theirs().us, self.session.third().us];
        self.until("the sessions", |rig| {
            for name in ["theirs", "third"] {
                let neighbor = rig.neighbor(name)?;
                ensure!(neighbor.state == "Established", "{name}: {}", neighbor.state_reason);
            }
            for (router, us) in [(&rig.theirs, theirs), (&rig.third, third)] {
                let state = router.session(us)?;
                ensure!(state == "Established", "its state is {state}");
            }
            Ok(())
        });
    }

    /// One of our sessions by the control API.
    pub(crate) fn neighbor(&self, name: &str) -> Result<BgpNeighbor> {
        let mut all = self.ours.bgp_neighbors()?.into_iter();
        all.find(|neighbor| neighbor.name == name).context("no such neighbor")
    }

    /// Our only way to a prefix.
    pub(crate) fn candidate(&self, prefix: &str) -> Result<Candidate> {
        let route = self.ours.routes()?.into_iter().find(|route| route.prefix == prefix);
        let candidates = route.context("we have no such route")?.candidates;
        candidates.into_iter().next().context("a route without candidates")
    }

    /// A speaker's best route, which must be there.
    pub(crate) fn route_of(&self, router: &Router, prefix: &str) -> Result<Route> {
        router.route(prefix)?.context("it has no such route")
    }
}

/// Network `number`: we are .1 there, the other is .2.
fn cable(ours: &Netns, other: &Netns, number: u8) {
    let link = format!("eth{number}");
    veth((ours, &link), (other, "eth0")).unwrap();
    for (netns, link, host) in [(ours, link.as_str(), 1), (other, "eth0", 2)] {
        netns.forward().unwrap();
        netns.add_address(link, format!("10.{number}.0.{host}/24").parse().unwrap()).unwrap();
        netns.add_address(link, format!("fd0{number}::{host}/64").parse().unwrap()).unwrap();
    }
}

fn our_config(node: &Node, session: Session) -> String {
    let mut text = format!(
        "[node]\nname = \"ours\"\nstate_dir = {:?}\n[api]\nsocket = {:?}\n[bgp]\nasn = {OUR_AS}\nrouter_id = \"10.1.0.1\"\nannounce = {OURS:?}\n",
        node.state_dir(),
        node.socket(),
    );
    for (name, place) in [("theirs", session.theirs()), ("third", session.third())] {
        let Place { asn, address, .. } = place;
        text += &format!(
            "[[bgp.neighbor]]\nname = {name:?}\naddress = {address:?}\nasn = {asn}\nimport = \"all\"\nexport = \"all\"\n"
        );
    }
    text
}
