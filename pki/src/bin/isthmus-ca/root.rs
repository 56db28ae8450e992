//! `root init` and `root show`.

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use clap::Subcommand;
use isthmus_pki::{Authority, Curve, Key, TrustDomain, bundle, facts::utc, inspect};
use time::Duration;

use crate::files::{self, New};

#[derive(Subcommand)]
pub(crate) enum Command {
    /// Make the root: an encrypted key and a self-signed certificate.
    Init(Init),
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
    /// Directory for root.pem and root.key; made if missing.
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    /// File (mode 0600) with the passphrase; without it, it is asked for.
    #[arg(long, value_name = "FILE")]
    passphrase_file: Option<PathBuf>,
    /// How long the root is valid.
    #[arg(long, default_value = "3650d", value_parser = crate::lifetime)]
    lifetime: Duration,
}

pub(crate) fn run(command: Command) -> anyhow::Result<()> {
    match command {
        Command::Init(args) => init(&args),
        Command::Show { root } => show(&root),
    }
}

fn init(args: &Init) -> anyhow::Result<()> {
    let (certificate_file, key_file) = (certificate_path(&args.out), key_path(&args.out));
    files::refuse_existing(&[&certificate_file, &key_file])?;
    let passphrase = files::new_passphrase(args.passphrase_file.as_deref())?;
    let key = Key::generate(Curve::P384)?;
    let sealed = key.to_encrypted_pem(&passphrase, &crate::random()?, &crate::random()?)?;
    let root = Authority::root(&args.trust_domain, key, args.lifetime, crate::serial()?, crate::now())?;
    files::make_dir(&args.out)?;
    let certificate = bundle::to_pem([root.certificate()]);
    files::write_new_together(&[
        New { path: &key_file, contents: sealed.as_bytes(), secret: true },
        New { path: &certificate_file, contents: certificate.as_bytes(), secret: false },
    ])?;
    crate::say(&[
        format!("made the root of trust domain {}", args.trust_domain),
        format!("  certificate  {} (public: every node gets a copy)", certificate_file.display()),
        format!("  root key     {} (encrypted; keep it and the passphrase offline)", key_file.display()),
        format!("  valid until  {}", utc(root.facts().not_after)),
        format!("  SHA-256      {}", root.facts().sha256),
    ])
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

fn key_path(dir: &Path) -> PathBuf {
    dir.join("root.key")
}

/// Opens the root for signing.
pub(crate) fn open(dir: &Path, passphrase_file: Option<&Path>) -> anyhow::Result<Authority> {
    let path = key_path(dir);
    let pem = files::read_secret(&path)?;
    let key = Key::from_pem(&pem, Some(&files::passphrase(passphrase_file)?));
    files::authority(&certificate_path(dir), key.with_context(|| path.display().to_string())?, &path)
}
