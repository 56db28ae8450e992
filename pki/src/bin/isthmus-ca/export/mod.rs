//! `export istio`: the site CA as the CA that istiod signs with.

mod in_place;
mod kubectl;
mod signer;

use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use clap::{Subcommand, ValueEnum};
use isthmus_pki::{
    doctor::{self, ClusterBuilder, Inventory, Severity},
    istio::{self, Files, Signer, Step},
    x509::{self, PemFile},
};

use crate::{
    files::{self, New},
    say::Lines,
};
use kubectl::Kubectl;

#[derive(Subcommand)]
pub(crate) enum Command {
    /// For Istio: the files of the Secret cacerts, its manifest, or the Secret itself in clusters.
    Istio(Istio),
}

#[derive(clap::Args)]
#[command(group = clap::ArgGroup::new("to").required(true))]
pub(crate) struct Istio {
    /// The signing CA's certificate; CAs between it and the root may follow.
    #[arg(long, value_name = "FILE")]
    ca: PathBuf,
    /// The signing CA's key.
    #[arg(long, value_name = "FILE")]
    ca_key: PathBuf,
    /// File (mode 0600) with the key's passphrase, if it is encrypted; without it, it is asked for. Istiod gets the key decrypted: it
    /// can't use another.
    #[arg(long, value_name = "FILE")]
    passphrase_file: Option<PathBuf>,
    /// The root(s) of the mesh, the one to stay first.
    #[arg(long, value_name = "FILE", required = true)]
    root: Vec<PathBuf>,
    /// Revocation lists: of the root and of every CA between, or none. An empty one of the signing CA itself is made if it is not given.
    #[arg(long, value_name = "FILE")]
    crl: Vec<PathBuf>,
    /// Write the files into this directory; made if missing, nothing in it is overwritten.
    #[arg(long, value_name = "DIR", group = "to")]
    out: Option<PathBuf>,
    /// Write the manifest of the Secret into this new file (mode 0600), or to standard output: `-`.
    #[arg(long, value_name = "FILE", group = "to")]
    manifest: Option<PathBuf>,
    /// Create or replace the Secret in the cluster of this kubeconfig context, through kubectl; may be repeated.
    #[arg(long, group = "to")]
    context: Vec<String>,
    /// Istiod's namespace.
    #[arg(long, default_value = "istio-system")]
    namespace: String,
    /// What the mesh has now: a directory, or a manifest of cacerts or istio-ca-secret. With --context it is asked.
    #[arg(long, value_name = "PATH", conflicts_with = "context")]
    in_place: Option<PathBuf>,
    /// In a mesh that trusts other roots: one step of the change, in this order.
    #[arg(long, value_enum)]
    step: Option<StepArg>,
    /// Check everything, write nothing.
    #[arg(long)]
    dry_run: bool,
}

#[derive(Clone, Copy, ValueEnum)]
enum StepArg {
    /// Our root beside the old ones; the issuer stays.
    AddRoot,
    /// Our issuer; all roots stay.
    Switch,
    /// Our root alone.
    DropOld,
}

impl StepArg {
    fn step(self) -> Step {
        match self {
            Self::AddRoot => Step::AddRoot,
            Self::Switch => Step::Switch,
            Self::DropOld => Step::DropOld,
        }
    }
}

pub(crate) fn run(command: &Command) -> anyhow::Result<()> {
    let Command::Istio(args) = command;
    let ours = signer::read(args)?;
    if args.context.is_empty() {
        return offline(args, &ours);
    }
    in_clusters(args, &ours)
}

/// The files of one step, after everything that istiod and its peers would find wrong with them was looked for.
fn checked(args: &Istio, ours: &Signer, in_place: Option<&Files>, place: &str) -> anyhow::Result<Files> {
    let step = args.step.map_or(Step::All, StepArg::step);
    let files = istio::plan(step, ours, in_place).with_context(|| place.to_owned())?;
    let mut builder = ClusterBuilder::new(place);
    for (name, bytes) in &files {
        builder.file(place, name, bytes, crate::now());
    }
    let inventory = Inventory { clusters: vec![builder.finish()], ..Inventory::default() };
    let found = doctor::examine(&inventory, crate::now());
    let lines = |severity| found.iter().filter(move |f| f.severity == severity).map(line);
    lines(Severity::Warn).for_each(|line| crate::note(&format!("warning: {line}")));
    let errors: Vec<String> = lines(Severity::Error).collect();
    if !errors.is_empty() {
        let headline = "nothing was written, because the mesh would refuse this CA:".to_owned();
        let errors = errors.into_iter().map(|line| format!("  {line}"));
        return Err(Lines(std::iter::once(headline).chain(errors).collect()).into());
    }
    Ok(files)
}

fn line(finding: &doctor::Finding) -> String {
    let doctor::Finding { check, name, file, field, what, remedy, .. } = finding;
    format!("{file}: {field}: {what} (check {check}, {name}); {remedy}")
}

fn offline(args: &Istio, ours: &Signer) -> anyhow::Result<()> {
    let in_place = args.in_place.as_deref().map(in_place::read).transpose()?;
    let place = args.out.as_deref().map_or("cacerts".to_owned(), |dir| dir.display().to_string());
    let files = checked(args, ours, in_place.as_ref(), &place)?;
    if args.dry_run {
        return crate::say(&summary(&files, "would write", &place));
    }
    match (&args.out, &args.manifest) {
        (Some(dir), _) => write_files(dir, &files)?,
        (None, Some(file)) if file.as_os_str() == "-" => {
            return crate::say_exactly(&istio::manifest_yaml(&files, &args.namespace));
        }
        (None, Some(file)) => {
            let manifest = istio::manifest_yaml(&files, &args.namespace);
            files::write_new_together(&[New::secret(file, manifest.as_bytes())])?;
        }
        (None, None) => bail!("say where to: --out, --manifest or --context"),
    }
    let place = args.out.as_ref().or(args.manifest.as_ref()).map_or(place, |path| path.display().to_string());
    crate::say(&summary(&files, "wrote", &place))
}

fn write_files(dir: &Path, files: &Files) -> anyhow::Result<()> {
    let paths: Vec<PathBuf> = files.keys().map(|name| dir.join(name)).collect();
    files::refuse_existing(&paths.iter().map(PathBuf::as_path).collect::<Vec<_>>())?;
    let new: Vec<New<'_>> = files
        .iter()
        .zip(&paths)
        .map(|((name, contents), path)| match name == istio::CA_KEY {
            true => New::secret(path, contents),
            false => New::public(path, contents),
        })
        .collect();
    files::write_new_together(&new)
}

fn summary(files: &Files, verb: &str, place: &str) -> Vec<String> {
    let mut lines = vec![format!("{verb} {place}: {}", files.keys().cloned().collect::<Vec<_>>().join(", "))];
    for (label, name) in [("signing CA", istio::CA_CERT), ("root", istio::ROOT_CERT)] {
        let file = PemFile::read(name, files.get(name).map_or(&[][..], |bytes| bytes.as_slice()));
        let line = |c: &x509::Certificate| format!("  {label:<11} {} SHA-256 {}", c.label(), c.facts.sha256);
        lines.extend(file.certificates.iter().map(line));
    }
    lines
}

/// Everything is planned and checked for all clusters before the first is changed.
fn in_clusters(args: &Istio, ours: &Signer) -> anyhow::Result<()> {
    let mut planned = Vec::new();
    for context in &args.context {
        let kubectl = Kubectl { context, namespace: &args.namespace };
        crate::note(&format!("{context}: reading the CA that is in place"));
        let found = kubectl.in_place()?;
        let place = format!("{context}: Secret {}/cacerts", args.namespace);
        let files = checked(args, ours, found.as_ref().map(|f| &f.files), &place)?;
        planned.push((kubectl, found, files, place));
    }
    for (kubectl, found, files, place) in &planned {
        if args.dry_run {
            crate::say(&summary(files, "would write", place))?;
            continue;
        }
        kubectl.put(files, found.as_ref()).with_context(|| place.clone())?;
        crate::say(&summary(files, "wrote", place))?;
        crate::say(&advice(found.as_ref()))?;
    }
    Ok(())
}

fn advice(found: Option<&kubectl::InPlace>) -> Vec<String> {
    match found {
        None => Vec::new(),
        Some(found) if found.version.is_none() => vec![
            "  next        restart istiod: one that made its own CA does not notice a new cacerts".to_owned(),
        ],
        Some(_) => vec![
            "  next        run `isthmusctl certs doctor --context` until checks 2 and 10 pass, before the next step".to_owned(),
        ],
    }
}
