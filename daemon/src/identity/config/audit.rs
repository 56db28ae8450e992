//! `[audit]`: where issuances and refusals are written, and how surely.

use std::path::{Path, PathBuf};

use serde::Deserialize;
use toml::Spanned;

use crate::config::Checker;

/// A validated `[audit]` section.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuditConfig {
    /// The file that is written; files that it outgrew lie beside it.
    pub file: PathBuf,
    /// When a record counts as written.
    pub sync: Sync,
    /// Length at which a new file is begun, in bytes.
    pub rotate: u64,
}

/// When a record counts as written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sync {
    /// When the kernel has it: survives the end of the daemon. On the disk within a second: what was issued in the last one may
    /// be missing after a power failure.
    Batch,
    /// When the disk has it: survives a power failure.
    Always,
}

const DEFAULT_ROTATE: u64 = 256 << 20;
const ROTATE: std::ops::RangeInclusive<u64> = 64 << 10..=1 << 40;

impl AuditConfig {
    /// As without a section.
    pub fn new(state_dir: &Path) -> Self {
        Self { file: state_dir.join("audit.jsonl"), sync: Sync::Batch, rotate: DEFAULT_ROTATE }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RawAuditConfig {
    file: Option<PathBuf>,
    sync: Option<Spanned<String>>,
    rotate: Option<Spanned<String>>,
}

impl RawAuditConfig {
    pub(crate) fn check(self, c: &mut Checker<'_>, state_dir: &Path) -> Option<AuditConfig> {
        let default = AuditConfig::new(state_dir);
        let sync = self.sync.map_or(Some(default.sync), |raw| check_sync(c, &raw));
        let rotate = self.rotate.map_or(Some(default.rotate), |raw| check_size(c, &raw));
        let file = self.file.map_or(default.file, |file| c.path(&file));
        Some(AuditConfig { file, sync: sync?, rotate: rotate? })
    }
}

fn check_sync(c: &mut Checker<'_>, raw: &Spanned<String>) -> Option<Sync> {
    match raw.get_ref().as_str() {
        "batch" => Some(Sync::Batch),
        "always" => Some(Sync::Always),
        _ => {
            c.problem(
                raw.span(),
                "sync is \"batch\" or \"always\"",
                "\"always\" survives a power failure and is slower",
            );
            None
        }
    }
}

fn check_size(c: &mut Checker<'_>, raw: &Spanned<String>) -> Option<u64> {
    let size = parse_size(raw.get_ref()).filter(|size| ROTATE.contains(size));
    if size.is_none() {
        let message = format!("\"{}\" is not a length from 64 KiB to 1024 GiB", raw.get_ref().escape_debug());
        c.problem(raw.span(), message, "write a number and KiB, MiB or GiB: \"256MiB\"");
    }
    size
}

fn parse_size(text: &str) -> Option<u64> {
    let units = [("KiB", 10), ("MiB", 20), ("GiB", 30)];
    let (number, shift) = units.iter().find_map(|(unit, shift)| Some((text.strip_suffix(unit)?, shift)))?;
    number.trim_end().parse::<u64>().ok()?.checked_mul(1 << shift)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes() {
        for (text, size) in [
            ("64KiB", Some(65_536)),
            ("1 MiB", Some(1 << 20)),
            ("2GiB", Some(2 << 30)),
            ("256", None),
            ("MiB", None),
            ("-1MiB", None),
            ("99999999999999999999GiB", None),
            ("99999999999999GiB", None),
        ] {
            assert_eq!(parse_size(text), size, "{text}");
        }
    }
}
