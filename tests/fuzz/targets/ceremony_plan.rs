//! A plan: refused, or its dates can be worked out.
#![no_main]

use isthmus_pki::plan::Plan;
use libfuzzer_sys::fuzz_target;
use time::OffsetDateTime;

fuzz_target!(|data: &[u8]| {
    let Ok(plan) = Plan::parse(data) else { return };
    let now = OffsetDateTime::UNIX_EPOCH;
    for site in &plan.sites {
        assert!(site.starts(site.requests - 1, now) >= now);
        assert_eq!(plan.site(&site.name), Some(site), "names differ");
    }
    for lists in &plan.crl {
        let (from, to) = lists.period(lists.count - 1, now);
        assert!(from <= to);
    }
});
