//! What a mesh has, from files that were taken out of it.

use std::{fs, path::Path};

use anyhow::Context as _;
use isthmus_pki::{
    istio::{Cacerts, Files},
    kubernetes,
};

use crate::files;

/// The Secret as it is in the mesh, from a manifest, or from a directory with its files.
pub(super) fn read(path: &Path) -> anyhow::Result<Files> {
    let name = || path.display().to_string();
    if !path.is_dir() {
        let mut objects =
            kubernetes::objects(&files::read(path)?).map_err(anyhow::Error::msg).with_context(name)?;
        let wanted = |name: &str| objects.iter().position(|o| o.kind == "Secret" && o.name == name);
        let at = wanted("cacerts").or_else(|| wanted("istio-ca-secret"));
        let at = at.with_context(|| format!("{}: no Secret cacerts or istio-ca-secret in it", name()))?;
        return Ok(objects.swap_remove(at).data);
    }
    let mut found = Files::new();
    for entry in fs::read_dir(path).with_context(name)? {
        let entry = entry.with_context(name)?;
        let file = entry.file_name().to_string_lossy().into_owned();
        if Cacerts::knows(&file) {
            found.insert(file, files::read(&entry.path())?);
        }
    }
    Ok(found)
}
