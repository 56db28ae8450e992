//! Everything from the beginning: the first dump of a session, an answer to ROUTE-REFRESH, another policy.

use std::{collections::VecDeque, sync::Arc};

use ipnet::IpNet;

use crate::{Families, Family};

/// Why a dump is made, and so how it begins and ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// The session is new: End-of-RIB follows (RFC 4724).
    First,
    /// The peer asked: it is sent what it holds already, too.
    Refresh {
        /// Between Begin-of-RR and End-of-RR (RFC 7313).
        marked: bool,
    },
    /// Something that applies to every prefix changed: what is different is sent.
    Review,
}

/// What the peer is told apart from routes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mark {
    EndOfRib(Family),
    BeginOfRefresh(Family),
    EndOfRefresh(Family),
}

#[derive(Debug)]
pub(super) struct Dump {
    pub(super) kind: Kind,
    families: Families,
    prefixes: Arc<[IpNet]>,
    next: usize,
    /// Those that were looked at, but not sent in time.
    again: Vec<IpNet>,
    begun: bool,
}

impl Dump {
    pub(super) fn new(kind: Kind, families: Families, prefixes: Arc<[IpNet]>) -> Self {
        Self { kind, families, prefixes, next: 0, again: Vec::new(), begun: false }
    }

    /// What comes before the first route; empty when asked again.
    pub(super) fn begin(&mut self) -> Vec<Mark> {
        let marked = self.kind == (Kind::Refresh { marked: true }) && !self.begun;
        self.begun = true;
        if marked { self.families.iter().map(Mark::BeginOfRefresh).collect() } else { Vec::new() }
    }

    /// The next prefixes, at most about `count`; none: the dump is through.
    pub(super) fn next(&mut self, count: usize) -> Vec<IpNet> {
        if !self.again.is_empty() {
            return std::mem::take(&mut self.again);
        }
        let mut found = Vec::new();
        while found.is_empty() && self.next < self.prefixes.len() {
            let last = self.prefixes.len().min(self.next + count);
            let window = &self.prefixes[self.next..last];
            found.extend(window.iter().filter(|prefix| self.families.contains(Family::of(prefix))));
            self.next = last;
        }
        found
    }

    pub(super) fn put_back(&mut self, prefixes: impl Iterator<Item = IpNet>) {
        self.again.extend(prefixes);
    }

    /// What comes behind the last route.
    pub(super) fn end(self) -> Vec<Mark> {
        match self.kind {
            Kind::First => self.families.iter().map(Mark::EndOfRib).collect(),
            Kind::Refresh { marked: true } => self.families.iter().map(Mark::EndOfRefresh).collect(),
            Kind::Refresh { marked: false } | Kind::Review => Vec::new(),
        }
    }
}

/// Dumps one after the other. One of each kind that has not begun is enough: it will see whatever the next would.
#[derive(Debug, Default)]
pub(super) struct Dumps(VecDeque<Dump>);

impl Dumps {
    pub(super) fn push(&mut self, dump: Dump) {
        let same = |known: &Dump| !known.begun && (known.kind, known.families) == (dump.kind, dump.families);
        self.0.retain(|known| !same(known));
        self.0.push_back(dump);
    }

    pub(super) fn current(&mut self) -> Option<&mut Dump> {
        self.0.front_mut()
    }

    pub(super) fn finish(&mut self) -> Vec<Mark> {
        self.0.pop_front().map_or_else(Vec::new, Dump::end)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}
