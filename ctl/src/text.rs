//! Words and numbers for a person. Strings from the wire are cleaned before they may reach a terminal, as `isthmus-ca` does it.

use std::fmt::Write as _;

pub(crate) use isthmus_pki::text::{clean, is_hostile};

/// The text, or "-" where there is none.
pub(crate) fn or_dash(text: &str) -> &str {
    if text.is_empty() { "-" } else { text }
}

/// The text, unless it is empty, which stands for "not known" on the wire.
pub(crate) fn known(text: String) -> Option<String> {
    (!text.is_empty()).then_some(text)
}

/// The first item and how many more there are.
pub(crate) fn some_of(items: &[String]) -> String {
    match items {
        [] => "-".to_owned(),
        [only] => only.clone(),
        [first, rest @ ..] => format!("{first} +{}", rest.len()),
    }
}

/// The common name in a distinguished name such as `O=SPIRE, CN=aws-use1`; all of it where there is none.
pub(crate) fn common_name(name: &str) -> &str {
    let parts = name.split(',').map(str::trim_start);
    parts.filter_map(|part| part.strip_prefix("CN=")).next().unwrap_or(name)
}

/// The last part of a path.
pub(crate) fn file_name(path: &str) -> &str {
    path.rsplit('/').next().filter(|name| !name.is_empty()).unwrap_or(path)
}

/// A span of seconds in its two largest units: "12s", "4m12s", "3h4m", "5d3h".
pub(crate) fn span(seconds: u64) -> String {
    const UNITS: [(u64, &str); 4] = [(86_400, "d"), (3_600, "h"), (60, "m"), (1, "s")];
    let mut rest = seconds;
    let mut words = String::new();
    let mut units = UNITS.iter().skip_while(|(length, _)| *length > seconds.max(1));
    for (length, unit) in units.by_ref().take(2) {
        let count = rest / length;
        rest %= length;
        if count > 0 || words.is_empty() {
            // Writing to a String cannot fail.
            let _ = write!(words, "{count}{unit}");
        }
    }
    words
}

/// A span given in milliseconds: "300ms", "1500ms", "9s".
pub(crate) fn milliseconds(count: u64) -> String {
    if count == 0 || !count.is_multiple_of(1000) { format!("{count}ms") } else { span(count / 1000) }
}

/// Bytes as lower-case hex.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        // Writing to a String cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// A count of bytes with a binary unit: "512 B", "1.5 KiB".
pub(crate) fn bytes(count: u64) -> String {
    const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    if count < 1024 {
        return format!("{count} B");
    }
    let mut power = 0;
    while power + 1 < UNITS.len() && count >> (10 * (power + 2)) > 0 {
        power += 1;
    }
    let unit = 1_u128 << (10 * (power + 1));
    let tenths = u128::from(count) * 10 / unit;
    format!("{}.{} {}", tenths / 10, tenths % 10, UNITS[power])
}

#[cfg(test)]
mod tests {
    use std::borrow::Cow;

    use super::*;

    #[test]
    fn spans_take_two_units() {
        let cases = [
            (0, "0s"),
            (12, "12s"),
            (60, "1m"),
            (252, "4m12s"),
            (11_040, "3h4m"),
            (7_259, "2h"),
            (86_400, "1d"),
            (442_800, "5d3h"),
            (u64::MAX, "213503982334601d7h"),
        ];
        for (seconds, words) in cases {
            assert_eq!(span(seconds), words, "{seconds}");
        }
    }

    #[test]
    fn milliseconds_become_seconds_when_whole() {
        assert_eq!(milliseconds(0), "0ms");
        assert_eq!(milliseconds(300), "300ms");
        assert_eq!(milliseconds(1500), "1500ms");
        assert_eq!(milliseconds(9000), "9s");
    }

    #[test]
    fn bytes_have_one_decimal() {
        let cases = [
            (0, "0 B"),
            (1023, "1023 B"),
            (1024, "1.0 KiB"),
            (1536, "1.5 KiB"),
            (1_048_576, "1.0 MiB"),
            (u64::MAX, "15.9 EiB"),
        ];
        for (count, words) in cases {
            assert_eq!(bytes(count), words, "{count}");
        }
    }

    #[test]
    fn hostile_text_is_escaped_and_plain_text_is_not_touched() {
        assert_eq!(clean("gw1 \u{1b}[31mred"), "gw1 \\u{1b}[31mred");
        assert_eq!(clean("a\nb\tc\u{9b}m\u{202e}x\u{7f}"), "a\\nb\\tc\\u{9b}m\\u{202e}x\\u{7f}");
        assert!(matches!(clean("zürich-gw1"), Cow::Borrowed("zürich-gw1")));
    }

    #[test]
    fn long_lists_are_cut() {
        let items = |count: usize| (0..count).map(|n| n.to_string()).collect::<Vec<_>>();
        assert_eq!(some_of(&items(0)), "-");
        assert_eq!(some_of(&items(1)), "0");
        assert_eq!(some_of(&items(5)), "0 +4");
    }

    #[test]
    fn names_are_shortened_to_the_part_that_tells() {
        for (name, common) in [
            ("CN=aws-use1", "aws-use1"),
            ("O=Isthmus, CN=aws-use1, C=US", "aws-use1"),
            ("O=SPIRE", "O=SPIRE"),
            ("", ""),
        ] {
            assert_eq!(common_name(name), common);
        }
        for (path, name) in
            [("/etc/isthmus/root.pem", "root.pem"), ("root.pem", "root.pem"), ("/a/", "/a/"), ("", "")]
        {
            assert_eq!(file_name(path), name);
        }
    }
}
