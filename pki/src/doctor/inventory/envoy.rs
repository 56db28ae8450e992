//! Pages of Envoy's admin interface.

use serde_json::Value;

use crate::kubernetes::timestamp;

/// Most certificates and counters of one page that are looked at.
const MAX_ENTRIES: usize = 10_000;

/// What `/certs` and `/stats` say.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EnvoyAdmin {
    /// Where it was found.
    pub place: String,
    /// Leaf certificates that it presents; `None`: the page is another one.
    pub certificates: Option<Vec<EnvoyCertificate>>,
    /// Counters by name, of the ones that matter.
    pub stats: Vec<(String, u64)>,
}

/// A certificate as `/certs` shows it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EnvoyCertificate {
    /// URI names.
    pub uris: Vec<String>,
    /// Seconds since the Unix epoch.
    pub not_before: Option<i64>,
    /// Seconds since the Unix epoch.
    pub not_after: Option<i64>,
}

impl EnvoyAdmin {
    /// From the JSON of `/certs`.
    pub(super) fn from_certs(place: &str, value: &Value) -> Self {
        let entries =
            value.get("certificates").and_then(Value::as_array).into_iter().flatten().take(MAX_ENTRIES);
        let chains = entries.filter_map(|entry| entry.get("cert_chain")?.as_array()?.first());
        let certificates = Some(chains.map(certificate).collect());
        Self { place: place.to_owned(), certificates, stats: Vec::new() }
    }

    /// From the text of `/stats`: a name, a colon, a number a line.
    pub(super) fn from_stats(place: &str, text: &[u8]) -> Self {
        let lines = text.split(|byte| *byte == b'\n').filter_map(|line| std::str::from_utf8(line).ok());
        let stats = lines.filter_map(|line| {
            let (name, value) = line.rsplit_once(':')?;
            let matters =
                name.contains("sds") || name.contains("secrets_not_ready") || name.contains("fail_verify");
            matters.then_some((name.trim().to_owned(), value.trim().parse().ok()?))
        });
        Self { place: place.to_owned(), certificates: None, stats: stats.take(MAX_ENTRIES).collect() }
    }
}

fn certificate(value: &Value) -> EnvoyCertificate {
    let names = value.get("subject_alt_names").and_then(Value::as_array).into_iter().flatten();
    EnvoyCertificate {
        uris: names.filter_map(|name| name.get("uri")?.as_str().map(str::to_owned)).collect(),
        not_before: value.get("valid_from").and_then(timestamp),
        not_after: value.get("expiration_time").and_then(timestamp),
    }
}
