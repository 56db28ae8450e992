//! `site csr`.

use std::path::PathBuf;

use isthmus_pki::{Curve, Key, TrustDomain, csr, profile::site_ca_name, words};
use zeroize::Zeroizing;

use super::file;
use crate::{
    files::{self, New},
    report::{How, Report},
    secret, token,
};

#[derive(clap::Args)]
pub(crate) struct Csr {
    /// The site's name, such as aws-use1.
    #[arg(long, value_parser = crate::name)]
    site: String,
    /// Trust domain of the fabric.
    #[arg(long)]
    trust_domain: TrustDomain,
    /// How many keys and requests: site-ca for now, site-ca-2 and so on for later.
    #[arg(long, default_value = "1", value_name = "N", value_parser = clap::value_parser!(u8).range(1..=64), conflicts_with = "token")]
    count: u8,
    /// Directory for site-ca.key (the key, or the name of one in a token) and site-ca.csr; made if missing.
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    /// Encrypt the keys, so that OpenSSL and isthmusd can read them; the passphrase is asked for.
    #[arg(long, conflicts_with = "token")]
    encrypt: bool,
    /// Encrypt the keys under the passphrase in this file (mode 0600).
    #[arg(long, value_name = "FILE", conflicts_with = "token")]
    passphrase_file: Option<PathBuf>,
    #[command(flatten)]
    place: token::Make,
    #[command(flatten)]
    how: How,
}

/// A key and a request for it, not written yet.
struct Made {
    key_file: PathBuf,
    key: Key,
    /// What goes into the key's file: the key, or the name of one in a token.
    contents: Zeroizing<String>,
    csr_file: PathBuf,
    csr: String,
}

pub(super) fn request(args: &Csr) -> anyhow::Result<()> {
    let paths: Vec<_> = (0..usize::from(args.count))
        .map(|index| (file(&args.out, index, "key"), file(&args.out, index, "csr")))
        .collect();
    let all: Vec<_> = paths.iter().flat_map(|(key, csr)| [key.as_path(), csr.as_path()]).collect();
    files::refuse_existing(&all)?;
    let report = Report::new("site-csr", headline(args));
    if args.how.dry_run {
        let parts = paths.iter().map(|(key, csr)| {
            Report::new("site-csr", "").fact("key", key.display(), "").fact("request", csr.display(), "")
        });
        return args.how.say(report.parts(parts.collect()));
    }
    let passphrase = passphrase(args)?;
    let make = |paths| make(args, passphrase.as_ref().map(|text| text.as_slice()), paths);
    let made = paths.into_iter().map(make).collect::<anyhow::Result<Vec<_>>>()?;
    write(&made)?;
    let parts = made.iter().map(describe).collect::<anyhow::Result<Vec<_>>>()?;
    args.how.say(report.parts(parts))
}

fn headline(args: &Csr) -> String {
    match args.count {
        1 => format!("made the key of site {}'s CA and a request for its certificate", args.site),
        count => format!("made {count} keys for CAs of site {} and a request for each", args.site),
    }
}

/// That of all the keys, if they are to be encrypted.
fn passphrase(args: &Csr) -> anyhow::Result<Option<Zeroizing<Vec<u8>>>> {
    let wanted = args.encrypt || args.passphrase_file.is_some();
    wanted.then(|| secret::new_passphrase(args.passphrase_file.as_deref(), "a site CA's key")).transpose()
}

fn make(
    args: &Csr,
    passphrase: Option<&[u8]>,
    (key_file, csr_file): (PathBuf, PathBuf),
) -> anyhow::Result<Made> {
    let (key, contents) = match args.place.uri() {
        Some(uri) => {
            let (key, reference) = args.place.make(uri, isthmus_token::Curve::P256)?;
            (key, Zeroizing::new(reference))
        }
        None => {
            let key = Key::generate(Curve::P256)?;
            let pem = match passphrase {
                Some(passphrase) => {
                    let sealed = key.to_encrypted_pem(passphrase, &crate::random()?, &crate::random()?);
                    Zeroizing::new(sealed?)
                }
                None => key.to_pem(),
            };
            (key, pem)
        }
    };
    let csr = csr::create(&key, &site_ca_name(&args.site), &args.trust_domain.id())?;
    Ok(Made { key_file, key, contents, csr_file, csr })
}

fn write(made: &[Made]) -> anyhow::Result<()> {
    let files: Vec<_> = made
        .iter()
        .flat_map(|made| {
            [
                New::secret(&made.key_file, made.contents.as_bytes()),
                New::public(&made.csr_file, made.csr.as_bytes()),
            ]
        })
        .collect();
    files::write_new_together(&files)
}

fn describe(made: &Made) -> anyhow::Result<Report> {
    let digest = csr::sha256(made.csr.as_bytes())?;
    Ok(Report::new("site-csr", format!("request {}", made.csr_file.display()))
        .fact("key", made.key_file.display(), "(stays at the site)")
        .fact("request", made.csr_file.display(), "(carry it to the root)")
        .fact("key_sha256", made.key.public().sha256(), "(compare it there)")
        .fact("sha256", hex::encode(digest), "(of the request)")
        .lines("words", words::lines(&digest)))
}
