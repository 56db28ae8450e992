//! The state of one stream, as long as we may still say something on it.

use crate::window::Inward;

/// An open stream.
#[derive(Debug)]
pub(crate) struct Stream {
    pub(crate) id: u32,
    /// What may be sent.
    pub(crate) window: i64,
    pub(crate) inward: Inward,
    /// The client has said all.
    pub(crate) is_heard: bool,
    /// What is left of the length that the client has declared.
    pub(crate) declared: Option<u64>,
}

impl Stream {
    /// Data came; false: it is not what was declared (RFC 9113 section 8.1.1).
    pub(crate) fn count(&mut self, bytes: usize, is_last: bool) -> bool {
        let Some(declared) = self.declared else { return true };
        let left = u64::try_from(bytes).ok().and_then(|bytes| declared.checked_sub(bytes));
        self.declared = left;
        left.is_some_and(|left| !is_last || left == 0)
    }
}
