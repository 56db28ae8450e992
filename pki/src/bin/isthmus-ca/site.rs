//! `site csr` at the site, `site sign` at the root.

use std::path::PathBuf;

use anyhow::{Context as _, bail};
use clap::Subcommand;
use isthmus_pki::{
    Curve, Key, Profile, TrustDomain, bundle, csr,
    facts::utc,
    profile::{SITE_CA_NAME, site_ca_name},
};
use time::Duration;

use crate::{
    files::{self, New},
    root,
};

#[derive(Subcommand)]
pub(crate) enum Command {
    /// At the site: make the site CA's key, which stays there, and a request for its certificate.
    Csr(Csr),
    /// At the root: sign a site's request. Only the public key is taken from it.
    Sign(Sign),
}

#[derive(clap::Args)]
pub(crate) struct Csr {
    /// The site's name, such as aws-use1.
    #[arg(long, value_parser = crate::name)]
    site: String,
    /// Trust domain of the fabric.
    #[arg(long)]
    trust_domain: TrustDomain,
    /// Directory for site-ca.key and site-ca.csr; made if missing.
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
}

#[derive(clap::Args)]
pub(crate) struct Sign {
    /// The request from the site.
    #[arg(long, value_name = "FILE")]
    csr: PathBuf,
    /// Directory that `root init` filled.
    #[arg(long, value_name = "DIR")]
    root: PathBuf,
    /// The site that this CA will serve.
    #[arg(long, value_parser = crate::name)]
    site: String,
    /// Directory for site-ca.pem and root.pem, to be carried back; by default where the request is.
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Renewal: put the new site-ca.pem in the place of the old one.
    #[arg(long)]
    replace: bool,
    /// How long the site CA is valid.
    #[arg(long, default_value = "90d", value_parser = crate::lifetime)]
    lifetime: Duration,
    /// File (mode 0600) with the root key's passphrase; without it, it is asked for.
    #[arg(long, value_name = "FILE")]
    passphrase_file: Option<PathBuf>,
}

pub(crate) fn run(command: Command) -> anyhow::Result<()> {
    match command {
        Command::Csr(args) => request(&args),
        Command::Sign(args) => sign(&args),
    }
}

fn request(args: &Csr) -> anyhow::Result<()> {
    let (key_file, csr_file) = (args.out.join("site-ca.key"), args.out.join("site-ca.csr"));
    files::refuse_existing(&[&key_file, &csr_file])?;
    let key = Key::generate(Curve::P256)?;
    let pem = csr::create(&key, &site_ca_name(&args.site), &args.trust_domain.id())?;
    files::make_dir(&args.out)?;
    files::write_new_together(&[
        New { path: &key_file, contents: key.to_pem().as_bytes(), secret: true },
        New { path: &csr_file, contents: pem.as_bytes(), secret: false },
    ])?;
    crate::say(&[
        format!("made the key of site {}'s CA and a request for its certificate", args.site),
        format!("  key          {} (stays at the site)", key_file.display()),
        format!("  request      {} (carry it to the root)", csr_file.display()),
        format!("  key SHA-256  {} (compare it there)", key.public().sha256()),
    ])
}

fn sign(args: &Sign) -> anyhow::Result<()> {
    let name = || args.csr.display().to_string();
    let out = args.out.clone().or_else(|| args.csr.parent().map(Into::into)).unwrap_or_default();
    let (file, root_file) = (out.join("site-ca.pem"), out.join("root.pem"));
    files::refuse_certificates(&file, args.replace)?;
    let request = csr::parse(&files::read(&args.csr)?).with_context(name)?;
    refuse_other_site(&request.subject, &args.site).with_context(name)?;
    let root = root::open(&args.root, args.passphrase_file.as_deref())?;
    let profile = Profile::SiteCa { site: args.site.clone(), lifetime: args.lifetime };
    let issued = root.issue(&profile, &request.public_key, crate::serial()?, crate::now())?;
    if !out.as_os_str().is_empty() {
        files::make_dir(&out)?;
    }
    files::write_certificates(&file, &bundle::to_pem([&issued.certificate]), args.replace)?;
    let mut lines = vec![
        format!("signed the CA of site {} in trust domain {}", args.site, root.trust_domain()),
        format!("  certificate  {}", file.display()),
        format!("  valid until  {}", utc(issued.not_after.unix_timestamp())),
        format!("  key SHA-256  {} (must be what the site read out)", request.public_key.sha256()),
        format!("  the request called itself {}", request.subject),
    ];
    if files::refuse_existing(&[&root_file]).is_ok() {
        files::write_certificates(&root_file, &bundle::to_pem([root.certificate()]), false)?;
        lines.push(format!("  trust bundle {}", root_file.display()));
    }
    lines.extend(clamp_note(&issued));
    crate::say(&lines)
}

/// What a request calls itself is not believed, but that of another site has been mixed up with the one that was meant.
fn refuse_other_site(subject: &str, site: &str) -> anyhow::Result<()> {
    let mut names =
        subject.split(", ").filter_map(|part| part.strip_prefix("CN=")?.strip_prefix(SITE_CA_NAME));
    match names.find(|name| *name != site) {
        Some(other) => bail!(
            "this is the request of site {other:?}, but --site says {site:?}; nothing was signed: take the request of site {site}, or say --site {}",
            other.escape_debug()
        ),
        None => Ok(()),
    }
}

/// A line for a lifetime that was cut.
pub(crate) fn clamp_note(issued: &isthmus_pki::Issued) -> Option<String> {
    let cut = issued.clamped?.unsigned_abs();
    Some(format!(
        "  note: {} shorter than asked for, so that it does not outlive its issuer",
        humantime::format_duration(cut)
    ))
}
