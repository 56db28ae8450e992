//! Tables of prefixes with this process's secret.

use std::sync::OnceLock;

use isthmus_prefix::{PrefixTable, Seed};

/// An empty table whose hash nobody outside can foresee.
pub(crate) fn table<V>() -> PrefixTable<V> {
    static SEED: OnceLock<Seed> = OnceLock::new();
    PrefixTable::new(*SEED.get_or_init(|| Seed::new(rand::random())))
}
