//! `share verify`, `share combine`, `share reshare`: the parts of the key that opens the root.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use clap::Subcommand;
use isthmus_pki::{Authority, shamir::Quorum, share::Share};

use crate::{
    files::{self, New},
    record::{self, Record},
    report::{Form, How, Report},
    root::{self, Split, Unlock},
};

#[derive(Subcommand)]
pub(crate) enum Command {
    /// A custodian alone: is my share still readable? Nothing is combined.
    Verify {
        /// The share, or what a scanner or a typist made of it.
        file: PathBuf,
        #[command(flatten)]
        form: Form,
    },
    /// Recovery without this tool: write the passphrase that opens root.key, from a quorum of shares.
    Combine(Combine),
    /// From a quorum of the old set: encrypt the root's key anew and split the new wrapping key into a new set.
    Reshare(Reshare),
}

#[derive(clap::Args)]
pub(crate) struct Combine {
    /// A share; once for each.
    #[arg(long, value_name = "FILE", required = true)]
    share: Vec<PathBuf>,
    /// File for the passphrase, as `openssl pkcs8 -passin file:FILE` takes it.
    #[arg(long, value_name = "FILE")]
    out: PathBuf,
    /// Directory that `root init` filled: the shares must open its key, which seals the transcript.
    #[arg(long, value_name = "DIR")]
    root: Option<PathBuf>,
    #[command(flatten)]
    record: record::Args,
    #[command(flatten)]
    how: How,
}

#[derive(clap::Args)]
pub(crate) struct Reshare {
    /// Directory that `root init` filled.
    #[arg(long, value_name = "DIR")]
    root: PathBuf,
    #[command(flatten)]
    unlock: Unlock,
    /// The new quorum, such as 3/5.
    #[arg(long, value_name = "M/N")]
    shares: Quorum,
    /// Directory for the new shares; made if missing.
    #[arg(long, value_name = "DIR")]
    share_out: PathBuf,
    /// Directory for root.pem and the newly encrypted root.key; made if missing.
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    #[command(flatten)]
    record: record::Args,
    #[command(flatten)]
    how: How,
}

pub(crate) fn run(command: &Command) -> anyhow::Result<()> {
    match command {
        Command::Verify { file, form } => verify(file, form),
        Command::Combine(args) => combine(args),
        Command::Reshare(args) => reshare(args),
    }
}

fn verify(file: &Path, form: &Form) -> anyhow::Result<()> {
    let share = Share::parse(&files::read_secret(file)?).with_context(|| file.display().to_string())?;
    form.say(
        &Report::new("share-verify", format!("ok: {} is sound", file.display()))
            .fact("set", share.set(), "")
            .number("index", share.index().into())
            .fact("quorum", share.quorum(), "shares open the root")
            .number("threshold", share.quorum().threshold().into())
            .number("total", share.quorum().total().into()),
    )
}

fn combine(args: &Combine) -> anyhow::Result<()> {
    files::refuse_existing(&[&args.out])?;
    let report = Report::new("share-combine", "combined the shares").fact(
        "passphrase",
        args.out.display(),
        "(opens root.key: destroy it after use)",
    );
    let opened = args.root.as_deref().map(|dir| root::open_with(dir, &args.share)).transpose()?;
    let mut passphrase = root::combine(&args.share, None)?;
    if args.how.dry_run {
        return args.how.say(report);
    }
    passphrase.push(b'\n');
    let new = [New::secret(&args.out, &passphrase)];
    match opened {
        Some(authority) => recorded(args, &authority, &new)?,
        None if args.record.is_wanted() => {
            bail!("--transcript needs --root DIR: the root's key, which the shares open, seals it")
        }
        None => files::write_new_together(&new)?,
    }
    args.how.say(report)
}

fn recorded(args: &Combine, authority: &Authority, new: &[New<'_>]) -> anyhow::Result<()> {
    let mut record = Record::begin(&args.record, "share combine")?;
    let shares = root::read_shares(&args.share)?;
    let indices: Vec<_> = shares.iter().map(|named| named.share.index().to_string()).collect();
    let set = shares.first().map(|named| named.share.set().to_string()).unwrap_or_default();
    let file = args.out.display().to_string();
    record.add("combine", &[("set", &set), ("shares", &indices.join(" ")), ("file", &file)]);
    record.finish(authority, new)
}

fn reshare(args: &Reshare) -> anyhow::Result<()> {
    let (certificate, key_file) = (root::certificate_path(&args.out), root::key_path(&args.out));
    let shares = root::share_files(&args.share_out, args.shares);
    let mut all = vec![certificate.clone(), key_file.clone(), root::token_path(&args.out)];
    all.extend(shares.iter().cloned());
    files::refuse_existing(&all.iter().map(PathBuf::as_path).collect::<Vec<_>>())?;
    let report = Report::new(
        "share-reshare",
        format!("split the key of {} anew, {}", args.root.display(), args.shares),
    )
    .fact("root_key", key_file.display(), "(under a new key)")
    .lines("shares", shares.iter().map(|path| path.display().to_string()).collect());
    if args.how.dry_run {
        root::facts(&args.root)?;
        return args.how.say(report);
    }
    let mut record = Record::begin(&args.record, "share reshare")?;
    let (key, path) = root::open_key(&args.root, &args.unlock)?;
    if key.is_external() {
        bail!("{}: the key is in a token and never leaves it; there is nothing to split", path.display());
    }
    let split = Split::new(&key, args.shares, &args.out, &args.share_out)?;
    let authority = files::authority(&root::certificate_path(&args.root), key, &path)?;
    record.add("reshare", &[("set", &split.set.to_string()), ("quorum", &args.shares.to_string())]);
    let pem = files::read(&root::certificate_path(&args.root))?;
    let mut new = split.files();
    new.push(New::public(&certificate, &pem));
    record.finish(&authority, &new)?;
    args.how.say(
        report
            .fact("share_set", split.set, "(the new set)")
            .warn(Some(format!("the old shares still open {}: destroy every copy of it", path.display()))),
    )
}
