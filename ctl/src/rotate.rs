//! `isthmusctl rotate`: orders to the machine of rotations, and what came of them.

use std::fs::{self, File};
use std::io::Read as _;
use std::path::Path;

use isthmus_proto::rotation::rotation_order::{self as order, Command};
use isthmus_proto::rotation::{RotationObstacle, RotationOrder, RotationOutcome};
use serde::Serialize;

use crate::cli::{IntermediateVerb, Ordering, RootVerb, RotateVerb};
use crate::client::Server;
use crate::failure::Failure;
use crate::moment::Moment;
use crate::output::{Document, Output};
use crate::page::Page;
use crate::watch::{self, Client};

/// Longest file that is sent, in bytes.
const MAX_LEN: u64 = 1 << 20;

/// Orders a step and prints what came of it.
///
/// # Errors
/// A file that can't be read; a daemon that can't be reached or fails; after printing, that something stands in the way.
pub(crate) fn run(server: &Server, output: &Output, verb: RotateVerb) -> Result<(), Failure> {
    let out = match &verb {
        RotateVerb::Intermediate(IntermediateVerb::Prepare { out, .. }) => out.clone(),
        _ => None,
    };
    let (order, dry_run) = read(verb)?;
    let outcome = watch::run(async {
        let mut client = Client::new(server.connect().await?).rotation;
        let answer = if dry_run { client.plan(order).await } else { client.apply(order).await };
        Ok(answer.map_err(|status| server.failed(&status))?.into_inner())
    })?;
    if let Some(path) = out.filter(|_| !outcome.request.is_empty()) {
        fs::write(&path, &outcome.request)
            .map_err(|error| Failure::failed(format!("cannot write {}: {error}", path.display())))?;
    }
    let document = OutcomeDocument::from(outcome);
    output.print(&document)?;
    document.verdict(dry_run)
}

fn read(verb: RotateVerb) -> Result<(RotationOrder, bool), Failure> {
    let mut checked = String::new();
    let (command, ordering) = match verb {
        RotateVerb::Status => return Err(Failure::usage("status is shown, not ordered")),
        RotateVerb::Leaf(ordering) => (Command::Leaf(order::Leaf {}), ordering),
        RotateVerb::Intermediate(verb) => intermediate(verb)?,
        RotateVerb::Root(RootVerb::Activate { istio_checked, ordering }) => {
            checked = istio_checked.unwrap_or_default();
            (Command::ActivateRoot(order::ActivateRoot {}), ordering)
        }
        RotateVerb::Root(RootVerb::Publish { charter, ordering }) => {
            (Command::Publish(file(&charter)?), ordering)
        }
        RotateVerb::Root(RootVerb::Retire { charter, ordering }) => {
            (Command::RetireRoot(file(&charter)?), ordering)
        }
        RotateVerb::Taint { ca, reason, ordering } => (Command::Taint(order::Taint { ca, reason }), ordering),
        RotateVerb::Revoke { ca, crl, ordering } => {
            let crl = der(&crl)?;
            (Command::Revoke(order::Revoke { ca, crl }), ordering)
        }
        RotateVerb::Forget { node, ordering } => (Command::Forget(node), ordering),
    };
    let Ordering { dry_run, override_reason } = ordering;
    let override_reason = override_reason.unwrap_or_default();
    Ok((RotationOrder { command: Some(command), override_reason, istio_checked: checked }, dry_run))
}

fn intermediate(verb: IntermediateVerb) -> Result<(Command, Ordering), Failure> {
    Ok(match verb {
        IntermediateVerb::Prepare { ordering, .. } => (Command::Prepare(order::Prepare {}), ordering),
        IntermediateVerb::Install { certificate, ordering } => {
            (Command::Install(file(&certificate)?), ordering)
        }
        IntermediateVerb::Activate(ordering) => (Command::Activate(order::Activate {}), ordering),
        IntermediateVerb::Retire(ordering) => (Command::Retire(order::Retire {}), ordering),
    })
}

fn file(path: &Path) -> Result<Vec<u8>, Failure> {
    let failed = |what: String| Failure::failed(format!("cannot read {}: {what}", path.display()));
    let mut content = Vec::new();
    let opened = File::open(path).map_err(|error| failed(error.to_string()))?;
    opened.take(MAX_LEN + 1).read_to_end(&mut content).map_err(|error| failed(error.to_string()))?;
    if content.len() as u64 > MAX_LEN {
        return Err(failed(format!("it has more than {MAX_LEN} bytes")));
    }
    Ok(content)
}

/// A CRL in DER, whatever the file has.
fn der(path: &Path) -> Result<Vec<u8>, Failure> {
    let content = file(path)?;
    isthmus_pki::signed_by::crl_der(&content)
        .ok_or_else(|| Failure::failed(format!("{} is neither DER nor PEM of one X509 CRL", path.display())))
}

/// Schema `isthmus.v1/rotation-outcome`.
#[derive(Debug, Serialize)]
struct OutcomeDocument {
    schema: &'static str,
    applied: bool,
    effects: Vec<String>,
    obstacles: Vec<Obstacle>,
    notes: Vec<String>,
    request: Option<String>,
}

#[derive(Debug, Serialize)]
struct Obstacle {
    what: String,
    can_be_overridden: bool,
}

impl From<RotationOutcome> for OutcomeDocument {
    fn from(outcome: RotationOutcome) -> Self {
        let obstacle = |RotationObstacle { what, can_be_overridden }: RotationObstacle| Obstacle {
            what,
            can_be_overridden,
        };
        Self {
            schema: "isthmus.v1/rotation-outcome",
            applied: outcome.applied,
            effects: outcome.effects,
            obstacles: outcome.obstacles.into_iter().map(obstacle).collect(),
            notes: outcome.notes,
            request: Some(outcome.request).filter(|request| !request.is_empty()),
        }
    }
}

impl OutcomeDocument {
    fn verdict(&self, dry_run: bool) -> Result<(), Failure> {
        if self.obstacles.is_empty() {
            return Ok(());
        }
        let what = if dry_run { "it would be refused" } else { "refused, nothing was done" };
        let help = if self.obstacles.iter().all(|obstacle| obstacle.can_be_overridden) {
            "wait for it: `isthmusctl rotate status --watch`; or, knowing what breaks, --override REASON"
        } else {
            "what stands in the way can't be overridden"
        };
        Err(Failure::failed(what).with_help(help))
    }
}

impl Document for OutcomeDocument {
    fn lay_out(&self, _: Moment, page: &mut Page) {
        for obstacle in &self.obstacles {
            page.line(format!("in the way: {}", obstacle.what));
        }
        let word = if self.applied { "done" } else { "would" };
        for effect in &self.effects {
            page.line(format!("{word}: {effect}"));
        }
        for note in &self.notes {
            page.line(format!("note: {note}"));
        }
        if let Some(request) = &self.request {
            // Line by line: a PEM block that a person can copy.
            request.lines().for_each(|line| page.line(line));
        }
    }
}
