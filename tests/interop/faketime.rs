//! A daemon whose wall clock is somebody else's idea: ten minutes off, set ahead beyond an expiry, and through a year of rotations.
//! libfaketime is between the daemon and the kernel; monotonic time is left alone, as a clock that is set leaves it.

#![expect(clippy::unwrap_used, reason = "a test: what fails here fails it")]

#[path = "faketime/rig.rs"]
mod rig;

use std::time::{Duration, Instant};

use isthmus_lab::{
    peers::{FAKETIME, installed},
    sandbox,
};
use nix::time::{ClockId, clock_gettime, clock_settime};
use time::Duration as Span;

use rig::{API, Rig, Stream};

const LIMIT: Duration = Duration::from_secs(240);

fn run(test: &str, body: impl FnOnce(Rig)) {
    if installed(test, &[FAKETIME]) {
        sandbox::run_with_bins_for(LIMIT, test, |bins| body(Rig::new(bins)));
    }
}

/// Each month a new site CA and node certificate, after half a year a new root: one workload follows it all on one stream.
#[test]
fn a_year_of_rotations_in_a_minute() {
    run("a_year_of_rotations_in_a_minute", |mut rig| {
        rig.start();
        let mut stream = Stream::open(&rig);
        let mut last = stream.svid_at(rig.now());
        for month in 1..=12 {
            if month == 6 {
                rig.trust_another_root();
                stream.svid_where(rig.now(), |svid| svid.roots == 2);
            }
            rig.pass(Span::days(30));
            rig.rotate(month == 6);
            let site_ca = rig.site_ca();
            let next = stream.svid_where(rig.now(), |svid| svid.issuer == site_ca);
            assert_ne!(next.serial, last.serial, "month {month}");
            last = next;
            if month == 7 {
                rig.forget_the_old_root();
                stream.svid_where(rig.now(), |svid| svid.roots == 1);
            }
        }
        assert_eq!(last.id, API);
    });
}

/// The clock is set ahead while a workload holds an SVID of an hour: it gets another before it could notice.
#[test]
fn a_jump_across_the_expiry_is_noticed() {
    run("a_jump_across_the_expiry_is_noticed", |mut rig| {
        rig.start();
        let mut stream = Stream::open(&rig);
        let first = stream.svid_at(rig.now());
        rig.pass(Span::hours(2));
        let second = stream.svid_at(rig.now());
        assert_ne!(first.serial, second.serial);
    });
}

/// Ten minutes fast: what it issues is not valid yet for the others, and whoever refuses it names both times.
#[test]
fn a_fast_clock_is_named_by_those_who_refuse_it() {
    run("a_fast_clock_is_named_by_those_who_refuse_it", |mut rig| {
        rig.pass(Span::minutes(10));
        rig.start();
        let mut stream = Stream::open(&rig);
        stream.svid_at(rig.now());
        let refused = stream.verify_last_at(rig.real_now()).unwrap_err();
        assert!(
            refused.contains("check the clock") && refused.contains("this node's clock says"),
            "{refused}"
        );
    });
}

/// Ten minutes slow: the SVID that it was given is not valid yet, so an issuer makes itself another; and what it issues holds for the others.
#[test]
fn a_slow_clock_harms_nobody() {
    run("a_slow_clock_harms_nobody", |mut rig| {
        rig.pass(-Span::minutes(10));
        rig.start();
        rig.wait_healthy();
        let mut stream = Stream::open(&rig);
        stream.svid_at(rig.now());
        stream.verify_last_at(rig.real_now()).unwrap();
        // The clock is put right: nothing has to be restarted.
        rig.pass(Span::minutes(10));
        rig.wait_healthy();
    });
}

/// The kernel tells of its own clock, which libfaketime does not touch: so that one is set as well, to what it shows.
#[test]
#[ignore = "sets the machine's clock to what it shows, which needs CAP_SYS_TIME; run it with -- --ignored"]
fn a_clock_that_is_set_is_seen_at_once() {
    run("a_clock_that_is_set_is_seen_at_once", |mut rig| {
        rig.start();
        let mut stream = Stream::open(&rig);
        let first = stream.svid_at(rig.now());
        let asked = Instant::now();
        rig.pass(Span::minutes(45));
        clock_settime(ClockId::CLOCK_REALTIME, clock_gettime(ClockId::CLOCK_REALTIME).unwrap()).unwrap();
        let second = stream.svid_at(rig.now());
        assert_ne!(first.serial, second.serial);
        // A stream looks by itself after a minute.
        assert!(asked.elapsed() < Duration::from_secs(20), "seen after {:?}", asked.elapsed());
    });
}
