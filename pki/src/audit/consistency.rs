//! That a signed head continues one that somebody has kept, in a form that he can check without the log.

use serde::{Deserialize, Serialize};

use super::{
    hash::Hash,
    head::{Head, HeadError, SignedHead},
    proof,
};

/// Longest proof that is read, in bytes: 65 hashes and a signed head are a third of it.
pub const MAX_PROOF: usize = 64 << 10;

/// `isthmus.v1/audit-consistency`: RFC 9162 section 2.1.4.2 has the rule that leads from both roots along the path.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Consistency {
    schema: Schema,
    /// Records that the earlier head covers.
    pub first: u64,
    /// Its root.
    pub first_root: Hash,
    /// Records that the later head covers.
    pub size: u64,
    /// Its root.
    pub root: Hash,
    /// Roots of the ranges in between.
    pub path: Vec<Hash>,
    /// The later head, as the site CA signed it.
    pub signed_head: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum Schema {
    #[serde(rename = "isthmus.v1/audit-consistency")]
    V1,
}

/// Why a proof proves nothing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unproven {
    /// Not a proof at all.
    #[error("this is no proof of `isthmusctl audit prove --since`: {0}")]
    Malformed(String),
    /// It is about somebody else's head.
    #[error(
        "the proof begins at {first} records with root {first_root}, the head that was kept covers {} with root {}: it is the proof of another head, or the log was rewritten",
        kept.size,
        kept.root
    )]
    OtherStart {
        /// Records, says the proof.
        first: u64,
        /// Root, says the proof.
        first_root: Hash,
        /// What it has to begin at.
        kept: Head,
    },
    /// The head in it.
    #[error("the head in the proof: {0}")]
    Head(#[from] HeadError),
    /// Size or root beside the signed head are not those that were signed.
    #[error("size and root in the proof are not those of the head that was signed")]
    OtherEnd,
    /// The hashes do not fit.
    #[error(
        "the path does not lead from the earlier head to the later one: records that the earlier head covers were changed or removed since"
    )]
    Path,
}

impl Consistency {
    /// A proof that the log of `head` continues that of `kept`; `None` if the path does not show it. `signed`: the head's text.
    pub fn new(kept: &Head, head: &Head, path: Vec<Hash>, signed: String) -> Option<Self> {
        let holds = proof::verify_consistency(kept.size, kept.root, head.size, head.root, &path);
        holds.then_some(Self {
            schema: Schema::V1,
            first: kept.size,
            first_root: kept.root,
            size: head.size,
            root: head.root,
            path,
            signed_head: signed,
        })
    }

    /// Reads the JSON; nothing of it is believed yet.
    pub fn parse(text: &[u8]) -> Result<Self, Unproven> {
        if text.len() > MAX_PROOF {
            return Err(Unproven::Malformed(format!("it has more than {MAX_PROOF} bytes")));
        }
        serde_json::from_slice(text).map_err(|error| Unproven::Malformed(error.to_string()))
    }

    /// Does it prove that a head continues `kept`? Returns that head; [`SignedHead::verify`] says whether a site CA signed it.
    pub fn check(&self, kept: &Head) -> Result<SignedHead, Unproven> {
        let Self { first, first_root, size, root, .. } = *self;
        if (first, first_root) != (kept.size, kept.root) {
            return Err(Unproven::OtherStart { first, first_root, kept: kept.clone() });
        }
        let signed = SignedHead::parse(&self.signed_head)?;
        if (size, root) != (signed.head.size, signed.head.root) {
            return Err(Unproven::OtherEnd);
        }
        let holds = proof::verify_consistency(first, first_root, size, root, &self.path);
        if holds { Ok(signed) } else { Err(Unproven::Path) }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{
        audit::Tree,
        testing::{Fabric, NOW},
    };

    /// A log of `size` records; those from `changed` on are others.
    fn leaves(size: u64, changed: u64) -> Vec<Hash> {
        (0..size).map(|at| Hash::leaf(&[u8::from(at >= changed), u8::try_from(at).unwrap()])).collect()
    }

    fn head(leaves: &[Hash]) -> Head {
        let mut tree = Tree::default();
        leaves.iter().for_each(|leaf| tree.push(*leaf));
        Head::of(&tree, NOW)
    }

    fn prove(kept: &Head, log: &[Hash]) -> Option<Consistency> {
        let head = head(log);
        let mut gather = proof::Gather::new(proof::consistency(kept.size, head.size)?);
        log.iter().for_each(|leaf| gather.push(*leaf));
        let signed = head.sign(&Fabric::new("td").site).unwrap();
        Consistency::new(kept, &head, gather.finish()?, signed)
    }

    #[test]
    fn who_kept_a_head_is_convinced_without_the_log() {
        let log = leaves(11, 11);
        for first in 1..=11 {
            let kept = head(&log[..first]);
            let text = serde_json::to_vec(&prove(&kept, &log).unwrap()).unwrap();
            let signed = Consistency::parse(&text).unwrap().check(&kept).unwrap();
            assert_eq!(signed.head, head(&log), "{first}");
        }
    }

    #[test]
    fn a_log_that_was_rewritten_or_cut_has_no_proof() {
        let (before, after) = (leaves(7, 7), leaves(11, 6));
        assert_eq!(prove(&head(&before), &after), None);
        assert_eq!(prove(&head(&leaves(11, 11)), &before), None);
        // The forger proves his own history, and that is not the one that was seen.
        let forged = prove(&head(&after[..7]), &after).unwrap();
        let refused = forged.check(&head(&before)).unwrap_err();
        assert!(matches!(refused, Unproven::OtherStart { first: 7, .. }), "{refused}");
        // So he claims to begin where he should.
        let forged = Consistency { first_root: head(&before).root, ..forged };
        assert_eq!(forged.check(&head(&before)).unwrap_err(), Unproven::Path);
    }

    #[test]
    fn every_member_counts() {
        let log = leaves(9, 9);
        let kept = head(&log[..5]);
        let good = prove(&kept, &log).unwrap();
        let refused = |change: fn(&mut Consistency)| {
            let mut bad = good.clone();
            change(&mut bad);
            bad.check(&kept).unwrap_err()
        };
        assert!(matches!(refused(|p| p.first = 4), Unproven::OtherStart { .. }));
        assert_eq!(refused(|p| p.size = 10), Unproven::OtherEnd);
        assert_eq!(refused(|p| p.root = Hash::empty()), Unproven::OtherEnd);
        assert_eq!(refused(|p| p.path.truncate(1)), Unproven::Path);
        assert_eq!(refused(|p| p.path.push(Hash::empty())), Unproven::Path);
        assert_eq!(refused(|p| p.path.swap(0, 1)), Unproven::Path);
        assert!(matches!(refused(|p| p.signed_head.truncate(99)), Unproven::Head(_)));
    }

    #[test]
    fn what_is_no_proof_is_told_apart() {
        let log = leaves(2, 2);
        let good = serde_json::to_value(prove(&head(&log[..1]), &log).unwrap()).unwrap();
        let with = |name: &str, value: serde_json::Value| {
            let mut bad = good.clone();
            bad[name] = value;
            Consistency::parse(bad.to_string().as_bytes()).unwrap_err().to_string()
        };
        assert!(with("schema", "isthmus.v1/audit-proof".into()).contains("unknown variant"));
        assert!(with("more", 1.into()).contains("unknown field"));
        assert!(with("root", "AA".into()).contains("64 lower-case"));
        let long = Consistency::parse(&vec![b' '; MAX_PROOF + 1]).unwrap_err();
        assert!(long.to_string().contains("more than"), "{long}");
    }

    proptest! {
        #[test]
        fn random_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            prop_assert!(Consistency::parse(&bytes).is_err());
        }
    }
}
