//! A taint statement as another node hands it on, and any text that a site CA of the fabric could put its signature under.
#![no_main]

use std::sync::LazyLock;

use isthmus_pki::{
    Authority, Bundle, Curve, Key, KeyHash, Profile, Serial, TrustDomain,
    rotation::taint,
    statement::{self, Kind},
};
use libfuzzer_sys::fuzz_target;
use time::{Duration, OffsetDateTime};

const KIND: Kind = Kind { typ: "isthmus-taint", longest: taint::MAX_LEN };

/// A site CA and the bundle that it hangs on.
static FABRIC: LazyLock<(Authority, Bundle)> = LazyLock::new(|| {
    let (domain, now) = (TrustDomain::parse("td").unwrap(), OffsetDateTime::now_utc());
    let root = Key::generate(Curve::P256).unwrap();
    let root = Authority::root(&domain, root, Duration::DAY, Serial::from_random([1; 16]), now).unwrap();
    let key = Key::generate(Curve::P256).unwrap();
    let profile = Profile::SiteCa { site: "s1".into(), lifetime: Duration::HOUR };
    let issued = root.issue(&profile, &key.public(), Serial::from_random([2; 16]), now).unwrap();
    (Authority::load(issued.certificate, key).unwrap(), Bundle::parse(root.certificate()).unwrap())
});

fuzz_target!(|data: &[u8]| {
    let (ca, bundle) = &*FABRIC;
    let ours = KeyHash::of(ca.facts());
    let Ok(text) = std::str::from_utf8(data) else { return };
    assert!(taint::open(text, bundle).is_err(), "nobody else has the key");

    let sealed = taint::seal(ca, 7, text).unwrap();
    let opened = taint::open(&sealed, bundle).unwrap();
    assert!(opened.key == ours && opened.since == 7 && text.starts_with(&opened.reason));

    // Whoever holds the key may sign what he likes: it is refused, or about that key. The key is another one in each run.
    let text = text.replace("KEY", ours.as_str());
    let Ok(sealed) = statement::seal(KIND, text.as_bytes(), ca) else { return };
    if let Ok(opened) = taint::open(&sealed, bundle) {
        assert!(taint::look(&sealed).as_ref() == Ok(&opened));
        assert!(opened.key == ours && opened.reason.len() <= 1024);
    }
});
