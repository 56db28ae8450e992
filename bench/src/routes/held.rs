//! Which of the prefixes somebody holds, as cheap as counting can be.

use anyhow::{Result, ensure};

use super::feed::{HEADER, LENGTH, MARKER, UPDATE, number};

/// One bit a prefix, and how many are set. What is announced twice counts once.
#[derive(Debug, Default)]
pub(super) struct Held {
    bits: Vec<u64>,
    count: u32,
}

impl Held {
    /// How many.
    pub(super) fn count(&self) -> u32 {
        self.count
    }

    /// The prefix of this number is there, or is not any more.
    pub(super) fn set(&mut self, number: u32, there: bool) {
        let (word, bit) = (number as usize / 64, 1 << (number % 64));
        if word >= self.bits.len() {
            self.bits.resize(word + 1, 0);
        }
        let was = self.bits[word] & bit != 0;
        match (was, there) {
            (false, true) => self.count += 1,
            (true, false) => self.count -= 1,
            _ => return,
        }
        self.bits[word] ^= bit;
    }

    /// Takes an UPDATE, which begins at its header.
    ///
    /// # Errors
    /// When its lengths contradict each other.
    pub(super) fn update(&mut self, message: &[u8]) -> Result<()> {
        let (withdrawn, rest) = part(&message[HEADER..])?;
        let (_attributes, nlri) = part(rest)?;
        self.prefixes(withdrawn, false)?;
        self.prefixes(nlri, true)
    }

    fn prefixes(&mut self, mut octets: &[u8], there: bool) -> Result<()> {
        while let [length, rest @ ..] = octets {
            let size = usize::from(length.div_ceil(8));
            ensure!(size <= rest.len(), "a prefix goes beyond its UPDATE");
            if let ([a, b, c, ..], LENGTH) = (rest, *length)
                && let Some(number) = number([*a, *b, *c])
            {
                self.set(number, there);
            }
            octets = &rest[size..];
        }
        Ok(())
    }
}

/// What a length of two octets is in front of, and what comes behind it.
fn part(octets: &[u8]) -> Result<(&[u8], &[u8])> {
    let [high, low, rest @ ..] = octets else { anyhow::bail!("an UPDATE ends within a length") };
    let length = usize::from(u16::from_be_bytes([*high, *low]));
    ensure!(length <= rest.len(), "a length goes beyond its UPDATE");
    Ok(rest.split_at(length))
}

/// The type and the octets of the first message; `None`: it is not whole yet.
///
/// # Errors
/// When no message begins here.
pub(super) fn message(stream: &[u8]) -> Result<Option<(u8, &[u8])>> {
    let Some(header) = stream.get(..HEADER) else { return Ok(None) };
    let length = usize::from(u16::from_be_bytes([header[16], header[17]]));
    ensure!(header.starts_with(&MARKER) && length >= HEADER, "this is no BGP message");
    Ok(stream.get(..length).map(|message| (header[18], message)))
}

/// Takes all messages that are whole; the number of octets that they took. Other messages than UPDATE go to `other`.
///
/// # Errors
/// When one is malformed, and those of `other`.
pub(super) fn take(
    stream: &[u8],
    held: &mut Held,
    mut other: impl FnMut(u8, &[u8]) -> Result<()>,
) -> Result<usize> {
    let mut taken = 0;
    while let Some((kind, octets)) = message(&stream[taken..])? {
        if kind == UPDATE { held.update(octets) } else { other(kind, octets) }?;
        taken += octets.len();
    }
    Ok(taken)
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::{super::feed::Feed, *};

    const FEED: Feed = Feed { asn: 65001, next_hop: Ipv4Addr::new(192, 0, 2, 1) };

    fn take_all(stream: &[u8], held: &mut Held) -> usize {
        take(stream, held, |kind, _| panic!("a message of type {kind}")).unwrap()
    }

    #[test]
    fn what_is_fed_is_held_until_it_is_withdrawn() {
        let mut held = Held::default();
        let announced = FEED.announce(0..2_345);
        assert_eq!(take_all(&announced, &mut held), announced.len());
        assert_eq!(held.count(), 2_345);
        take_all(&FEED.announce(2_000..2_400), &mut held);
        assert_eq!(held.count(), 2_400, "each counts once");
        take_all(&FEED.withdraw(0..2_399), &mut held);
        assert_eq!(held.count(), 1);
        take_all(&FEED.withdraw(0..3_000), &mut held);
        assert_eq!(held.count(), 0, "what was not there can't go");
    }

    #[test]
    fn an_unfinished_message_waits_for_its_end() {
        let announced = FEED.announce(0..20);
        let mut held = Held::default();
        for end in 0..announced.len() {
            let taken = take_all(&announced[..end], &mut held);
            assert_eq!(taken, if end < announced.len() / 2 { 0 } else { announced.len() / 2 }, "{end}");
        }
        assert_eq!(held.count(), 10);
    }

    #[test]
    fn no_octets_make_it_panic() {
        let mut message = FEED.announce(0..10);
        for at in 0..message.len() {
            for value in [0, 1, 0x7f, 0xff] {
                let old = std::mem::replace(&mut message[at], value);
                let _ = take(&message, &mut Held::default(), |_, _| Ok(()));
                message[at] = old;
            }
        }
    }
}
