//! The tables as a person or a program wants to see them.
//!
//! A whole table is read in two kinds of steps, so that no question keeps the speaker from its work: first all its prefixes, which costs
//! a few nanoseconds each ([`Speaker::table_prefixes`]), then what there is to some of them at a time ([`Speaker::table_entries`]).

use std::{collections::BTreeMap, net::IpAddr, sync::Arc};

use ipnet::IpNet;

use super::{PathReport, Peer, PeerId, Speaker};
use crate::{
    policy::Outcome,
    rib::{Comparison, Neighbor, Path, Verdict},
    wire::Attributes,
};

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
    /// Its attributes in that table: in Adj-RIBs-In as they came, before any policy.
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
    /// Prefixes that a table may have something to, in no order; one may come more than once.
    pub fn table_prefixes(&self, question: &Question) -> Vec<IpNet> {
        if let Some(prefix) = question.prefix.filter(|_| !question.longer) {
            return vec![prefix];
        }
        let prefixes = self.all_prefixes(question);
        prefixes.filter(|prefix| question.prefix.is_none_or(|within| within.contains(prefix))).collect()
    }

    /// What a table has to these prefixes now; those to which it has nothing any more are left out.
    pub fn table_entries(&self, question: &Question, prefixes: &[IpNet]) -> Vec<Entry> {
        prefixes.iter().filter_map(|prefix| self.entry(question, *prefix)).collect()
    }

    /// The peers that paths in the table came from.
    pub fn sources(&self) -> Vec<Arc<Neighbor>> {
        let paths = self.rib.iter().flat_map(|(_, paths)| paths);
        let neighbors = paths.filter_map(|path| path.source().neighbor());
        let each = neighbors.map(|neighbor| (neighbor.id, neighbor)).collect::<BTreeMap<_, _>>();
        each.into_values().cloned().collect()
    }

    /// Every path to these prefixes, as the table has it.
    pub fn table_paths(&self, prefixes: &[IpNet]) -> Vec<(IpNet, Vec<Path>)> {
        prefixes.iter().map(|prefix| (*prefix, self.rib.paths(*prefix).to_vec())).collect()
    }

    /// Every prefix that covers an address, longest first, with every path to it.
    pub fn covering(&self, address: IpAddr) -> Vec<Entry> {
        let host = IpNet::from(address);
        let covering = (0..=host.prefix_len()).rev().filter_map(|length| IpNet::new(address, length).ok());
        let all = covering
            .map(|prefix| prefix.trunc())
            .map(|prefix| (prefix, self.learned(prefix, Table::Best, None)));
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

    fn all_prefixes<'a>(&'a self, question: &'a Question) -> Box<dyn Iterator<Item = IpNet> + 'a> {
        match question.table {
            Table::In | Table::Best => Box::new(self.learned_prefixes(question)),
            Table::Out => Box::new(
                self.asked(question)
                    .filter_map(|peer| peer.up.as_ref())
                    .flat_map(|up| up.out.iter().map(|(prefix, _, _)| prefix)),
            ),
        }
    }

    fn learned_prefixes(&self, question: &Question) -> impl Iterator<Item = IpNet> {
        let is_there = |path: &Path| {
            let source = path.source().peer();
            question.peer.is_none_or(|asked| source == Some(asked))
                && match question.table {
                    Table::Best => path.verdict().selected(),
                    Table::In | Table::Out => source.is_some(),
                }
        };
        self.rib.iter().filter(move |(_, paths)| paths.iter().any(is_there)).map(|(prefix, _)| prefix)
    }

    fn asked(&self, question: &Question) -> impl Iterator<Item = &Peer> {
        self.peers.values().filter(move |peer| question.peer.is_none_or(|asked| asked == peer.id))
    }

    fn entry(&self, question: &Question, prefix: IpNet) -> Option<Entry> {
        let mut paths = match question.table {
            Table::Out => self.told(question, prefix),
            Table::In | Table::Best => self.learned(prefix, question.table, question.peer),
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

    fn learned(&self, prefix: IpNet, table: Table, from: Option<PeerId>) -> Vec<Shown> {
        let paths = self.explain(prefix).into_iter();
        let asked = paths.filter(|report| from.is_none_or(|from| report.path.source().peer() == Some(from)));
        asked.map(|report| shown(report, table)).collect()
    }
}

fn shown(report: PathReport, table: Table) -> Shown {
    let policy = report.import.map(|(name, trace)| match trace.outcome {
        Outcome::Accept(accepted) => format!("import policy {name}: rule {} accepts it", accepted.rule + 1),
        Outcome::Reject { rule: Some(rule) } => format!("import policy {name}: rule {} rejects it", rule + 1),
        Outcome::Reject { rule: None } => format!("import policy {name}: no rule accepts it"),
    });
    let attributes = match table {
        Table::In => report.path.bundle().received(),
        Table::Out | Table::Best => report.path.attributes(),
    };
    Shown {
        peer: report.peer,
        attributes: Arc::clone(attributes),
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
        Question { table, prefix: None, longer: false, peer: None }
    }

    fn ask(speaker: &Speaker, question: Question) -> Vec<Entry> {
        let mut prefixes = speaker.table_prefixes(&question);
        prefixes.sort();
        prefixes.dedup();
        speaker.table_entries(&question, &prefixes)
    }

    fn prefixes(entries: &[Entry]) -> Vec<String> {
        entries.iter().map(|entry| entry.prefix.to_string()).collect()
    }

    #[test]
    fn each_table_has_its_own_paths() {
        let mut net = pair();
        net.seconds(5);
        let speaker = &net.nodes[0].speaker;
        let of = |table| ask(speaker, question(table));
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
        let ask = |question: Question| prefixes(&ask(speaker, question));
        let best = question(Table::Best);
        assert_eq!(ask(Question { prefix: net_of(TWO), ..best }), [TWO]);
        assert_eq!(ask(Question { prefix: net_of("10.0.0.0/8"), ..best }), [""; 0]);
        assert_eq!(ask(Question { prefix: net_of("10.0.0.0/8"), longer: true, ..best }), [ONE, TWO]);
        assert_eq!(ask(Question { peer: speaker.find_peer("10.99.0.2"), ..best }), [TWO, SIX]);
        assert_eq!(speaker.find_peer("node9"), None);
    }

    #[test]
    fn paths_are_shown_with_the_peers_they_came_from() {
        let mut net = pair();
        net.seconds(5);
        let speaker = &net.nodes[0].speaker;
        let sources = speaker.sources();
        let [source] = &sources[..] else { panic!("{sources:?}") };
        assert_eq!((&*source.name, source.asn), ("node1", 4_200_000_002));
        let [one, two, gone] = [ONE, TWO, "10.77.0.0/16"].map(|prefix| prefix.parse().unwrap());
        let paths = speaker.table_paths(&[one, two, gone]);
        let from = |(_, paths): &(IpNet, Vec<Path>)| {
            paths.iter().map(|path| path.source().peer()).collect::<Vec<_>>()
        };
        assert_eq!(paths.iter().map(from).collect::<Vec<_>>(), [vec![None], vec![Some(source.id)], vec![]]);
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
