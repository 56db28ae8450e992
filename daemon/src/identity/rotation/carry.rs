//! Effects of a plan, carried out one by one; each is on disk before the next begins.

use isthmus_pki::{
    KeyHash, SpiffeId, csr,
    rotation::{Effect, taint},
};
use rustls_pki_types::CertificateDer;
use time::OffsetDateTime;

use super::{
    Error, disk, keys,
    store::{Signed, Store},
};
use crate::identity::{files, issuing};

/// What the effects of one order need beside the store, and what they leave for the operator.
pub(super) struct Carrier<'a> {
    store: &'a mut Store,
    now: i64,
    /// What would be in force is to be known, and nothing to be done: no file is touched, no key, no log.
    pub(super) rehearsal: bool,
    /// The charter that is put in force.
    pub(super) charter: Option<Signed>,
    /// The certificate that is installed.
    pub(super) certificate: Option<CertificateDer<'static>>,
    /// The CRL that revokes.
    pub(super) crl: Option<Vec<u8>>,
    /// Why a CA is tainted.
    pub(super) reason: String,
    /// The request that was made, PEM.
    pub(super) request: Option<String>,
    /// What the operator should know.
    pub(super) notes: Vec<String>,
}

impl<'a> Carrier<'a> {
    pub(super) fn new(store: &'a mut Store, now: i64) -> Self {
        Self {
            store,
            now,
            rehearsal: false,
            charter: None,
            certificate: None,
            crl: None,
            reason: String::new(),
            request: None,
            notes: Vec::new(),
        }
    }

    /// Stops at the first that fails; those before it are in force and written down, and it itself is not, so that whoever orders it
    /// again gets it done.
    pub(super) fn carry_out(&mut self, effects: &[Effect]) -> Result<(), Error> {
        for effect in effects {
            let before = self.store.clone();
            if let Err(error) = self.carry_out_one(effect) {
                *self.store = before;
                return Err(error);
            }
        }
        Ok(())
    }

    fn carry_out_one(&mut self, effect: &Effect) -> Result<(), Error> {
        self.prepare(effect)?;
        self.store.state.apply(effect, self.now);
        if !self.rehearsal {
            self.store.save()?;
            tracing::info!(effect = effect.describe(), "rotation");
        }
        Ok(())
    }

    /// Files that the effect needs, before it is in force.
    fn prepare(&mut self, effect: &Effect) -> Result<(), Error> {
        match effect {
            Effect::ApplyCharter(_) => self.apply_charter(),
            // A charter that revokes has its lists in itself, or none.
            Effect::Revoke(_) => self.crl.take().map_or(Ok(()), |crl| self.store.add_crl(&crl).map(drop)),
            Effect::Forget(node) => {
                self.store.fleet.forget(node);
                Ok(())
            }
            _ if self.rehearsal => Ok(()),
            Effect::MakeKey => self.make_key(),
            Effect::Install(ca) => self.install(&ca.key),
            Effect::Taint(key) => {
                self.taint(key);
                Ok(())
            }
            Effect::Drop(key) => self.drop_key(key),
            Effect::Overridden { .. }
            | Effect::Switch { .. }
            | Effect::StopIssuing
            | Effect::Reissue { .. } => Ok(()),
        }
    }

    fn make_key(&mut self) -> Result<(), Error> {
        let site = self.store.site.clone().ok_or(Error::NoSite)?;
        let id = self.domain_id()?;
        let (_, issuer) = self.store.configured.as_ref().ok_or(Error::NoSite)?;
        let made = keys::make(&issuer.key)?;
        let name = KeyHash::of_spki(made.key.public().spki());
        let request = csr::create(&made.key, &format!("Isthmus site CA {site}"), &id)?;
        made.keep(&self.store.file(&name, "key"))?;
        let file = self.store.file(&name, "csr");
        disk::replace(&file, request.as_bytes())?;
        self.store.state.request(name.clone(), self.now);
        self.notes.push(format!("the request is in {}", file.display()));
        self.notes.push(format!("key SHA-256 {name}: read it out at the ceremony"));
        self.request = Some(request);
        Ok(())
    }

    fn domain_id(&self) -> Result<SpiffeId, Error> {
        let (_, issuer) = self.store.configured.as_ref().ok_or(Error::NoSite)?;
        let chain = files::certificates(&issuer.certificate)?;
        let facts = isthmus_pki::Facts::parse(&chain[0]).map_err(|e| Error::Certificate(e.to_string()))?;
        let uri = facts.uris.first().map(String::as_str).unwrap_or_default();
        SpiffeId::parse(uri).map_err(|e| Error::Certificate(e.to_string()))
    }

    fn install(&mut self, key: &KeyHash) -> Result<(), Error> {
        let certificate =
            self.certificate.take().ok_or_else(|| Error::Certificate("none was given".into()))?;
        let configured = self.store.configured.as_ref().is_some_and(|(ours, _)| ours == key);
        if configured {
            return Err(Error::Certificate(
                "it renews the CA that [issuer] names; put it into that file and reload".into(),
            ));
        }
        let file = self.store.file(key, "pem");
        disk::replace(&file, isthmus_pki::bundle::to_pem([&certificate]).as_bytes())
    }

    fn apply_charter(&mut self) -> Result<(), Error> {
        let Some(signed) = self.charter.take() else { return Ok(()) };
        if !self.rehearsal {
            disk::replace(&self.store.dir.join("charter.jws"), signed.file.as_bytes())?;
        }
        self.store.roots = signed.charter.roots.iter().map(|root| root.certificate.clone()).collect();
        self.store.charter = Some(signed);
        Ok(())
    }

    /// Where the key is gone too, the charter must tell the others.
    pub(super) fn taint(&mut self, key: &KeyHash) {
        if let Err(error) = self.tell(key) {
            tracing::warn!(%error, ca = key.short(), "other nodes are not told of a taint");
            self.notes.push(format!(
                "other nodes are not told by a signed statement ({error}); publish a charter that marks the CA tainted"
            ));
        }
    }

    fn tell(&mut self, key: &KeyHash) -> Result<(), Error> {
        let statement = self.statement(key)?;
        let now = OffsetDateTime::from_unix_timestamp(self.now).unwrap_or(OffsetDateTime::UNIX_EPOCH);
        self.store.add_taint(statement, now).map(drop)
    }

    fn statement(&self, key: &KeyHash) -> Result<String, Error> {
        let issuer = self.store.issuer(key).ok_or(Error::NoSite)?;
        let ca = issuing::load_authority(&issuer).map_err(Box::new)?;
        Ok(taint::seal(&ca, self.now, &self.reason)?)
    }

    fn drop_key(&mut self, key: &KeyHash) -> Result<(), Error> {
        let file = self.store.file(key, "key");
        let Some((configured, issuer)) = &self.store.configured else { return disk::remove(&file) };
        if configured == key {
            self.notes.push(format!(
                "the key of [issuer] is yours to destroy ({}), then name the new files there",
                issuer.key.place().display()
            ));
            return Ok(());
        }
        keys::destroy(&issuer.key, &file)
    }
}
