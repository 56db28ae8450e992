//! The tables as a person or a program wants to see them: in pages, so that no question keeps the speaker from its work.

use std::{collections::BTreeSet, net::IpAddr, sync::Arc};

use ipnet::IpNet;

use super::{PathReport, Peer, PeerId, Speaker};
use crate::{
    policy::Outcome,
    rib::{Comparison, Verdict},
    wire::Attributes,
};

/// Prefixes of one page, at most.
pub const PAGE: usize = 1000;

/// A table of RFC 4271 section 3.2.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Table {
    /// Adj-RIBs-In: what the peers sent, used or not.
    In,
    /// Adj-RIBs-Out: what the peers were told.
    Out,
    /// Loc-RIB: what is used.
    Best,
}

/// Which part of a table is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Question {
    /// Which one.
    pub table: Table,
    /// This prefix; `None`: all.
    pub prefix: Option<IpNet>,
    /// The prefix and what it covers, instead of the prefix alone.
    pub longer: bool,
    /// Only from, or to, this peer.
    pub peer: Option<PeerId>,
    /// Only prefixes after this one, in their order: IPv4 first, then by address, then by length.
    pub after: Option<IpNet>,
}

/// A prefix and what is known about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// It.
    pub prefix: IpNet,
    /// At least one.
    pub paths: Vec<Shown>,
}

/// A path in a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shown {
    /// The peer that it came from, or goes to; `None`: it starts here.
    pub peer: Option<Arc<str>>,
    /// Its attributes in that table.
    pub attributes: Arc<Attributes>,
    /// What the decision process made of it; `None`: the peer was told it.
    pub verdict: Option<Verdict>,
    /// What took it out, if another path won.
    pub decided: Option<Comparison>,
    /// What the import policy said, in words; `None`: it was not asked.
    pub policy: Option<String>,
    /// Kept although its session is gone (RFC 4724).
    pub stale: bool,
    /// Path identifier (RFC 7911) that the peer gave it, or is told; 0 where none was agreed on.
    pub path_id: u32,
}

impl Speaker {
    /// The next entries of a table, at most [`PAGE`], in order; fewer mean that these were the last.
    pub fn table_page(&self, question: &Question) -> Vec<Entry> {
        let mut entries = Vec::new();
        let mut after = question.after;
        // A prefix without a path that is asked for takes no place on the page.
        loop {
            let prefixes = self.prefixes_after(question, after);
            after = prefixes.last().copied();
            let full = prefixes.len() == PAGE;
            entries.extend(prefixes.into_iter().filter_map(|prefix| self.entry(question, prefix)));
            if !full || !entries.is_empty() {
                return entries;
            }
        }
    }

    /// Every prefix that covers an address, longest first, with every path to it.
    pub fn covering(&self, address: IpAddr) -> Vec<Entry> {
        let host = IpNet::from(address);
        let covering = (0..=host.prefix_len()).rev().filter_map(|length| IpNet::new(address, length).ok());
        let all = covering.map(|prefix| prefix.trunc()).map(|prefix| (prefix, self.learned(prefix, None)));
        all.filter(|(_, paths)| !paths.is_empty()).map(|(prefix, paths)| Entry { prefix, paths }).collect()
    }

    /// The peer of this name or address.
    pub fn find_peer(&self, name: &str) -> Option<PeerId> {
        let mut peers = self.peers.values();
        let found = peers.find(|peer| {
            let config = &peer.config;
            *config.name == *name || name.parse().is_ok_and(|address: IpAddr| address == config.address)
        });
        found.map(|peer| peer.id)
    }

    /// The least prefixes after one. Looks at each of a table once, whatever order the table is in.
    fn prefixes_after(&self, question: &Question, after: Option<IpNet>) -> Vec<IpNet> {
        if let Some(prefix) = question.prefix.filter(|_| !question.longer) {
            return Vec::from_iter(after.is_none_or(|after| after < prefix).then_some(prefix));
        }
        let within = |prefix: &IpNet| question.prefix.is_none_or(|within| within.contains(prefix));
        let wanted = |prefix: &IpNet| after.is_none_or(|after| after < *prefix) && within(prefix);
        let mut least = BTreeSet::new();
        for prefix in self.all_prefixes(question).filter(wanted) {
            if least.len() == PAGE && least.last().is_some_and(|last| *last <= prefix) {
                continue;
            }
            least.insert(prefix);
            if least.len() > PAGE {
                least.pop_last();
            }
        }
        least.into_iter().collect()
    }

    fn all_prefixes<'a>(&'a self, question: &'a Question) -> Box<dyn Iterator<Item = IpNet> + 'a> {
        match question.table {
            Table::In | Table::Best => Box::new(self.rib.prefixes()),
            Table::Out => Box::new(
                self.asked(question)
                    .filter_map(|peer| peer.up.as_ref())
                    .flat_map(|up| up.out.iter().map(|(prefix, _, _)| prefix)),
            ),
        }
    }

    fn asked(&self, question: &Question) -> impl Iterator<Item = &Peer> {
        self.peers.values().filter(move |peer| question.peer.is_none_or(|asked| asked == peer.id))
    }

    fn entry(&self, question: &Question, prefix: IpNet) -> Option<Entry> {
        let mut paths = match question.table {
            Table::Out => self.told(question, prefix),
            Table::In | Table::Best => self.learned(prefix, question.peer),
        };
        match question.table {
            Table::In => paths.retain(|path| path.peer.is_some()),
            Table::Best => paths.retain(|path| path.verdict.is_some_and(Verdict::selected)),
            Table::Out => {}
        }
        (!paths.is_empty()).then_some(Entry { prefix, paths })
    }

    fn told(&self, question: &Question, prefix: IpNet) -> Vec<Shown> {
        let of_peer = |peer: &Peer| {
            let name = Arc::clone(&peer.config.name);
            let told = peer.up.as_ref().map(|up| up.out.told(prefix)).unwrap_or_default();
            told.into_iter().map(move |(path_id, attributes)| Shown {
                peer: Some(Arc::clone(&name)),
                attributes,
                verdict: None,
                decided: None,
                policy: None,
                stale: false,
                path_id,
            })
        };
        self.asked(question).flat_map(of_peer).collect()
    }

    fn learned(&self, prefix: IpNet, from: Option<PeerId>) -> Vec<Shown> {
        let paths = self.explain(prefix).into_iter();
        let asked = paths.filter(|report| from.is_none_or(|from| report.path.source().peer() == Some(from)));
        asked.map(shown).collect()
    }
}

fn shown(report: PathReport) -> Shown {
    let policy = report.import.map(|(name, trace)| match trace.outcome {
        Outcome::Accept(accepted) => format!("import policy {name}: rule {} accepts it", accepted.rule + 1),
        Outcome::Reject { rule: Some(rule) } => format!("import policy {name}: rule {} rejects it", rule + 1),
        Outcome::Reject { rule: None } => format!("import policy {name}: no rule accepts it"),
    });
    Shown {
        peer: report.peer,
        attributes: Arc::clone(report.path.attributes()),
        verdict: Some(report.path.verdict()),
        decided: report.comparison,
        policy,
        stale: report.path.is_stale(),
        path_id: report.path.received_id(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::net::*;
    use super::*;

    fn question(table: Table) -> Question {
        Question { table, prefix: None, longer: false, peer: None, after: None }
    }

    fn prefixes(entries: &[Entry]) -> Vec<String> {
        entries.iter().map(|entry| entry.prefix.to_string()).collect()
    }

    #[test]
    fn each_table_has_its_own_paths() {
        let mut net = pair();
        net.seconds(5);
        let speaker = &net.nodes[0].speaker;
        let of = |table| speaker.table_page(&question(table));
        assert_eq!(prefixes(&of(Table::In)), [TWO, SIX]);
        assert_eq!(prefixes(&of(Table::Out)), [ONE]);
        assert_eq!(prefixes(&of(Table::Best)), [ONE, TWO, SIX]);
        let told = &of(Table::Out)[0].paths[0];
        assert_eq!((told.peer.as_deref(), told.verdict), (Some("node1"), None));
        assert_eq!(told.attributes.as_path.asns(), [65_001]);
        assert_eq!(of(Table::Best)[0].paths[0].peer, None);
    }

    #[test]
    fn conditions_must_all_hold() {
        let mut net = pair();
        net.seconds(5);
        let speaker = &net.nodes[0].speaker;
        let net_of = |text: &str| Some(text.parse().unwrap());
        let ask = |question: Question| prefixes(&speaker.table_page(&question));
        let best = question(Table::Best);
        assert_eq!(ask(Question { prefix: net_of(TWO), ..best }), [TWO]);
        assert_eq!(ask(Question { prefix: net_of("10.0.0.0/8"), ..best }), [""; 0]);
        assert_eq!(ask(Question { prefix: net_of("10.0.0.0/8"), longer: true, ..best }), [ONE, TWO]);
        assert_eq!(ask(Question { after: net_of(TWO), ..best }), [SIX]);
        assert_eq!(ask(Question { peer: speaker.find_peer("10.99.0.2"), ..best }), [TWO, SIX]);
        assert_eq!(speaker.find_peer("node9"), None);
    }

    #[test]
    fn a_long_table_comes_in_pages_and_whole() {
        let many: Vec<String> = (0..2500).map(|n: u32| format!("10.{}.{}.0/24", n / 256, n % 256)).collect();
        let announce: Vec<&str> = many.iter().map(String::as_str).collect();
        let net = Net::new(vec![config(0, 65_001, &announce, vec![])]);
        let (mut asked, mut all, mut pages) = (question(Table::Best), Vec::new(), 0);
        loop {
            let page = net.nodes[0].speaker.table_page(&asked);
            asked.after = page.last().map(|entry| entry.prefix);
            all.extend(prefixes(&page));
            pages += 1;
            if page.len() < PAGE {
                break;
            }
        }
        assert_eq!((all, pages), (many, 3));
    }

    #[test]
    fn an_address_is_explained_by_every_prefix_that_covers_it() {
        let mut net = pair();
        net.seconds(5);
        let speaker = &net.nodes[0].speaker;
        assert_eq!(prefixes(&speaker.covering("10.2.3.4".parse().unwrap())), [TWO]);
        assert_eq!(prefixes(&speaker.covering("10.3.3.4".parse().unwrap())), [""; 0]);
        assert_eq!(prefixes(&speaker.covering("2001:db8:2::9".parse().unwrap())), [SIX]);
    }
}
