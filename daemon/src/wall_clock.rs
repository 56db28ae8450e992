//! Word from the kernel that somebody has set the wall clock, and by how much it has jumped.

use std::{
    io,
    os::fd::OwnedFd,
    time::{Duration, Instant, SystemTime},
};

use nix::{
    errno::Errno,
    sys::{
        time::TimeSpec,
        timerfd::{ClockId, Expiration, TimerFd, TimerFlags, TimerSetTimeFlags},
    },
    unistd::read,
};
use tokio::io::{Interest, unix::AsyncFd};

/// A timer that never rings: it is there to be cancelled when the wall clock is set, or the machine wakes from sleep.
///
/// Clocks that a library fakes for one process are no business of the kernel's, and it says nothing of them.
pub(crate) struct WallClock(AsyncFd<OwnedFd>);

impl WallClock {
    /// Begins to listen. Needs a runtime around it.
    pub(crate) fn watch() -> io::Result<Self> {
        let timer =
            TimerFd::new(ClockId::CLOCK_REALTIME, TimerFlags::TFD_NONBLOCK | TimerFlags::TFD_CLOEXEC)?;
        let never = Expiration::OneShot(TimeSpec::new(i64::MAX, 0));
        let flags = TimerSetTimeFlags::TFD_TIMER_ABSTIME | TimerSetTimeFlags::TFD_TIMER_CANCEL_ON_SET;
        timer.set(never, flags)?;
        // SAFETY: an OwnedFd is open, is moved in here, and names the same file until it is dropped with the AsyncFd.
        let timer = unsafe { AsyncFd::register_with_interest(OwnedFd::from(timer), Interest::READABLE) }?;
        Ok(Self(timer))
    }

    /// Returns when the clock was set since the last time, or since it is watched. Nothing is lost if it is dropped.
    pub(crate) async fn set(&mut self) -> io::Result<()> {
        loop {
            let mut ready = self.0.readable().await?;
            match read(self.0.get_ref(), &mut [0; 8]) {
                // It stays armed.
                Err(Errno::ECANCELED) | Ok(_) => return Ok(()),
                Err(Errno::EAGAIN) => ready.clear_ready(),
                Err(Errno::EINTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
}

/// How the wall clock goes beside the steady one. Ask [`Jumps::seen`] whenever there is reason to.
pub(crate) struct Jumps {
    wall: SystemTime,
    steady: Instant,
}

/// A step of the wall clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Jump {
    /// It went forward, by so much more than time did.
    Ahead(Duration),
    /// It went back.
    Back(Duration),
}

impl Jumps {
    /// Certificates count whole seconds, and some machines' clocks are put right by milliseconds all day.
    const LEAST: Duration = Duration::from_secs(1);

    /// What both clocks show now.
    pub(crate) fn since(wall: SystemTime, steady: Instant) -> Self {
        Self { wall, steady }
    }

    /// The jump since the last one; small ones add up until they are worth a word.
    pub(crate) fn seen(&mut self, wall: SystemTime, steady: Instant) -> Option<Jump> {
        let passed = steady.saturating_duration_since(self.steady);
        let jump = match wall.duration_since(self.wall.checked_add(passed)?) {
            Ok(ahead) => Some(Jump::Ahead(ahead)).filter(|_| ahead >= Self::LEAST),
            Err(back) => Some(Jump::Back(back.duration())).filter(|_| back.duration() >= Self::LEAST),
        };
        if jump.is_some() {
            *self = Self::since(wall, steady);
        }
        jump
    }
}

/// Whether the wall clock has gone evenly for long enough that what can't be undone may follow from it: a clock that was set wrongly is
/// mostly put right within minutes. Ask [`Steady::is`] whenever there is reason to.
pub(crate) struct Steady {
    jumps: Jumps,
    /// `None`: for long enough.
    since: Option<Instant>,
}

impl Steady {
    /// How long is long enough.
    pub(crate) const LONG: Duration = Duration::from_secs(5 * 60);

    /// What both clocks show now. Of the time before nobody knows.
    pub(crate) fn since(wall: SystemTime, steady: Instant) -> Self {
        Self { jumps: Jumps::since(wall, steady), since: Some(steady) }
    }

    /// One that counts as steady until it jumps.
    pub(crate) fn trusting(wall: SystemTime, steady: Instant) -> Self {
        Self { jumps: Jumps::since(wall, steady), since: None }
    }

    /// Has it, by what both clocks show now?
    pub(crate) fn is(&mut self, wall: SystemTime, steady: Instant) -> bool {
        if self.jumps.seen(wall, steady).is_some() {
            self.since = Some(steady);
        }
        self.since.is_none_or(|since| steady.saturating_duration_since(since) >= Self::LONG)
    }
}

impl Default for Steady {
    fn default() -> Self {
        Self::since(SystemTime::now(), Instant::now())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn a_jump_is_what_the_wall_clock_did_beyond_the_steady_one() {
        let (wall, steady) = (SystemTime::UNIX_EPOCH + seconds(1_800_000_000), Instant::now());
        let mut jumps = Jumps::since(wall, steady);
        let mut seen = |wall_at: u64, steady_at: u64| {
            jumps.seen(SystemTime::UNIX_EPOCH + seconds(wall_at), steady + seconds(steady_at))
        };
        let now = 1_800_000_000;
        assert_eq!(seen(now + 60, 60), None);
        assert_eq!(seen(now + 3_720, 120), Some(Jump::Ahead(seconds(3_600))));
        assert_eq!(seen(now + 3_780, 180), None, "a jump is told once");
        assert_eq!(seen(now + 240, 240), Some(Jump::Back(seconds(3_600))));
        assert_eq!(seen(0, 240), Some(Jump::Back(seconds(now + 240))));
    }

    #[test]
    fn what_is_less_than_a_second_adds_up() {
        let (wall, steady) = (SystemTime::UNIX_EPOCH + seconds(1_800_000_000), Instant::now());
        let mut jumps = Jumps::since(wall, steady);
        let mut seen = |ahead: u64| jumps.seen(wall + Duration::from_millis(ahead), steady);
        let told: Vec<_> = [400, 800, 1_200, 1_600].map(&mut seen).into_iter().flatten().collect();
        assert_eq!(told, [Jump::Ahead(Duration::from_millis(1_200))]);
    }

    #[test]
    fn a_clock_is_steady_some_minutes_after_its_last_jump() {
        let (wall, steady) = (SystemTime::UNIX_EPOCH + seconds(1_800_000_000), Instant::now());
        let mut clock = Steady::since(wall, steady);
        let mut is =
            |wall_at: u64, steady_at: u64| clock.is(wall + seconds(wall_at), steady + seconds(steady_at));
        assert!(!is(0, 0) && !is(299, 299), "nobody knows what it showed before");
        assert!(is(300, 300));
        assert!(!is(86_700, 301), "it went ahead");
        assert!(!is(310, 310), "and back");
        assert!(!is(609, 609) && is(610, 610));
        let mut clock = Steady::trusting(wall, steady);
        assert!(clock.is(wall, steady) && !clock.is(wall + seconds(2), steady));
    }

    #[tokio::test]
    async fn the_kernel_is_silent_while_nobody_sets_the_clock() {
        let mut clock = WallClock::watch().unwrap();
        let silence = tokio::time::timeout(Duration::from_millis(50), clock.set()).await;
        assert!(silence.is_err(), "{silence:?}");
    }
}
