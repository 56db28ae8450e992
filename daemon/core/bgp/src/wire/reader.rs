//! A cursor that cannot run past the end.

/// Reads big-endian fields off the front of a slice; `None` when too little is left.
pub(super) struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    pub(super) fn take(&mut self, length: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(taken)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (taken, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*taken)
    }

    /// Takes `length` octets, at most `N`, as the front of an array; what stands behind them there means nothing.
    pub(super) fn leading<const N: usize>(&mut self, length: usize) -> Option<[u8; N]> {
        let whole = self.0.first_chunk().copied();
        let taken = self.take(length).filter(|_| length <= N)?;
        // Only at the end of a field are there fewer than N.
        Some(whole.unwrap_or_else(|| {
            let mut padded = [0; N];
            padded[..length].copy_from_slice(taken);
            padded
        }))
    }

    pub(super) fn u8(&mut self) -> Option<u8> {
        self.array().map(u8::from_be_bytes)
    }

    pub(super) fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_be_bytes)
    }

    pub(super) fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_be_bytes)
    }

    /// A length field of one octet, and that many octets.
    pub(super) fn short_block(&mut self) -> Option<&'a [u8]> {
        let length = self.u8()?;
        self.take(length.into())
    }

    /// A length field of two octets, and that many octets.
    pub(super) fn long_block(&mut self) -> Option<&'a [u8]> {
        let length = self.u16()?;
        self.take(length.into())
    }

    pub(super) fn rest(self) -> &'a [u8] {
        self.0
    }

    /// Octets that are left.
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn first(&self) -> Option<u8> {
        self.0.first().copied()
    }
}
