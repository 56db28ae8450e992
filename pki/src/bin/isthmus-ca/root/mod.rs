//! `root init` and `root show`.

mod make;
mod open;

use std::path::{Path, PathBuf};

use clap::Subcommand;
use isthmus_pki::{
    Authority, Curve, Facts, Key, TrustDomain, bundle, facts::utc, inspect, shamir::Quorum, words,
};
use isthmus_token::Uri;
use time::Duration;

pub(crate) use make::{Split, share_files};
pub(crate) use open::{
    Unlock, UnlockEach, certificate, combine, facts, open, open_key, open_with, read_shares,
};

use crate::{
    files::{self, New},
    record::{self, Record},
    report::{How, Report},
    secret, token,
};

#[derive(Subcommand)]
pub(crate) enum Command {
    /// Make the root: its key under a passphrase, under a split key, or in a token, and a self-signed certificate.
    Init(Box<Init>),
    /// Show the root's certificate.
    Show {
        /// Directory that `root init` filled.
        #[arg(value_name = "DIR")]
        root: PathBuf,
    },
}

#[derive(clap::Args)]
pub(crate) struct Init {
    /// Trust domain of the fabric, such as fabric.example.
    #[arg(long)]
    trust_domain: TrustDomain,
    /// Directory for root.pem and root.key (or root.token); made if missing.
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    /// File (mode 0600) with the passphrase; without it, it is asked for.
    #[arg(long, value_name = "FILE", conflicts_with = "token")]
    passphrase_file: Option<PathBuf>,
    /// Encrypt the key with a random one and split that, such as 2/3: any two of three shares.
    #[arg(long, value_name = "M/N", conflicts_with_all = ["passphrase_file", "token"], requires = "share_out")]
    shares: Option<Quorum>,
    /// Directory for share-1.txt and so on; made if missing.
    #[arg(long, value_name = "DIR", requires = "shares")]
    share_out: Option<PathBuf>,
    #[command(flatten)]
    place: token::Make,
    /// How long the root is valid.
    #[arg(long, default_value = "3650d", value_parser = crate::lifetime)]
    lifetime: Duration,
    #[command(flatten)]
    record: record::Args,
    #[command(flatten)]
    how: How,
}

pub(crate) fn run(command: Command) -> anyhow::Result<()> {
    match command {
        Command::Init(args) => init(&args),
        Command::Show { root } => show(&root),
    }
}

fn init(args: &Init) -> anyhow::Result<()> {
    let files = init_files(args);
    files::refuse_existing(&files.iter().map(PathBuf::as_path).collect::<Vec<_>>())?;
    if args.how.dry_run {
        return args.how.say(dry(args));
    }
    match (args.place.uri(), args.shares, &args.share_out) {
        (Some(uri), ..) => in_token(args, uri),
        (None, Some(quorum), Some(share_out)) => split(args, quorum, share_out),
        _ => under_passphrase(args),
    }
}

/// Everything that will be written.
fn init_files(args: &Init) -> Vec<PathBuf> {
    let shares = args.shares.zip(args.share_out.as_deref()).map(|(quorum, dir)| share_files(dir, quorum));
    // Whatever is made, neither kind of key may lie there already.
    let root = [certificate_path(&args.out), key_path(&args.out), token_path(&args.out)];
    root.into_iter().chain(shares.into_iter().flatten()).collect()
}

fn dry(args: &Init) -> Report {
    let place = match (args.place.uri(), args.shares) {
        (Some(uri), _) => uri.to_string(),
        (_, Some(quorum)) => format!("{}, under a key split {quorum}", key_path(&args.out).display()),
        _ => format!("{}, under a passphrase", key_path(&args.out).display()),
    };
    made(args)
        .fact("certificate", certificate_path(&args.out).display(), "")
        .fact("root_key", place, "")
        .fact("valid_until", utc((crate::now() + args.lifetime).unix_timestamp()), "")
}

fn under_passphrase(args: &Init) -> anyhow::Result<()> {
    let passphrase = secret::new_passphrase(args.passphrase_file.as_deref(), "the root key")?;
    let key = Key::generate(Curve::P384)?;
    let sealed = key.to_encrypted_pem(&passphrase, &crate::random()?, &crate::random()?)?;
    let path = key_path(&args.out);
    let report = finish(args, key, "passphrase", &[New::secret(&path, sealed.as_bytes())])?;
    args.how.say(report.fact("root_key", path.display(), "(encrypted; keep it and the passphrase offline)"))
}

fn split(args: &Init, quorum: Quorum, share_out: &Path) -> anyhow::Result<()> {
    let key = Key::generate(Curve::P384)?;
    let split = Split::new(&key, quorum, &args.out, share_out)?;
    let report = finish(args, key, &format!("shares {quorum}, set {}", split.set), &split.files())?;
    let report = report
        .fact("root_key", key_path(&args.out).display(), "(under a key that is split; keep it offline)")
        .fact("share_set", split.set, &format!("({quorum} shares open it)"))
        .lines("shares", share_files(share_out, quorum).iter().map(|p| p.display().to_string()).collect());
    args.how.say(report)
}

fn in_token(args: &Init, uri: &Uri) -> anyhow::Result<()> {
    let (key, reference) = args.place.make(uri, isthmus_token::Curve::P384)?;
    let path = token_path(&args.out);
    let new = New::public(&path, reference.as_bytes());
    let report = finish(args, key, &format!("token {uri}"), &[new])?;
    args.how.say(report.fact(
        "root_key",
        uri,
        &format!("(never leaves the token; {} names it)", path.display()),
    ))
}

/// Makes the certificate, writes all of it, and says so.
fn finish(args: &Init, key: Key, place: &str, key_files: &[New<'_>]) -> anyhow::Result<Report> {
    let mut record = Record::begin(&args.record, "root init")?;
    let root = Authority::root(&args.trust_domain, key, args.lifetime, crate::serial()?, crate::now())?;
    let path = certificate_path(&args.out);
    note(&mut record, &path, place, root.facts());
    let certificate = bundle::to_pem([root.certificate()]);
    let mut all: Vec<New<'_>> = key_files.to_vec();
    all.push(New::public(&path, certificate.as_bytes()));
    record.finish(&root, &all)?;
    let digest = hex::decode(&root.facts().sha256).unwrap_or_default();
    Ok(made(args)
        .fact("certificate", path.display(), "(public: every node gets a copy)")
        .fact("valid_until", utc(root.facts().not_after), "")
        .fact("sha256", &root.facts().sha256, "")
        .lines("words", words::lines(&digest)))
}

fn made(args: &Init) -> Report {
    Report::new("root-init", format!("made the root of trust domain {}", args.trust_domain))
}

fn note(record: &mut Record, path: &Path, place: &str, root: &Facts) {
    let members = [
        ("file", &*path.display().to_string()),
        ("key_in", place),
        ("sha256", &root.sha256),
        ("subject", &root.subject),
        ("not_after", &utc(root.not_after)),
        ("key_sha256", &root.key_sha256),
    ];
    record.add("root", &members);
}

fn show(dir: &Path) -> anyhow::Result<()> {
    let path = certificate_path(dir);
    let items = inspect::inspect(&files::read(&path)?, crate::now());
    let mut lines: Vec<String> = items.iter().flat_map(inspect::lines).collect();
    lines.push(format!("  file          {}", path.display()));
    crate::say(&lines)
}

pub(crate) fn certificate_path(dir: &Path) -> PathBuf {
    dir.join("root.pem")
}

pub(crate) fn key_path(dir: &Path) -> PathBuf {
    dir.join("root.key")
}

pub(crate) fn token_path(dir: &Path) -> PathBuf {
    dir.join("root.token")
}
