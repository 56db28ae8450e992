//! The plan's file: TOML, strictly.

use serde::Deserialize;
use time::{Duration, OffsetDateTime, format_description::well_known::Rfc3339};

use super::{Lists, Node, Plan, Site};
use crate::{
    authority::{Reason, Revoked},
    id::{self, TrustDomain},
    key::Curve,
    text::toml_error,
};

/// Longest plan that is read, in bytes.
pub const MAX_LEN: usize = 1 << 20;
/// Most CAs of one site in one sitting.
const MAX_REQUESTS: usize = 64;
/// Most lists in one sitting.
const MAX_LISTS: u16 = 120;

/// Why a plan is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// Beyond [`MAX_LEN`].
    #[error("{0} bytes are too many for a plan")]
    TooLong(usize),
    /// Not UTF-8.
    #[error("not a text")]
    NotText,
    /// Not TOML, an unknown key, a missing one.
    #[error("{0}")]
    Toml(String),
    /// The trust domain.
    #[error("trust_domain: {0}")]
    TrustDomain(id::Error),
    /// A name of a site or a node.
    #[error("{0:?} is not a name of a site or a node: 1 to 63 of a-z, 0-9 and -, not at the ends")]
    Name(String),
    /// The same name twice.
    #[error("{0:?} is there twice")]
    Twice(String),
    /// A duration.
    #[error("{key} = {value:?}: write it like \"90d\" or \"24h\", and more than nothing")]
    Duration {
        /// Which.
        key: &'static str,
        /// What it says.
        value: String,
    },
    /// A number out of range.
    #[error("{key} = {value}: use 1 to {most}")]
    Count {
        /// Which.
        key: &'static str,
        /// What it says.
        value: u64,
        /// The bound.
        most: u64,
    },
    /// CAs with time between them that nothing covers.
    #[error(
        "site {0:?}: the next CA would begin when the one before has ended: every must be less than lifetime"
    )]
    Gap(String),
    /// A key type.
    #[error("site {site:?}: key = {key:?}: use \"p256\" or \"p384\"")]
    Key {
        /// Whose.
        site: String,
        /// What it says.
        key: String,
    },
    /// A revocation.
    #[error(
        "revoked serial {0:?}: the serial is hex, the reason one of unspecified, key_compromise, ca_compromise, superseded, cessation_of_operation, since a time like 2026-05-01T00:00:00Z"
    )]
    Revoked(String),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawPlan {
    trust_domain: String,
    #[serde(default)]
    site: Vec<RawSite>,
    crl: Option<RawLists>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawSite {
    name: String,
    requests: Option<u64>,
    lifetime: Option<String>,
    every: Option<String>,
    key: Option<String>,
    #[serde(default)]
    node: Vec<RawNode>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawNode {
    name: String,
    lifetime: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawLists {
    count: u64,
    every: String,
    overlap: String,
    #[serde(default)]
    revoked: Vec<RawRevoked>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawRevoked {
    serial: String,
    reason: String,
    since: String,
}

impl Plan {
    /// Reads and checks a plan.
    pub fn parse(bytes: &[u8]) -> Result<Self, Error> {
        if bytes.len() > MAX_LEN {
            return Err(Error::TooLong(bytes.len()));
        }
        let text = std::str::from_utf8(bytes).map_err(|_| Error::NotText)?;
        let raw: RawPlan = toml::from_str(text).map_err(|e| Error::Toml(toml_error(text, &e)))?;
        let trust_domain = TrustDomain::parse(&raw.trust_domain).map_err(Error::TrustDomain)?;
        let sites = raw.site.iter().map(site).collect::<Result<Vec<_>, _>>()?;
        different(sites.iter().map(|site| &site.name))?;
        Ok(Self { trust_domain, sites, crl: raw.crl.as_ref().map(lists).transpose()? })
    }
}

fn site(raw: &RawSite) -> Result<Site, Error> {
    let lifetime = duration("lifetime", raw.lifetime.as_deref().unwrap_or("90d"))?;
    let every = match &raw.every {
        Some(every) => duration("every", every)?,
        None => lifetime / 2,
    };
    let requests = count("requests", raw.requests.unwrap_or(1), MAX_REQUESTS as u64)?;
    let requests = usize::try_from(requests).unwrap_or(MAX_REQUESTS);
    if requests > 1 && every >= lifetime {
        return Err(Error::Gap(raw.name.clone()));
    }
    let nodes = raw.node.iter().map(node).collect::<Result<Vec<_>, _>>()?;
    different(nodes.iter().map(|node| &node.name))?;
    Ok(Site { name: name(&raw.name)?, requests, lifetime, every, curve: curve(raw)?, nodes })
}

fn curve(raw: &RawSite) -> Result<Curve, Error> {
    match raw.key.as_deref().unwrap_or("p256") {
        "p256" => Ok(Curve::P256),
        "p384" => Ok(Curve::P384),
        key => Err(Error::Key { site: raw.name.clone(), key: key.to_owned() }),
    }
}

fn node(raw: &RawNode) -> Result<Node, Error> {
    let lifetime = duration("lifetime", raw.lifetime.as_deref().unwrap_or("24h"))?;
    Ok(Node { name: name(&raw.name)?, lifetime })
}

fn lists(raw: &RawLists) -> Result<Lists, Error> {
    let number = count("count", raw.count, MAX_LISTS.into())?;
    Ok(Lists {
        count: u16::try_from(number).unwrap_or(MAX_LISTS),
        every: duration("every", &raw.every)?,
        overlap: duration("overlap", &raw.overlap)?,
        revoked: raw.revoked.iter().map(revoked).collect::<Result<_, _>>()?,
    })
}

fn revoked(raw: &RawRevoked) -> Result<Revoked, Error> {
    let bad = || Error::Revoked(raw.serial.clone());
    let serial = hex::decode(raw.serial.replace(':', "")).map_err(|_| bad())?;
    let at = OffsetDateTime::parse(&raw.since, &Rfc3339).map_err(|_| bad())?;
    Ok(Revoked { serial, at, reason: Reason::parse(&raw.reason).ok_or_else(bad)? })
}

fn name(text: &str) -> Result<String, Error> {
    if id::is_name(text) { Ok(text.to_owned()) } else { Err(Error::Name(text.to_owned())) }
}

fn different<'a>(names: impl Iterator<Item = &'a String>) -> Result<(), Error> {
    let mut names: Vec<_> = names.collect();
    names.sort();
    match names.windows(2).find(|pair| pair[0] == pair[1]) {
        Some(pair) => Err(Error::Twice(pair[0].clone())),
        None => Ok(()),
    }
}

fn duration(key: &'static str, text: &str) -> Result<Duration, Error> {
    let parsed = humantime::parse_duration(text).ok().and_then(|d| Duration::try_from(d).ok());
    let parsed = parsed.filter(|duration| duration.is_positive());
    parsed.ok_or_else(|| Error::Duration { key, value: text.to_owned() })
}

fn count(key: &'static str, value: u64, most: u64) -> Result<u64, Error> {
    if (1..=most).contains(&value) { Ok(value) } else { Err(Error::Count { key, value, most }) }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::testing::NOW;

    const PLAN: &str = r#"
        trust_domain = "fabric.example"
        [[site]]
        name = "aws-use1"
        requests = 3
        [[site.node]]
        name = "gw1"
        [[site]]
        name = "azure"
        lifetime = "30d"
        key = "p384"
        [crl]
        count = 2
        every = "30d"
        overlap = "10d"
        [[crl.revoked]]
        serial = "4f:00"
        reason = "ca_compromise"
        since = "2026-05-01T00:00:00Z"
    "#;

    fn refuse(from: &str, to: &str) -> Error {
        assert!(PLAN.contains(from));
        Plan::parse(PLAN.replacen(from, to, 1).as_bytes()).unwrap_err()
    }

    #[test]
    fn reads_a_plan() {
        let plan = Plan::parse(PLAN.as_bytes()).unwrap();
        let [aws, azure] = &plan.sites[..] else { panic!("two sites") };
        assert_eq!((aws.requests, aws.lifetime, aws.every), (3, Duration::days(90), Duration::days(45)));
        assert_eq!((aws.curve, azure.curve, azure.requests), (Curve::P256, Curve::P384, 1));
        assert_eq!(aws.node("gw1").unwrap().lifetime, Duration::DAY);
        assert_eq!(aws.starts(2, NOW), NOW + Duration::days(90));
        let crl = plan.crl.unwrap();
        assert_eq!(crl.period(1, NOW), (NOW + Duration::days(30), NOW + Duration::days(70)));
        assert_eq!(crl.revoked[0].serial, [0x4f, 0]);
    }

    #[test]
    fn says_what_is_wrong() {
        assert_eq!(refuse("azure", "aws-use1"), Error::Twice("aws-use1".into()));
        assert_eq!(refuse("azure", "Azure"), Error::Name("Azure".into()));
        assert_eq!(
            refuse("requests = 3", "requests = 0"),
            Error::Count { key: "requests", value: 0, most: 64 }
        );
        assert_eq!(refuse("requests = 3", "requests = 3\nevery = \"90d\""), Error::Gap("aws-use1".into()));
        assert_eq!(refuse("\"30d\"", "\"0s\""), Error::Duration { key: "lifetime", value: "0s".into() });
        assert!(matches!(refuse("p384", "rsa"), Error::Key { .. }));
        assert!(matches!(refuse("ca_compromise", "bored"), Error::Revoked(_)));
        assert!(matches!(refuse("4f:00", "4g"), Error::Revoked(_)));
        assert!(matches!(refuse("fabric.example", "Fabric"), Error::TrustDomain(_)));
        let unknown = refuse("requests = 3", "colour = 3");
        assert!(
            matches!(&unknown, Error::Toml(text) if text.contains("colour") && text.contains("line 5")),
            "{unknown}"
        );
    }

    proptest! {
        #[test]
        fn random_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200), count in any::<u16>()) {
            let _ = Plan::parse(&bytes);
            let plan = Plan::parse(PLAN.replace("30d", &format!("{count}y")).as_bytes());
            if let Ok(Plan { crl: Some(crl), sites, .. }) = plan {
                let _ = crl.period(count, NOW);
                let _ = sites[1].starts(usize::from(count), NOW);
            }
        }
    }
}
