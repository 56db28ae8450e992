//! What came of a run, and whether it is good.

use std::{collections::BTreeMap, time::Duration};

use serde::Serialize;

use super::{
    Plan,
    end::Done,
    flows::{Outcomes, SILENCE},
    vitals::{Memory, Seen},
};
use crate::{
    report::{Machine, table::table},
    summary::quantile,
};

/// The form of [`Report`]; another number when a reader of this one would misread it.
const SCHEMA: &str = "isthmus-bench/soak/1";
/// How much more a daemon may have in the end than after the warm-up, in MiB.
const GROWTH: f64 = 4.0;
/// The share of datagrams that may be lost while the cable is up: a move of an end or a full queue costs some.
const LOSS: f64 = 0.01;
/// Keys live for 120 s (WireGuard section 5.4); a run without a new pair in this time has not renewed them.
const REKEY: u64 = 150;

/// What was seen in a run.
pub(super) struct Observed {
    /// How long it lasted.
    pub(super) lasted: Duration,
    /// How much of it the cable was down.
    pub(super) down: Duration,
    /// What was done.
    pub(super) events: Done,
    /// What the flows did.
    pub(super) flows: Outcomes,
    /// How the daemons were.
    pub(super) vitals: Seen,
    /// What went wrong with the daemons.
    pub(super) troubles: Vec<String>,
}

/// Everything that a run found.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    schema: &'static str,
    machine: Machine,
    version: String,
    minutes: u32,
    seconds: u64,
    outage_seconds: f64,
    rate_megabits: u32,
    events: BTreeMap<&'static str, u32>,
    rekeys: u32,
    flows: Vec<Flow>,
    round_trips: RoundTrips,
    memory: Vec<DaemonMemory>,
    failures: Vec<String>,
}

/// One direction of a flow.
#[derive(Debug, Serialize)]
struct Flow {
    name: String,
    /// Octets or datagrams.
    received: u64,
    unit: &'static str,
    lost: u64,
    unexplained_lost: u64,
    reordered: u64,
    duplicates: u64,
    longest_silence_seconds: f64,
    unexplained_silence_seconds: f64,
}

#[derive(Debug, Serialize)]
struct RoundTrips {
    answered: usize,
    unanswered: u64,
    median_ms: f64,
    p99_ms: f64,
    longest_ms: f64,
}

/// In MiB.
#[derive(Debug, Serialize)]
struct DaemonMemory {
    node: &'static str,
    start: f64,
    warm: f64,
    end: f64,
    peak: f64,
    slope_per_hour: f64,
}

impl Report {
    /// Judges what was observed.
    pub(super) fn new(plan: &Plan, machine: Machine, observed: Observed) -> Self {
        let Observed { lasted, down, events, flows, vitals, troubles } = observed;
        let mut failures = troubles;
        failures.extend(events.troubles);
        failures.extend(flow_failures(&flows));
        let memory = ["near", "far"].into_iter().zip(vitals.memory);
        failures.extend(memory.clone().filter_map(|(node, memory)| growth(node, memory)));
        failures.extend(missing_rekeys(lasted, vitals.rekeys));
        Self {
            schema: SCHEMA,
            machine,
            version: plan.daemon.version.clone(),
            minutes: plan.minutes,
            seconds: lasted.as_secs(),
            outage_seconds: down.as_secs_f64(),
            rate_megabits: plan.rate,
            events: events.counts,
            rekeys: vitals.rekeys,
            round_trips: RoundTrips::new(&flows.round_trips, flows.unanswered),
            flows: directions(flows),
            memory: memory.map(|(node, memory)| DaemonMemory::new(node, memory)).collect(),
            failures,
        }
    }

    /// Was anything lost?
    pub(super) fn failed(&self) -> bool {
        !self.failures.is_empty()
    }

    /// One JSON document, indented.
    ///
    /// # Errors
    /// When it holds what JSON can't, such as a number that is none.
    pub(super) fn json(&self) -> serde_json::Result<String> {
        serde_json::to_string_pretty(self)
    }

    /// For people.
    pub(super) fn table(&self) -> String {
        let events: Vec<String> = self.events.iter().map(|(kind, count)| format!("{count} {kind}")).collect();
        let trips = &self.round_trips;
        let mut text = format!(
            "{}\n{}; {} s of {} min, TCP {} Mb/s; cable down for {:.1} s in all\n{}, {} rekeys\n\n{}\n\n{}\n\nround trips: median {:.3} ms, p99 {:.3} ms, longest {:.3} ms; {} of {} unanswered\n\n",
            self.machine,
            self.version,
            self.seconds,
            self.minutes,
            self.rate_megabits,
            self.outage_seconds,
            events.join(", "),
            self.rekeys,
            self.flow_table(),
            self.memory_table(),
            trips.median_ms,
            trips.p99_ms,
            trips.longest_ms,
            trips.unanswered,
            trips.answered as u64 + trips.unanswered,
        );
        text.extend(self.failures.iter().map(|failure| format!("FAIL: {failure}\n")));
        text.push_str(if self.failed() { "result: FAIL\n" } else { "result: pass\n" });
        text
    }

    fn flow_table(&self) -> comfy_table::Table {
        let mut table = table(7);
        table.set_header([
            "flow",
            "received",
            "lost",
            "but for outages",
            "reordered",
            "double",
            "longest silence, s",
            "but for outages, s",
        ]);
        for flow in &self.flows {
            let mut row = vec![flow.name.clone(), format!("{} {}", flow.received, flow.unit)];
            row.extend(
                [flow.lost, flow.unexplained_lost, flow.reordered, flow.duplicates]
                    .map(|number| number.to_string()),
            );
            row.extend(
                [flow.longest_silence_seconds, flow.unexplained_silence_seconds].map(|s| format!("{s:.2}")),
            );
            table.add_row(row);
        }
        table
    }

    fn memory_table(&self) -> comfy_table::Table {
        let mut table = table(5);
        table.set_header(["RSS, MiB", "start", "warm", "end", "peak", "slope an hour"]);
        for memory in &self.memory {
            let values = [memory.start, memory.warm, memory.end, memory.peak, memory.slope_per_hour];
            let mut row = vec![memory.node.to_owned()];
            row.extend(values.map(|value| format!("{value:.1}")));
            table.add_row(row);
        }
        table
    }
}

impl RoundTrips {
    fn new(times: &[f64], unanswered: u64) -> Self {
        let part = |share| quantile(times, share).unwrap_or_default();
        let (median_ms, p99_ms, longest_ms) = (part(0.5), part(0.99), part(1.0));
        Self { answered: times.len(), unanswered, median_ms, p99_ms, longest_ms }
    }
}

impl DaemonMemory {
    fn new(node: &'static str, memory: Memory) -> Self {
        let Memory { start, warm, end, peak, slope } = memory;
        Self { node, start, warm, end, peak, slope_per_hour: slope }
    }
}

fn directions(flows: Outcomes) -> Vec<Flow> {
    let tcp = flows.tcp.into_iter().map(|flow| Flow {
        name: flow.name,
        received: flow.outcome.received,
        unit: "B",
        lost: 0,
        unexplained_lost: 0,
        reordered: 0,
        duplicates: 0,
        longest_silence_seconds: flow.outcome.silences.longest().as_secs_f64(),
        unexplained_silence_seconds: flow.unexplained.as_secs_f64(),
    });
    let udp = flows.udp.into_iter().map(|flow| Flow {
        name: flow.name,
        received: flow.outcome.tally.received,
        unit: "datagrams",
        lost: flow.outcome.sent.saturating_sub(flow.outcome.tally.received),
        unexplained_lost: flow.outcome.unexplained,
        reordered: flow.outcome.tally.reordered,
        duplicates: flow.outcome.tally.duplicates,
        longest_silence_seconds: flow.outcome.silences.longest().as_secs_f64(),
        unexplained_silence_seconds: flow.unexplained.as_secs_f64(),
    });
    tcp.chain(udp).collect()
}

fn flow_failures(flows: &Outcomes) -> Vec<String> {
    let mut failures = Vec::new();
    for flow in &flows.tcp {
        failures.extend(flow.outcome.trouble.as_ref().map(|why| format!("{}: {why}", flow.name)));
        failures.extend(silence(&flow.name, flow.unexplained));
    }
    for flow in &flows.udp {
        let (duplicates, outcome) = (flow.outcome.tally.duplicates, &flow.outcome);
        let lost = outcome.unexplained as f64 / outcome.sent.max(1) as f64;
        failures
            .extend((lost > LOSS).then(|| {
                format!("{}: {} datagrams lost beyond the outages", flow.name, outcome.unexplained)
            }));
        failures
            .extend((duplicates > 0).then(|| format!("{}: {duplicates} datagrams came twice", flow.name)));
        failures.extend(silence(&flow.name, flow.unexplained));
    }
    if flows.udp.len() < 2 || flows.round_trips.is_empty() {
        failures.push("a flow of datagrams was not seen to its end".into());
    }
    failures
}

fn silence(name: &str, unexplained: Duration) -> Option<String> {
    let seconds = unexplained.as_secs_f64();
    (unexplained > SILENCE).then(|| format!("{name}: silent for {seconds:.1} s beyond the outages"))
}

fn growth(node: &str, memory: Memory) -> Option<String> {
    let grown = memory.end - memory.warm;
    (grown > GROWTH).then(|| format!("the {node} daemon has grown by {grown:.1} MiB since its warm-up"))
}

fn missing_rekeys(lasted: Duration, rekeys: u32) -> Option<String> {
    let least = lasted.as_secs() / REKEY;
    (u64::from(rekeys) < least).then(|| format!("{rekeys} rekeys, but at least {least} were due"))
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use serde_json::Value;

    use super::*;
    use crate::{
        contender::{Contender, Name},
        plan::Output,
        soak::{
            flows,
            silence::Silences,
            stream,
            udp::{self, Tally},
        },
    };

    fn observed() -> Observed {
        let silences = || Silences::new(Instant::now());
        let tcp = stream::Outcome { received: 1 << 30, silences: silences(), trouble: None };
        let udp = || {
            let mut tally = Tally::default();
            tally.received = 997;
            let outcome = udp::Outcome { sent: 1000, unexplained: 2, tally, silences: silences() };
            flows::Flow { name: "UDP there".into(), outcome, unexplained: Duration::from_secs(1) }
        };
        let memory = Memory { start: 10.0, warm: 12.0, end: 16.0, peak: 20.0, slope: 0.5 };
        Observed {
            lasted: Duration::from_secs(1800),
            down: Duration::from_secs(27),
            events: Done { counts: BTreeMap::from([("link flaps", 12)]), troubles: vec![] },
            flows: Outcomes {
                tcp: vec![flows::Flow {
                    name: "TCP 1 there".into(),
                    outcome: tcp,
                    unexplained: Duration::from_secs(4),
                }],
                udp: vec![udp(), udp()],
                round_trips: vec![0.1, 0.2, 0.3],
                unanswered: 1,
            },
            vitals: Seen { memory: [memory; 2], rekeys: 14 },
            troubles: vec![],
        }
    }

    fn report(observed: Observed) -> Report {
        let daemon = Contender { name: Name::Isthmus, path: "/x".into(), version: "isthmusd 0.1.0".into() };
        let plan = Plan { daemon, minutes: 30, rate: 200, output: Output::Json };
        Report::new(&plan, Machine::this(), observed)
    }

    #[test]
    fn what_lasted_passes() {
        let report = report(observed());
        assert!(!report.failed(), "{:?}", report.failures);
        let table = report.table();
        assert!(table.contains("12 link flaps, 14 rekeys") && table.ends_with("result: pass\n"), "{table}");
        let json: Value = serde_json::from_str(&report.json().unwrap()).unwrap();
        assert_eq!(json["schema"], SCHEMA);
        assert_eq!(
            (&json["flows"][1]["lost"], &json["flows"][1]["unexplained_lost"]),
            (&3.into(), &2.into())
        );
        assert_eq!((&json["memory"][1]["node"], &json["memory"][1]["end"]), (&"far".into(), &16.0.into()));
    }

    #[test]
    fn each_loss_is_a_failure() {
        type Spoil = fn(&mut Observed);
        let spoils: [(Spoil, &str); 9] = [
            (
                |all| all.flows.tcp[0].outcome.trouble = Some("octet 7 arrived wrong".into()),
                "TCP 1 there: octet 7",
            ),
            (|all| all.flows.tcp[0].unexplained = Duration::from_secs(11), "silent for 11.0 s"),
            (|all| all.flows.udp[0].unexplained = Duration::from_secs(12), "silent for 12.0 s"),
            (|all| all.flows.udp[0].outcome.unexplained = 11, "11 datagrams lost"),
            (|all| all.flows.udp[1].outcome.tally.duplicates = 1, "came twice"),
            (|all| drop(all.flows.udp.pop()), "not seen to its end"),
            (|all| all.vitals.memory[1].end = 16.1, "the far daemon has grown by 4.1 MiB"),
            (|all| all.vitals.rekeys = 11, "at least 12 were due"),
            (|all| all.troubles.push("near ended by itself".into()), "near ended"),
        ];
        for (spoil, expected) in spoils {
            let mut observed = observed();
            spoil(&mut observed);
            let report = report(observed);
            assert_eq!(report.failures.len(), 1, "{:?}", report.failures);
            assert!(report.failures[0].contains(expected), "{:?}", report.failures);
            assert!(report.failed() && report.table().ends_with("result: FAIL\n"));
        }
    }
}
