//! What one peer was told and what it has still to be told (Adj-RIB-Out).
//!
//! Everything is pulled. A change of the table is one line in a journal ([`Changes`]) that all peers read, each from its own place, and
//! no peer's policy is asked before the peer's transport has room: [`AdjOut::encode_next`]. Then a window of some thousand prefixes is
//! looked at as they are now, so that of several changes only the last is sent, and only if it differs from what the peer holds.
//! Withdrawals go first; announcements are packed by shared attributes. What was looked at but not sent before the next change is looked at
//! again. So a slow peer costs its place in the journal, and if it gets too far behind, [`AdjOut::review`] costs one look at everything.

mod changes;
mod dump;
mod stage;
#[cfg(test)]
mod tests;
mod told;

use std::{collections::VecDeque, sync::Arc};

use ipnet::IpNet;
use isthmus_prefix::{PrefixTable, Seed};

use crate::{
    Families, Family,
    wire::{
        Attributes, EncodeError, Encoding, Nlri, RouteRefresh, encode_announcement, encode_end_of_rib,
        encode_withdrawal,
    },
};
pub use changes::{Changes, Cursor};
use dump::{Dump, Dumps, Kind, Mark};
use stage::Stage;
pub use told::Sent;
use told::Told;

/// Prefixes looked at together.
const WINDOW: usize = 4096;

/// What the session agreed on, as far as it changes what is sent.
#[derive(Clone, Copy, Debug)]
pub struct Format {
    /// Families of the session.
    pub families: Families,
    /// How routes are written, and whether several paths of a family are.
    pub encoding: Encoding,
    /// Begin and end of a refresh are marked (RFC 7313).
    pub enhanced_refresh: bool,
}

/// One peer's Adj-RIB-Out.
#[derive(Debug)]
pub struct AdjOut {
    format: Format,
    seed: Seed,
    told: Told,
    cursor: Cursor,
    dumps: Dumps,
    /// Prefixes that were looked at, but not sent in time.
    again: Vec<IpNet>,
    stage: Stage,
    marks: VecDeque<Mark>,
    /// Most paths of one family.
    limit: Option<u32>,
    /// Paths were not sent because of the limit.
    held_back: Option<Family>,
}

impl AdjOut {
    /// For a new session: nothing is told yet, and `prefixes`, all there are at the place `at` of the journal, are to be.
    pub fn new(format: Format, limit: Option<u32>, prefixes: Arc<[IpNet]>, at: Cursor, seed: Seed) -> Self {
        let mut dumps = Dumps::default();
        dumps.push(Dump::new(Kind::First, format.families, prefixes));
        let told = Told::new(format.encoding.add_path, seed);
        let (again, stage, marks) = Default::default();
        Self { format, seed, told, cursor: at, dumps, again, stage, marks, limit, held_back: None }
    }

    /// The peer asks for a family again (RFC 2918). `prefixes`: all there are now.
    pub fn refresh(&mut self, family: Family, prefixes: Arc<[IpNet]>) {
        let kind = Kind::Refresh { marked: self.format.enhanced_refresh };
        self.dumps.push(Dump::new(kind, Families::from_iter([family]), prefixes));
    }

    /// What it should be told may be different for every prefix: another policy, for instance. `prefixes`: all there are now.
    pub fn review(&mut self, prefixes: Arc<[IpNet]>) {
        self.unstage();
        self.held_back = None;
        self.dumps.push(Dump::new(Kind::Review, self.format.families, prefixes));
    }

    /// It is too far behind in the journal, which will be forgotten: it looks at everything instead, what is not there any more first.
    pub fn catch_up(&mut self, prefixes: Arc<[IpNet]>, at: Cursor) {
        self.unstage();
        self.again = self.told.iter().map(|(prefix, _, _)| prefix).collect();
        self.cursor = at;
        self.review(prefixes);
    }

    /// Another limit of paths of one family; `None`: none.
    pub fn set_limit(&mut self, limit: Option<u32>) {
        self.limit = limit;
    }

    /// Its place in the journal.
    pub fn cursor(&self) -> Cursor {
        self.cursor
    }

    /// Number of paths that the peer has been told and still holds.
    pub fn advertised(&self) -> usize {
        Family::ALL.into_iter().map(|family| self.told.count(family)).sum()
    }

    /// What the peer holds of a prefix.
    pub fn told(&self, prefix: IpNet) -> Vec<Sent> {
        self.told.paths(prefix).map(|(id, attributes)| (id, Arc::clone(attributes))).collect()
    }

    /// Every path that the peer holds, in no order.
    pub fn iter(&self) -> impl Iterator<Item = (IpNet, u32, &Arc<Attributes>)> {
        self.told.iter()
    }

    /// Paths of a family that it holds.
    pub fn advertised_of(&self, family: Family) -> usize {
        self.told.count(family)
    }

    /// The family of which paths are not sent because the limit is reached.
    pub fn held_back(&self) -> Option<Family> {
        self.held_back
    }

    /// True if paths were held back and there is room now: [`AdjOut::review`] sends them.
    pub fn has_room_again(&self) -> bool {
        self.held_back.is_some_and(|family| room(&self.told, &self.stage, self.limit, family) > 0)
    }

    /// True if [`AdjOut::encode_next`] has something to look at, or to write.
    pub fn is_pending(&self, changes: &Changes) -> bool {
        let waiting = !self.again.is_empty() || !self.dumps.is_empty() || !self.marks.is_empty();
        waiting || !self.stage.is_empty() || changes.unread(self.cursor) > 0
    }

    /// Appends the next message. False: there was none. `wanted` adds the paths that the peer should know of a prefix now, none if none;
    /// their attributes should be interned.
    ///
    /// # Errors
    /// Attributes that fit into no message; their paths are dropped, and withdrawn if the peer held them.
    pub fn encode_next(
        &mut self,
        changes: &Changes,
        wanted: &mut dyn FnMut(IpNet, &mut Vec<Sent>),
        out: &mut Vec<u8>,
    ) -> Result<bool, EncodeError> {
        if self.stage.at != changes.end() {
            self.unstage();
        }
        while self.stage.is_empty() && self.marks.is_empty() {
            if !self.look(changes, wanted) {
                self.told.shrink();
                return Ok(false);
            }
        }
        if self.stage.has_withdrawals() {
            return self.encode_withdrawals(out).map(|()| true);
        }
        match self.marks.pop_front() {
            Some(mark) => encode_mark(mark, out).map(|()| true),
            None => self.encode_group(out).map(|()| true),
        }
    }

    /// Looks at the next window. False: there is none.
    fn look(&mut self, changes: &Changes, wanted: &mut dyn FnMut(IpNet, &mut Vec<Sent>)) -> bool {
        self.stage = Stage::new(changes.end());
        if changes.any_lost(self.cursor) {
            let lost = changes.read_lost(&mut self.cursor.lost, WINDOW);
            self.withdraw_lost(lost, wanted);
            return true;
        }
        let window = std::mem::take(&mut self.again);
        if !window.is_empty() {
            self.compare(&window, false, wanted);
            return true;
        }
        if let Some(dump) = self.dumps.current() {
            self.marks.extend(dump.begin());
            let window = dump.next(WINDOW);
            let forced = matches!(dump.kind, Kind::Refresh { .. });
            if window.is_empty() {
                let end = self.dumps.finish();
                self.marks.extend(end);
            }
            self.stage.dumped = true;
            self.compare(&window, forced, wanted);
            return true;
        }
        let other: Vec<_> = changes.read_other(&mut self.cursor.other, WINDOW).collect();
        self.compare(&other, false, wanted);
        !other.is_empty()
    }

    /// `forced`: what the peer holds is sent all the same.
    fn compare(&mut self, window: &[IpNet], forced: bool, wanted: &mut dyn FnMut(IpNet, &mut Vec<Sent>)) {
        let mut paths = Vec::new();
        // What changed twice is in the journal twice.
        let mut seen = PrefixTable::with_capacity(window.len(), self.seed);
        for prefix in window.iter().filter(|prefix| seen.insert(**prefix, ()).is_none()) {
            paths.clear();
            wanted(*prefix, &mut paths);
            self.compare_one(*prefix, &paths, forced);
        }
    }

    fn compare_one(&mut self, prefix: IpNet, wanted: &[Sent], forced: bool) {
        self.stage_withdrawals(prefix, wanted);
        for (path_id, attributes) in wanted {
            let nlri = Nlri { prefix, path_id: *path_id };
            let held =
                self.told.paths(prefix).find(|(id, _)| id == path_id).map(|(_, attributes)| attributes);
            if held == Some(attributes) && !forced {
                continue;
            }
            if held.is_some() || room(&self.told, &self.stage, self.limit, Family::of(&prefix)) > 0 {
                self.stage.announce(nlri, attributes, held.is_none());
            } else {
                self.held_back = Some(Family::of(&prefix));
            }
        }
    }

    /// Prefixes that lost their last path. What the peer does not hold it need not lose, and if there is a path again, the other journal
    /// says so.
    fn withdraw_lost(
        &mut self,
        lost: impl Iterator<Item = IpNet>,
        wanted: &mut dyn FnMut(IpNet, &mut Vec<Sent>),
    ) {
        let mut paths = Vec::new();
        for prefix in lost {
            if !self.told.holds(prefix) {
                continue;
            }
            paths.clear();
            wanted(prefix, &mut paths);
            if paths.is_empty() {
                self.stage_withdrawals(prefix, &[]);
            }
        }
    }

    /// Of the paths that the peer holds those that it should not.
    fn stage_withdrawals(&mut self, prefix: IpNet, wanted: &[Sent]) {
        let stage = &mut self.stage;
        let keep = |id: u32| wanted.iter().any(|(wanted, _)| *wanted == id);
        self.told.take(prefix, keep, |path_id, held| stage.withdraw(Nlri { prefix, path_id }, held));
    }

    /// What was looked at and not sent has to be looked at again.
    fn unstage(&mut self) {
        let stage = std::mem::take(&mut self.stage);
        let dumped = stage.dumped;
        let prefixes = stage.give_up(&mut self.told);
        match self.dumps.current() {
            Some(dump) if dumped => dump.put_back(prefixes.into_iter()),
            _ => self.again.extend(prefixes),
        }
    }

    fn encode_withdrawals(&mut self, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        let [v4, v6] = &mut self.stage.withdrawals;
        let batch = if v4.nlri.is_empty() { v6 } else { v4 };
        let count = encode_withdrawal(&batch.nlri, &self.format.encoding, out)?;
        batch.sent(count);
        Ok(())
    }

    fn encode_group(&mut self, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        let Some(group) = self.stage.groups.front_mut() else { return Ok(()) };
        let encoded = encode_announcement(&group.attributes, &group.nlri, &self.format.encoding, out);
        let done = *encoded.as_ref().unwrap_or(&group.nlri.len());
        let done: Vec<_> = group.nlri.drain(..done).collect();
        let attributes = Arc::clone(&group.attributes);
        if group.nlri.is_empty() {
            self.stage.finish_group();
        }
        for nlri in done {
            let new = if encoded.is_ok() {
                self.told.insert(nlri.prefix, nlri.path_id, Arc::clone(&attributes))
            } else {
                !self.told.contains(nlri.prefix, nlri.path_id)
            };
            self.stage.new[Family::of(&nlri.prefix).index()] -= usize::from(new);
            if encoded.is_err()
                && let Some(held) = self.told.remove(nlri.prefix, nlri.path_id)
            {
                self.stage.withdraw(nlri, held);
            }
        }
        encoded.map(|_| ())
    }
}

/// How many more paths of a family may be sent.
fn room(told: &Told, stage: &Stage, limit: Option<u32>, family: Family) -> usize {
    let limit = limit.and_then(|limit| usize::try_from(limit).ok()).unwrap_or(usize::MAX);
    limit.saturating_sub(told.count(family) + stage.new[family.index()])
}

fn encode_mark(mark: Mark, out: &mut Vec<u8>) -> Result<(), EncodeError> {
    match mark {
        Mark::EndOfRib(family) => encode_end_of_rib(family, out),
        Mark::BeginOfRefresh(family) => RouteRefresh::new(family, 1).encode(out),
        Mark::EndOfRefresh(family) => RouteRefresh::new(family, 2).encode(out),
    }
}
