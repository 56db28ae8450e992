//! The file of a keyring. Every endorsement proves itself, so whoever writes the file can take keys away and add none.

use isthmus_pki::jwt::Endorsement;
use serde::{Deserialize, Serialize};

use super::{Held, Keyring, MAX_KEYS};
use crate::identity::trust::MAX_SEQUENCE;

/// Longest file that is read, in bytes: twice what the longest endorsements take.
pub(super) const MAX_LEN: usize = 6 << 20;
/// Longest `content`: a SHA-256 in hex.
const MAX_CONTENT: usize = 64;

/// Why a file is not that of a keyring.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// Too long.
    #[error("it has more than {MAX_LEN} bytes")]
    TooLong,
    /// Not the JSON that we write.
    #[error("it is not a file of endorsed JWT keys: {0}")]
    Json(String),
    /// Beyond a bound.
    #[error("it has more than {MAX_KEYS} endorsements, or one that is too long")]
    Bounds,
    /// A number or a hash that we would not write.
    #[error("its \"sequence\" or \"content\" is out of range")]
    Range,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    sequence: u64,
    content: String,
    /// JWS each.
    endorsements: Vec<String>,
}

impl Keyring {
    /// Reads a file. Nothing in it is believed before [`Keyring::review`].
    pub fn parse(bytes: &[u8]) -> Result<Self, Error> {
        if bytes.len() > MAX_LEN {
            return Err(Error::TooLong);
        }
        let file: File = serde_json::from_slice(bytes).map_err(|error| Error::Json(error.to_string()))?;
        if file.sequence > MAX_SEQUENCE || file.content.len() > MAX_CONTENT {
            return Err(Error::Range);
        }
        if file.endorsements.len() > MAX_KEYS {
            return Err(Error::Bounds);
        }
        let mut held: Vec<Held> = Vec::new();
        for text in file.endorsements {
            let endorsement = Endorsement::from_text(text).map_err(|_| Error::Bounds)?;
            if held.iter().all(|known| known.endorsement != endorsement) {
                held.push(Held { endorsement, endorsed: None });
            }
        }
        Ok(Self { held, sequence: file.sequence, content: file.content, fallen: Vec::new() })
    }

    /// What [`Keyring::parse`] reads.
    pub fn to_text(&self) -> String {
        let endorsements = self.held.iter().map(|held| held.endorsement.as_str().to_owned());
        let file = File {
            sequence: self.sequence,
            content: self.content.clone(),
            endorsements: endorsements.collect(),
        };
        serde_json::to_string(&file).expect("texts and numbers become JSON")
    }
}
