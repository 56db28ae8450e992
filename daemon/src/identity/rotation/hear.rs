//! What other nodes say the fabric trusts. Each part proves itself; whatever does not is left out and told of.

use isthmus_pki::{
    Bundle, KeyHash,
    rotation::{
        Ca, Command, Order, plan,
        taint::{self, Taint},
    },
};
use time::OffsetDateTime;

use super::{
    Error, carry, charter, journal,
    statements::{MAX_TAINTS, Statements},
    store::Store,
};

/// Most lists of one answer that are looked at: a charter's, and as many beside it.
const MAX_HEARD_CRLS: usize = 2 * isthmus_pki::charter::MAX_CRLS;

/// As it came.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Heard {
    /// JWS; empty: none.
    pub charter: Vec<u8>,
    /// JWS each.
    pub taints: Vec<String>,
    /// DER each.
    pub crls: Vec<Vec<u8>>,
    /// Not for the first time: what is still refused was told of before.
    pub again: bool,
}

/// What came of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::identity) struct Taken {
    /// Some of it was new.
    pub(in crate::identity) news: bool,
    /// Some of it is not taken, and may be another time.
    pub(in crate::identity) refused: bool,
}

/// Takes what is new and holds.
pub(super) fn hear(store: &mut Store, heard: &Heard, now: OffsetDateTime) -> Taken {
    let before = store.clone();
    let offered = Some(&heard.charter).filter(|charter| !charter.is_empty());
    let charter = offered.and_then(|charter| hear_charter(store, charter, now).err());
    let taints = heard.taints.iter().take(MAX_TAINTS);
    let taints: Vec<Error> = taints.filter_map(|taint| hear_taint(store, taint, now).err()).collect();
    let crls = heard.crls.iter().take(MAX_HEARD_CRLS);
    let crls: Vec<Error> = crls.filter_map(|crl| store.add_crl(crl).err()).collect();
    let refused =
        [("a charter", Vec::from_iter(charter)), ("a taint statement", taints), ("a revocation list", crls)];
    refused.iter().for_each(|(what, errors)| tell(what, errors, heard.again));
    let news = *store != before;
    if news || store.unwritten {
        store.save_or_later("what another node said");
    }
    Taken { news, refused: refused.iter().any(|(_, errors)| !errors.is_empty()) }
}

/// One line, however many somebody sends.
fn tell(what: &str, errors: &[Error], again: bool) {
    let Some(error) = errors.first() else { return };
    let refused = errors.len();
    if again {
        tracing::debug!(%error, refused, "{what} from another node is still not taken");
    } else {
        tracing::warn!(%error, refused, "{what} from another node is not taken");
    }
}

/// Only roots in force count here: the trust bundle's file may hold one that was dropped long ago.
fn hear_charter(store: &mut Store, bytes: &[u8], now: OffsetDateTime) -> Result<(), Error> {
    let place = "charter from another node";
    let known = store.charter.as_ref().is_some_and(|signed| signed.file.as_bytes() == bytes);
    if known {
        return Ok(());
    }
    match charter::read(store, bytes, &store.roots, place, now)? {
        Some(signed) => charter::take(store, &signed, place, now.unix_timestamp(), true),
        None => Ok(()),
    }
}

fn hear_taint(store: &mut Store, statement: &str, now: OffsetDateTime) -> Result<(), Error> {
    let known = store.taints.about(statement).cloned();
    let (key, taken) = match known {
        Some(key) => (key, Ok(())),
        None => {
            let bundle = bundle(store)?;
            let taint = taint::open(statement, &bundle)?;
            (taint.key.clone(), take_taint(&mut store.taints, statement, (taint, &bundle), now))
        }
    };
    // Also if it was heard before: then it may not have worked out.
    condemn(store, &key, now.unix_timestamp())?;
    taken
}

fn take_taint(
    kept: &mut Statements,
    statement: &str,
    (taint, bundle): (Taint, &Bundle),
    now: OffsetDateTime,
) -> Result<(), Error> {
    let (key, reason) = (taint.key.clone(), taint.reason.clone());
    if kept.add(statement.to_owned(), taint, bundle, now)? {
        tracing::warn!(ca = key.short(), reason, "a site CA is tainted; what it issued is refused");
    }
    Ok(())
}

/// One of our own CAs, tainted at another node that holds it: we stop issuing with it too.
fn condemn(store: &mut Store, key: &KeyHash, now: i64) -> Result<(), Error> {
    if store.state.ca(key).is_none_or(Ca::is_condemned) {
        return Ok(());
    }
    let reason = "the CA says so itself, in a signed statement";
    let command = Command::Taint(key.clone());
    let order = Order { command, override_reason: Some(reason.into()), istio_checked: None };
    let Ok(effects) = plan(&store.state, &order, &store.fleet, now) else { return Ok(()) };
    if effects.is_empty() {
        return Ok(());
    }
    let details = effects.iter().map(isthmus_pki::rotation::Effect::describe).collect();
    let entry = journal::Entry {
        time: journal::stamp(now),
        command: "taint",
        by: "a statement from another node",
        outcome: "ordered",
        details,
        override_reason: Some(reason),
        istio_checked: None,
    };
    journal::append(&store.dir, &entry)?;
    carry::Carrier::new(store, now).carry_out(&effects)
}

/// Obeys what is stated of our own CAs and was not obeyed when it came; true if anything was.
pub(super) fn obey_again(store: &mut Store, now: i64) -> bool {
    let Ok(bundle) = bundle(store) else { return false };
    let stated = store.taints.texts().filter_map(|statement| taint::open(statement, &bundle).ok());
    let open = |key: &KeyHash| store.state.ca(key).is_some_and(|ca| !ca.is_condemned());
    let missed: Vec<KeyHash> = stated.map(|taint| taint.key).filter(open).collect();
    let mut news = false;
    for key in missed {
        match condemn(store, &key, now) {
            Ok(()) => news = true,
            Err(error) => tracing::warn!(%error, ca = key.short(), "a taint can't be obeyed yet"),
        }
    }
    news
}

/// The roots in force, to hold a taint statement against.
pub(super) fn bundle(store: &Store) -> Result<Bundle, Error> {
    let der: Vec<u8> = store.roots.iter().flat_map(|der| der.iter().copied()).collect();
    Ok(Bundle::parse(&der)?)
}
