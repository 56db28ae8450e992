//! `node csr` at the node, `node sign` where the site CA is.

use std::path::PathBuf;

use anyhow::{Context as _, bail};
use clap::Subcommand;
use isthmus_pki::{Curve, Key, Profile, TrustDomain, bundle, csr, facts::utc, id};
use time::Duration;

use crate::{
    files::{self, New},
    site,
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
}

#[derive(clap::Args)]
pub(crate) struct Sign {
    /// The request from the node.
    #[arg(long, value_name = "FILE")]
    csr: PathBuf,
    /// The site CA's certificate.
    #[arg(long, value_name = "FILE")]
    ca: PathBuf,
    /// The site CA's key.
    #[arg(long, value_name = "FILE")]
    ca_key: PathBuf,
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
}

pub(crate) fn run(command: Command) -> anyhow::Result<()> {
    match command {
        Command::Csr(args) => request(&args),
        Command::Sign(args) => sign(&args),
    }
}

fn request(args: &Csr) -> anyhow::Result<()> {
    let id = id::node_id(&args.trust_domain, &args.site, &args.name)
        .with_context(|| format!("--site {} --name {}", args.site, args.name))?;
    let (key_file, csr_file) = (args.out.join("node.key"), args.out.join("node.csr"));
    files::refuse_existing(&[&key_file, &csr_file])?;
    let key = Key::generate(Curve::P256)?;
    let pem = csr::create(&key, &args.name, &id)?;
    files::make_dir(&args.out)?;
    files::write_new_together(&[
        New { path: &key_file, contents: key.to_pem().as_bytes(), secret: true },
        New { path: &csr_file, contents: pem.as_bytes(), secret: false },
    ])?;
    crate::say(&[
        format!("made the key of {id} and a request for its certificate"),
        format!("  key          {} (stays on the node)", key_file.display()),
        format!("  request      {} (carry it to the site CA)", csr_file.display()),
        format!("  key SHA-256  {}", key.public().sha256()),
    ])
}

fn sign(args: &Sign) -> anyhow::Result<()> {
    let out = args.out.clone().or_else(|| args.csr.parent().map(Into::into)).unwrap_or_default();
    let file = out.join("node.pem");
    files::refuse_certificates(&file, args.replace)?;
    let request = csr::parse(&files::read(&args.csr)?).with_context(|| args.csr.display().to_string())?;
    let key = Key::from_pem(&files::read_secret(&args.ca_key)?, None);
    let key = key.with_context(|| args.ca_key.display().to_string())?;
    let ca = files::authority(&args.ca, key, &args.ca_key)?;
    if !ca.serves_site(&args.site) {
        bail!(
            "{}: this is not the CA of site {}: its subject is {}",
            args.ca.display(),
            args.site,
            ca.facts().subject
        );
    }
    let id = id::node_id(ca.trust_domain(), &args.site, &args.name)
        .with_context(|| format!("--site {} --name {}", args.site, args.name))?;
    let profile = Profile::Svid { id: id.clone(), dns_names: Vec::new(), lifetime: args.lifetime };
    let issued = ca.issue(&profile, &request.public_key, crate::serial()?, crate::now())?;
    if !out.as_os_str().is_empty() {
        files::make_dir(&out)?;
    }
    let chain = bundle::to_pem([&issued.certificate, ca.certificate()]);
    files::write_certificates(&file, &chain, args.replace)?;
    let mut lines = vec![
        format!("signed {id}"),
        format!("  certificate  {} (with the site CA after it)", file.display()),
        format!("  valid until  {}", utc(issued.not_after.unix_timestamp())),
        format!("  key SHA-256  {}", request.public_key.sha256()),
    ];
    lines.extend(site::clamp_note(&issued));
    crate::say(&lines)
}
