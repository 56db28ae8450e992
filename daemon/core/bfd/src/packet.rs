//! The control packet (RFC 5880 section 4.1).
//!
//! ```text
//!  0                   1                   2                   3
//!  0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
//! +-----+---------+---+-+-+-+-+-+-+---------------+---------------+
//! |Vers |  Diag   |Sta|P|F|C|A|D|M|  Detect Mult  |    Length     |
//! +-----+---------+---+-+-+-+-+-+-+---------------+---------------+
//! |                       My Discriminator                        |
//! |                      Your Discriminator                       |
//! |                    Desired Min TX Interval                    |
//! |                   Required Min RX Interval                    |
//! |                 Required Min Echo RX Interval                 |
//! +---------------------------------------------------------------+
//! ```

use std::{
    fmt,
    num::{NonZeroU8, NonZeroU32},
};

use crate::Interval;

/// Bytes of a packet without an authentication section, the only kind that is sent.
pub const LENGTH: usize = 24;

const VERSION: u8 = 1;
const POLL: u8 = 0x20;
const FINAL: u8 = 0x10;
const CONTROL_PLANE_INDEPENDENT: u8 = 0x08;
const AUTHENTICATION: u8 = 0x04;
const DEMAND: u8 = 0x02;
const MULTIPOINT: u8 = 0x01;

/// A valid control packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet {
    /// Why the sender's session last changed state.
    pub diagnostic: Diagnostic,
    /// The sender's state.
    pub state: State,
    /// The sender wants an answer with `fin` at once. Never together with it.
    pub poll: bool,
    /// The answer to a poll.
    pub fin: bool,
    /// The sender's BFD survives the loss of its control plane.
    pub independent: bool,
    /// The sender wants no periodic packets while both sides are Up.
    pub demand: bool,
    /// Packets in a row that have to be missed before the path is down.
    pub multiplier: NonZeroU8,
    /// The sender's name for the session.
    pub mine: NonZeroU32,
    /// The receiver's name for the session; `None` while the sender does not know it.
    pub yours: Option<NonZeroU32>,
    /// The sender does not want to send more often.
    pub desired_min_tx: Interval,
    /// The sender cannot take packets more often; zero: it wants none.
    pub required_min_rx: Interval,
    /// Likewise for Echo; zero: it does not support Echo.
    pub required_min_echo_rx: Interval,
}

/// State of a session (RFC 5880 section 4.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum State {
    /// Held down by its administrator, which says nothing about the path.
    AdminDown,
    /// The peer is not heard, or was not until now.
    Down,
    /// The peer is heard; it does not say yet that it hears us.
    Init,
    /// Both sides hear each other.
    Up,
}

/// Why a session last changed state (RFC 5880 section 4.1). Numbers without a name are kept as they are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Diagnostic(u8);

/// Why bytes are no control packet for us (RFC 5880 section 6.8.6).
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    /// Fewer bytes than the smallest packet, or than the packet says it has; or it says too few.
    #[error("length does not fit")]
    Length,
    /// Another version of BFD.
    #[error("version {0}, not 1")]
    Version(u8),
    /// No packet may be missed, so the path would always be down.
    #[error("detect multiplier is zero")]
    Multiplier,
    /// Reserved for point-to-multipoint extensions.
    #[error("multipoint bit is set")]
    Multipoint,
    /// The sender does not name its session.
    #[error("my discriminator is zero")]
    MyDiscriminator,
    /// Only a session that is not up may not know ours.
    #[error("your discriminator is zero in state {0}")]
    YourDiscriminator(State),
    /// No authentication is configured, so it cannot be checked.
    #[error("authenticated, and no authentication is configured")]
    Authenticated,
    /// A packet is a question or an answer (section 6.8.7).
    #[error("poll and final bit are both set")]
    PollAndFinal,
}

impl Packet {
    /// Reads a packet; bytes after it are ignored.
    ///
    /// # Errors
    /// Every reason to discard that the packet itself shows, in the order of RFC 5880 section 6.8.6.
    pub fn decode(bytes: &[u8]) -> Result<Self, Malformed> {
        let fields: &[u8; LENGTH] = bytes.first_chunk().ok_or(Malformed::Length)?;
        let flags = fields[1];
        let is_set = |flag| flags & flag != 0;
        if fields[0] >> 5 != VERSION {
            return Err(Malformed::Version(fields[0] >> 5));
        }
        let shortest = if is_set(AUTHENTICATION) { LENGTH + 2 } else { LENGTH };
        if !(shortest..=bytes.len()).contains(&usize::from(fields[3])) {
            return Err(Malformed::Length);
        }
        let multiplier = NonZeroU8::new(fields[2]).ok_or(Malformed::Multiplier)?;
        let state = State::from_bits(flags >> 6);
        let (mine, yours) = (NonZeroU32::new(word(fields, 1)), NonZeroU32::new(word(fields, 2)));
        if is_set(MULTIPOINT) {
            return Err(Malformed::Multipoint);
        }
        let mine = mine.ok_or(Malformed::MyDiscriminator)?;
        if yours.is_none() && matches!(state, State::Init | State::Up) {
            return Err(Malformed::YourDiscriminator(state));
        }
        if is_set(AUTHENTICATION) {
            return Err(Malformed::Authenticated);
        }
        if is_set(POLL) && is_set(FINAL) {
            return Err(Malformed::PollAndFinal);
        }
        Ok(Self {
            diagnostic: Diagnostic(fields[0] & 0x1f),
            state,
            poll: is_set(POLL),
            fin: is_set(FINAL),
            independent: is_set(CONTROL_PLANE_INDEPENDENT),
            demand: is_set(DEMAND),
            multiplier,
            mine,
            yours,
            desired_min_tx: Interval::from_micros(word(fields, 3)),
            required_min_rx: Interval::from_micros(word(fields, 4)),
            required_min_echo_rx: Interval::from_micros(word(fields, 5)),
        })
    }

    /// The bytes of the packet.
    pub fn encode(&self) -> [u8; LENGTH] {
        let mut bytes = [0; LENGTH];
        let flag = |set: bool, bit: u8| if set { bit } else { 0 };
        bytes[0] = VERSION << 5 | self.diagnostic.0 & 0x1f;
        bytes[1] = self.state.bits() << 6
            | flag(self.poll, POLL)
            | flag(self.fin, FINAL)
            | flag(self.independent, CONTROL_PLANE_INDEPENDENT)
            | flag(self.demand, DEMAND);
        bytes[2] = self.multiplier.get();
        bytes[3] = 24;
        let words = [
            self.mine.get(),
            self.yours.map_or(0, NonZeroU32::get),
            self.desired_min_tx.as_micros(),
            self.required_min_rx.as_micros(),
            self.required_min_echo_rx.as_micros(),
        ];
        for (place, word) in bytes[4..].chunks_exact_mut(4).zip(words) {
            place.copy_from_slice(&word.to_be_bytes());
        }
        bytes
    }
}

/// The 32-bit word of this number, 0..6.
fn word(fields: &[u8; LENGTH], number: usize) -> u32 {
    let (words, _) = fields.as_chunks();
    words.get(number).copied().map_or(0, u32::from_be_bytes)
}

impl State {
    const ALL: [Self; 4] = [Self::AdminDown, Self::Down, Self::Init, Self::Up];

    fn from_bits(bits: u8) -> Self {
        Self::ALL[usize::from(bits & 3)]
    }

    fn bits(self) -> u8 {
        match self {
            Self::AdminDown => 0,
            Self::Down => 1,
            Self::Init => 2,
            Self::Up => 3,
        }
    }

    /// The RFC's word.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::AdminDown => "AdminDown",
            Self::Down => "Down",
            Self::Init => "Init",
            Self::Up => "Up",
        }
    }
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl Diagnostic {
    /// Nothing to tell.
    pub const NONE: Self = Self(0);
    /// Nothing was heard for a detection time.
    pub const TIME_EXPIRED: Self = Self(1);
    /// The other side said that the session is down.
    pub const NEIGHBOR_DOWN: Self = Self(3);
    /// An administrator said so.
    pub const ADMINISTRATIVE: Self = Self(7);

    /// The number on the wire, 0..=31.
    pub const fn code(self) -> u8 {
        self.0
    }

    /// The RFC's words.
    pub const fn as_str(self) -> &'static str {
        match self.0 {
            0 => "no diagnostic",
            1 => "control detection time expired",
            2 => "echo function failed",
            3 => "neighbor signaled session down",
            4 => "forwarding plane reset",
            5 => "path down",
            6 => "concatenated path down",
            7 => "administratively down",
            8 => "reverse concatenated path down",
            _ => "unknown diagnostic",
        }
    }
}

impl fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests;
