//! Pure core of BFD: packets and time in, packets and changes of state out.
//!
//! [`Sessions`] is what a driver talks to: it finds the session that a packet belongs to, knows when the next timer is due, and collects
//! what has to leave and what happened. [`Session`] is the machine of one path, [`Packet`] what goes over it. Nothing here opens a
//! socket, reads a clock or draws a random number: time is an argument, and randomness comes from a seed.
//!
//! RFCs: 5880 (the protocol, asynchronous mode; a peer in demand mode is obeyed, Echo is declined), 5881 and 5883 (what counts as a
//! session over one hop and over many is the driver's to say), 5882 (what a change of state means to others: [`Change::is_failure`]).
#![forbid(unsafe_code)]

mod interval;
mod packet;
mod random;
mod session;
mod sessions;

pub use interval::Interval;
pub use packet::{Diagnostic, LENGTH, Malformed, Packet, State};
pub use session::{Change, Config, Remote, Session, Status};
pub use sessions::{Discarded, Event, Full, SessionId, Sessions};
