//! What was exported lately: prefixes that came together are exported together.

use std::sync::Arc;

use ipnet::IpNet;

use super::{Bundle, ExportTarget, Withheld, export};
use crate::{Family, wire::Attributes};

/// Places of the cache. Routes come in runs, so that a few do.
const LINES: usize = 256;

/// The results of [`export`] for one target, by bundle. Another target needs another cache.
#[derive(Debug, Default)]
pub struct ExportCache {
    lines: Vec<Option<Line>>,
}

#[derive(Debug)]
struct Line {
    /// Kept alive, so that its address means nothing else.
    bundle: Arc<Bundle>,
    class: (Family, u64),
    result: Result<Arc<Attributes>, Withheld>,
}

impl ExportCache {
    /// Like [`export`]; `intern` makes attributes one of a kind.
    pub fn export(
        &mut self,
        prefix: IpNet,
        bundle: &Arc<Bundle>,
        target: &ExportTarget,
        intern: impl FnOnce(Attributes) -> Arc<Attributes>,
    ) -> Result<Arc<Attributes>, Withheld> {
        let Some(class) = target.policy.prefix_class(&prefix) else {
            return export(prefix, bundle, target).map(intern);
        };
        let class = (Family::of(&prefix), class);
        self.lines.resize_with(LINES, || None);
        // Bundles are some 40 bytes apart.
        let line = &mut self.lines[(Arc::as_ptr(bundle).addr() >> 4) % LINES];
        match line {
            Some(known) if known.class == class && Arc::ptr_eq(&known.bundle, bundle) => known.result.clone(),
            _ => {
                let result = export(prefix, bundle, target).map(intern);
                *line = Some(Line { bundle: Arc::clone(bundle), class, result: result.clone() });
                result
            }
        }
    }

    /// Forgets everything, and keeps nothing alive: for when there is nothing to export, or another target.
    pub fn clear(&mut self) {
        self.lines = Vec::new();
    }
}
