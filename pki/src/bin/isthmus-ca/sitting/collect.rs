//! The requests of a sitting: all that lie there, each held against the plan, no key twice.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, bail};

use crate::{request::Brought, say::Lines};

/// Most files and directories that are looked at.
const MAX_ENTRIES: usize = 10_000;

/// Every `*.csr` in the directory and those right below it. site-ca.csr comes before site-ca-2.csr, and that before site-ca-10.csr.
pub(super) fn requests(dir: &Path) -> anyhow::Result<Vec<Brought>> {
    let mut paths = Vec::new();
    for path in entries(dir)? {
        if path.is_dir() { paths.extend(entries(&path)?) } else { paths.push(path) }
    }
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "csr"));
    if paths.is_empty() {
        bail!("{}: no request (*.csr) is in it", dir.display());
    }
    paths.sort_by_key(|path| (path.parent().map(PathBuf::from), path.as_os_str().len(), path.clone()));
    let requests = paths.iter().map(|path| Brought::read(path)).collect::<anyhow::Result<Vec<_>>>()?;
    refuse_twice(&requests)?;
    Ok(requests)
}

fn entries(dir: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let name = || dir.display().to_string();
    let entries = fs::read_dir(dir).with_context(name)?.take(MAX_ENTRIES);
    entries.map(|entry| Ok(entry.with_context(name)?.path())).collect()
}

/// One key for two CAs: whoever holds it is both.
fn refuse_twice(requests: &[Brought]) -> anyhow::Result<()> {
    let mut seen = BTreeMap::new();
    for brought in requests {
        if let Some(other) = seen.insert(brought.request.public_key.sha256(), &brought.path) {
            bail!(
                "{}: has the same key as {}; each request needs a key of its own",
                brought.name(),
                other.display()
            );
        }
    }
    Ok(())
}

/// The directory's name, which says who brought the request if it is the name of one.
pub(super) fn directory(brought: &Brought) -> Option<&str> {
    brought.path.parent()?.file_name()?.to_str()
}

/// Refusals as one error, one in a line.
pub(super) fn refused(mut refusals: Vec<String>) -> anyhow::Error {
    refusals.push("nothing was signed: mend the plan or the requests, and begin again".to_owned());
    Lines(refusals).into()
}
