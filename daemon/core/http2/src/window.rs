//! Flow control (RFC 9113 section 5.2): what may be sent, and what may still arrive.

use crate::{
    Fault,
    frame::{Code, fault},
};

/// A window before anything is said. Ours keep it.
pub(crate) const INITIAL: u32 = 65_535;
/// The largest.
pub(crate) const MOST: i64 = (1 << 31) - 1;
/// A window is opened again when this much of it was used.
const STEP: u32 = INITIAL / 4;

/// What may be sent. Below zero: the client made its windows smaller meanwhile.
pub(crate) fn grow(window: &mut i64, by: i64) -> Result<(), Fault> {
    if *window + by > MOST {
        return fault(Code::FlowControl, "a window is too large");
    }
    *window += by;
    Ok(())
}

/// What arrives: read or not yet, and whether the client knows.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Inward {
    unread: u32,
    /// Read, and the client was not told.
    owed: u32,
}

impl Inward {
    /// False: the client had no right to.
    pub(crate) fn arrive(&mut self, bytes: u32) -> bool {
        let fits = bytes <= INITIAL - self.unread - self.owed;
        if fits {
            self.unread += bytes;
        }
        fits
    }

    /// By how much to open the window now, if at all.
    pub(crate) fn read(&mut self, bytes: u32) -> Option<u32> {
        let bytes = bytes.min(self.unread);
        self.unread -= bytes;
        self.owed += bytes;
        (self.owed >= STEP).then(|| std::mem::take(&mut self.owed))
    }

    pub(crate) fn unread(&self) -> u32 {
        self.unread
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_opens_by_what_was_read() {
        let mut inward = Inward::default();
        assert!(inward.arrive(65_535));
        assert!(!inward.arrive(1));
        assert_eq!(inward.read(16_382), None);
        assert!(!inward.arrive(1), "the client does not know yet");
        assert_eq!(inward.read(1), Some(16_383));
        assert!(inward.arrive(16_383));
        assert!(!inward.arrive(1));
        assert_eq!(inward.read(u32::MAX), Some(65_535), "never more than there was");
    }
}
