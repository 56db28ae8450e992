//! Orders of an operator: read what came with them, plan, write into the journal, carry out.

use isthmus_pki::{
    Authority, Facts, KeyHash, bundle, charter as pki_charter,
    facts::utc,
    rotation::{CaFacts, Command, Effect, ISTIO_CAVEAT, Order, Phase, Refusal, plan},
    signed_by,
};
use rustls_pki_types::CertificateDer;
use time::OffsetDateTime;

use super::{
    Error, carry, charter, find_key, journal, keys,
    store::{Signed, Store},
};
use crate::identity::files;

/// An order as it came.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// What to do.
    pub verb: Verb,
    /// Why guards should be passed over.
    pub override_reason: Option<String>,
    /// What was checked of Istio.
    pub istio_checked: Option<String>,
    /// Who orders.
    pub by: String,
}

/// What to do, with the bytes that belong to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verb {
    /// `rotate leaf`
    Leaf,
    /// `rotate intermediate prepare`
    Prepare,
    /// `rotate intermediate install`: PEM or DER of the certificate.
    Install(Vec<u8>),
    /// `rotate intermediate activate`
    Activate,
    /// `rotate intermediate retire`
    Retire,
    /// `rotate root publish`: the charter.
    Publish(Vec<u8>),
    /// `rotate root activate`
    ActivateRoot,
    /// `rotate root retire`: the charter.
    RetireRoot(Vec<u8>),
    /// `rotate taint`: the first digits of the CA's key, and why.
    Taint(String, String),
    /// `rotate revoke`: the first digits of the CA's key, and the CRL in DER.
    Revoke(String, Vec<u8>),
    /// `rotate forget`: the node.
    Forget(String),
}

impl Verb {
    /// As `isthmusctl rotate` calls it.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Leaf => "leaf",
            Self::Prepare => "intermediate prepare",
            Self::Install(_) => "intermediate install",
            Self::Activate => "intermediate activate",
            Self::Retire => "intermediate retire",
            Self::Publish(_) => "root publish",
            Self::ActivateRoot => "root activate",
            Self::RetireRoot(_) => "root retire",
            Self::Taint(..) => "taint",
            Self::Revoke(..) => "revoke",
            Self::Forget(_) => "forget",
        }
    }
}

/// What came of an order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// What was done, or would be.
    pub effects: Vec<String>,
    /// Why nothing was done.
    pub refusal: Option<Refusal>,
    /// What the operator should know.
    pub notes: Vec<String>,
    /// The request for a certificate that was made, PEM.
    pub request: Option<String>,
    /// False for a dry run, and for a refusal.
    pub applied: bool,
    /// A CA is refused from now on, and with it nodes that do not know yet.
    pub condemns: bool,
    /// Nothing had to be done, and yet what is in force is to be loaded: it may not have come to that the first time.
    pub again: bool,
}

/// What came with an order, read and checked.
#[derive(Default)]
struct Material {
    charter: Option<Signed>,
    certificate: Option<CertificateDer<'static>>,
    crl: Option<Vec<u8>>,
    reason: String,
}

pub(super) fn order(store: &mut Store, request: &Request, dry_run: bool, now: i64) -> Result<Outcome, Error> {
    if let Some(sequence) = in_force_already(store, &request.verb, now)? {
        let note = format!("charter {sequence} is in force already: nothing to do");
        return Ok(Outcome { notes: vec![note], ..Outcome::default() });
    }
    let (command, material) = read(store, &request.verb, now)?;
    let name = command.name();
    let order = Order {
        command,
        override_reason: request.override_reason.clone(),
        istio_checked: request.istio_checked.clone(),
    };
    let planned = plan(&store.state, &order, &store.fleet, now);
    let mut outcome = Outcome::default();
    let effects = match planned {
        Ok(effects) => effects,
        Err(refusal) => {
            let details = refusal.obstacles.iter().map(ToString::to_string).collect();
            if !dry_run {
                note(store, name, request, "refused", details, now)?;
            }
            outcome.refusal = Some(refusal);
            return Ok(outcome);
        }
    };
    outcome.notes = notes(store, &order.command, &effects);
    if effects.is_empty() {
        if !dry_run && let Command::Taint(key) | Command::Revoke { ca: key, .. } = &order.command {
            condemn_again(store, key, material.reason, &mut outcome, now)?;
        }
        return Ok(outcome);
    }
    outcome.effects = effects.iter().map(Effect::describe).collect();
    outcome.condemns = effects.iter().any(|effect| matches!(effect, Effect::Taint(_)));
    if !dry_run {
        carry(store, name, request, material, &effects, &mut outcome, now)?;
    }
    Ok(outcome)
}

/// What the operator should know before it happens, or why nothing does.
fn notes(store: &Store, command: &Command, effects: &[Effect]) -> Vec<String> {
    let condemned = match command {
        Command::Taint(key) | Command::Revoke { ca: key, .. } if effects.is_empty() => store.state.ca(key),
        _ => None,
    };
    if let Some(ca) = condemned {
        let (key, phase) = (ca.key.short(), ca.phase.as_str());
        return vec![format!("site CA {key} is {phase} already, since {}: nothing to do", utc(ca.since))];
    }
    let condemns = effects.iter().any(|effect| matches!(effect, Effect::Taint(_) | Effect::Revoke(_)));
    if condemns { vec![ISTIO_CAVEAT.into()] } else { Vec::new() }
}

/// The first time something may have failed: the statement for other nodes, the file, or to load what is in force.
fn condemn_again(
    store: &mut Store,
    key: &KeyHash,
    reason: String,
    outcome: &mut Outcome,
    now: i64,
) -> Result<(), Error> {
    let untold = store.state.ca(key).is_some_and(|ca| ca.phase == Phase::Tainted) && !store.taints.names(key);
    if untold {
        let mut carrier = carry::Carrier::new(store, now);
        carrier.reason = reason;
        carrier.taint(key);
        outcome.notes.append(&mut carrier.notes);
    }
    store.save()?;
    outcome.again = true;
    Ok(())
}

/// Nothing happens that is not on disk in the journal first.
fn carry(
    store: &mut Store,
    name: &str,
    request: &Request,
    material: Material,
    effects: &[Effect],
    outcome: &mut Outcome,
    now: i64,
) -> Result<(), Error> {
    note(store, name, request, "ordered", outcome.effects.clone(), now)?;
    let mut carrier = carry::Carrier::new(store, now);
    (carrier.charter, carrier.certificate) = (material.charter, material.certificate);
    (carrier.crl, carrier.reason) = (material.crl, material.reason);
    let result = carrier.carry_out(effects);
    let (notes, csr) = (std::mem::take(&mut carrier.notes), carrier.request.take());
    let (word, details) = match &result {
        Ok(()) => ("done", Vec::new()),
        Err(error) => ("failed", vec![error.to_string()]),
    };
    note(store, name, request, word, details, now)?;
    result?;
    outcome.notes.extend(notes);
    (outcome.request, outcome.applied) = (csr, true);
    Ok(())
}

fn note(
    store: &Store,
    command: &str,
    request: &Request,
    outcome: &str,
    details: Vec<String>,
    now: i64,
) -> Result<(), Error> {
    let entry = journal::Entry {
        time: journal::stamp(now),
        command,
        by: &request.by,
        outcome,
        details,
        override_reason: request.override_reason.as_deref(),
        istio_checked: request.istio_checked.as_deref(),
    };
    journal::append(&store.dir, &entry)
}

fn read(store: &Store, verb: &Verb, now: i64) -> Result<(Command, Material), Error> {
    let mut material = Material::default();
    let command = match verb {
        Verb::Leaf => Command::Leaf,
        Verb::Prepare => {
            store.configured.iter().try_for_each(|(_, issuer)| keys::check(&issuer.key))?;
            Command::Prepare
        }
        Verb::Activate => Command::Activate,
        Verb::Retire => Command::Retire,
        Verb::ActivateRoot => Command::ActivateRoot,
        Verb::Forget(node) => Command::Forget(node.clone()),
        Verb::Install(bytes) => {
            let (facts, certificate) = read_certificate(store, bytes)?;
            material.certificate = Some(certificate);
            Command::Install(facts)
        }
        Verb::Publish(bytes) | Verb::RetireRoot(bytes) => {
            let signed = read_charter(store, bytes, now)?;
            let view = store.view(&signed.charter);
            material.charter = Some(signed);
            if matches!(verb, Verb::Publish(_)) { Command::Publish(view) } else { Command::RetireRoot(view) }
        }
        Verb::Taint(digits, reason) => {
            material.reason.clone_from(reason);
            Command::Taint(find_key(&store.state, digits)?)
        }
        Verb::Revoke(digits, crl) => {
            let key = find_key(&store.state, digits)?;
            check_crl(store, &key, crl)?;
            material.crl = Some(crl.clone());
            Command::Revoke { ca: key, known: store.crls().contains(crl) }
        }
    };
    Ok((command, material))
}

/// The sequence of the charter that is offered, if it is the one in force: whoever is told to publish it everywhere may do so twice.
fn in_force_already(store: &Store, verb: &Verb, now: i64) -> Result<Option<u64>, Error> {
    match verb {
        Verb::Publish(bytes) | Verb::RetireRoot(bytes) => {
            let offered = offered(store, bytes, now)?;
            Ok(offered.is_none().then(|| store.state.charter_sequence()))
        }
        _ => Ok(None),
    }
}

fn read_charter(store: &Store, bytes: &[u8], now: i64) -> Result<Signed, Error> {
    offered(store, bytes, now)?.ok_or_else(|| Error::Charter {
        place: PLACE.into(),
        reason: Box::new(pki_charter::Error::Fork(store.state.charter_sequence())),
    })
}

const PLACE: &str = "the charter";

/// `None`: it is the one in force.
fn offered(store: &Store, bytes: &[u8], now: i64) -> Result<Option<Signed>, Error> {
    let moment = OffsetDateTime::from_unix_timestamp(now).unwrap_or(OffsetDateTime::UNIX_EPOCH);
    charter::read(store, bytes, &store.roots, PLACE, moment)
}

/// It must be signed by a root in force, for this site, and for a key that lies here.
fn read_certificate(store: &Store, bytes: &[u8]) -> Result<(CaFacts, CertificateDer<'static>), Error> {
    let wrong = |reason: String| Error::Certificate(reason);
    let certificate = bundle::certificates(bytes).map_err(|e| wrong(e.to_string()))?.swap_remove(0);
    let facts = Facts::parse(&certificate).map_err(|e| wrong(e.to_string()))?;
    let root = store.roots.iter().find(|root| signed_by::certificate(&certificate, root));
    let root = root.ok_or_else(|| wrong(format!("{}: no root in force signed it", facts.subject)))?;
    let root = Facts::parse(root).map_err(|e| wrong(e.to_string()))?;
    let ca = CaFacts::new(&facts, &root);
    // A key that is not here is for the plan to refuse, in its words.
    let file = store.file(&ca.key, "key");
    let key = store.configured.as_ref().map(|(_, issuer)| keys::open(&issuer.key, &file)).transpose()?;
    if let Some(key) = key.flatten() {
        let authority = Authority::load(certificate.clone(), key)?;
        if let Some(site) = store.site.as_deref().filter(|site| !authority.serves_site(site)) {
            return Err(wrong(format!("{}: not the CA of site {site:?}", facts.subject)));
        }
    }
    Ok((ca, certificate))
}

fn check_crl(store: &Store, key: &KeyHash, crl: &[u8]) -> Result<(), Error> {
    let list = store.read_crl(crl)?;
    let issuer = store.issuer(key).ok_or(Error::NoSite)?;
    let chain = files::certificates(&issuer.certificate)?;
    if !signed_by::crl_lists(crl, &chain[0]) {
        return Err(Error::Crl("it does not list that CA"));
    }
    let in_force = store.crls().iter().any(|known| known == crl);
    if in_force || store.is_newest(&list) {
        Ok(())
    } else {
        Err(Error::Crl(
            "a list of the same root that is as new or newer is in force, and is the one that counts; bring that one",
        ))
    }
}
