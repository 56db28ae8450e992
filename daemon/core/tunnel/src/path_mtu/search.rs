//! The search for the largest size that passes: bounds and the next size to try, without time.

/// Sizes are those of outer packets in bytes, IP header included.
#[derive(Clone, Copy, Debug)]
pub(super) struct Search {
    floor: u16,
    ceiling: u16,
    /// The largest size that passed; the floor until one did.
    low: u16,
    /// The largest size that may pass.
    high: u16,
    next: Next,
    /// True once any outcome says something about this path.
    judged: bool,
    /// How the size above `low` failed, if one did.
    failure: Option<Failure>,
}

/// Why a size does not pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Failure {
    /// No try was answered.
    Lost,
    /// Our own kernel refused it.
    Refused,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    /// The largest first: on most paths it passes, and one probe was enough.
    Whole,
    /// One byte more than what passes: on most paths nothing has grown, and one size was enough.
    Step,
    Half,
}

impl Search {
    pub(super) fn new(floor: u16, ceiling: u16) -> Self {
        let floor = floor.min(ceiling);
        Self { floor, ceiling, low: floor, high: ceiling, next: Next::Whole, judged: false, failure: None }
    }

    /// The size to try; `None`: the search has ended.
    pub(super) fn next(&self) -> Option<u16> {
        (self.low < self.high).then(|| match self.next {
            Next::Whole => self.high,
            Next::Step => self.low + 1,
            Next::Half => self.low + (self.high - self.low).div_ceil(2),
        })
    }

    pub(super) fn passed(&mut self, size: u16) {
        self.judged = true;
        self.low = self.low.max(size);
        self.next = if self.next == Next::Step { Next::Whole } else { Next::Half };
        if self.low == self.ceiling {
            self.failure = None;
        }
    }

    pub(super) fn failed(&mut self, size: u16, failure: Failure) {
        self.judged = true;
        self.high = self.high.min(size - 1).max(self.low);
        self.next = Next::Half;
        self.failure = Some(failure);
    }

    /// Looks upward again from what passes.
    pub(super) fn raise(&mut self) {
        (self.high, self.next) = (self.ceiling, Next::Step);
    }

    /// Forgets what passed: the path has shrunk.
    pub(super) fn fall(&mut self) {
        *self = Self { judged: true, ..Self::new(self.floor, self.ceiling) };
    }

    /// If no size has passed, all may pass again.
    pub(super) fn reopen(&mut self) {
        if self.is_at_floor() {
            (self.high, self.next) = (self.ceiling, Next::Whole);
        }
    }

    /// The largest size known to pass, once anything is known.
    pub(super) fn known(&self) -> Option<u16> {
        self.judged.then_some(self.low)
    }

    /// The largest size that passed.
    pub(super) fn low(&self) -> u16 {
        self.low
    }

    pub(super) fn failure(&self) -> Option<Failure> {
        self.failure
    }

    /// True if no size has passed though one could.
    pub(super) fn is_at_floor(&self) -> bool {
        self.low == self.floor && !self.is_at_ceiling()
    }

    pub(super) fn is_at_ceiling(&self) -> bool {
        self.low == self.ceiling
    }
}
