//! A header block as it comes, in one frame or several (RFC 9113 section 4.3).

use crate::{
    Fault,
    frame::{Code, fault},
};

/// Most bytes of a block as it is sent.
const LONGEST: usize = 16 << 10;
/// Most frames that bring it: whole blocks are one frame, or two (CVE-2024-27316).
const PIECES: usize = 16;

/// One whose end has not come.
#[derive(Debug)]
pub(crate) struct Block {
    pub(crate) stream: u32,
    /// Nothing follows on the stream.
    pub(crate) is_last: bool,
    bytes: Vec<u8>,
    pieces: usize,
}

impl Block {
    pub(crate) fn new(stream: u32, is_last: bool) -> Self {
        Self { stream, is_last, bytes: Vec::new(), pieces: 0 }
    }

    pub(crate) fn add(&mut self, piece: &[u8]) -> Result<(), Fault> {
        self.pieces += 1;
        if self.pieces > PIECES || self.bytes.len() + piece.len() > LONGEST {
            return fault(Code::EnhanceYourCalm, "a header block has too many pieces or bytes");
        }
        self.bytes.extend_from_slice(piece);
        Ok(())
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}
