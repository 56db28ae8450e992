//! Fills the inventory: each directory and each context is a cluster, single files are one together.

use std::fs;
use std::io::{self, Read as _};
use std::path::Path;

use isthmus_pki::doctor::{Cluster, ClusterBuilder, Inventory};
use time::OffsetDateTime;

use super::kubectl;
use crate::cli::CertsDoctor;
use crate::failure::Failure;
use crate::input;
use crate::text;

/// Longest file that is read, in bytes: a dump of a cluster may be long.
const MAX_LEN: u64 = 16 << 20;
/// Most files of one directory.
const MAX_FILES: usize = 1000;

/// What there is to examine, and what was named although nothing in it can be.
pub(super) fn inventory(
    arguments: &CertsDoctor,
    now: OffsetDateTime,
) -> Result<(Inventory, Vec<String>), Failure> {
    let (mut clusters, mut idle) = (Vec::new(), Vec::new());
    let mut files = ClusterBuilder::new("files");
    for path in &arguments.paths {
        progress(&format!("reading {}", path.display()));
        let (place, before) = (path.display().to_string(), files.taken());
        let taken = if path.is_dir() {
            add(&mut clusters, directory(path, now)?)
        } else {
            take(&mut files, "", path, &place, now)?;
            files.taken() - before
        };
        idle.extend((taken == 0).then_some(place));
    }
    for path in &arguments.envoy_admin {
        progress(&format!("reading {}", path.display()));
        files.envoy(&path.display().to_string(), &read(path)?);
    }
    add(&mut clusters, files);
    for context in &arguments.context {
        let taken = add(&mut clusters, kubectl::cluster(context, &arguments.namespace)?);
        idle.extend((taken == 0).then(|| format!("context {context}")));
    }
    let workload_ttl = time::Duration::hours(arguments.workload_ttl_hours.into());
    Ok((Inventory { clusters, workload_ttl }, idle))
}

/// One more cluster; of how many things it is made.
fn add(clusters: &mut Vec<Cluster>, builder: ClusterBuilder) -> usize {
    let taken = builder.taken();
    clusters.push(builder.finish());
    taken
}

/// Data goes to stdout; what takes a while is told on stderr.
pub(super) fn progress(what: &str) {
    use io::Write as _;
    // With stderr gone there is nobody left to tell.
    let _ = writeln!(io::stderr(), "isthmusctl: {}", text::clean(what));
}

/// The files of a directory, not of those below; Kubernetes mounts a Secret with links and directories whose names begin with a dot.
fn directory(path: &Path, now: OffsetDateTime) -> Result<ClusterBuilder, Failure> {
    let fail = |e: io::Error| Failure::failed(format!("cannot read {}: {e}", path.display()));
    let place = path.display().to_string();
    let mut builder = ClusterBuilder::new(place.as_str());
    let entries: Result<Vec<_>, _> = fs::read_dir(path).map_err(fail)?.take(MAX_FILES + 1).collect();
    let mut paths: Vec<_> = entries.map_err(fail)?.into_iter().map(|entry| entry.path()).collect();
    if paths.len() > MAX_FILES {
        return Err(Failure::failed(format!("{place}: more than {MAX_FILES} files")));
    }
    paths.sort();
    for file in paths.iter().filter(|file| file.is_file()) {
        let name = file.file_name().unwrap_or_default().to_string_lossy();
        if !name.starts_with('.') && is_ours(&name) {
            take(&mut builder, &place, file, &name, now)?;
        }
    }
    Ok(builder)
}

/// By its name; what is in it decides the rest.
fn is_ours(name: &str) -> bool {
    let endings = [".pem", ".crt", ".cer", ".der", ".json", ".yaml", ".yml"];
    ["tls.key", "istio-generated"].contains(&name) || endings.iter().any(|end| name.ends_with(end))
}

fn take(
    builder: &mut ClusterBuilder,
    directory: &str,
    path: &Path,
    name: &str,
    now: OffsetDateTime,
) -> Result<(), Failure> {
    builder.file(directory, name, &read(path)?, now);
    Ok(())
}

fn read(path: &Path) -> Result<zeroize::Zeroizing<Vec<u8>>, Failure> {
    let fail = |e: io::Error| Failure::failed(format!("cannot read {}: {e}", path.display()));
    let file = input::open(path).map_err(fail)?;
    // Room for all of it at once: a growing buffer leaves copies of a secret behind.
    let length = file.metadata().map_err(fail)?.len().min(MAX_LEN);
    let mut content = zeroize::Zeroizing::new(Vec::with_capacity(usize::try_from(length).unwrap_or(0) + 1));
    file.take(MAX_LEN + 1).read_to_end(&mut content).map_err(fail)?;
    if content.len() as u64 > MAX_LEN {
        return Err(Failure::failed(format!("{}: more than {MAX_LEN} bytes", path.display())));
    }
    Ok(content)
}
