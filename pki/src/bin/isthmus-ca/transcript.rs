//! `transcript verify`.

use std::path::PathBuf;

use anyhow::{Context as _, bail};
use clap::Subcommand;
use isthmus_pki::{
    Bundle, Facts, PublicKey, bundle,
    transcript::{self, Event, MAX_LEN},
    words,
};

use crate::{
    files,
    report::{Form, Report},
};

#[derive(Subcommand)]
pub(crate) enum Command {
    /// Check every line and every seal of a transcript, and show what was done.
    Verify(Verify),
}

#[derive(clap::Args)]
pub(crate) struct Verify {
    /// The transcript.
    transcript: PathBuf,
    /// The root's certificate.
    #[arg(long, value_name = "FILE")]
    root: PathBuf,
    /// A site CA that sealed some of it; must be signed by the root.
    #[arg(long, value_name = "FILE")]
    ca: Vec<PathBuf>,
    #[command(flatten)]
    form: Form,
}

pub(crate) fn run(command: &Command) -> anyhow::Result<()> {
    let Command::Verify(args) = command;
    let name = || args.transcript.display().to_string();
    let bytes = files::read_up_to(&args.transcript, MAX_LEN as u64)?;
    let verified = transcript::verify(&bytes, &signers(args)?).with_context(name)?;
    let events = verified.events.iter().map(|(time, event)| line(time, event)).collect();
    args.form.say(
        &Report::new("transcript-verify", format!("ok: {}", args.transcript.display()))
            .number("lines", verified.lines)
            .number("seals", verified.seals as u64)
            .fact("head_sha256", hex::encode(verified.head), "(must be what the witnesses wrote down)")
            .lines("words", words::lines(&verified.head))
            .lines("events", events),
    )
}

fn signers(args: &Verify) -> anyhow::Result<Vec<PublicKey>> {
    let name = || args.root.display().to_string();
    let root = Bundle::parse(&files::read(&args.root)?).with_context(name)?;
    let mut signers = Vec::new();
    for anchor in root.anchors() {
        signers.push(PublicKey::from_spki(&Facts::parse(anchor)?.spki).with_context(name)?);
    }
    for path in &args.ca {
        let name = || path.display().to_string();
        let certificate = bundle::certificates(&files::read(path)?).with_context(name)?.swap_remove(0);
        let facts = Facts::parse(&certificate).with_context(name)?;
        if !facts.is_ca()
            || !root.anchors().iter().any(|root| isthmus_pki::signed_by::certificate(&certificate, root))
        {
            bail!("{}: not a CA signed by {}", path.display(), args.root.display());
        }
        signers.push(PublicKey::from_spki(&facts.spki).with_context(name)?);
    }
    Ok(signers)
}

/// "2026-12-01T09:30:00Z certificate subject=… sha256=…"
fn line(time: &str, event: &Event) -> String {
    let kind = event.get("kind").and_then(|kind| kind.as_str()).unwrap_or("?");
    let members = event.iter().filter(|(name, _)| *name != "kind" && *name != "signature");
    let members: Vec<_> = members.map(|(name, value)| format!("{name}={value}")).collect();
    format!("{time} {kind} {}", members.join(" "))
}
