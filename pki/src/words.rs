//! Digests as words to read aloud: base32 (RFC 4648 section 6), each letter by its name in ICAO's spelling alphabet.

/// Words for the letters and digits of base32, in its order.
const WORDS: [&str; 32] = [
    "Alfa", "Bravo", "Charlie", "Delta", "Echo", "Foxtrot", "Golf", "Hotel", "India", "Juliett", "Kilo",
    "Lima", "Mike", "November", "Oscar", "Papa", "Quebec", "Romeo", "Sierra", "Tango", "Uniform", "Victor",
    "Whiskey", "X-ray", "Yankee", "Zulu", "two", "three", "four", "five", "six", "seven",
];
/// Words in one line: as many as a listener keeps in mind.
const PER_LINE: usize = 4;

/// The words of some bytes; 52 for a SHA-256.
pub fn spell(bytes: &[u8]) -> Vec<&'static str> {
    let bit = |at: usize| bytes.get(at / 8).map_or(0, |byte| byte >> (7 - at % 8) & 1);
    let letter = |at: usize| (0..5).fold(0, |letter, offset| letter << 1 | bit(at + offset));
    (0..bytes.len() * 8).step_by(5).map(|at| WORDS[usize::from(letter(at))]).collect()
}

/// The words in numbered lines of four.
pub fn lines(bytes: &[u8]) -> Vec<String> {
    let line = |(number, words): (usize, &[&str])| format!("{:>2}  {}", number + 1, words.join(" "));
    spell(bytes).chunks(PER_LINE).enumerate().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spells_the_vectors_of_rfc_4648() {
        for (text, letters) in
            [("", ""), ("f", "MY"), ("fo", "MZXQ"), ("foob", "MZXW6YQ"), ("foobar", "MZXW6YTBOI")]
        {
            let initials: String = spell(text.as_bytes())
                .iter()
                .map(|word| WORDS.iter().position(|w| w == word).unwrap())
                .map(|at| char::from(b"ABCDEFGHIJKLMNOPQRSTUVWXYZ234567"[at]))
                .collect();
            assert_eq!(initials, letters);
        }
        assert_eq!(spell(b"fo"), ["Mike", "Zulu", "X-ray", "Quebec"]);
    }

    #[test]
    fn a_digest_is_thirteen_lines() {
        let lines = lines(&[0xff; 32]);
        assert_eq!((lines.len(), lines[0].as_str()), (13, " 1  seven seven seven seven"));
        assert_eq!(lines[12], "13  seven seven seven Quebec");
    }
}
