//! What the files of a log are called.

/// Digits of a record's number in a file's name, at least: so that names sort as the records do.
const DIGITS: usize = 12;

/// Name of the full file that begins with record `first` of the log `name`.
pub fn full_file(name: &str, first: u64) -> String {
    format!("{name}.{first:0DIGITS$}")
}

/// The first record of a full file of the log `name`; `None` if the file is none of them.
pub fn first_of_full_file(name: &str, file: &str) -> Option<u64> {
    let digits = file.strip_prefix(name)?.strip_prefix('.')?;
    let number = digits.len() >= DIGITS && digits.bytes().all(|b| b.is_ascii_digit());
    number.then(|| digits.parse().ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_says_where_a_file_belongs() {
        for first in [1, 4711, u64::MAX] {
            assert_eq!(first_of_full_file("audit.jsonl", &full_file("audit.jsonl", first)), Some(first));
        }
        for other in [
            "audit.jsonl",
            "audit.jsonl.1",
            "audit.jsonl.head",
            "b.000000000001",
            "audit.jsonl.99999999999999999999999",
        ] {
            assert_eq!(first_of_full_file("audit.jsonl", other), None, "{other}");
        }
    }
}
