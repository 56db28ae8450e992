//! Header compression (RFC 7541): all of it in what is read, none in what is written.

use std::collections::VecDeque;

use crate::{
    Fault, Field,
    frame::{Code, fault},
    huffman,
    statics::FIELDS,
};

/// What a field counts beside its bytes (section 4.1).
const OVERHEAD: usize = 32;
/// Size of the table before anything is said, which nothing of ours ever changes (RFC 9113 section 6.5.2).
const TABLE: usize = 4096;
/// Most that the fields of a block may count together.
pub const LONGEST: usize = 16 << 10;

/// The compression state of what arrives.
#[derive(Debug)]
pub struct Decoder {
    /// The newest first.
    table: VecDeque<Field>,
    size: usize,
    limit: usize,
}

impl Default for Decoder {
    fn default() -> Self {
        Self { table: VecDeque::new(), size: 0, limit: TABLE }
    }
}

impl Decoder {
    /// The fields of a whole header block.
    ///
    /// # Errors
    /// When it is not well formed or too long: the state is lost then, and the connection with it.
    pub fn decode(&mut self, mut block: &[u8]) -> Result<Vec<Field>, Fault> {
        let (mut fields, mut left) = (Vec::new(), LONGEST);
        while let Some(first) = block.first().copied() {
            if first & 0xe0 == 0x20 {
                // At the beginning only (section 4.2).
                if !fields.is_empty() {
                    return fault(Code::Compression, "the table's size changes in the middle of a block");
                }
                self.resize(integer(&mut block, 5)?)?;
                continue;
            }
            let field = self.field(&mut block, first, left)?;
            let size = size(&field);
            let Some(rest) = left.checked_sub(size) else {
                return fault(Code::EnhanceYourCalm, "header fields are too long");
            };
            left = rest;
            if first & 0xc0 == 0x40 {
                self.insert(field.clone(), size);
            }
            fields.push(field);
        }
        Ok(fields)
    }

    fn field(&self, block: &mut &[u8], first: u8, most: usize) -> Result<Field, Fault> {
        if first & 0x80 != 0 {
            return self.known(integer(block, 7)?);
        }
        let name = integer(block, if first & 0x40 != 0 { 6 } else { 4 })?;
        let name = if name == 0 { string(block, most)? } else { self.known(name)?.0 };
        Ok((name, string(block, most)?))
    }

    fn known(&self, number: usize) -> Result<Field, Fault> {
        let unknown = Fault { code: Code::Compression, what: "no field has this number" };
        let at = number.checked_sub(1).ok_or(unknown)?;
        if let Some((name, value)) = FIELDS.get(at) {
            return Ok((name.as_bytes().to_vec(), value.as_bytes().to_vec()));
        }
        self.table.get(at - FIELDS.len()).cloned().ok_or(unknown)
    }

    fn resize(&mut self, limit: usize) -> Result<(), Fault> {
        if limit > TABLE {
            return fault(Code::Compression, "the table is to be larger than was allowed");
        }
        self.limit = limit;
        self.shrink(limit);
        Ok(())
    }

    fn insert(&mut self, field: Field, size: usize) {
        // One that is larger than the table empties it (section 4.4).
        self.shrink(self.limit.saturating_sub(size));
        if size <= self.limit {
            self.size += size;
            self.table.push_front(field);
        }
    }

    fn shrink(&mut self, limit: usize) {
        while self.size > limit {
            let Some(oldest) = self.table.pop_back() else { return };
            self.size -= size(&oldest);
        }
    }
}

fn size((name, value): &Field) -> usize {
    name.len() + value.len() + OVERHEAD
}

/// An integer behind the upper bits of its first byte (section 5.1). Nothing here has more than four bytes.
fn integer(block: &mut &[u8], bits: u32) -> Result<usize, Fault> {
    let short = Fault { code: Code::Compression, what: "a header block ends in a number" };
    let most = (1usize << bits) - 1;
    let (first, mut rest) = block.split_first().ok_or(short)?;
    let mut value = usize::from(*first) & most;
    if value == most {
        for shift in [0, 7, 14, 21] {
            let (byte, behind) = rest.split_first().ok_or(short)?;
            rest = behind;
            value += usize::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                *block = rest;
                return Ok(value);
            }
        }
        return fault(Code::Compression, "a number in a header block is too large");
    }
    *block = rest;
    Ok(value)
}

fn string(block: &mut &[u8], most: usize) -> Result<Vec<u8>, Fault> {
    let is_huffman = block.first().is_some_and(|first| first & 0x80 != 0);
    let length = integer(block, 7)?;
    let Some((text, rest)) = block.split_at_checked(length) else {
        return fault(Code::Compression, "a header block ends in a string");
    };
    *block = rest;
    if is_huffman { huffman::decode(text, most) } else { Ok(text.to_vec()) }
}

/// Appends a field that is never put into a table.
pub(crate) fn encode(out: &mut Vec<u8>, name: &[u8], value: &[u8]) {
    let known = FIELDS.iter().position(|(known, _)| known.as_bytes() == name);
    match known {
        Some(at) => write_integer(out, 4, at + 1),
        None => {
            out.push(0);
            write_string(out, name);
        }
    }
    write_string(out, value);
}

fn write_string(out: &mut Vec<u8>, text: &[u8]) {
    write_integer(out, 7, text.len());
    out.extend_from_slice(text);
}

/// The upper bits of the first byte are zero.
fn write_integer(out: &mut Vec<u8>, bits: u32, value: usize) {
    let most = (1usize << bits) - 1;
    let low = |value: usize| u8::try_from(value & 0x7f).expect("seven bits");
    if value < most {
        return out.push(low(value));
    }
    out.push(low(most));
    let mut left = value - most;
    while left >= 0x80 {
        out.push(low(left) | 0x80);
        left >>= 7;
    }
    out.push(low(left));
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn fields(list: &[(&str, &str)]) -> Vec<Field> {
        list.iter().map(|(name, value)| (name.as_bytes().to_vec(), value.as_bytes().to_vec())).collect()
    }

    #[test]
    fn the_requests_of_the_standard_with_huffman_code() {
        // RFC 7541 C.4: three requests on a connection.
        let first = [
            0x82, 0x86, 0x84, 0x41, 0x8c, 0xf1, 0xe3, 0xc2, 0xe5, 0xf2, 0x3a, 0x6b, 0xa0, 0xab, 0x90, 0xf4,
            0xff,
        ];
        let second = [0x82, 0x86, 0x84, 0xbe, 0x58, 0x86, 0xa8, 0xeb, 0x10, 0x64, 0x9c, 0xbf];
        let third = [
            0x82, 0x87, 0x85, 0xbf, 0x40, 0x88, 0x25, 0xa8, 0x49, 0xe9, 0x5b, 0xa9, 0x7d, 0x7f, 0x89, 0x25,
            0xa8, 0x49, 0xe9, 0x5b, 0xb8, 0xe8, 0xb4, 0xbf,
        ];
        let mut decoder = Decoder::default();
        let start =
            [(":method", "GET"), (":scheme", "http"), (":path", "/"), (":authority", "www.example.com")];
        assert_eq!(decoder.decode(&first), Ok(fields(&start)));
        assert_eq!(decoder.size, 57);
        let again = [&start[..], &[("cache-control", "no-cache")]].concat();
        assert_eq!(decoder.decode(&second), Ok(fields(&again)));
        assert_eq!(decoder.size, 110);
        let last = [
            (":method", "GET"),
            (":scheme", "https"),
            (":path", "/index.html"),
            (":authority", "www.example.com"),
            ("custom-key", "custom-value"),
        ];
        assert_eq!(decoder.decode(&third), Ok(fields(&last)));
        assert_eq!(decoder.size, 164);
    }

    #[test]
    fn what_is_not_well_formed_is_refused() {
        let cases: [&[u8]; 8] = [
            &[0x80],                               // number 0
            &[0xbe],                               // not in the table
            &[0x3f, 0xe2, 0x1f],                   // a table of 4097
            &[0x82, 0x20],                         // a size after a field
            &[0x00, 0x05, b'a'],                   // a name cut off
            &[0x7f],                               // a number cut off
            &[0xff, 0xff, 0xff, 0xff, 0xff, 0x01], // a number that is too large
            &[0x00, 0x81, 0x00, 0x00],             // bad Huffman code
        ];
        for block in cases {
            let code = Decoder::default().decode(block).map_err(|fault| fault.code);
            assert_eq!(code, Err(Code::Compression), "{block:?}");
        }
        assert!(Decoder::default().decode(&[0x3f, 0xe1, 0x1f, 0x20, 0x82]).is_ok(), "4096, then 0");
    }

    #[test]
    fn a_block_cannot_grow_beyond_its_bound() {
        // One large field, then its number again and again: a byte each on the wire, 4000 in memory.
        let mut block = vec![0x40, 1, b'a'];
        write_string(&mut block, &[b'b'; 4000]);
        block.extend([0xbe; 1000]);
        let code = Decoder::default().decode(&block).map_err(|fault| fault.code);
        assert_eq!(code, Err(Code::EnhanceYourCalm));
    }

    #[test]
    fn one_larger_than_the_table_empties_it() {
        let mut decoder = Decoder::default();
        decoder.decode(&[0x40, 1, b'a', 1, b'b']).unwrap();
        assert_eq!(decoder.table.len(), 1);
        let mut block = vec![0x40, 1, b'a'];
        write_string(&mut block, &[b'b'; 5000]);
        decoder.decode(&block).unwrap();
        assert_eq!((decoder.table.len(), decoder.size), (0, 0));
    }

    proptest! {
        #[test]
        fn what_is_encoded_is_decoded(list: Vec<(Vec<u8>, Vec<u8>)>) {
            let mut block = Vec::new();
            list.iter().for_each(|(name, value)| encode(&mut block, name, value));
            let total: usize = list.iter().map(size).sum();
            prop_assume!(total <= LONGEST);
            prop_assert_eq!(Decoder::default().decode(&block), Ok(list));
        }

        #[test]
        fn nothing_panics_and_the_table_keeps_its_size(blocks: Vec<Vec<u8>>) {
            let mut decoder = Decoder::default();
            for block in blocks {
                let _ = decoder.decode(&block);
                prop_assert!(decoder.size <= TABLE);
                prop_assert_eq!(decoder.size, decoder.table.iter().map(size).sum::<usize>());
            }
        }
    }
}
