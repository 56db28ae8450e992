//! Which records somebody looks for.

use super::record::Record;

/// All that are given must hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Query {
    /// The SPIFFE ID; one that ends with `*` stands for all that begin so.
    pub id: Option<String>,
    /// The serial number or key ID, in hex of either case, with or without colons.
    pub serial: Option<String>,
    /// Not before; RFC 3339 in UTC, as records have it.
    pub since: Option<String>,
    /// The kind.
    pub kind: Option<String>,
}

impl Query {
    /// Is it one of those?
    pub fn matches(&self, record: &Record) -> bool {
        let holds = |wanted: &Option<String>, test: &dyn Fn(&str) -> bool| wanted.as_deref().is_none_or(test);
        holds(&self.id, &|id| match id.strip_suffix('*') {
            Some(start) => record.id.starts_with(start),
            None => record.id == id,
        }) && holds(&self.serial, &|serial| plain(serial) == plain(&record.serial))
            && holds(&self.since, &|since| record.time.as_str() >= since)
            && holds(&self.kind, &|kind| record.kind == kind)
    }
}

fn plain(serial: &str) -> String {
    serial.chars().filter(|c| *c != ':').map(|c| c.to_ascii_lowercase()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::audit::Hash;

    #[test]
    fn each_condition_counts() {
        let record = Record {
            seq: 1,
            time: "2026-06-01T12:00:00Z".into(),
            kind: "x509".into(),
            id: "spiffe://td/ns/a".into(),
            serial: "4a0b".into(),
            not_after: None,
            requester: String::new(),
            reason: String::new(),
            peaks: None,
            prev: Hash::NONE,
            hash: Hash::NONE,
        };
        let some = |text: &str| Some(text.to_owned());
        for (query, expected) in [
            (Query::default(), true),
            (Query { id: some("spiffe://td/ns/a"), ..Query::default() }, true),
            (Query { id: some("spiffe://td/ns/"), ..Query::default() }, false),
            (Query { id: some("spiffe://td/ns/*"), ..Query::default() }, true),
            (Query { serial: some("4A:0B"), ..Query::default() }, true),
            (Query { serial: some("4a"), ..Query::default() }, false),
            (Query { since: some("2026-06-01T12:00:00Z"), ..Query::default() }, true),
            (Query { since: some("2026-06-01T12:00:01Z"), ..Query::default() }, false),
            (Query { kind: some("jwt"), ..Query::default() }, false),
            (Query { kind: some("x509"), id: some("spiffe://td/b"), ..Query::default() }, false),
        ] {
            assert_eq!(query.matches(&record), expected, "{query:?}");
        }
    }
}
