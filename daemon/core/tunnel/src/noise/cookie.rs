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

#[cfg(test)]
mod tests {
    use crate::x25519::StaticSecret;

    use super::*;
    use crate::noise::Identity;

    const SOURCE: ([u8; 4], u16) = ([192, 0, 2, 1], 51_820);

    struct Rig {
        receiver: Identity,
        baker: Baker,
        jar: Jar,
        start: Instant,
    }

    impl Rig {
        fn new() -> Self {
            let start = Instant::now();
            let receiver = Identity::new(StaticSecret::from([1; 32]));
            Self { receiver, baker: Baker::new([2; 32], start), jar: Jar::default(), start }
        }

        fn message(&mut self, second: u64) -> [u8; 148] {
            let mut message = [9; 148];
            self.jar.stamp(&self.receiver.macs, &mut message, self.at(second));
            message
        }

        fn verify(&mut self, message: &[u8], source: ([u8; 4], u16), second: u64) -> bool {
            self.baker.verify(message, source.into(), self.at(second))
        }

        /// Lets the sender have a cookie for its next message.
        fn give_cookie(&mut self, second: u64) {
            let (message, now) = (self.message(second), self.at(second));
            let reply = self.baker.reply(&self.receiver.macs, &message, SOURCE.into(), now).unwrap();
            assert_eq!(sender(&reply), Some(u32::from_le_bytes([9; 4])));
            assert!(self.jar.take(&self.receiver.macs, &reply, now));
            assert!(!self.jar.take(&self.receiver.macs, &reply, now), "one answer to one message");
        }

        fn at(&self, second: u64) -> Instant {
            self.start + Duration::from_secs(second)
        }
    }

    #[test]
    fn a_cookie_proves_address_and_port() {
        let mut rig = Rig::new();
        let message = rig.message(0);
        assert!(verify_mac1(&rig.receiver.macs, &message));
        assert!(!verify_mac1(&Identity::new(StaticSecret::from([7; 32])).macs, &message));
        assert!(!rig.verify(&message, SOURCE, 0));
        rig.give_cookie(0);
        let message = rig.message(1);
        assert!(rig.verify(&message, SOURCE, 1));
        assert!(!rig.verify(&message, ([192, 0, 2, 2], 51_820), 1));
        assert!(!rig.verify(&message, ([192, 0, 2, 1], 51_821), 1));
        let mut altered = message;
        altered[50] ^= 1;
        assert!(!rig.verify(&altered, SOURCE, 1) && !verify_mac1(&rig.receiver.macs, &altered));
    }

    #[test]
    fn cookies_and_secrets_grow_old() {
        let mut rig = Rig::new();
        rig.give_cookie(100);
        let message = rig.message(219);
        assert!(rig.verify(&message, SOURCE, 219), "the secret changed at 120, the one before still counts");
        assert!(!rig.verify(&message, SOURCE, 219 + 121));
        assert_eq!(rig.message(220)[132..], [0; 16], "the sender's cookie is two minutes old");
        let mut rig = Rig::new();
        rig.give_cookie(0);
        let message = rig.message(1);
        assert!(!rig.verify(&message, SOURCE, 1000), "both secrets are old");
    }

    #[test]
    fn only_an_answer_to_our_last_message_is_taken() {
        let mut rig = Rig::new();
        let (old, now) = (rig.message(0), rig.start);
        let reply = rig.baker.reply(&rig.receiver.macs, &old, SOURCE.into(), now).unwrap();
        let mut forged = reply;
        forged[63] ^= 1;
        assert!(!rig.jar.take(&rig.receiver.macs, &forged, now));
        let mut other = [8; 148];
        rig.jar.stamp(&rig.receiver.macs, &mut other, now);
        assert!(!rig.jar.take(&rig.receiver.macs, &reply, now));
        assert!(!Jar::default().take(&rig.receiver.macs, &reply, now));
    }

    #[test]
    fn short_messages_have_no_macs() {
        let mut rig = Rig::new();
        for length in 0..32 {
            let mut message = vec![1; length];
            assert!(!verify_mac1(&rig.receiver.macs, &message) && !rig.verify(&message, SOURCE, 0));
            assert!(rig.baker.reply(&rig.receiver.macs, &message, SOURCE.into(), rig.start).is_none());
            rig.jar.stamp(&rig.receiver.macs, &mut message, rig.start);
        }
    }
}
