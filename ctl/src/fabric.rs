//! `isthmusctl fabric`: keys of JWT-SVIDs that this node believes, and the issuers that it asks for more.

use isthmus_proto::fabric as wire;
use serde::Serialize;
use tonic::{Response, Status};

use crate::failure::Failure;
use crate::moment::{Moment, age, distance};
use crate::output::Document;
use crate::page::{Cell, Page, Tone};
use crate::text;
use crate::watch::{Client, Question};

/// Digits of a hash that tell keys apart.
const DIGITS: usize = 16;

/// Asks for the keys.
#[derive(Clone, Copy, Debug)]
pub(crate) struct KeysQuery;

/// Asks for the peers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PeersQuery;

impl Question for KeysQuery {
    type Answer = wire::ShowFabricResponse;
    type Document = Keys;

    async fn ask(&self, client: &mut Client) -> Result<Response<Self::Answer>, Status> {
        client.fabric.show(wire::ShowFabricRequest {}).await
    }

    fn document(&self, answer: Self::Answer) -> Result<Keys, Failure> {
        let jwt_keys = answer.jwt_keys.into_iter().map(Key::from).collect();
        Ok(Keys { schema: "isthmus.v1/fabric-keys", jwt_keys })
    }
}

impl Question for PeersQuery {
    type Answer = wire::ShowFabricResponse;
    type Document = Peers;

    async fn ask(&self, client: &mut Client) -> Result<Response<Self::Answer>, Status> {
        client.fabric.show(wire::ShowFabricRequest {}).await
    }

    fn document(&self, answer: Self::Answer) -> Result<Peers, Failure> {
        let peers = answer.peers.into_iter().map(Peer::from).collect();
        Ok(Peers { schema: "isthmus.v1/fabric-peers", peers })
    }
}

/// Schema `isthmus.v1/fabric-keys`.
#[derive(Debug, Serialize)]
pub(crate) struct Keys {
    schema: &'static str,
    jwt_keys: Vec<Key>,
}

#[derive(Debug, Serialize)]
struct Key {
    key_id: String,
    site: Option<String>,
    ca_key_sha256: String,
    expires_at: Option<Moment>,
    own: bool,
}

impl From<wire::JwtKey> for Key {
    fn from(key: wire::JwtKey) -> Self {
        Self {
            key_id: key.key_id,
            site: text::known(key.site),
            ca_key_sha256: key.ca_key_sha256,
            expires_at: Moment::from_unix(key.expires_at),
            own: key.own,
        }
    }
}

impl Document for Keys {
    fn lay_out(&self, now: Moment, page: &mut Page) {
        let rows = self.jwt_keys.iter().map(|key| {
            [
                key.key_id.as_str().into(),
                key.site.as_deref().unwrap_or("-").into(),
                key.ca_key_sha256.chars().take(DIGITS).collect::<String>().into(),
                distance(key.expires_at, now).into(),
                if key.own { "this node" } else { "another" }.into(),
            ]
        });
        page.table(["KEY", "SITE", "CA", "ENDS", "SIGNER"], rows, "no keys of JWT-SVIDs");
    }
}

/// Schema `isthmus.v1/fabric-peers`.
#[derive(Debug, Serialize)]
pub(crate) struct Peers {
    schema: &'static str,
    peers: Vec<Peer>,
}

#[derive(Debug, Serialize)]
struct Peer {
    address: String,
    spiffe_id: Option<String>,
    heard_at: Option<Moment>,
    endorsements: u32,
    failures: u32,
    last_error: Option<String>,
}

impl From<wire::FabricPeer> for Peer {
    fn from(peer: wire::FabricPeer) -> Self {
        Self {
            address: peer.address,
            spiffe_id: text::known(peer.spiffe_id),
            heard_at: peer.heard_at.and_then(Moment::from_unix),
            endorsements: peer.endorsements,
            failures: peer.failures,
            last_error: text::known(peer.last_error),
        }
    }
}

impl Document for Peers {
    fn lay_out(&self, now: Moment, page: &mut Page) {
        let rows = self.peers.iter().map(|peer| peer.row(now));
        page.table(["ADDRESS", "NODE", "KEYS", "HEARD", "STATE"], rows, "no [fabric] peers");
    }
}

impl Peer {
    fn row(&self, now: Moment) -> [Cell; 5] {
        let heard =
            self.heard_at.map_or_else(|| "never".into(), |_| format!("{} ago", age(self.heard_at, now)));
        [
            self.address.as_str().into(),
            self.spiffe_id.as_deref().unwrap_or("-").into(),
            self.endorsements.to_string().into(),
            heard.into(),
            self.state(),
        ]
    }

    fn state(&self) -> Cell {
        match (&self.last_error, self.heard_at) {
            (Some(error), _) => Cell::new(format!("does not answer: {error}"), Tone::Warning),
            (None, Some(_)) => Cell::new("answers", Tone::Good),
            (None, None) => Cell::new("being asked", Tone::Plain),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn laid_out(document: &impl Document) -> String {
        let mut page = Page::new(None);
        document.lay_out(Moment::from_unix(1000).expect("in range"), &mut page);
        page.into_text()
    }

    #[test]
    fn keys_say_whose_they_are() {
        let key = wire::JwtKey {
            key_id: "kid".into(),
            site: "s1".into(),
            ca_key_sha256: "ab".repeat(32),
            expires_at: 1300,
            own: true,
        };
        let keys = Keys { schema: "isthmus.v1/fabric-keys", jwt_keys: vec![key.into()] };
        let text = laid_out(&keys);
        for part in ["kid", "s1", "abababababababab ", "in 5m", "this node"] {
            assert!(text.contains(part), "{part}: {text}");
        }
        assert_eq!(
            serde_json::to_value(&keys).expect("a document")["jwt_keys"][0]["ca_key_sha256"],
            "ab".repeat(32)
        );
        assert!(laid_out(&Keys { jwt_keys: vec![], ..keys }).contains("no keys"));
    }

    #[test]
    fn a_silent_peer_says_why() {
        let wire = wire::FabricPeer { address: "192.0.2.1:51820".into(), ..wire::FabricPeer::default() };
        let peers = |peer: wire::FabricPeer| {
            laid_out(&Peers { schema: "isthmus.v1/fabric-peers", peers: vec![peer.into()] })
        };
        let new = peers(wire.clone());
        assert!(new.contains("never") && new.contains("being asked"), "{new}");
        let heard = wire::FabricPeer { heard_at: Some(940), endorsements: 2, ..wire };
        let text = peers(heard.clone());
        assert!(text.contains("1m ago") && text.contains("answers"), "{text}");
        let dead = peers(wire::FabricPeer { failures: 1, last_error: "refused".into(), ..heard });
        assert!(dead.contains("does not answer: refused"), "{dead}");
    }
}
