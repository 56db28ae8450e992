use std::convert::Infallible;

use proptest::prelude::*;

use super::*;

const SET: SetId = SetId([0x9c, 0x41, 0x77, 0xd0, 0x0b, 0x12, 0x3f, 0x2a]);

fn random(bytes: &mut [u8]) -> Result<(), Infallible> {
    aws_lc_rs::rand::fill(bytes).unwrap();
    Ok(())
}

fn set_of(key: u8, threshold: u8, total: u8, set: SetId) -> Vec<Share> {
    create(&Secret::new([key; SECRET_LEN]), Quorum::new(threshold, total).unwrap(), set, random).unwrap()
}

fn named(shares: &[Share]) -> Vec<Named> {
    let name = |share: &Share| Named { file: format!("{}-{}", share.set, share.index), share: share.clone() };
    shares.iter().map(name).collect()
}

/// What a bad scanner and a tired typist make of it: lost indentation, capitals, look-alikes, other line ends, notes around it.
fn scanned(text: &str) -> String {
    let mangled: Vec<_> = text
        .lines()
        .map(|line| match line.split_once(':') {
            Some((name, value)) if name.starts_with("Data") || name == "Checksum" => {
                let value = value.replace('0', "O").replace('1', "l").replace('5', "S").replace(' ', "");
                format!("  {} :{}", name.to_uppercase(), value.to_uppercase().replace('L', "I"))
            }
            _ => line.to_owned(),
        })
        .collect();
    format!("Safe 3, Alice\r\n\r\n{}\r\n\r\nseen 2026-06-01\r\n", mangled.join("\r\n\r\n"))
}

/// iqlusioninc/offline-keystore#77: shares came out mangled on paper. Here they come back, or the line is named.
#[test]
fn print_scan_combine() {
    let shares = set_of(7, 2, 3, SET);
    let again: Vec<_> =
        shares.iter().map(|share| Share::parse(scanned(&share.to_text()).as_bytes()).unwrap()).collect();
    assert_eq!(again, shares);
    assert_eq!(combine(&named(&again[1..]), None).unwrap()[..], [7; SECRET_LEN]);
}

#[test]
fn a_mangled_digit_names_its_line() {
    let text = set_of(7, 2, 3, SET)[0].to_text();
    for (at, line) in text.lines().enumerate() {
        let Some((name, value)) = line.split_once(':') else { continue };
        let name = name.to_ascii_lowercase();
        let digit = line.len() - value.trim_start().len();
        let other = if line.as_bytes()[digit] == b'3' { "4" } else { "3" };
        let mut changed = line.to_owned();
        changed.replace_range(digit..=digit, other);
        let changed: Vec<_> =
            text.lines().enumerate().map(|(n, l)| if n == at { &changed } else { l }).collect();
        let error = Share::parse(changed.join("\n").as_bytes()).unwrap_err();
        match name.as_str() {
            "version" => assert_eq!(error, Error::Version(other.into())),
            "threshold" | "total" | "index" | "set" | "checksum" => {
                assert!(matches!(error, Error::Checksum | Error::Field(_)), "{name}: {error}");
            }
            data => assert!(matches!(error, Error::Mangled(line) if line == data), "{data}: {error}"),
        }
    }
}

#[test]
fn a_share_with_a_line_too_few_or_too_many_is_refused() {
    let text = set_of(7, 2, 3, SET)[0].to_text();
    let parse = |text: &str| Share::parse(text.as_bytes()).unwrap_err();
    let without = |name: &str| text.lines().filter(|l| !l.starts_with(name)).collect::<Vec<_>>().join("\n");
    assert_eq!(parse(&without("Data 3")), Error::Missing("data 3"));
    assert_eq!(parse(&without("-----END")), Error::Count(0));
    assert_eq!(parse(&format!("{}{}", *text, *text)), Error::Count(2));
    assert_eq!(parse(&text.replace("Index:", "Index:     1\nIndex:")), Error::Twice(7));
    assert_eq!(parse(&text.replace("Index:", "Colour: red\nIndex:")), Error::Line(6));
    assert_eq!(parse(&text.replace("Index:     1", "Index:     4")), Error::Field("index"));
    assert_eq!(parse(""), Error::Count(0));
    assert_eq!(Share::parse(&[0xff]).unwrap_err(), Error::NotText);
    assert_eq!(Share::parse(&vec![b' '; MAX_LEN + 1]).unwrap_err(), Error::TooLong(MAX_LEN + 1));
}

#[test]
fn shares_of_two_sets_are_refused_not_combined() {
    let (ours, theirs) = (set_of(7, 2, 3, SET), set_of(7, 2, 3, SetId([1; 8])));
    let mixed = named(&[ours[0].clone(), theirs[1].clone()]);
    let refusal = combine(&mixed, None).unwrap_err();
    assert!(matches!(&refusal, Refusal::OtherSet { file, .. } if *file == mixed[1].file), "{refusal}");
    let all_wrong = combine(&named(&theirs), Some((SET, "root.key is wrapped by the shares"))).unwrap_err();
    assert!(
        all_wrong.to_string().contains("root.key is wrapped by the shares of set 9c41-77d0"),
        "{all_wrong}"
    );
}

#[test]
fn too_few_twice_and_tampered_are_refused() {
    let shares = set_of(7, 3, 5, SET);
    let refuse = |shares: &[Share]| combine(&named(shares), None).unwrap_err();
    assert_eq!(combine(&[], None).unwrap_err(), Refusal::None);
    assert!(matches!(refuse(&shares[..2]), Refusal::TooFew { have: 2, need: 3, missing: 1, .. }));
    let twice = [shares[0].clone(), shares[1].clone(), shares[0].clone()];
    assert!(matches!(refuse(&twice), Refusal::Twice { index: 1, .. }));
    let mut changed = shares.clone();
    changed[1].quorum = Quorum::new(2, 5).unwrap();
    assert!(matches!(refuse(&changed), Refusal::Contradiction { .. }));
    let mut unfit = shares.clone();
    unfit[4].data[31] ^= 1;
    assert!(matches!(refuse(&unfit), Refusal::Unfit { file, .. } if file.ends_with("-5")));
    assert!(combine(&named(&shares), Some((SET, "x"))).is_ok());
}

#[test]
fn a_key_file_names_its_set() {
    let quorum = Quorum::new(2, 3).unwrap();
    let pem = mark("-----BEGIN ENCRYPTED PRIVATE KEY-----\nAAAA\n", SET, quorum);
    assert_eq!(marked(pem.as_bytes()), Some(SET));
    assert_eq!(marked(b"-----BEGIN X-----\nIsthmus-Share-Set: 9c41-77d0-0b12-3f2a"), None);
    assert_eq!(marked(b"Isthmus-Share-Set: 9c41"), None);
    assert_eq!(marked(&[0xff]), None);
}

#[test]
fn neither_debug_nor_an_error_shows_data() {
    let share = &set_of(0xab, 2, 2, SET)[0];
    assert_eq!(format!("{share:?}"), "Share(9c41-77d0-0b12-3f2a 1 2 of 2)");
    assert_eq!(*passphrase(&Secret::new([0x0f; SECRET_LEN])), b"0f".repeat(32));
}

proptest! {
    #[test]
    fn text_round_trips(data in any::<[u8; SECRET_LEN]>(), set in any::<[u8; 8]>(), total in 2u8.., index in 1u8..) {
        let (threshold, index) = (2 + index % (total - 1), 1 + index % total);
        let quorum = Quorum::new(threshold, total).unwrap();
        let share = Share { set: SetId(set), quorum, index, data: Secret::new(data) };
        prop_assert_eq!(Share::parse(share.to_text().as_bytes()).unwrap(), share);
    }

    #[test]
    fn random_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..600), at in 0usize..500) {
        let _ = Share::parse(&bytes);
        let _ = marked(&bytes);
        let mut text = set_of(1, 2, 2, SET)[0].to_text().as_bytes().to_vec();
        let at = at % text.len();
        text.splice(at..at, bytes.iter().copied().take(8));
        let _ = Share::parse(&text);
    }
}
