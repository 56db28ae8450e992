//! `charter sign` at the root; `charter verify`, `charter show` and `charter diff` anywhere.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use clap::Subcommand;
use isthmus_pki::{
    Authority, Charter, bundle,
    charter::{self, CaState, sealed},
    facts::utc,
    key::sha256_hex,
};

use crate::{
    files::{self, New},
    record::{self, Record},
    report::{How, Report},
    root,
};

#[derive(Subcommand)]
pub(crate) enum Command {
    /// At the root: sign the charter that a draft describes.
    Sign(Sign),
    /// Check a charter as a node would that trusts these roots.
    Verify {
        /// The charter.
        #[arg(value_name = "CHARTER")]
        charter: PathBuf,
        /// PEM file with the roots that the node trusts now.
        #[arg(long, value_name = "FILE")]
        bundle: PathBuf,
        /// The charter that the node has in force: the other one must come after it.
        #[arg(long, value_name = "CHARTER")]
        after: Option<PathBuf>,
    },
    /// Show what a charter says and who signed it. Shows, and believes nobody.
    Show {
        /// The charter.
        #[arg(value_name = "CHARTER")]
        charter: PathBuf,
    },
    /// Show what changes from one charter to another.
    Diff {
        /// The charter in force.
        #[arg(value_name = "OLD")]
        old: PathBuf,
        /// The one to come.
        #[arg(value_name = "NEW")]
        new: PathBuf,
    },
}

#[derive(clap::Args)]
pub(crate) struct Sign {
    /// The draft, TOML; files in it are relative to it.
    #[arg(long, value_name = "FILE")]
    charter: PathBuf,
    /// Directory that `root init` filled; again for each further root that signs.
    #[arg(long, value_name = "DIR", required = true)]
    root: Vec<PathBuf>,
    /// The charter in force: the new one must come after it.
    #[arg(long, value_name = "CHARTER")]
    after: Option<PathBuf>,
    /// Where to write the signed charter; must not exist.
    #[arg(long, value_name = "FILE")]
    out: PathBuf,
    #[command(flatten)]
    unlock: root::UnlockEach,
    #[command(flatten)]
    record: record::Args,
    #[command(flatten)]
    how: How,
}

pub(crate) fn run(command: Command) -> anyhow::Result<()> {
    match command {
        Command::Sign(args) => sign(&args),
        Command::Verify { charter, bundle, after } => verify(&charter, &bundle, after.as_deref()),
        Command::Show { charter } => show(&charter),
        Command::Diff { old, new } => diff(&old, &new),
    }
}

fn sign(args: &Sign) -> anyhow::Result<()> {
    files::refuse_existing(&[&args.out])?;
    let charter = draft(&args.charter)?;
    let report = describe(args, &charter)?;
    if args.how.dry_run {
        return args.how.say(report);
    }
    let mut record = Record::begin(&args.record, "charter sign")?;
    let roots = args.unlock.open(&args.root)?;
    let file = sealed::seal(&charter, &roots.iter().collect::<Vec<_>>())?;
    note(&mut record, args, &charter, &file);
    let new = New::public(&args.out, file.as_bytes());
    record.finish(roots.first().context("no --root")?, &[new])?;
    let signer = |root: &Authority| format!("{} (key {})", root.facts().subject, root.facts().key_sha256);
    args.how.say(report.lines("signed_by", roots.iter().map(signer).collect()))
}

/// What will be signed, and what it changes.
fn describe(args: &Sign, charter: &Charter) -> anyhow::Result<Report> {
    let headline = format!("signed charter {} of {}", charter.sequence, charter.trust_domain);
    let says = contents(charter).into_iter().map(|line| line.strip_prefix("  ").unwrap_or(&line).to_owned());
    let mut report = Report::new("charter-sign", headline)
        .number("sequence", charter.sequence)
        .fact("trust_domain", &charter.trust_domain, "")
        .lines("says", says.collect());
    if let Some(after) = &args.after {
        let (current, _) = look(after)?;
        charter.succeeds(&current).with_context(|| args.charter.display().to_string())?;
        report = report
            .number("after", current.sequence)
            .lines("changes", charter::differences(&current, charter));
    }
    Ok(report.fact("charter", args.out.display(), "(public: every node gets a copy)"))
}

/// What an auditor reads: which charter, and all that it says.
fn note(record: &mut Record, args: &Sign, charter: &Charter, file: &str) {
    let says: Vec<String> = contents(charter).iter().map(|line| line.trim().to_owned()).collect();
    let roots: Vec<String> = args.root.iter().map(|root| root.display().to_string()).collect();
    record.add(
        "charter",
        &[
            ("file", &args.out.display().to_string()),
            ("sha256", &sha256_hex(file.as_bytes())),
            ("sequence", &charter.sequence.to_string()),
            ("says", &says.join("; ")),
            ("roots", &roots.join(" ")),
        ],
    );
}

fn draft(path: &Path) -> anyhow::Result<Charter> {
    let text = files::read(path)?;
    let text = std::str::from_utf8(&text).with_context(|| format!("{}: not UTF-8", path.display()))?;
    let beside = path.parent().unwrap_or(Path::new("")).to_owned();
    let mut read = |name: &str| {
        files::read(&beside.join(name)).map(|bytes| bytes.to_vec()).map_err(|e| format!("{e:#}"))
    };
    charter::from_toml(text, crate::now().unix_timestamp(), &mut read)
        .with_context(|| path.display().to_string())
}

fn look(path: &Path) -> anyhow::Result<(Charter, Vec<isthmus_pki::Facts>)> {
    sealed::look(&files::read(path)?).with_context(|| path.display().to_string())
}

fn verify(path: &Path, roots: &Path, after: Option<&Path>) -> anyhow::Result<()> {
    let name = || path.display().to_string();
    let bundle = bundle::Bundle::parse(&files::read(roots)?).with_context(|| roots.display().to_string())?;
    let charter = sealed::open(&files::read(path)?, bundle.anchors(), crate::now()).with_context(name)?;
    if charter.trust_domain != *bundle.trust_domain() {
        bail!("{}: it is the charter of {}, not of {}", name(), charter.trust_domain, bundle.trust_domain());
    }
    if let Some(after) = after {
        charter.succeeds(&look(after)?.0).with_context(name)?;
    }
    crate::say(&[format!("charter {} of {} holds", charter.sequence, charter.trust_domain)])
}

fn show(path: &Path) -> anyhow::Result<()> {
    let (charter, signers) = look(path)?;
    let mut lines = vec![format!("charter {} of {}", charter.sequence, charter.trust_domain)];
    lines.extend(contents(&charter));
    let signer = |facts: &isthmus_pki::Facts| {
        format!("  signed by    {} (key {}); not checked against any bundle", facts.subject, facts.key_sha256)
    };
    lines.extend(signers.iter().map(signer));
    crate::say(&lines)
}

fn contents(charter: &Charter) -> Vec<String> {
    let mut lines = vec![
        format!("  issued at    {}", utc(charter.issued_at)),
        format!("  refresh hint {} s", charter.refresh_hint),
    ];
    lines.extend(
        charter.roots.iter().map(|root| format!("  root         {} {}", root.key, root.state.as_str())),
    );
    for site in &charter.sites {
        let ids = if site.ids.is_empty() { "none beside its own".into() } else { site.ids.join(", ") };
        lines.push(format!("  site         {} (IDs under: {ids})", site.name));
        let ca = |ca: &charter::PinnedCa| format!("    CA         {} {}", ca.key, state(ca.state));
        lines.extend(site.cas.iter().map(ca));
    }
    lines.push(format!("  CRLs         {}", charter.crls.len()));
    lines
}

fn state(state: CaState) -> String {
    if state.is_believed() {
        state.as_str().into()
    } else {
        format!("{}: what it issued is refused", state.as_str())
    }
}

fn diff(old: &Path, new: &Path) -> anyhow::Result<()> {
    let ((before, _), (after, _)) = (look(old)?, look(new)?);
    let mut lines = vec![format!("charter {} -> {}", before.sequence, after.sequence)];
    let changes = charter::differences(&before, &after);
    if changes.is_empty() {
        lines.push("  nothing else changes".into());
    }
    lines.extend(changes.iter().map(|line| format!("  {line}")));
    if let Err(reason) = after.succeeds(&before) {
        lines.push(format!("  a node would refuse it: {reason}"));
    }
    crate::say(&lines)
}
