//! The result: figures, ratios and verdicts, for programs and for people.

pub(crate) mod plain;
pub(crate) mod table;

use std::{collections::BTreeMap, fmt, fs, thread::available_parallelism};

use nix::sys::utsname::uname;
use serde::Serialize;

use crate::{
    contender::{Contender, Name},
    failover,
    figure::{Figure, Samples},
    goal::{Mark, Verdict, judge},
    plan::Plan,
    summary::Summary,
};

/// The form of [`Report`]; another number when a reader of this one would misread it.
const SCHEMA: &str = "isthmus-bench/path/1";

/// Everything that a run found.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Report {
    schema: &'static str,
    machine: Machine,
    rounds: u32,
    seconds: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    peers: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    failovers: Option<u32>,
    config: Vec<String>,
    #[serde(flatten)]
    comparison: Comparison,
}

/// Side by side, whatever was measured.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Comparison {
    programs: Vec<Program>,
    ratios: Vec<Ratio>,
    verdicts: Vec<Verdict>,
}

/// Where it ran.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Machine {
    /// Processors that this process may use.
    cores: usize,
    /// What the kernel calls them.
    processor: String,
    /// Version of the kernel.
    kernel: String,
}

/// One program's figures.
#[derive(Clone, Debug, Serialize)]
struct Program {
    name: Name,
    version: String,
    figures: BTreeMap<Figure, Values>,
}

#[derive(Clone, Debug, Serialize)]
struct Values {
    unit: &'static str,
    #[serde(flatten)]
    summary: Summary,
    rounds: Vec<f64>,
}

/// Our median by that of a rival.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
struct Ratio {
    figure: Figure,
    rival: Name,
    ratio: f64,
}

impl Machine {
    /// This one.
    pub(crate) fn this() -> Self {
        let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        Self {
            cores: available_parallelism().map_or(0, usize::from),
            processor: processor(&cpuinfo),
            kernel: uname().map(|name| name.release().to_string_lossy().into_owned()).unwrap_or_default(),
        }
    }
}

impl fmt::Display for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} cores, {}, Linux {}", self.cores, self.processor, self.kernel)
    }
}

/// Not every architecture names its processors.
fn processor(cpuinfo: &str) -> String {
    let line = cpuinfo.lines().find_map(|line| line.strip_prefix("model name"));
    line.and_then(|rest| rest.split_once(':')).map_or("unknown", |(_, name)| name.trim()).to_owned()
}

impl Report {
    /// Of the values of each contender, in the order of the plan.
    pub(crate) fn new(plan: &Plan, machine: Machine, results: &[(Name, Samples)]) -> Self {
        Self {
            schema: SCHEMA,
            machine,
            rounds: plan.rounds,
            seconds: plan.seconds,
            peers: plan.peers,
            failovers: plan.failover.then_some(failover::REPETITIONS),
            config: plan.config.clone(),
            comparison: Comparison::new(&plan.contenders, results),
        }
    }

    /// One JSON document, indented.
    ///
    /// # Errors
    /// When it holds what JSON can't, such as a number that is none.
    pub(crate) fn json(&self) -> serde_json::Result<String> {
        serde_json::to_string_pretty(self)
    }

    /// Two tables with a heading.
    pub(crate) fn table(&self) -> String {
        table::render(self)
    }
}

impl Comparison {
    /// Of the values of each contender, in their order.
    pub(crate) fn new(contenders: &[Contender], results: &[(Name, Samples)]) -> Self {
        let samples = |name| results.iter().find(|(of, _)| *of == name).map(|(_, samples)| samples);
        let program = |contender: &Contender| Some(Program::new(contender, samples(contender.name)?));
        let programs: Vec<Program> = contenders.iter().filter_map(program).collect();
        Self { ratios: ratios(&programs), programs, verdicts: judge(results) }
    }

    /// Whether something is worse than it must be.
    pub(crate) fn failed(&self) -> bool {
        self.verdicts.iter().any(|verdict| verdict.mark == Mark::Fail)
    }
}

impl Program {
    fn new(contender: &Contender, samples: &Samples) -> Self {
        let values = |(figure, rounds): (&Figure, &Vec<f64>)| {
            let summary = Summary::of(rounds)?;
            Some((*figure, Values { unit: figure.unit(), summary, rounds: rounds.clone() }))
        };
        let figures = samples.iter().filter_map(values).collect();
        Self { name: contender.name, version: contender.version.clone(), figures }
    }

    fn median(&self, figure: Figure) -> Option<f64> {
        Some(self.figures.get(&figure)?.summary.median)
    }
}

fn ratios(programs: &[Program]) -> Vec<Ratio> {
    let Some(ours) = programs.iter().find(|program| program.name == Name::Isthmus) else { return Vec::new() };
    let mut ratios = Vec::new();
    for rival in programs.iter().filter(|program| program.name != Name::Isthmus) {
        for (figure, values) in &ours.figures {
            if let Some(theirs) = rival.median(*figure).filter(|theirs| *theirs > 0.0) {
                ratios.push(Ratio {
                    figure: *figure,
                    rival: rival.name,
                    ratio: values.summary.median / theirs,
                });
            }
        }
    }
    ratios
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::plan::Output;

    pub(super) fn sample() -> Report {
        let contender = |name, version: &str| Contender { name, path: "/x".into(), version: version.into() };
        let plan = Plan {
            contenders: vec![
                contender(Name::Isthmus, "isthmusd 0.1.0"),
                contender(Name::WireguardGo, "wireguard-go v0"),
            ],
            rounds: 3,
            seconds: 5,
            config: vec!["mtu = 1400".into()],
            latency_under_load: false,
            peers: None,
            failover: false,
            output: Output::Json,
            keep: false,
        };
        let machine = Machine { cores: 2, processor: "AMD EPYC".into(), kernel: "6.18.0".into() };
        let ours = Samples::from([(Figure::Tcp1, vec![4.0, 3.0, 3.5]), (Figure::Ping, vec![0.06; 3])]);
        let theirs = Samples::from([(Figure::Tcp1, vec![2.0; 3]), (Figure::Ping, vec![0.3; 3])]);
        Report::new(&plan, machine, &[(Name::Isthmus, ours), (Name::WireguardGo, theirs)])
    }

    #[test]
    fn json_has_all_of_it() {
        let json: Value = serde_json::from_str(&sample().json().unwrap()).unwrap();
        assert_eq!(json["schema"], "isthmus-bench/path/1");
        assert_eq!(json["machine"], json!({"cores": 2, "processor": "AMD EPYC", "kernel": "6.18.0"}));
        assert_eq!(
            (&json["rounds"], &json["seconds"], &json["config"]),
            (&json!(3), &json!(5), &json!(["mtu = 1400"]))
        );
        assert_eq!(
            json["programs"][0]["figures"]["tcp1"],
            json!({"unit": "Gb/s", "median": 3.5, "min": 3.0, "max": 4.0, "rounds": [4.0, 3.0, 3.5]})
        );
        assert_eq!(json["programs"][1]["name"], "wireguard-go");
        assert_eq!(json["ratios"][0], json!({"figure": "tcp1", "rival": "wireguard-go", "ratio": 1.75}));
        assert_eq!(json["verdicts"][0]["mark"], "pass");
        assert!(json.get("peers").is_none());
    }

    #[test]
    fn processors_are_named_where_the_kernel_names_them() {
        assert_eq!(processor("processor\t: 0\nmodel name\t: AMD EPYC\n"), "AMD EPYC");
        assert_eq!(processor("processor\t: 0\n"), "unknown");
        assert!(Machine::this().cores > 0);
    }
}
