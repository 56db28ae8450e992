//! A map from IP prefixes to values, made for tables of many routes: a hash table for each family, whose entries hold the prefix in 5 or
//! 17 bytes and the value, and nothing else.
//!
//! [`PrefixTable`] is driven like a map: [`insert`](PrefixTable::insert), [`get`](PrefixTable::get), [`remove`](PrefixTable::remove).
//! Questions about addresses ([`lookup`](PrefixTable::lookup), [`covering`](PrefixTable::covering)) probe every prefix length that occurs
//! in the table: right for routing tables, where they are rare, and not for forwarding packets. Decision 018 says why this is no trie.
//!
//! Nothing here has an order of its own; [`sorted`](PrefixTable::sorted) makes one for people.

#![forbid(unsafe_code)]

mod half;
mod key;
mod seed;
mod table;
#[cfg(test)]
mod tests;

pub use seed::{Hasher, Seed};
pub use table::PrefixTable;
