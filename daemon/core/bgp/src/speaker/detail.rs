//! Everything that is known about one peer's session, for showing.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use super::{Peer, PeerId, PeerStatus, Speaker};
use crate::{Family, Policy, fsm::LastError, wire::Capability};

/// One peer, for showing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerDetail {
    /// What is told of every peer.
    pub status: PeerStatus,
    /// Hold time that we offer.
    pub hold_time_offered: Duration,
    /// What last ended or prevented a session.
    pub last_error: Option<LastError>,
    /// What we say in our OPEN.
    pub sent: Vec<Capability>,
    /// What the peer said in its OPEN, while established.
    pub received: Vec<Capability>,
    /// Timers that run: when they end, and their names.
    pub timers: Vec<(Instant, &'static str)>,
    /// Families that are configured.
    pub families: Vec<FamilyDetail>,
    /// What is used of what it sends.
    pub import: Arc<Policy>,
    /// What it is sent.
    pub export: Arc<Policy>,
}

/// One family of a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FamilyDetail {
    /// It.
    pub family: Family,
    /// Both sides carry it now.
    pub agreed: bool,
    /// End-of-RIB has come.
    pub end_of_rib: bool,
    /// Paths in the table.
    pub received: u32,
    /// Paths after which the session ends.
    pub limit: u32,
}

impl Speaker {
    /// One peer in detail.
    pub fn detail(&self, peer: PeerId) -> Option<PeerDetail> {
        let peer = self.peers.get(&peer)?;
        let negotiated = peer.up.as_ref().map(|up| &up.negotiated);
        Some(PeerDetail {
            status: peer.status(self.rib.counts(peer.id)),
            hold_time_offered: Duration::from_secs(peer.config.hold_time.into()),
            last_error: peer.session.last_error().cloned(),
            sent: peer.session.capabilities(),
            received: negotiated.map(|negotiated| negotiated.capabilities.clone()).unwrap_or_default(),
            timers: peer.session.timers().collect(),
            families: peer.config.families.iter().map(|family| self.family_detail(peer, family)).collect(),
            import: Arc::clone(&peer.config.import),
            export: Arc::clone(&peer.config.export),
        })
    }

    fn family_detail(&self, peer: &Peer, family: Family) -> FamilyDetail {
        let up = peer.up.as_ref();
        FamilyDetail {
            family,
            agreed: up.is_some_and(|up| up.negotiated.families.contains(family)),
            end_of_rib: up.is_some_and(|up| up.end_of_rib.contains(family)),
            received: self.rib.counts(peer.id).received[family.index()],
            limit: peer.config.prefix_limit(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::net::*;
    use super::*;

    #[test]
    fn a_session_shows_what_both_sides_said() {
        let mut net = pair();
        let speaker = |net: &Net| net.nodes[0].speaker.detail(PeerId(0)).unwrap();
        let before = speaker(&net);
        assert_eq!((before.received.len(), before.families[0].agreed), (0, false));
        assert!(before.sent.contains(&Capability::FourOctetAsn(65_001)), "{:?}", before.sent);
        net.seconds(5);
        let after = speaker(&net);
        assert!(after.received.contains(&Capability::FourOctetAsn(4_200_000_002)), "{:?}", after.received);
        let [four, six] = after.families[..] else { panic!("{:?}", after.families) };
        assert_eq!((four.agreed, four.end_of_rib, four.received), (true, true, 1));
        assert_eq!((six.agreed, six.end_of_rib, six.received), (true, true, 1));
    }
}
