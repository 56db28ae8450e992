//! A CA says of itself that it is in a stranger's hands: the statement that other nodes believe without asking anybody.
//!
//! It is signed by the tainted CA's own key. So only who holds that key can taint it: a node of the site cannot bring down the site's
//! other CAs, and a thief who taints what he stole does us a favour. It can't be taken back; a new CA takes the old one's place.
//!
//! Whoever holds one key chooses these words, and every node of the fabric keeps them: so they are short, and in one form only.

use serde::{Deserialize, Serialize};
use time::OffsetDateTime;

use crate::{
    authority::Authority,
    bundle::Bundle,
    facts::Facts,
    id::TrustDomain,
    keyhash::KeyHash,
    signed_by,
    statement::{self, Kind, Opened},
};

const VERSION: u32 = 1;
/// Longest statement, in bytes: with the longest reason there is room for a certificate of three times the length of ours.
pub const MAX_LEN: usize = 6 << 10;
const KIND: Kind = Kind { typ: "isthmus-taint", longest: MAX_LEN };
/// Longest reason, in bytes.
const MAX_REASON: usize = 1024;

/// A CA whose leaves are refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Taint {
    /// Its key.
    pub key: KeyHash,
    /// The site that it serves; `None`: its certificate names none.
    pub site: Option<String>,
    /// Since when, by the clock of the node that said so.
    pub since: i64,
    /// When its certificate ends and the statement can be forgotten.
    pub not_after: i64,
    /// The operator's words.
    pub reason: String,
}

/// Why a statement is not believed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The JWS.
    #[error(transparent)]
    Statement(#[from] statement::Error),
    /// The text.
    #[error("not the text of a taint statement: {0}")]
    Text(String),
    /// It speaks of another CA than the one that signed it.
    #[error("it speaks of another CA than the one that signed it; a CA can only taint itself")]
    Other,
    /// The signer is no CA of this fabric.
    #[error("its signer is no site CA under a root that this node trusts")]
    Stranger,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Wire {
    version: u32,
    trust_domain: String,
    key_sha256: KeyHash,
    since: i64,
    reason: String,
}

/// Makes the statement, signed by the CA that it is about.
pub fn seal(ca: &Authority, since: i64, reason: &str) -> Result<String, Error> {
    let cut: String = reason.chars().take(MAX_REASON / 4).collect();
    let sealed = seal_words(ca, since, cut)?;
    if sealed.len() <= MAX_LEN {
        return Ok(sealed);
    }
    // The words are for people: beside a very long certificate the CA falls without them.
    let sealed = seal_words(ca, since, String::new())?;
    let length = sealed.len();
    if length <= MAX_LEN { Ok(sealed) } else { Err(too_long(length)) }
}

fn seal_words(ca: &Authority, since: i64, reason: String) -> Result<String, Error> {
    let (trust_domain, key_sha256) = (ca.trust_domain().to_string(), KeyHash::of(ca.facts()));
    let wire = Wire { version: VERSION, trust_domain, key_sha256, since, reason };
    Ok(statement::seal(KIND, &wire.text()?, ca)?)
}

fn too_long(length: usize) -> Error {
    statement::Error::TooLong { length, longest: MAX_LEN }.into()
}

/// Reads a statement. An expired CA is believed too: what it says of itself can only make us more careful.
pub fn open(text: &str, bundle: &Bundle) -> Result<Taint, Error> {
    let (opened, wire) = read(text)?;
    check_signer(&opened, &wire.trust_domain, bundle)?;
    Ok(taint(&opened, wire))
}

/// Reads a statement without asking whose CA it is that signed it: for what was believed when it came.
pub fn look(text: &str) -> Result<Taint, Error> {
    let (opened, wire) = read(text)?;
    Ok(taint(&opened, wire))
}

fn read(text: &str) -> Result<(Opened, Wire), Error> {
    let opened = statement::open(text, KIND)?;
    let wire: Wire = serde_json::from_slice(&opened.payload).map_err(|e| Error::Text(e.to_string()))?;
    if wire.version != VERSION || wire.reason.len() > MAX_REASON {
        return Err(Error::Text("of another version, or with too long a reason".into()));
    }
    if wire.text()? != opened.payload {
        return Err(Error::Text(
            "not in the one form that it may have: without spaces, each thing once".into(),
        ));
    }
    if wire.key_sha256 == KeyHash::of(&opened.facts) { Ok((opened, wire)) } else { Err(Error::Other) }
}

fn taint(opened: &Opened, wire: Wire) -> Taint {
    let Wire { key_sha256: key, since, reason, .. } = wire;
    let site = opened.facts.site().map(str::to_owned);
    Taint { key, site, since, not_after: opened.facts.not_after, reason }
}

impl Wire {
    fn text(&self) -> Result<Vec<u8>, Error> {
        serde_json::to_vec(self).map_err(|e| Error::Text(e.to_string()))
    }
}

fn check_signer(opened: &Opened, trust_domain: &str, bundle: &Bundle) -> Result<(), Error> {
    let ours = |facts: &Facts, domain: &TrustDomain| facts.uris == [domain.id().to_string()];
    let domain = bundle.trust_domain();
    let a_ca = opened.facts.is_ca() && opened.facts.may_sign_certificates() && !opened.facts.self_issued;
    let under_root = bundle.anchors().iter().any(|root| signed_by::certificate(&opened.signer, root));
    if trust_domain == domain.as_str() && a_ca && ours(&opened.facts, domain) && under_root {
        Ok(())
    } else {
        Err(Error::Stranger)
    }
}

impl Taint {
    /// True once the certificate of the CA has ended: nothing of it can be alive.
    pub fn is_over(&self, now: OffsetDateTime) -> bool {
        self.not_after < now.unix_timestamp()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use rcgen::{CertificateParams, KeyUsagePurpose};

    use super::*;
    use crate::{
        key::{Curve, Key},
        testing::{
            Fabric,
            forge::{ca_params, leaf_params, uri},
        },
    };

    #[test]
    fn a_ca_taints_itself_and_nobody_else() {
        let fabric = Fabric::shared();
        let bundle = fabric.bundle();
        let sealed = seal(&fabric.site, 7, "laptop stolen").unwrap();
        let taint = open(&sealed, &bundle).unwrap();
        assert_eq!((&taint.key, taint.since), (&KeyHash::of(fabric.site.facts()), 7));
        assert_eq!(
            (taint.reason.as_str(), taint.site.as_deref()),
            ("laptop stolen", fabric.site.facts().site())
        );
        let end = OffsetDateTime::from_unix_timestamp(taint.not_after).unwrap();
        assert!(!taint.is_over(end) && taint.is_over(end + time::Duration::SECOND));

        // A root is not tainted by a statement; another fabric's CA is nobody here.
        assert_eq!(open(&seal(&fabric.root, 7, "").unwrap(), &bundle), Err(Error::Stranger));
        let other = Fabric::new("td");
        assert_eq!(open(&seal(&other.site, 7, "").unwrap(), &bundle), Err(Error::Stranger));
        // One CA about another.
        let key_sha256 = KeyHash::of(other.site.facts());
        let wire =
            Wire { version: 1, trust_domain: "td".into(), key_sha256, since: 7, reason: String::new() };
        let forged = statement::seal(KIND, &serde_json::to_vec(&wire).unwrap(), &fabric.site).unwrap();
        assert_eq!(open(&forged, &bundle), Err(Error::Other));
        let charter = Kind { typ: "isthmus-charter", ..KIND };
        let wrong_type = statement::seal(charter, b"{}", &fabric.site).unwrap();
        assert!(matches!(open(&wrong_type, &bundle), Err(Error::Statement(_))));
        assert!(matches!(
            open(&"a".repeat(MAX_LEN + 1), &bundle),
            Err(Error::Statement(statement::Error::TooLong { .. }))
        ));
    }

    #[test]
    fn a_statement_of_another_form_or_domain_is_refused() {
        let fabric = Fabric::shared();
        let wire = |version, domain: &str, length| {
            let key_sha256 = KeyHash::of(fabric.site.facts());
            let wire = Wire {
                version,
                trust_domain: domain.into(),
                key_sha256,
                since: 7,
                reason: "x".repeat(length),
            };
            let sealed = statement::seal(KIND, &serde_json::to_vec(&wire).unwrap(), &fabric.site).unwrap();
            open(&sealed, &fabric.bundle()).map(|taint| taint.since)
        };
        assert_eq!(wire(1, "td", MAX_REASON), Ok(7));
        assert!(matches!(wire(1, "td", MAX_REASON + 1), Err(Error::Text(_))));
        assert!(matches!(wire(2, "td", 0), Err(Error::Text(_))));
        assert_eq!(wire(1, "other", 0), Err(Error::Stranger));
    }

    #[test]
    fn of_what_a_root_signed_only_a_site_ca_of_the_fabric_speaks() {
        let fabric = Fabric::shared();
        let speaks = |params: &CertificateParams| {
            let signer = fabric.sign_with_root(params, &Key::generate(Curve::P256).unwrap());
            let facts = Facts::parse(&signer).unwrap();
            check_signer(&Opened { payload: Vec::new(), signer, facts }, "td", &fabric.bundle())
        };
        let ca = |uris: &[&str]| {
            let mut params = ca_params("Isthmus site CA s", Some(0));
            params.subject_alt_names = uris.iter().map(|text| uri(text)).collect();
            params
        };
        assert_eq!(speaks(&ca(&["spiffe://td"])), Ok(()));
        let mut silent = ca(&["spiffe://td"]);
        silent.key_usages = vec![KeyUsagePurpose::CrlSign];
        let mut leaf = leaf_params("spiffe://td");
        leaf.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        let strangers = [leaf, silent, ca(&[]), ca(&["spiffe://other"])];
        for params in strangers {
            assert_eq!(speaks(&params), Err(Error::Stranger), "{:?}", params.subject_alt_names);
        }
    }

    #[test]
    fn it_has_one_form_and_is_short() {
        let fabric = Fabric::shared();
        let plain = statement::open(&seal(&fabric.site, 7, "sold").unwrap(), KIND).unwrap().payload;
        let plain = String::from_utf8(plain).unwrap();
        let signed = |text: &str| statement::seal(KIND, text.as_bytes(), &fabric.site).unwrap();
        assert_eq!(open(&signed(&plain), &fabric.bundle()).unwrap().reason, "sold");
        let swapped = plain.replace("\"since\":7,\"reason\":\"sold\"", "\"reason\":\"sold\",\"since\":7");
        let others =
            [format!("{plain} "), plain.replace(":7", ": 7"), plain.replace("sold", "\\u0073old"), swapped];
        for other in others {
            assert_ne!(other, plain);
            let error = open(&signed(&other), &fabric.bundle()).unwrap_err();
            assert!(matches!(error, Error::Text(_)), "{other}: {error}");
            assert_eq!(look(&signed(&other)), Err(error));
        }
        let padded = signed(&format!("{plain}{}", " ".repeat(MAX_LEN)));
        let error = open(&padded, &fabric.bundle()).unwrap_err();
        assert!(matches!(error, Error::Statement(statement::Error::TooLong { .. })), "{error}");
    }

    #[test]
    fn the_longest_names_and_reasons_fit() {
        let domain = "t".repeat(255);
        let fabric = Fabric::new(&domain);
        // Six bytes of JSON each.
        let sealed = seal(&fabric.site, i64::MIN, &"\u{1}".repeat(5000)).unwrap();
        assert!(sealed.len() <= MAX_LEN, "{} bytes", sealed.len());
        assert_eq!(open(&sealed, &fabric.bundle()).unwrap().reason, "\u{1}".repeat(256));
    }

    #[test]
    fn who_looks_does_not_ask_whose_ca_it_is() {
        let (fabric, other) = (Fabric::shared(), Fabric::new("td"));
        let sealed = seal(&other.site, 7, "sold").unwrap();
        assert_eq!(open(&sealed, &fabric.bundle()), Err(Error::Stranger));
        assert_eq!(look(&sealed), open(&sealed, &other.bundle()));
    }

    #[test]
    fn a_long_reason_is_cut() {
        let fabric = Fabric::shared();
        let sealed = seal(&fabric.site, 7, &"é\u{10ffff}".repeat(5000)).unwrap();
        assert!(open(&sealed, &fabric.bundle()).unwrap().reason.len() <= MAX_REASON);
    }

    proptest! {
        #[test]
        fn random_text_never_panics(text in "[A-Za-z0-9_.-]{0,300}") {
            let _ = open(&text, &Fabric::shared().bundle());
        }
    }
}
