//! What happens when.

use std::{fmt, time::Duration};

use isthmusd::tunnel::Offload;

/// How long one round of all events takes in a long run.
const CYCLE_MINUTES: u32 = 5;
/// Before the first event and after the last, both ends have peace for this many hundredths of the run.
const CALM: u32 = 5;

/// Something that happens to the tunnel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Event {
    /// The cable's end at this node (0 near, 1 far) is down for a while.
    Flap(usize, Duration),
    /// Both interfaces of the cable take packets of this many octets at most.
    Mtu(u32),
    /// Both nodes get other peers beside each other, and other prefixes for them.
    Peers,
    /// Both nodes do without these offloads, and with all others.
    Without(&'static [Offload]),
    /// The near node gets another address on the cable.
    Roam,
}

/// One of each kind at least, in an order that makes them meet.
const CYCLE: [Event; 20] = [
    Event::Flap(1, Duration::from_millis(2000)),
    Event::Without(&[Offload::TunTso]),
    Event::Mtu(1400),
    Event::Peers,
    Event::Without(&[Offload::TunUso]),
    Event::Roam,
    Event::Without(&[Offload::TunTcpGro]),
    Event::Mtu(1280),
    Event::Peers,
    Event::Flap(0, Duration::from_millis(2500)),
    Event::Without(&[Offload::TunUdpGro]),
    Event::Mtu(1500),
    Event::Without(&[Offload::UdpGso]),
    Event::Roam,
    Event::Without(&[Offload::UdpGro]),
    Event::Peers,
    Event::Without(&Offload::ALL),
    Event::Mtu(1400),
    Event::Without(&[]),
    Event::Mtu(1500),
];

impl Event {
    /// What counts together in the report.
    pub(super) fn kind(self) -> &'static str {
        match self {
            Self::Flap(..) => "link flaps",
            Self::Mtu(_) => "MTU changes",
            Self::Peers => "reloads with other peers",
            Self::Without(_) => "reloads with other offloads",
            Self::Roam => "moves of the near end",
        }
    }
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Flap(end, pause) => write!(f, "{} cable end down for {pause:?}", ["near", "far"][*end & 1]),
            Self::Mtu(octets) => write!(f, "outer MTU {octets}"),
            Self::Peers => f.write_str("reload with other peers"),
            Self::Without(off) => {
                let names: Vec<&str> = off.iter().map(|offload| offload.as_str()).collect();
                write!(f, "reload without the offloads [{}]", names.join(", "))
            }
            Self::Roam => f.write_str("near end gets another address"),
        }
    }
}

/// Events with their times from the start of the run, in order.
#[derive(Debug)]
pub(super) struct Schedule {
    events: Vec<(Duration, Event)>,
}

impl Schedule {
    /// Whole cycles, spread evenly over a run of this length.
    pub(super) fn new(length: Duration) -> Self {
        let cycle = u64::from(CYCLE_MINUTES) * 60;
        let cycles = usize::try_from(length.as_secs() / cycle).unwrap_or(usize::MAX).max(1);
        let count = cycles.saturating_mul(CYCLE.len());
        let calm = length * CALM / 100;
        let step = (length - 2 * calm) / u32::try_from(count).unwrap_or(u32::MAX);
        let times = (0..count).scan(calm, |next, _| {
            let time = *next;
            *next += step;
            Some(time)
        });
        Self { events: times.zip(CYCLE.into_iter().cycle()).collect() }
    }

    /// All of them.
    pub(super) fn events(&self) -> &[(Duration, Event)] {
        &self.events
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mtu_and_offloads_at_the_end(events: &[(Duration, Event)]) -> (u32, usize) {
        events.iter().fold((1500, 0), |(mtu, off), (_, event)| match event {
            Event::Mtu(octets) => (*octets, off),
            Event::Without(offloads) => (mtu, offloads.len()),
            _ => (mtu, off),
        })
    }

    #[test]
    fn a_run_of_any_length_has_all_kinds_and_ends_as_it_began() {
        for minutes in [1, 3, 30, 600] {
            let length = Duration::from_secs(60 * minutes);
            let schedule = Schedule::new(length);
            let events = schedule.events();
            assert!(events.is_sorted_by_key(|(time, _)| *time));
            assert!(events[0].0 >= length / 50 && events[events.len() - 1].0 <= length * 49 / 50);
            for event in CYCLE {
                assert!(events.iter().any(|(_, other)| *other == event), "{event} in {minutes} minutes");
            }
            assert_eq!(mtu_and_offloads_at_the_end(events), (1500, 0));
            let moves = events.iter().filter(|(_, event)| *event == Event::Roam).count();
            assert!(moves % 2 == 0 && moves > 0);
        }
    }

    #[test]
    fn a_flap_is_over_before_the_next_event() {
        let schedule = Schedule::new(Duration::from_secs(60));
        for pair in schedule.events().windows(2) {
            if let (time, Event::Flap(_, pause)) = pair[0] {
                assert!(time + pause <= pair[1].0, "{:?}", pair[0]);
            }
        }
    }

    #[test]
    fn each_offload_is_the_only_one_that_is_off_once() {
        for offload in Offload::ALL {
            let alone = |event: &&Event| matches!(event, Event::Without(off) if **off == [offload]);
            assert_eq!(CYCLE.iter().filter(alone).count(), 1, "{offload:?}");
        }
    }
}
