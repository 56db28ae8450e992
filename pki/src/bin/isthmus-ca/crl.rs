//! `crl sign`, and the lists of a sitting.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use clap::Subcommand;
use isthmus_pki::{
    Authority, Facts,
    authority::{self, Reason, Revoked, crl_number, crl_to_pem},
    bundle,
    facts::utc,
    plan::Lists,
};
use time::{Duration, OffsetDateTime};

use crate::{
    files::{self, New},
    record::{self, Record},
    report::{How, Report},
    root::{self, Unlock},
};

#[derive(Subcommand)]
pub(crate) enum Command {
    /// At the root: sign the list of revoked site CAs, for now and for periods to come.
    Sign(Sign),
}

#[derive(clap::Args)]
pub(crate) struct Sign {
    /// Directory that `root init` filled.
    #[arg(long, value_name = "DIR")]
    root: PathBuf,
    /// The list before this one: what it revoked stays revoked.
    #[arg(long, value_name = "FILE")]
    previous: Option<PathBuf>,
    /// A site CA to revoke, by its certificate; once for each.
    #[arg(long, value_name = "FILE")]
    revoke: Vec<PathBuf>,
    /// A site CA to revoke, by its serial number in hex; once for each.
    #[arg(long, value_name = "HEX")]
    revoke_serial: Vec<String>,
    /// Why: unspecified, key_compromise, ca_compromise, superseded or cessation_of_operation.
    #[arg(long, default_value = "unspecified", value_parser = reason)]
    reason: Reason,
    /// How many lists: crl.pem holds from now, crl-2.pem and so on from later.
    #[arg(long, default_value = "1", value_name = "N", value_parser = clap::value_parser!(u16).range(1..=120))]
    count: u16,
    /// From the beginning of one list to that of the next.
    #[arg(long, default_value = "30d", value_parser = crate::period)]
    every: Duration,
    /// How much longer than that each list holds.
    #[arg(long, default_value = "10d", value_parser = crate::lifetime)]
    overlap: Duration,
    /// Directory for the lists; made if missing.
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    #[command(flatten)]
    unlock: Unlock,
    #[command(flatten)]
    record: record::Args,
    #[command(flatten)]
    how: How,
}

fn reason(name: &str) -> Result<Reason, String> {
    Reason::parse(name).ok_or_else(|| {
        "use unspecified, key_compromise, ca_compromise, superseded or cessation_of_operation".to_owned()
    })
}

pub(crate) fn run(command: &Command) -> anyhow::Result<()> {
    let Command::Sign(args) = command;
    let revoked = revoked(args)?;
    let lists = Lists { count: args.count, every: args.every, overlap: args.overlap, revoked };
    let now = crate::now();
    let paths = refuse_existing(&lists, &args.out)?;
    if args.how.dry_run {
        return args.how.say(report(&lists, &paths, now));
    }
    let mut record = Record::begin(&args.record, "crl sign")?;
    let root = root::open(&args.root, &args.unlock)?;
    let signed = sign(&root, &lists, &paths, now, &mut record)?;
    record.finish(&root, &signed.iter().map(Signed::file).collect::<Vec<_>>())?;
    args.how.say(report(&lists, &paths, now))
}

/// What was revoked before, with its date and reason, then what is new.
fn revoked(args: &Sign) -> anyhow::Result<Vec<Revoked>> {
    let certificate = root::certificate(&args.root)?;
    let mut revoked = match &args.previous {
        Some(path) => authority::revoked_before(&certificate, &files::read(path)?)
            .with_context(|| path.display().to_string())?,
        None => Vec::new(),
    };
    let (at, reason) = (crate::now(), args.reason);
    for serial in new_serials(args, &Facts::parse(&certificate)?)? {
        if revoked.iter().all(|old| old.serial != serial) {
            revoked.push(Revoked { serial, at, reason });
        }
    }
    Ok(revoked)
}

fn new_serials(args: &Sign, root: &Facts) -> anyhow::Result<Vec<Vec<u8>>> {
    let mut serials = Vec::new();
    for path in &args.revoke {
        let name = || path.display().to_string();
        let first = bundle::certificates(&files::read(path)?).with_context(name)?.swap_remove(0);
        let facts = Facts::parse(&first).with_context(name)?;
        refuse_root(&facts.serial, facts.self_issued, root).with_context(name)?;
        if facts.issuer_der != root.subject_der {
            bail!(
                "{}: was issued by {}, not by this root; its own issuer must revoke it",
                path.display(),
                facts.issuer
            );
        }
        serials.push(hex::decode(&facts.serial).with_context(name)?);
    }
    for text in &args.revoke_serial {
        let name = || format!("--revoke-serial {text}");
        let serial = hex::decode(text.replace(':', "")).with_context(name)?;
        authority::check_serial(&serial).with_context(name)?;
        refuse_root(&hex::encode(&serial), false, root).with_context(name)?;
        serials.push(serial);
    }
    Ok(serials)
}

/// No verifier asks a root's list about the root, and who has its key signs another list.
fn refuse_root(serial: &str, self_issued: bool, root: &Facts) -> anyhow::Result<()> {
    if self_issued || serial == root.serial {
        bail!(
            "this is a root, and its own list can't revoke it; make a new root, sign a charter without the old one, and take the old \
             one out of every trust bundle (docs/how-to/compromise.md)"
        );
    }
    Ok(())
}

/// A list that is signed but not written.
pub(crate) struct Signed {
    path: PathBuf,
    pem: String,
}

impl Signed {
    pub(crate) fn file(&self) -> New<'_> {
        New::public(&self.path, self.pem.as_bytes())
    }
}

/// Where the lists go; refused if one is there.
pub(crate) fn refuse_existing(lists: &Lists, out: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let name = |index: u16| if index == 0 { "crl.pem".to_owned() } else { format!("crl-{}.pem", index + 1) };
    let paths: Vec<_> = (0..lists.count).map(|index| out.join(name(index))).collect();
    files::refuse_existing(&paths.iter().map(PathBuf::as_path).collect::<Vec<_>>())?;
    Ok(paths)
}

/// Signs the lists and notes each in the transcript.
pub(crate) fn sign(
    root: &Authority,
    lists: &Lists,
    paths: &[PathBuf],
    now: OffsetDateTime,
    record: &mut Record,
) -> anyhow::Result<Vec<Signed>> {
    let mut signed = Vec::new();
    for (index, path) in (0..lists.count).zip(paths) {
        let ((from, to), number) = (lists.period(index, now), crl_number(now, index));
        let crl =
            root.sign_crl(&lists.revoked, number, from, to).with_context(|| path.display().to_string())?;
        record.add(
            "crl",
            &[
                ("file", &path.display().to_string()),
                ("sha256", &isthmus_pki::key::sha256_hex(&crl)),
                ("number", &number.to_string()),
                ("this_update", &utc(from.unix_timestamp())),
                ("next_update", &utc(to.unix_timestamp())),
                ("revoked", &serials(lists)),
            ],
        );
        signed.push(Signed { path: path.clone(), pem: crl_to_pem(&crl) });
    }
    Ok(signed)
}

fn serials(lists: &Lists) -> String {
    lists.revoked.iter().map(|revoked| hex::encode(&revoked.serial)).collect::<Vec<_>>().join(" ")
}

/// What to tell about lists.
pub(crate) fn report(lists: &Lists, paths: &[PathBuf], now: OffsetDateTime) -> Report {
    let part = |(index, path): (u16, &PathBuf)| {
        let (from, to) = lists.period(index, now);
        Report::new("crl-sign", format!("list {}", path.display()))
            .fact("this_update", utc(from.unix_timestamp()), "")
            .fact("next_update", utc(to.unix_timestamp()), "")
    };
    let warning = (!lists.revoked.is_empty()).then(|| {
        "lists signed ahead at an earlier sitting don't have what was revoked now: replace them all; meshes that are not ours \
         learn of it only from this list"
            .to_owned()
    });
    Report::new("crl-sign", format!("signed {} revocation list(s)", lists.count))
        .lines("revoked", lists.revoked.iter().map(|revoked| hex::encode(&revoked.serial)).collect())
        .warn(warning)
        .parts((0..lists.count).zip(paths).map(part).collect())
}
