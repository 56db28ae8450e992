//! What is brought up to date, or written anew, when metrics are read, and costs nothing while nobody reads them.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

type Function = dyn Fn() -> String + Send + Sync;

static UPDATES: Mutex<Vec<Weak<Function>>> = Mutex::new(Vec::new());

/// An update that is in force until this is dropped.
#[must_use = "it ends when it is dropped"]
pub struct Update {
    _function: Arc<Function>,
}

/// Calls the function at each reading of the metrics. It brings those of the registry up to date, and returns others in Prometheus' text
/// format: series that come and go, which the registry would keep for ever.
pub fn at_reading(function: impl Fn() -> String + Send + Sync + 'static) -> Update {
    let function: Arc<Function> = Arc::new(function);
    let mut updates = updates();
    updates.retain(|other| other.strong_count() > 0);
    updates.push(Arc::downgrade(&function));
    Update { _function: function }
}

/// Brings everything up to date; the metrics that are not in the registry.
pub fn update() -> String {
    let functions: Vec<Arc<Function>> = updates().iter().filter_map(Weak::upgrade).collect();
    functions.iter().map(|function| function()).collect()
}

fn updates() -> MutexGuard<'static, Vec<Weak<Function>>> {
    // No function runs while it is held.
    UPDATES.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    #[test]
    fn an_update_ends_with_its_handle() {
        let calls = Arc::new(AtomicU32::new(0));
        let counted = Arc::clone(&calls);
        let handle = at_reading(move || {
            counted.fetch_add(1, Ordering::Relaxed);
            "one 1\n".into()
        });
        assert!(update().contains("one 1\n"));
        drop(handle);
        assert!(!update().contains("one 1\n"));
        assert_eq!(calls.load(Ordering::Relaxed), 1);
    }
}
