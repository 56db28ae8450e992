//! A head: how long a log is and the hash over all of it. Signed by the site CA, it is what a log can't be cut or rewritten behind.

use serde::{Deserialize, Serialize};
use time::OffsetDateTime;

use super::{hash::Hash, tree::Tree};
use crate::{
    authority::Authority,
    bundle::TrustStore,
    facts::Facts,
    id::SpiffeId,
    statement::{self, Kind, Opened},
    verify,
};

const KIND: Kind = Kind { typ: "isthmus-audit-head", longest: 16 << 10 };

/// Why a head can't be signed, or is not believed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HeadError {
    /// The JWS.
    #[error(transparent)]
    Statement(#[from] statement::Error),
    /// What is signed is no head.
    #[error("what is signed is not size, root and iat of a log's head")]
    Text,
    /// Its time.
    #[error("its time is beyond the calendar")]
    Time,
    /// The signer's certificate names nobody.
    #[error("its certificate names no trust domain")]
    Nameless,
    /// The signer is no site CA that was live then.
    #[error(transparent)]
    Signer(#[from] Box<verify::Error>),
}

/// State of a log at a moment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Head {
    /// How many records it covers.
    pub size: u64,
    /// Root of the tree over them.
    pub root: Hash,
    /// When it was made, seconds since the Unix epoch.
    pub iat: i64,
}

/// A head whose signature holds under the certificate that it carries; [`SignedHead::verify`] says whether that is a site CA's.
#[derive(Clone, Debug)]
pub struct SignedHead {
    /// What is signed.
    pub head: Head,
    opened: Opened,
}

impl Head {
    /// Of a tree as it is now.
    pub fn of(tree: &Tree, now: OffsetDateTime) -> Self {
        Self { size: tree.size(), root: tree.root(), iat: now.unix_timestamp() }
    }

    /// Signs it as this CA: a JWS in compact serialisation.
    pub fn sign(&self, ca: &Authority) -> Result<String, HeadError> {
        let payload = serde_json::to_vec(self).map_err(|_| HeadError::Text)?;
        Ok(statement::seal(KIND, &payload, ca)?)
    }
}

impl SignedHead {
    /// Reads a signed head and checks its signature.
    pub fn parse(text: &str) -> Result<Self, HeadError> {
        let opened = statement::open(text.trim_end(), KIND)?;
        let head = serde_json::from_value(opened.object()?.into()).map_err(|_| HeadError::Text)?;
        Ok(Self { head, opened })
    }

    /// Who signed it.
    pub fn signer(&self) -> &Facts {
        &self.opened.facts
    }

    /// Was it signed by a site CA of the fabric that was live when it was made?
    pub fn verify(&self, store: &TrustStore) -> Result<(), HeadError> {
        let id = self.signer().uris.first().and_then(|uri| SpiffeId::parse(uri).ok());
        let id = id.ok_or(HeadError::Nameless)?;
        let when = OffsetDateTime::from_unix_timestamp(self.head.iat).map_err(|_| HeadError::Time)?;
        verify::verify_ca(&self.opened.signer, store, id.trust_domain(), when).map_err(Box::new)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::testing::{Fabric, NOW};

    fn head() -> Head {
        let mut tree = Tree::default();
        tree.push(Hash::leaf(b"record"));
        Head::of(&tree, NOW)
    }

    #[test]
    fn a_site_ca_vouches_for_a_head_and_nobody_else() {
        let (fabric, stranger) = (Fabric::new("td"), Fabric::new("td"));
        let text = head().sign(&fabric.site).unwrap() + "\n";
        let signed = SignedHead::parse(&text).unwrap();
        assert_eq!(signed.head, head());
        assert_eq!(signed.signer().subject, fabric.site.facts().subject);
        signed.verify(&TrustStore::from(fabric.bundle())).unwrap();
        assert!(signed.verify(&TrustStore::from(stranger.bundle())).is_err());
        let other = Kind { typ: "other", ..KIND };
        let other = statement::seal(other, &signed.opened.payload, &fabric.site).unwrap();
        assert!(matches!(
            SignedHead::parse(&other),
            Err(HeadError::Statement(statement::Error::Type { .. }))
        ));
    }

    #[test]
    fn a_changed_head_is_refused() {
        let text = head().sign(&Fabric::shared().site).unwrap();
        for at in (0..text.len()).step_by(7) {
            let mut changed = text.clone().into_bytes();
            changed[at] = if changed[at] == b'A' { b'B' } else { b'A' };
            assert!(SignedHead::parse(std::str::from_utf8(&changed).unwrap()).is_err(), "{at}");
        }
    }

    proptest! {
        #[test]
        fn random_text_never_panics(text in ".{0,200}") {
            prop_assert!(SignedHead::parse(&text).is_err());
        }
    }
}
