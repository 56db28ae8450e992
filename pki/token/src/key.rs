//! One EC key pair in a token.

use std::{
    fmt,
    sync::{Mutex, PoisonError},
};

use cryptoki::{
    mechanism::Mechanism,
    object::{Attribute, AttributeType, KeyType, ObjectClass, ObjectHandle},
    session::Session,
};

use crate::{Curve, Error, der, module::failed, uri::Uri};

/// Bytes of the identifier that ties a new key's halves together.
const ID_LEN: u32 = 8;

/// A key that signs inside its token.
pub struct TokenKey {
    /// PKCS#11 sessions are not to be used by two threads at once.
    session: Mutex<Session>,
    private: ObjectHandle,
    curve: Curve,
    spki: Vec<u8>,
}

impl TokenKey {
    pub(crate) fn find(session: Session, uri: &Uri) -> Result<Self, Error> {
        let found = private_keys(&session, uri)?;
        let [private] = found.as_slice() else {
            return Err(Error::Keys { count: found.len(), uri: uri.to_string() });
        };
        let (curve, point) = public_half(&session, *private)?;
        Ok(Self { session: Mutex::new(session), private: *private, curve, spki: der::spki(curve, &point) })
    }

    pub(crate) fn check_free(session: &Session, uri: &Uri) -> Result<(), Error> {
        if uri.object().is_none() {
            return Err(Error::NoName);
        }
        if private_keys(session, uri)?.is_empty() { Ok(()) } else { Err(Error::Exists(uri.to_string())) }
    }

    pub(crate) fn generate(session: Session, uri: &Uri, curve: Curve) -> Result<Self, Error> {
        Self::check_free(&session, uri)?;
        let label = uri.object().ok_or(Error::NoName)?.as_bytes().to_vec();
        let id = match uri.id() {
            Some(id) => id.to_vec(),
            None => session.generate_random_vec(ID_LEN).map_err(|e| failed("give random bytes", &e))?,
        };
        let both = [Attribute::Token(true), Attribute::Label(label), Attribute::Id(id)];
        let public = [Attribute::Verify(true), Attribute::EcParams(der::curve_oid(curve).to_vec())];
        let private = [
            Attribute::Private(true),
            Attribute::Sensitive(true),
            Attribute::Extractable(false),
            Attribute::Sign(true),
        ];
        let made = session.generate_key_pair(
            &Mechanism::EccKeyPairGen,
            &[&public[..], &both[..]].concat(),
            &[&private[..], &both[..]].concat(),
        );
        made.map_err(|e| failed("make a key", &e))?;
        Self::find(session, uri)
    }

    pub(crate) fn destroy(session: &Session, uri: &Uri) -> Result<(), Error> {
        let found = private_keys(session, uri)?;
        let [private] = found.as_slice() else {
            let several = Error::Keys { count: found.len(), uri: uri.to_string() };
            return if found.is_empty() { Ok(()) } else { Err(several) };
        };
        // The half that matters goes first.
        let public = public_handles(session, *private)?;
        let halves = std::iter::once(*private).chain(public);
        halves
            .into_iter()
            .try_for_each(|half| session.destroy_object(half).map_err(|e| failed("destroy the key", &e)))
    }

    /// DER SubjectPublicKeyInfo (RFC 5480) of the public half.
    pub fn spki(&self) -> &[u8] {
        &self.spki
    }

    /// Its curve.
    pub fn curve(&self) -> Curve {
        self.curve
    }

    /// Signs a digest (SHA-256 for P-256, SHA-384 for P-384) and returns DER (RFC 3279 section 2.2.3).
    ///
    /// # Errors
    /// If the digest has another length, or the token fails or was pulled out.
    pub fn sign_digest(&self, digest: &[u8]) -> Result<Vec<u8>, Error> {
        let length = der::field_len(self.curve);
        if digest.len() != length {
            return Err(Error::Digest(self.curve, digest.len()));
        }
        let session = self.session.lock().unwrap_or_else(PoisonError::into_inner);
        // CKM_ECDSA takes a digest and gives r and s of fixed length, one after the other (PKCS#11 3.0 section 2.3.6).
        let raw = session.sign(&Mechanism::Ecdsa, self.private, digest).map_err(|e| failed("sign", &e))?;
        der::signature(&raw, length).ok_or_else(|| Error::Token {
            what: "sign",
            reason: format!("its signature has {} bytes instead of {}", raw.len(), 2 * length),
        })
    }
}

impl fmt::Debug for TokenKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TokenKey({:?})", self.curve)
    }
}

fn private_keys(session: &Session, uri: &Uri) -> Result<Vec<ObjectHandle>, Error> {
    let mut template = vec![Attribute::Class(ObjectClass::PRIVATE_KEY), Attribute::KeyType(KeyType::EC)];
    template.extend(uri.object().map(|label| Attribute::Label(label.as_bytes().to_vec())));
    template.extend(uri.id().map(|id| Attribute::Id(id.to_vec())));
    session.find_objects(&template).map_err(|e| failed("look for the key", &e))
}

/// Curve and point. Some tokens have them at the private key too, but only the public one must.
fn public_half(session: &Session, private: ObjectHandle) -> Result<(Curve, Vec<u8>), Error> {
    let found = public_handles(session, private)?;
    let [public] = found.as_slice() else {
        return Err(Error::Public(format!("{} public keys have its CKA_ID", found.len())));
    };
    let wanted = [AttributeType::EcParams, AttributeType::EcPoint];
    let attributes = session.get_attributes(*public, &wanted);
    read(&attributes.map_err(|e| failed("describe the public key", &e))?)
}

fn public_handles(session: &Session, private: ObjectHandle) -> Result<Vec<ObjectHandle>, Error> {
    let attributes = session.get_attributes(private, &[AttributeType::Id]);
    let mut id = attributes.map_err(|e| failed("describe the key", &e))?;
    id.push(Attribute::Class(ObjectClass::PUBLIC_KEY));
    session.find_objects(&id).map_err(|e| failed("look for the public key", &e))
}

fn read(attributes: &[Attribute]) -> Result<(Curve, Vec<u8>), Error> {
    let params = attributes.iter().find_map(|a| if let Attribute::EcParams(p) = a { Some(p) } else { None });
    let point = attributes.iter().find_map(|a| if let Attribute::EcPoint(p) = a { Some(p) } else { None });
    let curve = params.and_then(|oid| der::curve(oid)).ok_or_else(|| Error::Public("its curve".into()))?;
    let point = point.and_then(|point| der::point(curve, point));
    Ok((curve, point.ok_or_else(|| Error::Public("its point".into()))?))
}
