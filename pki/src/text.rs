//! Text from files and from the wire on its way to a terminal: nothing in it may drive the terminal, or look like a line of ours.

use std::{borrow::Cow, fmt::Write as _};

/// True for characters that could drive a terminal or disguise text: controls (C0, DEL, C1), direction marks and characters without a
/// shape.
pub fn is_hostile(character: char) -> bool {
    character.is_control()
        || matches!(character,
            '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}'
            | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}')
}

/// The text with every hostile character written as an escape such as `\u{1b}` or `\n`.
pub fn clean(text: &str) -> Cow<'_, str> {
    if !text.contains(is_hostile) {
        return Cow::Borrowed(text);
    }
    let mut cleaned = String::with_capacity(text.len() + 16);
    for character in text.chars() {
        if is_hostile(character) {
            cleaned.extend(character.escape_default());
        } else {
            cleaned.push(character);
        }
    }
    Cow::Owned(cleaned)
}

/// A JSON document that says the same and is safe on a terminal: what JSON allows in strings and a terminal obeys (DEL, C1, direction
/// marks) as `\u` escapes. Line breaks stand between the members only, and stay.
pub fn clean_json(json: &str) -> Cow<'_, str> {
    let hostile = |character| is_hostile(character) && character != '\n';
    if !json.contains(hostile) {
        return Cow::Borrowed(json);
    }
    let mut cleaned = String::with_capacity(json.len() + 16);
    for character in json.chars() {
        if !hostile(character) {
            cleaned.push(character);
            continue;
        }
        for unit in character.encode_utf16(&mut [0; 2]) {
            // Writing to a String cannot fail.
            let _ = write!(cleaned, "\\u{unit:04x}");
        }
    }
    Cow::Owned(cleaned)
}

/// What is wrong with a TOML text, in one line.
pub fn toml_error(text: &str, error: &toml::de::Error) -> String {
    let Some(before) = error.span().and_then(|span| text.get(..span.start)) else {
        return error.message().to_owned();
    };
    let column = before.rsplit('\n').next().unwrap_or_default().chars().count() + 1;
    let line = before.matches('\n').count() + 1;
    format!("line {line}, column {column}: {}", error.message())
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOSTILE: &str = "a\n\u{1b}[31m\u{9b}m\u{7f}\u{202e}\u{2066}\u{61c}\u{e0041}b";

    #[test]
    fn hostile_text_is_escaped_and_plain_text_is_not_touched() {
        assert_eq!(clean(HOSTILE), "a\\n\\u{1b}[31m\\u{9b}m\\u{7f}\\u{202e}\\u{2066}\\u{61c}\\u{e0041}b");
        assert!(matches!(clean("zürich-gw1, CN=x \\n"), Cow::Borrowed("zürich-gw1, CN=x \\n")));
        assert_eq!(clean(&clean(HOSTILE)), clean(HOSTILE), "what is clean stays as it is");
    }

    #[test]
    fn json_is_safe_on_a_terminal_and_reads_back_the_same() {
        let json = serde_json::to_string_pretty(&[HOSTILE, "ü"]).unwrap();
        let cleaned = clean_json(&json);
        assert!(!cleaned.replace('\n', "").contains(is_hostile), "{cleaned:?}");
        assert!(cleaned.contains("\\u009b") && cleaned.contains("\\udb40\\udc41"), "{cleaned}");
        assert_eq!(serde_json::from_str::<Vec<String>>(&cleaned).unwrap(), [HOSTILE, "ü"]);
        assert!(matches!(clean_json("{\n  \"a\": 1\n}"), Cow::Borrowed(_)));
    }

    #[test]
    fn a_mistake_in_toml_is_told_in_one_line_with_its_place() {
        let text = "a = 1\nb = = 2\n";
        let said = toml_error(text, &toml::from_str::<toml::Table>(text).unwrap_err());
        assert!(said.starts_with("line 2, column ") && !said.contains('\n'), "{said}");
    }
}
