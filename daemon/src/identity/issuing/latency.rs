//! How long issuing takes, in buckets that cost an addition each. Prometheus reads them as a histogram.

use std::{
    fmt::Write as _,
    sync::{
        OnceLock,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use crate::scrape::{self, Update};

/// Upper bounds, in microseconds.
const BOUNDS: [u64; 10] = [50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 100_000, 1_000_000];
const NAME: &str = "isthmus_svid_issue_seconds";

/// Of one kind of SVID.
struct Histogram {
    /// Not cumulative; the last is for what is longer than all bounds.
    buckets: [AtomicU64; BOUNDS.len() + 1],
    microseconds: AtomicU64,
}

static X509: Histogram = Histogram::new();
static JWT: Histogram = Histogram::new();

/// Takes one that was issued, from the request to the record in the audit log.
pub(super) fn observe(kind: &str, took: Duration) {
    static SHOWN: OnceLock<Update> = OnceLock::new();
    SHOWN.get_or_init(|| scrape::at_reading(render));
    let histogram = if kind == "jwt" { &JWT } else { &X509 };
    histogram.observe(u64::try_from(took.as_micros()).unwrap_or(u64::MAX));
}

fn render() -> String {
    let mut text = format!("# TYPE {NAME} histogram\n");
    X509.render("x509", &mut text);
    JWT.render("jwt", &mut text);
    text
}

impl Histogram {
    const fn new() -> Self {
        Self { buckets: [const { AtomicU64::new(0) }; BOUNDS.len() + 1], microseconds: AtomicU64::new(0) }
    }

    fn observe(&self, microseconds: u64) {
        let bucket = BOUNDS.partition_point(|bound| *bound < microseconds);
        self.buckets[bucket].fetch_add(1, Ordering::Relaxed);
        self.microseconds.fetch_add(microseconds, Ordering::Relaxed);
    }

    fn render(&self, kind: &str, text: &mut String) {
        let mut count = 0;
        let bounds = BOUNDS.iter().map(|bound| seconds(*bound)).chain(["+Inf".into()]);
        for (bucket, bound) in self.buckets.iter().zip(bounds) {
            count += bucket.load(Ordering::Relaxed);
            let _ = writeln!(text, "{NAME}_bucket{{kind=\"{kind}\",le=\"{bound}\"}} {count}");
        }
        let sum = seconds(self.microseconds.load(Ordering::Relaxed));
        let _ =
            writeln!(text, "{NAME}_sum{{kind=\"{kind}\"}} {sum}\n{NAME}_count{{kind=\"{kind}\"}} {count}");
    }
}

fn seconds(microseconds: u64) -> String {
    format!("{}.{:06}", microseconds / 1_000_000, microseconds % 1_000_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_are_cumulative_and_end_with_all() {
        let histogram = Histogram::new();
        [1, 50, 51, 150, 3_000_000].iter().for_each(|took| histogram.observe(*took));
        let mut text = String::new();
        histogram.render("x509", &mut text);
        for line in [
            r#"isthmus_svid_issue_seconds_bucket{kind="x509",le="0.000050"} 2"#,
            r#"isthmus_svid_issue_seconds_bucket{kind="x509",le="0.000100"} 3"#,
            r#"isthmus_svid_issue_seconds_bucket{kind="x509",le="1.000000"} 4"#,
            r#"isthmus_svid_issue_seconds_bucket{kind="x509",le="+Inf"} 5"#,
            r#"isthmus_svid_issue_seconds_sum{kind="x509"} 3.000252"#,
            r#"isthmus_svid_issue_seconds_count{kind="x509"} 5"#,
        ] {
            assert!(text.lines().any(|shown| shown == line), "{line} in\n{text}");
        }
    }
}
