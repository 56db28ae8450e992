//! Three hosts in a row, and what each of them says.

use std::{fs, io::Write, os::unix::fs::OpenOptionsExt, path::Path, time::Duration};

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
use serde_json::Value;

use super::config::{self, OUR_AS, Place, THEIR_AS, THIRD_AS, Words};

/// For anything that has to happen: a session's way up takes some seconds, a busy machine takes its time.
pub(crate) const LIMIT: Duration = Duration::from_secs(40);
const OURS: [&str; 2] = ["10.10.0.0/16", "fd10::/48"];
const BEHIND_THEM: [&str; 2] = ["10.20.0.0/16", "fd20::/48"];
pub(crate) const BEHIND_THIRD: [&str; 2] = ["10.30.0.0/16", "fd30::/48"];
/// What theirs announces when a case says so.
pub(crate) const MORE: &str = "10.21.0.0/16";
/// What the third announces when a case says so: ours, too.
pub(crate) const SHARED: &str = OURS[0];

/// The family of the session's own addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Transport {
    V4,
    V6,
    LinkLocal,
}

/// The session between theirs and ours, and what else a case wants.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Session {
    pub(crate) transport: Transport,
    /// Whose number theirs has.
    pub(crate) asn: u32,
    /// Whose number the third has.
    pub(crate) third_asn: u32,
    /// Whom the third speaks to instead of us.
    pub(crate) third_us: Option<&'static str>,
    /// Further lines of our neighbor `theirs`; `$DIR` is a directory of ours, `$DIR/right` and `$DIR/wrong` are passwords.
    pub(crate) ours: &'static str,
    /// Further lines of our neighbor `third`.
    pub(crate) to_third: &'static str,
    /// Further sections of ours.
    pub(crate) sections: &'static str,
    pub(crate) theirs: Words,
    pub(crate) third: Words,
}

impl Session {
    pub(crate) const fn external(transport: Transport) -> Self {
        Self {
            transport,
            asn: THEIR_AS,
            third_asn: THIRD_AS,
            third_us: None,
            ours: "",
            to_third: "",
            sections: "",
            theirs: Words::NONE,
            third: Words::NONE,
        }
    }

    pub(crate) const fn internal(transport: Transport) -> Self {
        Self { asn: OUR_AS, ..Self::external(transport) }
    }

    pub(crate) fn is_internal(self) -> bool {
        self.asn == OUR_AS
    }

    pub(crate) fn theirs(self) -> Place {
        let (address, us) = match self.transport {
            Transport::V4 => ("10.1.0.2", "10.1.0.1"),
            Transport::V6 => ("fd01::2", "fd01::1"),
            Transport::LinkLocal => ("fe80::2", "fe80::1"),
        };
        let prefixes = [BEHIND_THEM[0], BEHIND_THEM[1], MORE];
        Place { asn: self.asn, router_id: "10.1.0.2", address, us, prefixes, words: self.theirs }
    }

    fn third(self) -> Place {
        let (address, us) = match self.transport {
            Transport::V4 => ("10.2.0.2", "10.2.0.1"),
            Transport::V6 | Transport::LinkLocal => ("fd02::2", "fd02::1"),
        };
        let prefixes = [BEHIND_THIRD[0], BEHIND_THIRD[1], SHARED];
        Place {
            asn: self.third_asn,
            router_id: "10.2.0.2",
            address,
            us: self.third_us.unwrap_or(us),
            prefixes,
            words: self.third,
        }
    }
}

/// What a line of cases may name: one session for all programs, or a function of the program.
pub(crate) trait Sessions {
    fn of(self, kind: Kind) -> Session;
}

impl Sessions for Session {
    fn of(self, _: Kind) -> Session {
        self
    }
}

impl<F: Fn(Kind) -> Session> Sessions for F {
    fn of(self, kind: Kind) -> Session {
        self(kind)
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
        third.add_route("10.1.0.0/24".parse().unwrap(), "10.2.0.1".parse().unwrap()).unwrap();
        third.add_route("fd01::/64".parse().unwrap(), "fd02::1".parse().unwrap()).unwrap();
        let router = |netns: &Netns, place: Place| {
            Router::start(kind, netns, &dir.path().join(netns.name()), &config::text(kind, place)).unwrap()
        };
        let (theirs, third) = (router(&theirs, session.theirs()), router(&third, session.third()));
        let mut node = Node::new("isthmusd", &ours, dir.path(), bins).unwrap();
        write_passwords(node.dir());
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
            (Kind::Gobgp, Transport::V6 | Transport::LinkLocal) => vec![v6],
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

    /// Which program theirs and the third are.
    pub(crate) fn kind(&self) -> Kind {
        self.kind
    }

    /// One of our sessions by the control API.
    pub(crate) fn neighbor(&self, name: &str) -> Result<BgpNeighbor> {
        let mut all = self.ours.bgp_neighbors()?.into_iter();
        all.find(|neighbor| neighbor.name == name).context("no such neighbor")
    }

    /// All that we say of our session with theirs.
    pub(crate) fn detail(&self) -> Result<Value> {
        self.ask(&["bgp", "neighbors", "theirs"])
    }

    /// What our client says, as JSON.
    pub(crate) fn ask(&self, arguments: &[&str]) -> Result<Value> {
        let text = self.ours.ctl_ok(&[arguments, &["-o", "json"]].concat())?;
        serde_json::from_str(&text).with_context(|| text.clone())
    }

    /// The only path of a prefix in a table of ours: `in`, `out` or `best`, from or to theirs.
    pub(crate) fn path(&self, table: &str, prefix: &str) -> Result<Value> {
        let said = self.ask(&["bgp", "rib", table, prefix, "--neighbor", "theirs"])?;
        let path = said["entries"][0]["paths"][0].clone();
        ensure!(!path.is_null(), "no path to {prefix} in {table}: {said:#}");
        Ok(path)
    }

    /// Waits until our session says this of its last error.
    pub(crate) fn wait_error(&mut self, part: &str) {
        self.until(part, |rig| {
            let theirs = rig.neighbor("theirs")?;
            ensure!(theirs.last_error.contains(part), "{theirs:#?}");
            Ok(())
        });
    }

    /// Waits until theirs has been established for the `count`th time.
    pub(crate) fn wait_session(&mut self, count: u64) {
        self.until(&format!("session {count}"), |rig| {
            let theirs = rig.neighbor("theirs")?;
            ensure!(theirs.state == "Established" && theirs.established_count == count, "{theirs:#?}");
            Ok(())
        });
    }

    /// Waits until theirs says this of its session with us.
    pub(crate) fn wait_they_say(&mut self, part: &str) {
        let us = self.session.theirs().us;
        self.until(&format!("{part:?} by theirs"), |rig| {
            let said = rig.theirs.story(us)?;
            ensure!(said.contains(part), "{said}");
            Ok(())
        });
    }

    /// Our configuration with lines changed, applied.
    pub(crate) fn reload(&mut self, from: &str, to: &str) {
        let old = fs::read_to_string(self.ours.config()).unwrap();
        let new = old.replacen(from, to, 1);
        assert_ne!(old, new, "{from} is not in it");
        self.ours.reload(&new, LIMIT).unwrap();
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
        netns.add_address(link, format!("fe80::{host}/64").parse().unwrap()).unwrap();
    }
}

fn write_passwords(dir: &Path) {
    for password in ["right", "wrong"] {
        let path = dir.join(password);
        let mut file = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(path).unwrap();
        writeln!(file, "{password}").unwrap();
    }
}

fn our_config(node: &Node, session: Session) -> String {
    let mut text = format!(
        "[node]\nname = \"ours\"\nstate_dir = {:?}\n[api]\nsocket = {:?}\n[bgp]\nasn = {OUR_AS}\nrouter_id = \"10.1.0.1\"\nannounce = {OURS:?}\n",
        node.state_dir(),
        node.socket(),
    );
    for (name, place, more) in
        [("theirs", session.theirs(), session.ours), ("third", session.third(), session.to_third)]
    {
        let Place { asn, address, .. } = place;
        let link = if address.starts_with("fe80:") { "%eth1" } else { "" };
        text += &format!("[[bgp.neighbor]]\nname = {name:?}\naddress = \"{address}{link}\"\nasn = {asn}\n");
        for policy in ["import", "export"].into_iter().filter(|policy| !more.contains(policy)) {
            text += &format!("{policy} = \"all\"\n");
        }
        text += more;
        text += "\n";
    }
    (text + session.sections).replace("$DIR", &node.dir().display().to_string())
}
