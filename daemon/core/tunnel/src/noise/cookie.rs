//! The two MACs at the end of a handshake message, and the cookie that the second is keyed with (WireGuard paper, section 5.4.4
//! and 5.4.7).

use std::{
    net::{IpAddr, SocketAddr},
    time::{Duration, Instant},
};

use chacha20poly1305::{AeadInPlace, KeyInit, XChaCha20Poly1305};
use subtle::ConstantTimeEq;

use super::{
    hash::{Secret, mac},
    identity::MacKeys,
    message::{COOKIE_REPLY, kind, sender},
    random::Random,
};

/// Lifetime of a cookie and of the secret that it is made from.
pub(crate) const LIFETIME: Duration = Duration::from_secs(120);

type Cookie = [u8; 16];

/// A handshake message in its parts: what MAC1 covers, MAC1, MAC2.
fn parts(message: &[u8]) -> Option<(&[u8], &[u8; 16], &[u8; 16])> {
    let (rest, mac2) = message.split_last_chunk()?;
    let (body, mac1) = rest.split_last_chunk()?;
    Some((body, mac1, mac2))
}

/// True if the sender of a handshake message knows our public key.
pub(crate) fn verify_mac1(ours: &MacKeys, message: &[u8]) -> bool {
    parts(message).is_some_and(|(body, mac1, _)| mac(&ours.mac1, body).ct_eq(mac1).into())
}

/// The sender's side: puts MACs on handshake messages and remembers the cookie that the receiver asked for.
#[derive(Default)]
pub(crate) struct Jar {
    cookie: Option<(Cookie, Instant)>,
    /// MAC1 of the last message; a cookie reply is an answer to it.
    last: Option<[u8; 16]>,
}

impl Jar {
    /// Fills in the MACs of a handshake message: the last 32 bytes.
    pub(crate) fn stamp(&mut self, theirs: &MacKeys, message: &mut [u8], now: Instant) {
        let Some((rest, mac2)) = message.split_last_chunk_mut::<16>() else { return };
        if let Some((body, mac1)) = rest.split_last_chunk_mut::<16>() {
            *mac1 = mac(&theirs.mac1, body);
            self.last = Some(*mac1);
        }
        *mac2 = self.valid(now).map_or([0; 16], |cookie| mac(&cookie, rest));
    }

    fn valid(&self, now: Instant) -> Option<Cookie> {
        let (cookie, received) = self.cookie?;
        (now.saturating_duration_since(received) < LIFETIME).then_some(cookie)
    }

    /// Takes a cookie reply; false if it is no answer to the last message.
    pub(crate) fn take(&mut self, theirs: &MacKeys, reply: &[u8; COOKIE_REPLY], now: Instant) -> bool {
        let Some(last) = self.last else { return false };
        let Some(cookie) = decrypt(&theirs.cookie, reply, &last) else { return false };
        (self.cookie, self.last) = (Some((cookie, now)), None);
        true
    }
}

fn decrypt(key: &[u8; 32], reply: &[u8; COOKIE_REPLY], mac1: &[u8; 16]) -> Option<Cookie> {
    let mut cookie: Cookie = *reply.get(32..)?.first_chunk()?;
    let (nonce, tag) = (&reply[8..32], &reply[48..64]);
    let cipher = XChaCha20Poly1305::new(key.into());
    cipher.decrypt_in_place_detached(nonce.into(), mac1, &mut cookie, tag.into()).ok()?;
    Some(cookie)
}

/// The receiver's side: cookies follow from the sender's address and port, and a secret that changes every two minutes.
pub(crate) struct Baker {
    secret: Secret,
    /// The secret before; cookies from it are good until the next change.
    previous: Option<Secret>,
    born: Instant,
    random: Random,
}

impl Baker {
    pub(crate) fn new(seed: [u8; 32], now: Instant) -> Self {
        let mut random = Random::new(seed);
        Self { secret: random.draw(), previous: None, born: now, random }
    }

    /// True if MAC2 of a handshake message shows that its sender receives at `source`.
    pub(crate) fn verify(&mut self, message: &[u8], source: SocketAddr, now: Instant) -> bool {
        self.rotate(now);
        let Some((_, _, mac2)) = parts(message) else { return false };
        let covered = &message[..message.len() - mac2.len()];
        let fits = |secret: &Secret| mac(&cookie(secret, source), covered).ct_eq(mac2);
        let current = fits(&self.secret);
        self.previous.as_ref().map_or(current, |previous| current | fits(previous)).into()
    }

    /// Answers a handshake message with a cookie for `source`.
    pub(crate) fn reply(
        &mut self,
        ours: &MacKeys,
        message: &[u8],
        source: SocketAddr,
        now: Instant,
    ) -> Option<[u8; COOKIE_REPLY]> {
        self.rotate(now);
        let mut reply = [0; COOKIE_REPLY];
        reply[..4].copy_from_slice(&kind::COOKIE_REPLY);
        reply[4..8].copy_from_slice(&sender(message)?.to_le_bytes());
        reply[8..32].copy_from_slice(&self.random.draw()[..24]);
        reply[32..48].copy_from_slice(&cookie(&self.secret, source));
        let (head, rest) = reply.split_at_mut(32);
        let cipher = XChaCha20Poly1305::new((&ours.cookie).into());
        let (_, mac1, _) = parts(message)?;
        let tag = cipher.encrypt_in_place_detached(head[8..].as_ref().into(), mac1, &mut rest[..16]).ok()?;
        rest[16..].copy_from_slice(&tag);
        Some(reply)
    }

    fn rotate(&mut self, now: Instant) {
        let age = now.saturating_duration_since(self.born);
        if age >= LIFETIME {
            let old = std::mem::replace(&mut self.secret, self.random.draw());
            self.previous = (age < LIFETIME * 2).then_some(old);
            self.born = now;
        }
    }
}

fn cookie(secret: &Secret, source: SocketAddr) -> Cookie {
    let mut address = [0; 18];
    match source.ip() {
        IpAddr::V4(ip) => address[..4].copy_from_slice(&ip.octets()),
        IpAddr::V6(ip) => address[..16].copy_from_slice(&ip.octets()),
    }
    address[16..].copy_from_slice(&source.port().to_be_bytes());
    mac(secret.as_slice(), &address)
}
