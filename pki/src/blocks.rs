//! PEM (RFC 7468) taken apart leniently: what is wrong with one block is said of that block, and the others are read all the same.

use base64::{Engine as _, prelude::BASE64_STANDARD};
use zeroize::Zeroizing;

/// Most blocks of one file that are looked at.
pub const MAX_BLOCKS: usize = 1024;

const BEGIN: &[u8] = b"-----BEGIN ";
const END: &[u8] = b"-----END ";
const DASHES: &[u8] = b"-----";

/// One block, readable or not.
pub struct Block {
    /// Place among the blocks of the file, from 1.
    pub number: usize,
    /// Line of the file on which it begins, from 1.
    pub line: usize,
    /// What it says it is, such as "CERTIFICATE".
    pub label: String,
    /// It has the headers of RFC 1421, which OpenSSL writes into keys that it encrypts the old way.
    pub has_headers: bool,
    /// Its bytes, zeroized on drop since they may be a key's; or why they can't be read.
    pub contents: Result<Zeroizing<Vec<u8>>, String>,
}

impl Block {
    /// "block 2 (line 14)", for messages.
    pub fn place(&self) -> String {
        format!("block {} (line {})", self.number, self.line)
    }
}

/// Every block of a file, at most [`MAX_BLOCKS`]; text between blocks is skipped, as everybody's readers do.
pub fn blocks(bytes: &[u8]) -> Vec<Block> {
    let mut reader = Reader::default();
    for (index, line) in bytes.split(|byte| *byte == b'\n').enumerate() {
        if reader.done.len() == MAX_BLOCKS {
            return reader.done;
        }
        reader.take(index + 1, line.trim_ascii());
    }
    reader.abandon("it does not end");
    reader.done
}

#[derive(Default)]
struct Reader {
    done: Vec<Block>,
    open: Option<Open>,
}

struct Open {
    line: usize,
    label: String,
    has_headers: bool,
    body: Zeroizing<Vec<u8>>,
}

impl Reader {
    fn take(&mut self, number: usize, line: &[u8]) {
        if line.starts_with(BEGIN) {
            self.abandon("it does not end before the next one begins");
            self.begin(number, line);
        } else if line.starts_with(END) {
            self.end(line);
        } else if let Some(open) = &mut self.open {
            open.has_headers |= line.contains(&b':');
            if !open.has_headers || !line.contains(&b':') {
                open.body.extend_from_slice(line);
            }
        }
    }

    fn begin(&mut self, line: usize, text: &[u8]) {
        let label = text[BEGIN.len()..].strip_suffix(DASHES).unwrap_or(b"?");
        let label = String::from_utf8_lossy(label).chars().take(64).collect();
        self.open = Some(Open { line, label, has_headers: false, body: Zeroizing::default() });
    }

    fn end(&mut self, line: &[u8]) {
        let Some(label) = line[END.len()..].strip_suffix(DASHES) else {
            return self.abandon("the line that ends it is damaged");
        };
        if label.windows(BEGIN.len()).any(|window| window == BEGIN) {
            return self.abandon(
                "another block begins on the line that ends it: a newline is missing between two files, and readers lose both",
            );
        }
        match &self.open {
            Some(open) if open.label.as_bytes() == label => self.close(),
            _ => self.abandon("it ends as something else than it began"),
        }
    }

    fn close(&mut self) {
        let Some(open) = self.open.take() else { return };
        let decoded = BASE64_STANDARD.decode(&*open.body).map(Zeroizing::new);
        let contents = match decoded {
            Ok(bytes) if bytes.is_empty() => Err("it is empty".to_owned()),
            other => other.map_err(|e| format!("it is not base64: {e}")),
        };
        self.push(open, contents);
    }

    fn abandon(&mut self, reason: &str) {
        if let Some(open) = self.open.take() {
            self.push(open, Err(reason.to_owned()));
        }
    }

    fn push(&mut self, open: Open, contents: Result<Zeroizing<Vec<u8>>, String>) {
        let Open { line, label, has_headers, .. } = open;
        self.done.push(Block { number: self.done.len() + 1, line, label, has_headers, contents });
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn seen(text: &str) -> Vec<(String, usize, bool)> {
        blocks(text.as_bytes()).into_iter().map(|b| (b.label, b.line, b.contents.is_ok())).collect()
    }

    #[test]
    fn one_damaged_block_does_not_hide_the_others() {
        let good = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
        let text =
            format!("a comment\n{good}-----BEGIN CERTIFICATE-----\n!!\n-----END CERTIFICATE-----\r\n{good}");
        let label = || "CERTIFICATE".to_owned();
        assert_eq!(seen(&text), [(label(), 2, true), (label(), 5, false), (label(), 8, true)]);
        assert_eq!(seen(&format!("-----BEGIN A-----\nAAAA\n{good}"))[0], ("A".to_owned(), 1, false));
        assert_eq!(seen("-----BEGIN A-----\nAAAA\n"), [("A".to_owned(), 1, false)]);
        assert_eq!(seen("-----BEGIN A-----\nAAAA\n-----END B-----\n"), [("A".to_owned(), 1, false)]);
        assert!(seen("-----END A-----\nhello").is_empty());
    }

    #[test]
    fn two_files_joined_without_a_newline_are_recognised() {
        let text = "-----BEGIN A-----\nAAAA\n-----END A----------BEGIN A-----\nAAAA\n-----END A-----\n";
        let found = blocks(text.as_bytes());
        assert!(found[0].contents.as_ref().is_err_and(|why| why.contains("newline is missing")));
    }

    #[test]
    fn headers_of_an_old_encrypted_key_are_seen() {
        let text = "-----BEGIN EC PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\nDEK-Info: AES\n\nAAAA\n-----END EC PRIVATE KEY-----\n";
        let found = blocks(text.as_bytes());
        assert!(found[0].has_headers && found[0].contents.is_ok());
    }

    proptest! {
        #[test]
        fn random_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let mut text = b"-----BEGIN A-----\n".to_vec();
            text.extend(&bytes);
            text.extend(b"\n-----END A-----");
            prop_assert!(!blocks(&text).is_empty());
            blocks(&bytes);
        }
    }
}
