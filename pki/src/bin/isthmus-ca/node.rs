//! `node csr` at the node, `node sign` where the site CA is.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use clap::Subcommand;
use isthmus_pki::{
    Authority, Curve, Facts, Key, Profile, TrustDomain, authority::Outlook, bundle, csr, facts::utc, id,
};
use time::{Duration, OffsetDateTime};

use crate::{
    files::{self, New},
    record::{self, Record},
    report::{How, Report},
    request::Brought,
    secret,
    site::clamp_note,
    token,
};

#[derive(Subcommand)]
pub(crate) enum Command {
    /// At the node: make the node's key, which stays there, and a request for its certificate.
    Csr(Csr),
    /// Where the site CA is: sign a node's request. Only the public key is taken from it.
    Sign(Sign),
}

#[derive(clap::Args)]
pub(crate) struct Csr {
    /// The node's name, as in [node] name.
    #[arg(long, value_parser = crate::name)]
    name: String,
    /// The node's site, as in [node] site.
    #[arg(long, value_parser = crate::name)]
    site: String,
    /// Trust domain of the fabric.
    #[arg(long)]
    trust_domain: TrustDomain,
    /// Directory for node.key and node.csr; made if missing.
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    #[command(flatten)]
    how: How,
}

#[derive(clap::Args)]
pub(crate) struct Sign {
    /// The request from the node.
    #[arg(long, value_name = "FILE")]
    csr: PathBuf,
    /// The site CA's certificate.
    #[arg(long, value_name = "FILE")]
    ca: PathBuf,
    #[command(flatten)]
    key: CaKey,
    /// The site of CA and node.
    #[arg(long, value_parser = crate::name)]
    site: String,
    /// The node's name.
    #[arg(long, value_parser = crate::name)]
    name: String,
    /// Directory for node.pem (certificate, then site CA); by default where the request is.
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Renewal: put the new node.pem in the place of the old one.
    #[arg(long)]
    replace: bool,
    /// How long the certificate is valid.
    #[arg(long, default_value = "24h", value_parser = crate::lifetime)]
    lifetime: Duration,
    #[command(flatten)]
    record: record::Args,
    #[command(flatten)]
    how: How,
}

pub(crate) fn run(command: &Command) -> anyhow::Result<()> {
    match command {
        Command::Csr(args) => request(args),
        Command::Sign(args) => sign(args),
    }
}

fn request(args: &Csr) -> anyhow::Result<()> {
    let id = id::node_id(&args.trust_domain, &args.site, &args.name)
        .with_context(|| format!("--site {} --name {}", args.site, args.name))?;
    let (key_file, csr_file) = (args.out.join("node.key"), args.out.join("node.csr"));
    files::refuse_existing(&[&key_file, &csr_file])?;
    let report = Report::new("node-csr", format!("made the key of {id} and a request for its certificate"))
        .fact("key", key_file.display(), "(stays on the node)")
        .fact("request", csr_file.display(), "(carry it to the site CA)");
    if args.how.dry_run {
        return args.how.say(report);
    }
    let key = Key::generate(Curve::P256)?;
    let pem = csr::create(&key, &args.name, &id)?;
    files::write_new_together(&[
        New::secret(&key_file, key.to_pem().as_bytes()),
        New::public(&csr_file, pem.as_bytes()),
    ])?;
    args.how.say(report.fact("key_sha256", key.public().sha256(), ""))
}

fn sign(args: &Sign) -> anyhow::Result<()> {
    let out = args.out.clone().or_else(|| args.csr.parent().map(Into::into)).unwrap_or_default();
    let file = out.join("node.pem");
    files::refuse_certificates(&file, args.replace)?;
    let brought = Brought::read(&args.csr)?;
    let facts = ca_facts(&args.ca)?;
    check_site(&args.ca, &facts, &args.site)?;
    let profile = profile(&facts, args)?;
    if args.how.dry_run {
        let outlook = Outlook::new(&facts, &profile, crate::now())?;
        return args.how.say(report(&profile, &brought, &file, outlook.not_after, outlook.clamped));
    }
    let ca = open_ca(&args.ca, &args.key)?;
    let mut record = Record::begin(&args.record, "node sign")?;
    record.request(&brought);
    let issued = ca.issue(&profile, &brought.request.public_key, crate::serial()?, crate::now())?;
    record.certificate(&file, &issued)?;
    let chain = bundle::to_pem([&issued.certificate, ca.certificate()]);
    record.finish(&ca, &[New::certificates(&file, &chain, args.replace)])?;
    args.how.say(report(&profile, &brought, &file, issued.not_after, issued.clamped))
}

fn profile(ca: &Facts, args: &Sign) -> anyhow::Result<Profile> {
    let trust_domain =
        isthmus_pki::authority::trust_domain(ca).with_context(|| args.ca.display().to_string())?;
    let id = id::node_id(&trust_domain, &args.site, &args.name)
        .with_context(|| format!("--site {} --name {}", args.site, args.name))?;
    Ok(Profile::Svid { id, dns_names: Vec::new(), lifetime: args.lifetime })
}

fn report(
    profile: &Profile,
    brought: &Brought,
    file: &Path,
    until: OffsetDateTime,
    cut: Option<Duration>,
) -> Report {
    let id = if let Profile::Svid { id, .. } = profile { id.to_string() } else { String::new() };
    Report::new("node-sign", format!("signed {id}"))
        .fact("certificate", file.display(), "(with the site CA after it)")
        .fact("valid_until", utc(until.unix_timestamp()), "")
        .fact("key_sha256", brought.request.public_key.sha256(), "")
        .warn(clamp_note(cut))
}

/// What the site CA's certificate says.
pub(crate) fn ca_facts(path: &Path) -> anyhow::Result<Facts> {
    let name = || path.display().to_string();
    let first = bundle::certificates(&files::read(path)?).with_context(name)?.swap_remove(0);
    let facts = Facts::parse(&first).with_context(name)?;
    if !facts.is_ca() {
        return Err(isthmus_pki::authority::Error::NotCa).with_context(name);
    }
    Ok(facts)
}

/// A site CA's key: a file with the key, or one that names a key in a token.
#[derive(clap::Args)]
pub(crate) struct CaKey {
    /// The site CA's key, or the file that names it in its token.
    #[arg(long, value_name = "FILE")]
    ca_key: PathBuf,
    /// File (mode 0600) with the passphrase of the site CA's key, if it is encrypted; without it, it is asked for.
    #[arg(long, value_name = "FILE")]
    passphrase_file: Option<PathBuf>,
    /// File (mode 0600) with the PIN of the site CA's token; without it, it is asked for.
    #[arg(long, value_name = "FILE")]
    pin_file: Option<PathBuf>,
}

/// The site CA, ready to sign.
pub(crate) fn open_ca(certificate: &Path, key: &CaKey) -> anyhow::Result<Authority> {
    let text = files::read_secret(&key.ca_key)?;
    let opened = if token::is_reference(&text) {
        token::parse(&text).and_then(|uri| token::open(&uri, None, key.pin_file.as_deref()))
    } else {
        secret::open_key(&text, key.passphrase_file.as_deref(), "the site CA's key")
    };
    files::authority(certificate, opened.with_context(|| key.ca_key.display().to_string())?, &key.ca_key)
}

pub(crate) fn check_site(path: &Path, ca: &Facts, site: &str) -> anyhow::Result<()> {
    if ca.site() == Some(site) {
        return Ok(());
    }
    let path = path.display();
    bail!("{path}: this is not the CA of site {site}: its subject is {}", ca.subject)
}
