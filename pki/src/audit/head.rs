//! A head: how long a log is and the hash over all of it. Signed by the site CA, it is what a log can't be cut or rewritten behind.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use time::OffsetDateTime;

use super::{hash::Hash, tree::Tree};
use crate::{
    authority::Authority,
    bundle::TrustStore,
    facts::Facts,
    id::SpiffeId,
    jwt::{self, Statement, state},
};

/// `typ` of a signed head (RFC 7515 section 4.1.9).
const TYPE: &str = "isthmus-audit-head";

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
    statement: Statement,
}

impl Head {
    /// Of a tree as it is now.
    pub fn of(tree: &Tree, now: OffsetDateTime) -> Self {
        Self { size: tree.size(), root: tree.root(), iat: now.unix_timestamp() }
    }

    /// Signs it as this CA: a JWS in compact serialisation.
    pub fn sign(&self, ca: &Authority) -> Result<String, jwt::Error> {
        let Ok(Value::Object(payload)) = serde_json::to_value(self) else { return Err(jwt::Error::Sign) };
        state(ca, TYPE, &payload)
    }
}

impl SignedHead {
    /// Reads a signed head and checks its signature.
    pub fn parse(text: &str) -> Result<Self, jwt::Error> {
        let statement = Statement::parse(text.trim_end(), TYPE)?;
        let head = serde_json::from_value(Value::Object(statement.payload.clone()))
            .map_err(|_| jwt::Error::Claim("payload", "is not size, root and iat of a log's head"))?;
        Ok(Self { head, statement })
    }

    /// Who signed it.
    pub fn signer(&self) -> &Facts {
        &self.statement.facts
    }

    /// Was it signed by a site CA of the fabric that was live when it was made?
    pub fn verify(&self, store: &TrustStore) -> Result<(), jwt::Error> {
        let id = self.signer().uris.first().and_then(|uri| SpiffeId::parse(uri).ok());
        let id = id.ok_or_else(|| jwt::Error::Endorser("its certificate names no trust domain".into()))?;
        let when = OffsetDateTime::from_unix_timestamp(self.head.iat)
            .map_err(|_| jwt::Error::Claim("iat", "is beyond the calendar"))?;
        self.statement.verify(store, id.trust_domain(), when)
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
        assert!(
            SignedHead::parse(&state(&fabric.site, "other", &signed.statement.payload).unwrap()).is_err()
        );
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
