//! A log that nobody can change unnoticed: hash-chained lines, and a Merkle tree over them (RFC 6962 section 2.1).
//!
//! A line is one JSON object. Its last member, `hash`, is the leaf hash of all bytes before it, and among these is `prev`, the hash of
//! the line before: so each line vouches for all earlier ones, and the same hash is its leaf in the tree. The first line of each file
//! repeats the peaks of the tree up to there, so that a file can be checked and continued without those before it.
//!
//! [`Chain`] writes lines and owns no file; [`Verifier`] reads them, one by one, and names the first that is wrong; [`Tree`] makes
//! heads, [`proof`] shows that a record is under a head or that one head continues another, [`Consistency`] is the latter for somebody
//! without a log, [`Query`] finds records.

mod chain;
mod consistency;
mod hash;
mod head;
pub mod names;
pub mod proof;
mod record;
mod search;
mod tree;
mod verify;

pub use chain::Chain;
pub use consistency::{Consistency, MAX_PROOF, Unproven};
pub use hash::Hash;
pub use head::{Head, HeadError, SignedHead};
pub use record::{Entry, Kind, MAX_LINE, Malformed, Record};
pub use search::Query;
pub use tree::Tree;
pub use verify::{Broken, Reason, Verifier};
