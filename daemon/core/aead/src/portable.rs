//! Where there is no batch kernel.

use crate::Packet;

/// Packets of one call.
pub(crate) const MAX: usize = 16;

/// There is none.
#[derive(Clone, Copy)]
pub(crate) enum Kernel {}

impl Kernel {
    pub(crate) fn detect() -> Option<Self> {
        None
    }

    pub(crate) fn seal(self, _: &[u32; 8], _: &mut [Packet<'_>]) {
        match self {}
    }

    pub(crate) fn open(self, _: &[u32; 8], _: &mut [Packet<'_>]) {
        match self {}
    }
}
