//! Where each rotation stands, in lines: what is done, what can be done now, what waits and for what.

use super::{
    command::{Command, Order},
    fleet::{Fleet, span},
    plan::plan,
    refusal::Refusal,
    state::{Ca, Phase, State},
};
use crate::{charter::RootState, facts::utc};

/// Whether a step can be taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// Behind us.
    Done,
    /// Can be ordered now.
    Ready,
    /// Something is in its way.
    Waiting,
    /// Somebody should look.
    Alarm,
}

impl Status {
    /// One word.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::Ready => "ready",
            Self::Waiting => "waiting",
            Self::Alarm => "alarm",
        }
    }
}

/// A line of the progress view.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// "leaf", "intermediate", "root" or "fleet"; "fabric" for what is not of this site.
    pub track: &'static str,
    /// Which step.
    pub step: String,
    /// Whether it can be taken.
    pub status: Status,
    /// Since when, or what it waits for.
    pub detail: String,
}

/// The view of a node at a moment.
pub fn progress(state: &State, fleet: &Fleet, now: i64) -> Vec<Line> {
    let mut lines = leaves(state, now);
    lines.extend(state.roots.iter().map(|root| Line {
        track: "root",
        step: format!(
            "{} {}",
            root.key.short(),
            match root.state {
                RootState::Active => "trusted",
                RootState::Retiring => "trusted, retiring",
            }
        ),
        status: Status::Done,
        detail: format!("since {}, charter {}", utc(root.since), root.sequence),
    }));
    lines.extend(state.cas.iter().map(|ca| ca_line(ca, now)));
    lines.extend(next_steps(state, fleet, now));
    lines.extend(nodes(state, fleet, now));
    lines.extend(state.alarms(now).into_iter().map(|detail| Line {
        track: "intermediate",
        step: "supply".into(),
        status: Status::Alarm,
        detail,
    }));
    lines
}

fn leaves(state: &State, now: i64) -> Vec<Line> {
    let Some(last) = &state.reissue else { return Vec::new() };
    let end = last.begun + i64::from(last.window);
    let (status, detail) = if now < end {
        (Status::Waiting, format!("until {}: {}", utc(end), last.reason))
    } else {
        (Status::Done, format!("at {}: {}", utc(end), last.reason))
    };
    vec![Line { track: "leaf", step: format!("reissue {}", last.generation), status, detail }]
}

fn ca_line(ca: &Ca, now: i64) -> Line {
    let end = ca.certificate.as_ref().map(|certificate| {
        let left = span(certificate.not_after - now);
        format!("valid until {} ({left} left), root {}", utc(certificate.not_after), certificate.root.short())
    });
    let mut detail = end.unwrap_or_else(|| "waits for its certificate from the ceremony".into());
    if let Phase::Retiring(until) = ca.phase {
        detail = format!("its last leaf is dead after {}; {detail}", utc(until));
    }
    if ca.is_condemned() {
        detail = condemned(ca);
    }
    let status = match ca.phase {
        Phase::Requested | Phase::Retiring(_) => Status::Waiting,
        Phase::Tainted | Phase::Revoked if !ca.listed => Status::Waiting,
        _ => Status::Done,
    };
    Line { track: "intermediate", step: format!("{} {}", ca.key.short(), ca.phase.as_str()), status, detail }
}

/// Who refuses it, and who can't know yet.
fn condemned(ca: &Ca) -> String {
    let since = utc(ca.since);
    if ca.listed {
        format!("what it issued is refused since {since}, and a CRL in force names it")
    } else {
        format!(
            "what it issued is refused since {since}, by isthmusd; no CRL in force names it: Envoy and Istio believe it until one does (`isthmus-ca crl sign`, `rotate revoke`)"
        )
    }
}

/// Steps that somebody may be waiting to take, with what stands in their way.
fn next_steps(state: &State, fleet: &Fleet, now: i64) -> Vec<Line> {
    let retiring = state.cas.iter().any(|ca| matches!(ca.phase, Phase::Retiring(_)));
    let unlisted = state.cas.iter().filter(|ca| ca.is_condemned() && !ca.listed);
    let mut steps = Vec::new();
    if state.successor(true).is_some() {
        steps.push(("intermediate", Command::Activate));
    }
    // Without one that issues, every prepared CA is already offered above.
    if state.active().is_some() && state.successor(false).is_some() {
        steps.push(("root", Command::ActivateRoot));
    }
    if retiring {
        steps.push(("intermediate", Command::Retire));
    }
    let revoke = |ca: &Ca| ("intermediate", Command::Revoke { ca: ca.key.clone(), known: false });
    steps.extend(unlisted.map(revoke));
    steps.into_iter().map(|(track, command)| step(state, fleet, track, command, now)).collect()
}

fn step(state: &State, fleet: &Fleet, track: &'static str, command: Command, now: i64) -> Line {
    let step = match &command {
        Command::Revoke { ca, .. } => format!("revoke {}", ca.short()),
        other => other.name().to_owned(),
    };
    let order = Order { command, override_reason: None, istio_checked: None };
    let (status, detail) = match plan(state, &order, fleet, now) {
        Ok(_) => (Status::Ready, "can be ordered now".to_owned()),
        Err(Refusal { obstacles }) => (Status::Waiting, brief(&obstacles)),
    };
    Line { track, step, status, detail }
}

/// The first few; a thousand nodes that lag fill no screen.
fn brief(obstacles: &[super::Obstacle]) -> String {
    const SHOWN: usize = 3;
    let mut text = obstacles.iter().take(SHOWN).map(ToString::to_string).collect::<Vec<_>>().join("; ");
    if obstacles.len() > SHOWN {
        text.push_str(&format!("; and {} more", obstacles.len() - SHOWN));
    }
    text
}

fn nodes(state: &State, fleet: &Fleet, now: i64) -> Vec<Line> {
    let sequence = state.charter_sequence();
    let line = |(name, report): (&str, &super::Report)| Line {
        track: "fleet",
        step: name.to_owned(),
        status: if report.charter_sequence < sequence { Status::Waiting } else { Status::Done },
        detail: format!(
            "charter {} of {sequence}, SVID of {}, heard {} ago",
            report.charter_sequence,
            report.svid_issuer.as_ref().map_or("nobody", |issuer| issuer.short()),
            span(now - report.at)
        ),
    };
    fleet.nodes().map(line).collect()
}
