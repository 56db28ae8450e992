//! One copy of each attribute set and of each bundle, however many prefixes share it.

use std::{borrow::Borrow, collections::HashSet, fmt, hash::Hash, sync::Arc};

use isthmus_prefix::{Hasher, Seed};

use super::{Bundle, Source};
use crate::wire::Attributes;

/// Copies that are looked at before unused ones are looked for.
const FIRST_SWEEP: usize = 1024;

pub(super) struct Interner {
    attributes: Kinds<Attributes>,
    bundles: Kinds<Bundle>,
}

impl Interner {
    pub(super) fn new(seed: Seed) -> Self {
        Self { attributes: Kinds::new(seed), bundles: Kinds::new(seed) }
    }

    pub(super) fn attributes(&mut self, attributes: Attributes) -> Arc<Attributes> {
        self.attributes.one(attributes)
    }

    /// The attributes must come from [`Interner::attributes`].
    pub(super) fn bundle(
        &mut self,
        source: Source,
        received: Arc<Attributes>,
        effective: Option<Arc<Attributes>>,
    ) -> Arc<Bundle> {
        self.bundles.one(Bundle { source, received, effective })
    }

    /// Forgets what nobody uses and gives its memory back.
    pub(super) fn sweep(&mut self) {
        self.bundles.sweep();
        self.attributes.sweep();
    }
}

impl fmt::Debug for Interner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (attributes, bundles) = (self.attributes.known.len(), self.bundles.known.len());
        write!(f, "Interner({attributes} attribute sets, {bundles} bundles)")
    }
}

struct Kinds<T> {
    known: HashSet<Arc<T>, Hasher>,
    sweep_at: usize,
}

impl<T: Eq + Hash> Kinds<T>
where
    Arc<T>: Borrow<T>,
{
    fn new(seed: Seed) -> Self {
        Self { known: HashSet::with_hasher(seed.hasher()), sweep_at: FIRST_SWEEP }
    }

    fn one(&mut self, value: T) -> Arc<T> {
        if let Some(known) = self.known.get(&value) {
            return Arc::clone(known);
        }
        if self.known.len() >= self.sweep_at {
            self.sweep();
        }
        let value = Arc::new(value);
        self.known.insert(Arc::clone(&value));
        value
    }

    fn sweep(&mut self) {
        self.known.retain(|known| Arc::strong_count(known) > 1);
        self.known.shrink_to(self.known.len() * 2);
        self.sweep_at = FIRST_SWEEP.max(self.known.len() * 2);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_what_is_equal_and_forgets_what_is_unused() {
        let mut interner = Interner::new(Seed::new(7));
        let make = |med| {
            let mut attributes = Attributes::originated("10.0.0.1".parse().unwrap());
            attributes.med = Some(med);
            attributes
        };
        let kept = interner.attributes(make(0));
        assert!(Arc::ptr_eq(&kept, &interner.attributes(make(0))));
        for med in 1..10_000 {
            interner.attributes(make(med));
        }
        assert!(interner.attributes.known.len() <= FIRST_SWEEP + 1);
        assert!(Arc::ptr_eq(&kept, &interner.attributes(make(0))));
        let bundle = interner.bundle(Source::Local, Arc::clone(&kept), None);
        assert!(Arc::ptr_eq(&bundle, &interner.bundle(Source::Local, Arc::clone(&kept), None)));
        let other = interner.bundle(Source::Local, Arc::clone(&kept), Some(Arc::clone(&kept)));
        assert!(!Arc::ptr_eq(&bundle, &other));
        drop((bundle, other));
        interner.sweep();
        assert_eq!((interner.bundles.known.len(), interner.attributes.known.len()), (0, 1));
    }
}
