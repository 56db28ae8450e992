//! Peers that are not configured one by one: whoever connects from a prefix becomes one, for as long as it stays.
//!
//! ```text
//!           accepted                 Established
//!   (none) ──────────► Opening ───────────────────► Up
//!      ▲                  │  ▲                       │
//!      │ time over        │  │ accepted              │ session ended
//!      │                  ▼  │                       │
//!      └──────────────── Gone ◄──────────────────────┘
//! ```
//! Such a peer never is dialed. Its template bounds how many there are, and one that is gone is kept for a while: it comes back as the
//! same peer, and graceful restart may hold its routes.

use std::{
    collections::BTreeMap,
    fmt,
    net::IpAddr,
    sync::Arc,
    time::{Duration, Instant},
};

use ipnet::IpNet;

use crate::fsm::AsnSet;

/// How long a peer may take to reach Established.
const OPENING: Duration = Duration::from_secs(60);

/// Where a peer connects from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Remote {
    /// Its address.
    pub address: IpAddr,
    /// Index of the interface, for a link-local address: the same one on another interface is somebody else.
    pub scope: Option<u32>,
}

impl Remote {
    /// `scope` counts for link-local addresses only.
    pub fn new(address: IpAddr, scope: Option<u32>) -> Self {
        let link_local = matches!(address, IpAddr::V6(v6) if v6.is_unicast_link_local());
        Self { address, scope: scope.filter(|_| link_local) }
    }
}

impl fmt::Display for Remote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.address)?;
        self.scope.map_or(Ok(()), |scope| write!(f, "%{scope}"))
    }
}

/// Who may become a peer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Template {
    /// Its name; the peers are named after it and their address.
    pub name: Arc<str>,
    /// Where they connect from.
    pub prefix: IpNet,
    /// The AS numbers that they may have.
    pub asns: AsnSet,
    /// How many there may be at once.
    pub limit: usize,
    /// How long one is kept after its session has ended.
    pub linger: Duration,
}

/// Why nobody from this address becomes a peer now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NotAdmitted {
    /// No template covers the address.
    Unknown,
    /// The template has as many peers as it may have.
    Full(Arc<str>),
}

impl fmt::Display for NotAdmitted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown => f.write_str("no template covers this address"),
            Self::Full(name) => write!(f, "template {name} has as many neighbors as its limit allows"),
        }
    }
}

/// The peers that templates have made. Pure: the owner makes and removes the sessions.
#[derive(Clone, Debug, Default)]
pub struct Members {
    templates: Vec<Template>,
    members: BTreeMap<Remote, Member>,
}

#[derive(Clone, Debug)]
struct Member {
    template: Arc<str>,
    life: Life,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Life {
    Opening { until: Instant },
    Up,
    Gone { until: Instant },
}

impl Members {
    /// Nobody yet.
    pub fn new(templates: Vec<Template>) -> Self {
        Self { templates, members: BTreeMap::new() }
    }

    /// Other templates. Returns the peers that these do not cover, or not under the same name: they are forgotten here.
    pub fn set_templates(&mut self, templates: Vec<Template>) -> Vec<Remote> {
        self.templates = templates;
        let covered = |remote: &Remote, member: &Member| {
            covering(&self.templates, remote.address).is_some_and(|template| template.name == member.template)
        };
        self.members
            .extract_if(.., |remote, member| !covered(remote, member))
            .map(|(remote, _)| remote)
            .collect()
    }

    /// Somebody connects who is no configured peer: returns the template to make a peer by, if there is none yet, or under which it
    /// is known.
    ///
    /// # Errors
    /// Why the connection is refused.
    pub fn admit(&mut self, remote: Remote, now: Instant) -> Result<&Template, NotAdmitted> {
        let template = covering(&self.templates, remote.address).ok_or(NotAdmitted::Unknown)?;
        let siblings = self.members.values().filter(|member| member.template == template.name).count();
        let life = Life::Opening { until: now + OPENING };
        match self.members.get_mut(&remote) {
            Some(member) if member.life == Life::Up => {}
            Some(member) => member.life = life,
            None if siblings >= template.limit => return Err(NotAdmitted::Full(Arc::clone(&template.name))),
            None => {
                self.members.insert(remote, Member { template: Arc::clone(&template.name), life });
            }
        }
        Ok(template)
    }

    /// Its session stands.
    pub fn handle_up(&mut self, remote: Remote) {
        if let Some(member) = self.members.get_mut(&remote) {
            member.life = Life::Up;
        }
    }

    /// Its session, or the try to get one, has ended.
    pub fn handle_down(&mut self, remote: Remote, now: Instant) {
        let Some(member) = self.members.get_mut(&remote) else { return };
        let template = self.templates.iter().find(|template| template.name == member.template);
        member.life = Life::Gone { until: now + template.map_or(Duration::ZERO, |template| template.linger) };
    }

    /// Peers whose time is over: to be removed, and forgotten here.
    pub fn handle_timeout(&mut self, now: Instant) -> Vec<Remote> {
        let over = |member: &Member| member.life.until().is_some_and(|until| until <= now);
        self.members.extract_if(.., |_, member| over(member)).map(|(remote, _)| remote).collect()
    }

    /// When to call [`Members::handle_timeout`].
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.members.values().filter_map(|member| member.life.until()).min()
    }

    /// The template that this peer came by.
    pub fn template(&self, remote: Remote) -> Option<&Template> {
        let member = self.members.get(&remote)?;
        self.templates.iter().find(|template| template.name == member.template)
    }

    /// The owner has removed this peer.
    pub fn forget(&mut self, remote: Remote) {
        self.members.remove(&remote);
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.members.len()
    }

    /// True if there is none.
    pub fn is_empty(&self) -> bool {
        self.members.is_empty()
    }
}

impl Template {
    /// Name of the peer there.
    pub fn peer_name(&self, remote: Remote) -> Arc<str> {
        format!("{}-{remote}", self.name).into()
    }
}

impl Life {
    fn until(self) -> Option<Instant> {
        match self {
            Self::Up => None,
            Self::Opening { until } | Self::Gone { until } => Some(until),
        }
    }
}

/// The longest prefix decides.
fn covering(templates: &[Template], address: IpAddr) -> Option<&Template> {
    let covering = templates.iter().filter(|template| template.prefix.contains(&address));
    covering.max_by_key(|template| template.prefix.prefix_len())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn template(name: &str, prefix: &str, limit: usize) -> Template {
        Template {
            name: name.into(),
            prefix: prefix.parse().unwrap(),
            asns: AsnSet::new([65_000..=65_100]),
            limit,
            linger: Duration::from_secs(300),
        }
    }

    fn at(address: &str) -> Remote {
        Remote::new(address.parse().unwrap(), None)
    }

    fn members() -> Members {
        Members::new(vec![template("pods", "10.0.0.0/8", 2), template("node", "10.1.0.0/16", 1)])
    }

    #[test]
    fn the_longest_prefix_decides_and_bounds() {
        let now = Instant::now();
        let mut members = members();
        assert_eq!(&*members.admit(at("10.1.0.7"), now).unwrap().peer_name(at("10.1.0.7")), "node-10.1.0.7");
        assert_eq!(members.admit(at("10.1.0.8"), now).err(), Some(NotAdmitted::Full("node".into())));
        assert_eq!(&*members.admit(at("10.2.0.1"), now).unwrap().name, "pods");
        assert_eq!(&*members.admit(at("10.2.0.2"), now).unwrap().name, "pods");
        assert!(members.admit(at("10.2.0.3"), now).is_err());
        assert!(members.admit(at("10.2.0.2"), now).is_ok(), "who is known is no new one");
        assert_eq!(members.admit(at("192.0.2.1"), now).err(), Some(NotAdmitted::Unknown));
        assert_eq!(members.admit(at("2001:db8::1"), now).err(), Some(NotAdmitted::Unknown));
        assert_eq!(members.len(), 3);
    }

    #[test]
    fn who_does_not_come_up_goes() {
        let now = Instant::now();
        let mut members = members();
        members.admit(at("10.1.0.7"), now).unwrap();
        assert_eq!(members.poll_timeout(), Some(now + OPENING));
        assert!(members.handle_timeout(now + OPENING - Duration::from_secs(1)).is_empty());
        assert_eq!(members.handle_timeout(now + OPENING), [at("10.1.0.7")]);
        assert!(members.is_empty() && members.poll_timeout().is_none());
    }

    #[test]
    fn who_was_up_stays_and_is_kept_for_a_while() {
        let now = Instant::now();
        let hour = now + Duration::from_secs(3600);
        let mut members = members();
        members.admit(at("10.1.0.7"), now).unwrap();
        members.handle_up(at("10.1.0.7"));
        members.admit(at("10.1.0.7"), hour).unwrap();
        assert_eq!(members.poll_timeout(), None, "another connection does not make it less");
        members.handle_down(at("10.1.0.7"), hour);
        assert!(members.admit(at("10.1.0.8"), hour).is_err(), "its place is kept");
        let gone = hour + Duration::from_secs(300);
        assert_eq!(members.poll_timeout(), Some(gone));
        members.admit(at("10.1.0.7"), hour).unwrap();
        members.handle_up(at("10.1.0.7"));
        assert!(members.handle_timeout(gone).is_empty(), "it came back");
        members.handle_down(at("10.1.0.7"), gone);
        assert_eq!(members.handle_timeout(gone + Duration::from_secs(300)), [at("10.1.0.7")]);
        members.handle_down(at("10.1.0.7"), gone);
        assert!(members.admit(at("10.1.0.8"), gone).is_ok());
    }

    #[test]
    fn other_templates_keep_whom_they_cover() {
        let now = Instant::now();
        let mut members = members();
        members.admit(at("10.1.0.7"), now).unwrap();
        members.admit(at("10.2.0.1"), now).unwrap();
        assert_eq!(members.set_templates(vec![template("pods", "10.0.0.0/8", 2)]), [at("10.1.0.7")]);
        assert_eq!(members.len(), 1);
    }
}
