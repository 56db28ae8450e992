//! Lets in clients that name the socket's path as their `:authority`.
//!
//! gRPC for Python, C++, Java and Swift sends the path of a unix socket there, percent-encoded or plain. Neither is an authority
//! (RFC 3986 section 3.2), and the HTTP/2 library resets such a stream before anybody can look at it. Nobody here needs the
//! value, so `%` and `/` in it become `-` on the way in. That keeps the length, in Huffman code too, and so neither a frame nor the
//! compression state (RFC 7541) changes its size. Whatever is not understood passes as it came.

use std::ops::Range;

const PREFACE: usize = 24;
const FRAME_HEADER: usize = 9;
/// Longest header block that is held back: a longer frame is an error that the HTTP/2 library reports (RFC 9113 section 4.2).
const MAX_BLOCK: usize = 16 << 10;
const HEADERS: u8 = 1;
const PADDED: u8 = 0x8;
const PRIORITY: u8 = 0x20;
const AUTHORITY: &[u8] = b":authority";
/// Index of `:authority` in the static table (RFC 7541 appendix A).
const AUTHORITY_INDEX: usize = 1;

/// Follows the frames of one connection. Feed it what arrives, pass on what it gives back.
pub(super) struct Filter {
    state: State,
    held: Vec<u8>,
}

enum State {
    /// This many bytes go through untouched.
    Pass(usize),
    /// The header of a frame is awaited.
    Header,
    /// The payload of a HEADERS frame is awaited: its flags and length.
    Block(u8, usize),
}

impl Default for Filter {
    fn default() -> Self {
        Self { state: State::Pass(PREFACE), held: Vec::new() }
    }
}

impl Filter {
    /// Appends to `output` what may go on. Part of a frame may be held back until the rest of it is there.
    pub(super) fn feed(&mut self, mut input: &[u8], output: &mut Vec<u8>) {
        while !input.is_empty() {
            let wanted = match self.state {
                State::Pass(left) => left,
                State::Header => FRAME_HEADER - self.held.len(),
                State::Block(_, length) => length - self.held.len(),
            };
            let (now, rest) = input.split_at(wanted.min(input.len()));
            input = rest;
            self.take(now, wanted, output);
        }
    }

    /// What is held back at the end of the stream.
    pub(super) fn finish(&mut self, output: &mut Vec<u8>) {
        output.append(&mut self.held);
    }

    fn take(&mut self, bytes: &[u8], wanted: usize, output: &mut Vec<u8>) {
        if let State::Pass(_) = self.state {
            output.extend_from_slice(bytes);
            self.state = if bytes.len() < wanted { State::Pass(wanted - bytes.len()) } else { State::Header };
            return;
        }
        self.held.extend_from_slice(bytes);
        if bytes.len() < wanted {
            return;
        }
        self.state = match self.state {
            State::Block(flags, _) => {
                mend(&mut self.held, flags);
                State::Header
            }
            _ => next(&self.held),
        };
        // Not `append`, which would keep the memory of the longest frame so far.
        output.extend_from_slice(&std::mem::take(&mut self.held));
    }
}

/// What follows a frame's header (RFC 9113 section 4.1).
fn next(header: &[u8]) -> State {
    let length = header[..3].iter().fold(0, |length, byte| length << 8 | usize::from(*byte));
    match length {
        0 => State::Header,
        1..=MAX_BLOCK if header[3] == HEADERS => State::Block(header[4], length),
        _ => State::Pass(length),
    }
}

fn mend(payload: &mut [u8], flags: u8) {
    if let Some((range, huffman)) = find(payload, flags) {
        if huffman { mend_huffman(&mut payload[range]) } else { mend_plain(&mut payload[range]) }
    }
}

fn mend_plain(value: &mut [u8]) {
    value.iter_mut().filter(|byte| matches!(byte, b'%' | b'/')).for_each(|byte| *byte = b'-');
}

/// `%`, `/` and `-` have codes of six bits, so one can stand in another's place. Codes of up to eight bits are followed; a
/// longer one ends the walk (RFC 7541 appendix B: codes rise with their length).
fn mend_huffman(value: &mut [u8]) {
    const PERCENT: u32 = 0x15;
    const HYPHEN: u32 = 0x16;
    const SLASH: u32 = 0x18;
    const LAST: [(usize, u32); 4] = [(5, 0x09), (6, 0x2d), (7, 0x7b), (8, 0xfd)];
    let mut at = 0;
    loop {
        let code = LAST.iter().find_map(|&(width, last)| {
            let code = bits(value, at, width)?;
            (code <= last).then_some((width, code))
        });
        match code {
            Some((6, PERCENT | SLASH)) => set_bits(value, at, 6, HYPHEN),
            Some(_) => {}
            None => return,
        }
        at += code.map_or(0, |(width, _)| width);
    }
}

fn bits(bytes: &[u8], at: usize, width: usize) -> Option<u32> {
    (at..at + width).try_fold(0, |value, bit| {
        let byte = bytes.get(bit / 8)?;
        Some(value << 1 | u32::from(byte >> (7 - bit % 8) & 1))
    })
}

fn set_bits(bytes: &mut [u8], at: usize, width: usize, value: u32) {
    for offset in 0..width {
        let (bit, mask) = (at + offset, 1 << (7 - (at + offset) % 8));
        let byte = &mut bytes[bit / 8];
        *byte = if value >> (width - 1 - offset) & 1 == 1 { *byte | mask } else { *byte & !mask };
    }
}

/// Where the value of `:authority` is in a HEADERS payload, and whether it is in Huffman code.
fn find(payload: &[u8], flags: u8) -> Option<(Range<usize>, bool)> {
    let padding = if flags & PADDED != 0 { usize::from(*payload.first()?) } else { 0 };
    let start = usize::from(flags & PADDED != 0) + if flags & PRIORITY != 0 { 5 } else { 0 };
    let block = payload.get(..payload.len().checked_sub(padding)?)?;
    let mut fields = Fields { block, at: start };
    while let Some(field) = fields.next()? {
        if field.is_authority {
            return Some((field.value, field.huffman));
        }
    }
    None
}

/// A literal header field.
struct Literal {
    is_authority: bool,
    value: Range<usize>,
    huffman: bool,
}

/// Walks a header block (RFC 7541 section 6).
struct Fields<'a> {
    block: &'a [u8],
    at: usize,
}

impl Fields<'_> {
    /// The next literal; `Some(None)` at the end, `None` if the block makes no sense.
    fn next(&mut self) -> Option<Option<Literal>> {
        while let Some(first) = self.block.get(self.at) {
            let prefix = match first {
                0x80.. => 7,
                0x40.. => 6,
                0x20.. => 5,
                _ => 4,
            };
            let index = self.integer(prefix)?;
            if matches!(prefix, 4 | 6) {
                return self.literal(index).map(Some);
            }
        }
        Some(None)
    }

    fn literal(&mut self, index: usize) -> Option<Literal> {
        let is_authority = if index == 0 {
            let (name, huffman) = self.string()?;
            !huffman && self.block.get(name)? == AUTHORITY
        } else {
            index == AUTHORITY_INDEX
        };
        let (value, huffman) = self.string()?;
        Some(Literal { is_authority, value, huffman })
    }

    fn string(&mut self) -> Option<(Range<usize>, bool)> {
        let huffman = self.block.get(self.at)? & 0x80 != 0;
        let length = self.integer(7)?;
        let end = self.at.checked_add(length).filter(|end| *end <= self.block.len())?;
        let range = self.at..end;
        self.at = end;
        Some((range, huffman))
    }

    /// RFC 7541 section 5.1; more than three bytes beyond the prefix are longer than any block here.
    fn integer(&mut self, prefix: u32) -> Option<usize> {
        let most = (1usize << prefix) - 1;
        let mut value = usize::from(*self.block.get(self.at)?) & most;
        self.at += 1;
        if value < most {
            return Some(value);
        }
        for shift in [0, 7, 14] {
            let byte = usize::from(*self.block.get(self.at)?);
            self.at += 1;
            value += (byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Some(value);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// POST, http, a path, then the authority as given, then one more literal.
    fn block(authority: &[u8]) -> Vec<u8> {
        let mut block = vec![0x83, 0x86, 0x04, 2, b'/', b'%'];
        block.extend_from_slice(authority);
        block.extend_from_slice(&[0x40, 1, b'a', 2, b'/', b'%']);
        block
    }

    fn frame(kind: u8, flags: u8, payload: &[u8]) -> Vec<u8> {
        let length = u8::try_from(payload.len()).unwrap();
        let mut frame = vec![0, 0, length, kind, flags, 0, 0, 0, 1];
        frame.extend_from_slice(payload);
        frame
    }

    fn through(wire: &[u8], chunk: usize) -> Vec<u8> {
        let (mut filter, mut output) = (Filter::default(), Vec::new());
        wire.chunks(chunk).for_each(|bytes| filter.feed(bytes, &mut output));
        filter.finish(&mut output);
        output
    }

    fn connection(frames: &[Vec<u8>]) -> Vec<u8> {
        let mut wire = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
        frames.iter().for_each(|frame| wire.extend_from_slice(frame));
        wire
    }

    #[test]
    fn only_the_authority_is_mended_however_it_arrives() {
        // Literal with the static table's name, then with a literal name.
        let indexed = |value: &[u8]| [&[0x41, 5], value].concat();
        let named = |value: &[u8]| [&[0x00, 10], AUTHORITY, &[5], value].concat();
        let padded = |block: Vec<u8>| [vec![2], block, vec![b'/', b'/']].concat();
        let prioritised = |block: Vec<u8>| [vec![0x80, 0, 0, 0, b'/'], block].concat();
        for (before, after) in [(b"%2Fab", b"-2Fab"), (b"/a/bc", b"-a-bc"), (b"a.b:1", b"a.b:1")] {
            let wire = |value: &[u8]| {
                connection(&[
                    frame(4, 0, &[]),
                    frame(HEADERS, 4, &block(&indexed(value))),
                    frame(0, 0, b"/%/%"),
                    frame(HEADERS, 4 | PADDED, &padded(block(&named(value)))),
                    frame(HEADERS, 4 | PRIORITY, &prioritised(block(&indexed(value)))),
                ])
            };
            for chunk in [1, 2, 7, 1000] {
                assert_eq!(through(&wire(before), chunk), wire(after));
            }
        }
    }

    #[test]
    fn huffman_code_is_mended_in_place() {
        // "www.example.com", RFC 7541 appendix C.4.1: nothing to mend.
        let example = [0xf1, 0xe3, 0xc2, 0xe5, 0xf2, 0x3a, 0x6b, 0xa0, 0xab, 0x90, 0xf4, 0xff];
        let mut same = example;
        mend_huffman(&mut same);
        assert_eq!(same, example);
        // "/a%" is 011000 00011 010101, then seven bits of padding; "-a-" is 010110 00011 010110.
        let mut path = [0b0110_0000, 0b0110_1010, 0b1111_1111];
        mend_huffman(&mut path);
        assert_eq!(path, [0b0101_1000, 0b0110_1011, 0b0111_1111]);
    }

    proptest! {
        #[test]
        fn nothing_is_lost_added_or_moved(wire in proptest::collection::vec(any::<u8>(), 0..400), chunk in 1usize..50) {
            let output = through(&wire, chunk);
            prop_assert_eq!(output.len(), wire.len());
            prop_assert_eq!(output, through(&wire, 1000));
        }

        #[test]
        fn any_header_block_keeps_its_length(payload in proptest::collection::vec(any::<u8>(), 1..200), flags: u8) {
            let mut mended = payload.clone();
            mend(&mut mended, flags);
            prop_assert_eq!(mended.len(), payload.len());
        }
    }
}
