//! What a site CA has signed of this node's keys. Each key is endorsed once by each CA: others hold the text, and it is not to change for
//! nothing.

use isthmus_pki::{
    Authority, KeyHash,
    jwt::{self, Endorsed, Endorsement},
};
use time::OffsetDateTime;

use super::Held;
use crate::identity::trust::Trust;

/// An endorsement, and by whom of what.
struct Made {
    key_id: String,
    ca: String,
    endorsement: Endorsement,
    holds: bool,
}

/// Those of the keys that were published last.
#[derive(Default)]
pub(super) struct Endorsements(Vec<Made>);

/// What a publication comes to.
pub(super) struct Renewed {
    /// For others, once the keys are on disk.
    pub(super) endorsements: Endorsements,
    /// The keys that hold.
    pub(super) endorsed: Vec<Endorsed>,
    /// Why the others do not.
    pub(super) refused: Vec<jwt::Error>,
}

impl Endorsements {
    /// Has these keys endorsed and no others. All go through the same door as everybody's, with the fabric's revocations and rules: an
    /// endorsement that does not verify endorses nothing. A site CA that has ended, or is no longer believed, is no reason to go without
    /// a bundle.
    pub(super) fn renewed(
        &self,
        keys: &[Held],
        ca: &Authority,
        base: &Trust,
        now: OffsetDateTime,
    ) -> Renewed {
        let (mut made, mut endorsed, mut refused) = (Vec::new(), Vec::new(), Vec::new());
        for held in keys {
            match one(&self.0, held, ca, now) {
                Ok(mut new) => {
                    let verdict = new.endorsement.verify(base.store(), now);
                    new.holds = verdict.is_ok();
                    made.push(new);
                    verdict.map_or_else(|error| refused.push(error), |key| endorsed.push(key));
                }
                Err(error) => refused.push(error),
            }
        }
        Renewed { endorsements: Self(made), endorsed, refused }
    }

    /// Those that hold, for others.
    pub(super) fn texts(&self) -> impl Iterator<Item = &str> {
        self.0.iter().filter(|made| made.holds).map(|made| made.endorsement.as_str())
    }
}

/// The one that is there, unless the clock was set back to before it was made.
fn one(before: &[Made], held: &Held, ca: &Authority, now: OffsetDateTime) -> Result<Made, jwt::Error> {
    let (key_id, ca_sha256) = (held.key.key_id(), &ca.facts().sha256);
    let known = before.iter().find(|made| made.key_id == key_id && made.ca == *ca_sha256);
    let endorsement = match known.filter(|made| !made.endorsement.is_early(now)) {
        Some(made) => made.endorsement.clone(),
        None => {
            let until = OffsetDateTime::from_unix_timestamp(held.span.until).unwrap_or(now);
            let earlier = held.cas.iter().filter(|known| **known != ca.facts().key_sha256);
            let earlier = earlier.filter_map(|ca| KeyHash::parse(ca).ok());
            jwt::endorse(ca, &held.key.public().endorsed_before_by(earlier), until, now)?
        }
    };
    Ok(Made { key_id: key_id.into(), ca: ca_sha256.clone(), endorsement, holds: false })
}
