//! The server's side of HTTP/2 (RFC 9113) without sockets, clocks or tasks, made for ten thousand connections that are silent most of the
//! time: an idle connection keeps its streams' numbers and windows and what the client put into the compression state, and no buffer.
//!
//! [`Connection`] takes the bytes that arrived and gives [`Event`]s; it takes what is to be answered and gives bytes to send. It offers
//! nothing that calls have no use for: no push, no priorities, no compression of what it sends.
//!
//! What a client can cost is bounded: frames of 16 KiB, header blocks of 16 KiB in 16 pieces, 16 streams, 64 KiB of unread data over all
//! of them, 4 KiB of compression state, and an allowance ([`Allowance`]) of what is cheap to send and not to serve. Whoever drives a
//! connection stops reading while [`Connection::is_full`], so that answers to control frames can't pile up either.
#![forbid(unsafe_code)]

mod allowance;
mod block;
mod connection;
mod frame;
pub mod hpack;
mod huffman;
mod request;
mod settings;
mod statics;
mod stream;
mod window;

pub use allowance::Allowance;
pub use connection::{Connection, Event};
pub use frame::{Code, Fault};
pub use request::Request;

/// A header field: name, value.
pub type Field = (Vec<u8>, Vec<u8>);
