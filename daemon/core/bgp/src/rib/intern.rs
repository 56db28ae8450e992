//! One copy of each attribute set, however many prefixes share it.

use std::{collections::HashSet, sync::Arc};

use crate::wire::Attributes;

/// Copies that are looked at before unused ones are looked for.
const FIRST_SWEEP: usize = 1024;

#[derive(Debug, Default)]
pub(super) struct Interner {
    known: HashSet<Arc<Attributes>>,
    sweep_at: usize,
}

impl Interner {
    pub(super) fn intern(&mut self, attributes: Attributes) -> Arc<Attributes> {
        if let Some(known) = self.known.get(&attributes) {
            return Arc::clone(known);
        }
        if self.known.len() >= self.sweep_at.max(FIRST_SWEEP) {
            self.known.retain(|known| Arc::strong_count(known) > 1);
            self.sweep_at = self.known.len() * 2;
        }
        let attributes = Arc::new(attributes);
        self.known.insert(Arc::clone(&attributes));
        attributes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_what_is_equal_and_forgets_what_is_unused() {
        let mut interner = Interner::default();
        let make = |med| {
            let mut attributes = Attributes::originated("10.0.0.1".parse().unwrap());
            attributes.med = Some(med);
            attributes
        };
        let kept = interner.intern(make(0));
        assert!(Arc::ptr_eq(&kept, &interner.intern(make(0))));
        for med in 1..10_000 {
            interner.intern(make(med));
        }
        assert!(interner.known.len() <= FIRST_SWEEP + 1);
        assert!(Arc::ptr_eq(&kept, &interner.intern(make(0))));
    }
}
