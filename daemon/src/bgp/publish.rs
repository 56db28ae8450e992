//! From the speaker's table to the board.

use std::{collections::HashMap, net::IpAddr, sync::Arc};

use ipnet::IpNet;
use isthmus_bgp::{Member, Speaker};

use crate::routes::{Candidate, Group, NextHop};

/// Groups that no prefix uses are looked for when so many are there, and then whenever there are twice as many as were in use.
const SWEEP: usize = 1024;

/// Each set of candidates once, so that the board shares it between prefixes.
pub(super) struct Publisher {
    groups: HashMap<Box<[Member]>, Group>,
    /// The last one found: prefixes of one UPDATE come together.
    last: (Vec<Member>, Group),
    sweep_at: usize,
}

impl Default for Publisher {
    fn default() -> Self {
        Self { groups: HashMap::new(), last: (Vec::new(), Arc::new([])), sweep_at: SWEEP }
    }
}

impl Publisher {
    /// What the board should know about these prefixes: the peers' paths that may be used, the preferred first. Those that may not are
    /// no feasible sources either, and a prefix that starts here has no candidate of its own.
    pub(super) fn changes(
        &mut self,
        speaker: &Speaker,
        prefixes: impl IntoIterator<Item = IpNet>,
    ) -> Vec<(IpNet, Group)> {
        let mut members = Vec::new();
        let changes = prefixes.into_iter().map(|prefix| {
            members.clear();
            members.extend(speaker.members(prefix));
            members.sort_by_key(|member| !member.selected);
            (prefix, self.group(speaker, &members))
        });
        let changes = changes.collect();
        self.sweep();
        changes
    }

    fn group(&mut self, speaker: &Speaker, members: &[Member]) -> Group {
        if self.last.0 == members {
            return Arc::clone(&self.last.1);
        }
        let group = self.groups.get(members).cloned().unwrap_or_else(|| {
            let group: Group = members.iter().map(|member| candidate(speaker, member)).collect();
            self.groups.insert(members.into(), Arc::clone(&group));
            group
        });
        self.last.0.clear();
        self.last.0.extend_from_slice(members);
        self.last.1 = Arc::clone(&group);
        group
    }

    fn sweep(&mut self) {
        if self.groups.len() < self.sweep_at {
            return;
        }
        self.groups.retain(|_, group| Arc::strong_count(group) > 1);
        self.groups.shrink_to(self.groups.len() * 2);
        self.sweep_at = (self.groups.len() * 2).max(SWEEP);
    }
}

fn candidate(speaker: &Speaker, member: &Member) -> Candidate {
    let next_hop = match (member.next_hop, member.interface) {
        (IpAddr::V6(address), Some(interface)) => NextHop::LinkLocal { address, interface },
        (address, _) => NextHop::Address(address),
    };
    Candidate { next_hop, neighbor: speaker.peer_name(member.peer).cloned(), selected: member.selected }
}
