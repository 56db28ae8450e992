//! `verify`.

use std::{path::PathBuf, process::ExitCode};

use anyhow::{Context as _, bail};
use isthmus_pki::{
    Bundle, Key, SpiffeId, authority,
    bundle::certificates,
    facts::utc,
    verify::{self, Purpose},
};

use crate::{
    files,
    verify_as::{self, Validator},
};

#[derive(clap::Args)]
pub(crate) struct Args {
    /// The trust bundle: root certificate(s).
    #[arg(long, value_name = "FILE")]
    pub(crate) bundle: PathBuf,
    /// The chain: certificate first, then its CAs.
    #[arg(long, value_name = "FILE")]
    pub(crate) chain: PathBuf,
    /// The SPIFFE ID that it must have.
    #[arg(long)]
    id: Option<SpiffeId>,
    /// The private key that must belong to it.
    #[arg(long, value_name = "FILE")]
    key: Option<PathBuf>,
    /// Instead: what the validators of others will say of it, as a server's and as a client's.
    #[arg(long = "as", value_enum, value_name = "VALIDATOR", conflicts_with_all = ["id", "key"])]
    validator: Option<Validator>,
    /// Revocation lists for --as.
    #[arg(long, value_name = "FILE", requires = "validator")]
    pub(crate) crl: Vec<PathBuf>,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    match args.validator {
        Some(validator) => verify_as::run(args, validator),
        None => ours(args).map(|()| ExitCode::SUCCESS),
    }
}

fn ours(args: &Args) -> anyhow::Result<()> {
    let chain_name = || args.chain.display().to_string();
    let bundle =
        Bundle::parse(&files::read(&args.bundle)?).with_context(|| args.bundle.display().to_string())?;
    let chain = certificates(&files::read(&args.chain)?).with_context(chain_name)?;
    let store = bundle.into();
    let verified = verify::verify(&chain, &store, Purpose::Server, crate::now()).with_context(chain_name)?;
    verify::verify(&chain, &store, Purpose::Client, crate::now()).with_context(chain_name)?;
    if let Some(id) = args.id.as_ref().filter(|id| **id != verified.id) {
        bail!("{}: belongs to {}, not to {id}", args.chain.display(), verified.id);
    }
    if let Some(path) = &args.key {
        let key =
            Key::from_pem(&files::read_secret(path)?, None).with_context(|| path.display().to_string())?;
        authority::check_key(&verified.leaf, &key)
            .with_context(|| format!("{} with {}", args.chain.display(), path.display()))?;
    }
    crate::say(&[format!("ok: {} until {}", verified.id, utc(verified.leaf.not_after))])
}
