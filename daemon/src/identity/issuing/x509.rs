//! X.509-SVIDs: with a key made here, or one that the requester made.

use std::{sync::Arc, time::SystemTime};

use isthmus_pki::{
    Curve, Key, Profile, PublicKey, Serial, SpiffeId,
    audit::{self, Entry},
    csr, profile,
};
use rustls_pki_types::CertificateDer;
use time::{Duration, OffsetDateTime};

use super::{Error, Issuer, Requester};
use crate::identity::{
    certificates::{CertificateInfo, Kind},
    registration::Identity,
};

/// An SVID just issued. The key exists here and in the message to the workload.
pub struct Svid {
    /// Whose.
    pub id: SpiffeId,
    /// Leaf, then the site CA.
    pub chain: [CertificateDer<'static>; 2],
    /// The leaf's key.
    pub key: Key,
    /// Hash of the site CA's key, lower-case hex.
    pub ca: Arc<str>,
    /// Facts of the leaf.
    pub info: CertificateInfo,
    /// Last valid second.
    pub not_after: OffsetDateTime,
    /// When its half life is over, give or take the jitter.
    pub renew_at: OffsetDateTime,
}

/// A certificate just issued for a key that the requester holds.
pub struct Certified {
    /// Whose.
    pub id: SpiffeId,
    /// Leaf, then the site CA.
    pub chain: [CertificateDer<'static>; 2],
    /// Facts of the leaf.
    pub info: CertificateInfo,
    /// Last valid second.
    pub not_after: OffsetDateTime,
    /// When its half life is over, give or take the jitter.
    pub renew_at: OffsetDateTime,
}

impl Issuer {
    /// Issues an SVID with a new key.
    pub fn issue(&self, identity: &Identity, requester: &Requester, now: SystemTime) -> Result<Svid, Error> {
        self.settle("x509", &identity.id, requester, now, || {
            self.admit(&identity.id, requester, now)?;
            let key = Key::generate(Curve::P256)?;
            let Certified { id, chain, info, not_after, renew_at } =
                self.sign(&key.public(), identity, requester, now)?;
            let ca = self.ca.key.clone();
            Ok(Svid { id, chain, key, ca, info, not_after, renew_at })
        })
    }

    /// Issues an SVID for the key of a request (RFC 2986) in PEM or DER. What else the request asks for is not looked at: names, uses
    /// and lifetime are those of `identity`.
    pub fn certify(
        &self,
        request: &[u8],
        identity: &Identity,
        requester: &Requester,
        now: SystemTime,
    ) -> Result<Certified, Error> {
        self.settle("x509", &identity.id, requester, now, || {
            // Before the request is read: its signature is the dearest thing here.
            self.admit(&identity.id, requester, now)?;
            let request = csr::parse(request)?;
            self.sign(&request.public_key, identity, requester, now)
        })
    }

    /// The certificate is in the audit log when this returns `Ok`.
    fn sign(
        &self,
        key: &PublicKey,
        identity: &Identity,
        requester: &Requester,
        now: SystemTime,
    ) -> Result<Certified, Error> {
        let id = identity.id.clone();
        let lifetime = Duration::try_from(identity.ttl).unwrap_or(Duration::MAX);
        let profile = Profile::Svid { id: id.clone(), dns_names: identity.dns_names.clone(), lifetime };
        let serial = Serial::from_random(rand::random());
        let now = OffsetDateTime::from(now);
        let issued = self
            .ca
            .authority
            .issue(&profile, key, serial, now)
            .map_err(|reason| Error::Issue { id: id.clone(), reason: Box::new(reason) })?;
        self.tell_of_cut(issued.clamped);
        let renew_at = now + half_life(issued.not_after - now);
        let info = CertificateInfo {
            kind: Kind::WorkloadSvid,
            spiffe_id: id.to_string(),
            subject: profile::svid_subject(self.trust_domain(), serial),
            issuer: self.ca.info.subject.clone(),
            serial: serial.to_string(),
            not_before: issued.not_before.unix_timestamp(),
            not_after: issued.not_after.unix_timestamp(),
            sha256: isthmus_pki::key::sha256_hex(&issued.certificate),
            path: None,
            renew_at: Some(renew_at.unix_timestamp()),
        };
        self.audit.record(&Entry {
            time: now,
            kind: audit::Kind::X509,
            id: &info.spiffe_id,
            serial: &info.serial,
            not_after: Some(info.not_after),
            requester: &requester.to_string(),
            reason: "",
        })?;
        let chain = [issued.certificate, self.ca.authority.certificate().clone()];
        Ok(Certified { id, chain, info, not_after: issued.not_after, renew_at })
    }
}

/// Half of what is left, give or take 5 %: what was issued together is not renewed together.
fn half_life(left: Duration) -> Duration {
    left * rand::random_range(0.45..0.55)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_life_has_jitter_within_bounds() {
        let hour = Duration::hours(1);
        let all: Vec<Duration> = (0..200).map(|_| half_life(hour)).collect();
        assert!(all.iter().all(|d| (Duration::minutes(27)..=Duration::minutes(33)).contains(d)));
        assert!(all.iter().any(|d| *d != all[0]));
    }
}
