//! The Huffman code of header fields (RFC 7541 appendix B). It is canonical: shorter codes come first, and those of a length in order of
//! what they stand for. So the lengths say everything.

use crate::{
    Fault,
    frame::{Code, fault},
};

/// Bits of the longest code.
const LONGEST: usize = 30;
/// What stands for the end of a string, and must not occur in one.
const END: u16 = 256;

/// Bits of each byte's code, and of [`END`]'s.
#[rustfmt::skip]
const LENGTHS: [u8; 257] = [
    13, 23, 28, 28, 28, 28, 28, 28, 28, 24, 30, 28, 28, 30, 28, 28, 28, 28, 28, 28, 28, 28, 30, 28, 28, 28, 28, 28, 28,
    28, 28, 28, 6, 10, 10, 12, 13, 6, 8, 11, 10, 10, 8, 11, 8, 6, 6, 6, 5, 5, 5, 6, 6, 6, 6, 6, 6, 6, 7, 8, 15, 6, 12,
    10, 13, 6, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 8, 7, 8, 13, 19, 13, 14, 6, 15, 5, 6, 5,
    6, 5, 6, 6, 6, 5, 7, 7, 6, 6, 6, 5, 6, 7, 6, 5, 5, 6, 7, 7, 7, 7, 7, 15, 11, 14, 13, 28, 20, 22, 20, 20, 22, 22, 22,
    23, 22, 23, 23, 23, 23, 23, 24, 23, 24, 24, 22, 23, 24, 23, 23, 23, 23, 21, 22, 23, 22, 23, 23, 24, 22, 21, 20, 22,
    22, 23, 23, 21, 23, 22, 22, 24, 21, 22, 23, 23, 21, 21, 22, 21, 23, 22, 23, 23, 20, 22, 22, 22, 23, 22, 22, 23, 26,
    26, 20, 19, 22, 23, 22, 25, 26, 26, 26, 27, 27, 26, 24, 25, 19, 21, 26, 27, 27, 26, 27, 24, 21, 21, 26, 26, 28, 27,
    27, 27, 20, 24, 20, 21, 22, 21, 21, 23, 22, 22, 25, 25, 24, 24, 26, 23, 26, 27, 26, 26, 27, 27, 27, 27, 27, 28, 27,
    27, 27, 27, 27, 26, 30
];

/// Codes by their length.
struct Table {
    /// The first code of each length.
    first: [u32; LONGEST + 1],
    /// Where the symbols of each length begin.
    start: [u16; LONGEST + 2],
    /// In the order of their codes.
    symbols: [u16; 257],
}

static TABLE: Table = Table::new();

impl Table {
    const fn new() -> Self {
        let mut table = Self { first: [0; LONGEST + 1], start: [0; LONGEST + 2], symbols: [0; 257] };
        let (mut length, mut code, mut at) = (1, 0, 0);
        while length <= LONGEST {
            code <<= 1;
            table.first[length] = code;
            table.start[length] = at;
            let mut symbol: u16 = 0;
            while symbol <= END {
                if LENGTHS[symbol as usize] as usize == length {
                    table.symbols[at as usize] = symbol;
                    at += 1;
                    code += 1;
                }
                symbol += 1;
            }
            length += 1;
        }
        table.start[LONGEST + 1] = at;
        table
    }

    /// What these bits stand for, if they are a whole code.
    fn symbol(&self, code: u32, length: usize) -> Option<u16> {
        let at = usize::try_from(code.checked_sub(self.first[length])?).ok()?;
        let symbols = &self.symbols[usize::from(self.start[length])..usize::from(self.start[length + 1])];
        symbols.get(at).copied()
    }
}

/// Decodes a string of at most `most` bytes.
pub(crate) fn decode(bytes: &[u8], most: usize) -> Result<Vec<u8>, Fault> {
    let mut text = Vec::with_capacity(most.min(bytes.len() * 8 / 5));
    let (mut code, mut length) = (0u32, 0);
    for bit in bytes.iter().flat_map(|byte| (0..8).rev().map(move |at| byte >> at & 1)) {
        (code, length) = (code << 1 | u32::from(bit), length + 1);
        if length > LONGEST {
            return fault(Code::Compression, "no such Huffman code");
        }
        let Some(symbol) = TABLE.symbol(code, length) else { continue };
        let Ok(byte) = u8::try_from(symbol) else {
            return fault(Code::Compression, "a Huffman string holds the mark of its end");
        };
        if text.len() == most {
            return fault(Code::EnhanceYourCalm, "header fields are too long");
        }
        text.push(byte);
        (code, length) = (0, 0);
    }
    // What is left is padding: less than a byte, all ones (section 5.2).
    if length > 7 || code + 1 != 1 << length {
        return fault(Code::Compression, "a Huffman string ends in the middle of a code");
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// By the table, bit by bit.
    fn encode(text: &[u8]) -> Vec<u8> {
        let mut bits = Vec::new();
        for byte in text {
            let at = TABLE.symbols.iter().position(|symbol| *symbol == u16::from(*byte)).unwrap();
            let length = usize::from(LENGTHS[usize::from(*byte)]);
            let code = TABLE.first[length] + u32::try_from(at - usize::from(TABLE.start[length])).unwrap();
            bits.extend((0..length).rev().map(|at| u8::try_from(code >> at & 1).unwrap()));
        }
        while !bits.len().is_multiple_of(8) {
            bits.push(1);
        }
        bits.chunks(8).map(|byte| byte.iter().fold(0, |byte, bit| byte << 1 | bit)).collect()
    }

    #[test]
    fn the_examples_of_the_standard() {
        // RFC 7541 C.4.1 and C.6.1.
        let cases: [(&[u8], &[u8]); 4] = [
            (b"www.example.com", &[0xf1, 0xe3, 0xc2, 0xe5, 0xf2, 0x3a, 0x6b, 0xa0, 0xab, 0x90, 0xf4, 0xff]),
            (b"no-cache", &[0xa8, 0xeb, 0x10, 0x64, 0x9c, 0xbf]),
            (b"302", &[0x64, 0x02]),
            (b"private", &[0xae, 0xc3, 0x77, 0x1a, 0x4b]),
        ];
        for (text, code) in cases {
            assert_eq!(decode(code, 100).as_deref(), Ok(text));
            assert_eq!(encode(text), code);
        }
    }

    #[test]
    fn the_code_is_complete_and_its_ends_are_the_standards() {
        let sum: u64 = LENGTHS.iter().map(|length| 1u64 << (LONGEST - usize::from(*length))).sum();
        assert_eq!(sum, 1 << LONGEST);
        assert_eq!(TABLE.symbol(0, 5), Some(u16::from(b'0')));
        assert_eq!(TABLE.symbol(0x3fff_ffff, 30), Some(END));
        assert_eq!(TABLE.symbol(0x1ff8, 13), Some(0));
        assert_eq!(TABLE.symbol(0x3ff_ffee, 26), Some(255));
    }

    #[test]
    fn bad_ends_are_refused() {
        for bytes in [&[0xff][..], &[0xff; 4], &[0x00], &[0xf1, 0xe2]] {
            let refused = decode(bytes, 100).is_err();
            // 0xff alone is eight bits of padding, and 0x00 is a code and three zeros.
            assert!(refused, "{bytes:?}");
        }
        assert_eq!(decode(&encode(b"hello"), 4).map_err(|fault| fault.code), Err(Code::EnhanceYourCalm));
    }

    proptest! {
        #[test]
        fn every_text_survives(text: Vec<u8>) {
            prop_assert_eq!(decode(&encode(&text), text.len()), Ok(text));
        }

        #[test]
        fn nothing_panics(bytes: Vec<u8>, most in 0usize..100) {
            let _ = decode(&bytes, most);
        }
    }
}
