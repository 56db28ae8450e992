//! A charter that comes by file, by command or from another node.

use isthmus_pki::{
    Bundle, Charter, Facts,
    charter::{Succession, sealed},
    rotation::{Command, Order, plan},
};
use rustls_pki_types::CertificateDer;
use time::OffsetDateTime;

use super::{
    Error, carry,
    store::{Signed, Store},
};

/// Checks an offered charter against the one in force; `None`: it is that one. `trusted` are roots that may have signed it.
pub(super) fn read(
    store: &Store,
    bytes: &[u8],
    trusted: &[CertificateDer<'static>],
    place: &str,
    now: OffsetDateTime,
) -> Result<Option<Signed>, Error> {
    let wrong = |reason| Error::Charter { place: place.to_owned(), reason: Box::new(reason) };
    let charter = sealed::open(bytes, trusted, now).map_err(wrong)?;
    let current = store.charter.as_ref().map(|signed| &signed.charter);
    if current.map_or(Ok(Succession::New), |current| charter.succeeds(current)).map_err(wrong)?
        == Succession::Same
    {
        return Ok(None);
    }
    let file = String::from_utf8_lossy(bytes).into_owned();
    Ok(Some(Signed { charter, file }))
}

/// Roots that are believed now: the charter's, or, while there is none, or all of its roots have ended, those of the trust bundle.
pub(super) fn trusted(store: &Store, bundle: &Bundle, now: OffsetDateTime) -> Vec<CertificateDer<'static>> {
    match &store.charter {
        Some(signed) if !has_ended(&signed.charter, now) => {
            signed.charter.roots.iter().map(|root| root.certificate.clone()).collect()
        }
        _ => bundle.anchors().to_vec(),
    }
}

/// A node that slept through every root of its charter must not go by it: it begins anew from the trust bundle, which a person put
/// there (spiffe/spire#1305: an agent that trusts its stale cache for ever).
pub(super) fn has_ended(charter: &Charter, now: OffsetDateTime) -> bool {
    let ended = |der: &CertificateDer<'_>| {
        Facts::parse(der).is_ok_and(|facts| facts.not_after < now.unix_timestamp())
    };
    charter.roots.iter().all(|root| ended(&root.certificate))
}

/// The command that puts a charter in force: does it drop a root, or not?
pub(super) fn command(store: &Store, charter: &Charter) -> Command {
    let view = store.view(charter);
    let drops = store.state.roots.iter().any(|root| view.roots.iter().all(|kept| kept.key != root.key));
    if drops { Command::RetireRoot(view) } else { Command::Publish(view) }
}

/// Puts a charter in force that came by itself, if the guards let it; with `keep`, on disk too.
pub(super) fn take(
    store: &mut Store,
    signed: &Signed,
    place: &str,
    now: i64,
    keep: bool,
) -> Result<(), Error> {
    let command = command(store, &signed.charter);
    let order = Order { command, override_reason: None, istio_checked: None };
    let effects = plan(&store.state, &order, &store.fleet, now)
        .map_err(|refusal| Error::Refused { place: place.to_owned(), refusal })?;
    let mut carrier = carry::Carrier::new(store, now);
    (carrier.charter, carrier.rehearsal) = (Some(signed.clone()), !keep);
    carrier.carry_out(&effects)?;
    if keep {
        tracing::info!(sequence = signed.charter.sequence, place, "a charter is in force");
    }
    Ok(())
}
