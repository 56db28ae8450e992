//! Initiation and response (WireGuard paper, sections 5.4.2 to 5.4.5), without their MACs.

use super::{
    Identity, Remote,
    aead::Cipher,
    hash::{Secret, hash, kdf},
    message::{INITIATION, RESPONSE, kind, sender, word},
    tai64n::Timestamp,
};
use crate::x25519::{PublicKey, SharedSecret, StaticSecret};

const CONSTRUCTION: &[u8] = b"Noise_IKpsk2_25519_ChaChaPoly_BLAKE2s";
const IDENTIFIER: &[u8] = b"WireGuard v1 zx2c4 Jason@zx2c4.com";

/// What a completed handshake leaves.
pub(crate) struct Keys {
    pub(crate) send: Secret,
    pub(crate) receive: Secret,
    /// Our index.
    pub(crate) local: u32,
    /// The peer's index.
    pub(crate) remote: u32,
}

/// The chaining key and the hash over all that was said.
#[derive(Clone)]
struct Transcript {
    chain: Secret,
    hash: [u8; 32],
}

impl Transcript {
    fn new(responder: &PublicKey) -> Self {
        let chain = hash(&[CONSTRUCTION]);
        let start = hash(&[&chain, IDENTIFIER]);
        Self { hash: hash(&[&start, responder.as_bytes()]), chain: Secret::new(chain) }
    }

    fn mix_hash(&mut self, part: &[u8]) {
        self.hash = hash(&[&self.hash, part]);
    }

    fn mix_ephemeral(&mut self, public: &[u8; 32]) {
        self.mix_hash(public);
        self.mix_key(public);
    }

    fn mix_key(&mut self, input: &[u8; 32]) {
        [self.chain] = kdf(&self.chain, input);
    }

    /// `None`: the point was of small order, so the product is known to everybody.
    fn mix_product(&mut self, product: &SharedSecret) -> Option<()> {
        product.as_ref().map(|product| self.mix_key(product))
    }

    /// As [`Transcript::mix_product`], and a key for the next field.
    fn mix_product_for_key(&mut self, product: &SharedSecret) -> Option<Cipher> {
        let [chain, key] = kdf(&self.chain, product.as_ref()?.as_slice());
        self.chain = chain;
        Some(Cipher::new(&key))
    }

    fn mix_preshared(&mut self, preshared: &Secret) -> Cipher {
        let [chain, tau, key] = kdf(&self.chain, preshared.as_slice());
        self.chain = chain;
        self.mix_hash(tau.as_slice());
        Cipher::new(&key)
    }

    /// Encrypts a field, of which the last 16 bytes are room for the tag.
    fn seal(&mut self, cipher: &Cipher, field: &mut [u8]) -> Option<()> {
        cipher.seal(0, &self.hash, field).then(|| self.mix_hash(field))
    }

    /// Decrypts `N` bytes and their tag.
    fn open<const N: usize>(&mut self, cipher: &Cipher, field: &[u8]) -> Option<[u8; N]> {
        let mut copy = field.to_vec();
        let plain = cipher.open(0, &self.hash, &mut copy)?.try_into().ok()?;
        self.mix_hash(field);
        Some(plain)
    }

    /// The two transport keys, the initiator's for sending first.
    fn split(&self) -> [Secret; 2] {
        kdf(&self.chain, &[])
    }
}

/// The initiator's state between initiation and response. The secrets in it are overwritten when it is dropped.
pub(crate) struct Initiator {
    transcript: Transcript,
    ephemeral: StaticSecret,
    index: u32,
}

impl Initiator {
    /// Writes an initiation but for its MACs. `None`: the peer's static key is of small order; nobody can have it.
    pub(crate) fn initiate(
        identity: &Identity,
        remote: &Remote,
        ephemeral: Secret,
        index: u32,
        timestamp: &Timestamp,
        message: &mut [u8; INITIATION],
    ) -> Option<Self> {
        let ephemeral = StaticSecret::from(*ephemeral);
        let mut transcript = Transcript::new(&remote.public);
        let public = PublicKey::from(&ephemeral);
        message[..4].copy_from_slice(&kind::INITIATION);
        message[4..8].copy_from_slice(&index.to_le_bytes());
        message[8..40].copy_from_slice(public.as_bytes());
        transcript.mix_ephemeral(public.as_bytes());
        let key = transcript.mix_product_for_key(&ephemeral.diffie_hellman(&remote.public))?;
        message[40..72].copy_from_slice(identity.public().as_bytes());
        transcript.seal(&key, &mut message[40..88])?;
        let key = transcript.mix_product_for_key(&remote.static_static)?;
        message[88..100].copy_from_slice(timestamp);
        transcript.seal(&key, &mut message[88..116])?;
        Some(Self { transcript, ephemeral, index })
    }

    /// Our index of the session to be.
    pub(crate) fn index(&self) -> u32 {
        self.index
    }

    /// Takes a response. `None`: it is not the answer to this initiation, which may still come.
    pub(crate) fn finish(
        &self,
        identity: &Identity,
        remote: &Remote,
        message: &[u8; RESPONSE],
    ) -> Option<Keys> {
        if word(message, 8)? != self.index {
            return None;
        }
        let mut transcript = self.transcript.clone();
        let public = PublicKey::from(*message.get(12..)?.first_chunk::<32>()?);
        transcript.mix_ephemeral(public.as_bytes());
        transcript.mix_product(&self.ephemeral.diffie_hellman(&public))?;
        transcript.mix_product(&identity.diffie_hellman(&public))?;
        let key = transcript.mix_preshared(&remote.preshared);
        transcript.open::<0>(&key, &message[44..60])?;
        let [send, receive] = transcript.split();
        Some(Keys { send, receive, local: self.index, remote: sender(message)? })
    }
}

/// An initiation of which we know who claims to have sent it.
pub(crate) struct Call {
    transcript: Transcript,
    ephemeral: PublicKey,
    caller: PublicKey,
}

impl Call {
    /// Reads the static key out of an initiation, which only the owner of `identity` can. Whoever knows our public key can have written
    /// it: it proves nothing about the caller.
    pub(crate) fn read(identity: &Identity, message: &[u8; INITIATION]) -> Option<Self> {
        let mut transcript = Transcript::new(identity.public());
        let ephemeral = PublicKey::from(*message.get(8..)?.first_chunk::<32>()?);
        transcript.mix_ephemeral(ephemeral.as_bytes());
        let key = transcript.mix_product_for_key(&identity.diffie_hellman(&ephemeral))?;
        let caller = PublicKey::from(transcript.open::<32>(&key, &message[40..88])?);
        Some(Self { transcript, ephemeral, caller })
    }

    /// The static key of the caller.
    pub(crate) fn caller(&self) -> &PublicKey {
        &self.caller
    }

    /// The timestamp, which only the owner of the static keys can have written. `None`: somebody else did.
    pub(crate) fn authenticate(&mut self, remote: &Remote, message: &[u8; INITIATION]) -> Option<Timestamp> {
        let key = self.transcript.mix_product_for_key(&remote.static_static)?;
        self.transcript.open::<12>(&key, &message[88..116])
    }

    /// Answers an authentic initiation whose sender has this index: writes a response but for its MACs.
    pub(crate) fn respond(
        mut self,
        remote: &Remote,
        ephemeral: Secret,
        [local, remote_index]: [u32; 2],
        message: &mut [u8; RESPONSE],
    ) -> Option<Keys> {
        let ephemeral = StaticSecret::from(*ephemeral);
        let public = PublicKey::from(&ephemeral);
        message[..4].copy_from_slice(&kind::RESPONSE);
        message[4..8].copy_from_slice(&local.to_le_bytes());
        message[8..12].copy_from_slice(&remote_index.to_le_bytes());
        message[12..44].copy_from_slice(public.as_bytes());
        self.transcript.mix_ephemeral(public.as_bytes());
        self.transcript.mix_product(&ephemeral.diffie_hellman(&self.ephemeral))?;
        self.transcript.mix_product(&ephemeral.diffie_hellman(&remote.public))?;
        let key = self.transcript.mix_preshared(&remote.preshared);
        self.transcript.seal(&key, &mut message[44..60])?;
        let [receive, send] = self.transcript.split();
        Some(Keys { send, receive, local, remote: remote_index })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    struct Side {
        identity: Identity,
        remote: Remote,
    }

    /// (initiator, responder)
    fn sides(preshared: [[u8; 32]; 2]) -> (Side, Side) {
        let side = |own: u8, other: u8, preshared| {
            let identity = Identity::new(StaticSecret::from([own; 32]));
            let other = PublicKey::from(&StaticSecret::from([other; 32]));
            Side { remote: Remote::new(&identity, other, Some(Secret::new(preshared))), identity }
        };
        (side(1, 2, preshared[0]), side(2, 1, preshared[1]))
    }

    fn initiate(side: &Side) -> (Option<Initiator>, [u8; INITIATION]) {
        let mut message = [0; INITIATION];
        let ephemeral = Secret::new([3; 32]);
        let state =
            Initiator::initiate(&side.identity, &side.remote, ephemeral, 0x0a0b_0c0d, &[5; 12], &mut message);
        (state, message)
    }

    fn answer(side: &Side, initiation: &[u8; INITIATION]) -> Option<(Keys, [u8; RESPONSE])> {
        let mut response = [0; RESPONSE];
        let mut call = Call::read(&side.identity, initiation)?;
        assert_eq!(call.caller(), &side.remote.public);
        assert_eq!(call.authenticate(&side.remote, initiation)?, [5; 12]);
        let keys =
            call.respond(&side.remote, Secret::new([4; 32]), [7, sender(initiation)?], &mut response)?;
        Some((keys, response))
    }

    #[test]
    fn both_ends_have_the_same_keys() {
        let (a, b) = sides([[6; 32]; 2]);
        let (pending, initiation) = initiate(&a);
        let (theirs, response) = answer(&b, &initiation).unwrap();
        let ours = pending.unwrap().finish(&a.identity, &a.remote, &response).unwrap();
        assert!(ours.send == theirs.receive && ours.receive == theirs.send && ours.send != ours.receive);
        assert_eq!((ours.local, ours.remote), (0x0a0b_0c0d, 7));
        assert_eq!((theirs.local, theirs.remote), (7, 0x0a0b_0c0d));
    }

    #[test]
    fn another_preshared_key_fails_and_leaves_the_initiation_waiting() {
        let (a, b) = sides([[6; 32], [7; 32]]);
        let (pending, initiation) = initiate(&a);
        let (_, response) = answer(&b, &initiation).unwrap();
        let pending = pending.unwrap();
        assert!(pending.finish(&a.identity, &a.remote, &response).is_none());
        let (_, b) = sides([[6; 32]; 2]);
        let (_, response) = answer(&b, &initiation).unwrap();
        assert!(pending.finish(&a.identity, &a.remote, &response).is_some());
    }

    /// Points whose product with anything is zero (RFC 7748, section 6.1).
    const SMALL_ORDER: [[u8; 32]; 2] = [[0; 32], {
        let mut one = [0; 32];
        one[0] = 1;
        one
    }];

    #[test]
    fn points_of_small_order_are_refused() {
        let (a, b) = sides([[0; 32]; 2]);
        for point in SMALL_ORDER {
            let (pending, mut initiation) = initiate(&a);
            let (_, mut response) = answer(&b, &initiation).unwrap();
            response[12..44].copy_from_slice(&point);
            assert!(pending.unwrap().finish(&a.identity, &a.remote, &response).is_none());
            initiation[8..40].copy_from_slice(&point);
            assert!(Call::read(&b.identity, &initiation).is_none());
            let nobody = Remote::new(&a.identity, PublicKey::from(point), None);
            assert!(
                initiate(&Side { identity: Identity::new(StaticSecret::from([1; 32])), remote: nobody })
                    .0
                    .is_none()
            );
        }
    }

    /// A responder that leaves its secrets out of the keys, so that whoever listens could compute the rest.
    #[test]
    fn a_response_with_known_products_is_refused() {
        let (a, b) = sides([[0; 32]; 2]);
        for point in SMALL_ORDER {
            let (pending, initiation) = initiate(&a);
            let mut call = Call::read(&b.identity, &initiation).unwrap();
            call.authenticate(&b.remote, &initiation).unwrap();
            let mut response = [0; RESPONSE];
            response[8..12].copy_from_slice(&initiation[4..8]);
            response[12..44].copy_from_slice(&point);
            call.transcript.mix_ephemeral(&point);
            call.transcript.mix_key(&[0; 32]);
            call.transcript.mix_key(&[0; 32]);
            let key = call.transcript.mix_preshared(&b.remote.preshared);
            call.transcript.seal(&key, &mut response[44..60]).unwrap();
            assert!(pending.unwrap().finish(&a.identity, &a.remote, &response).is_none());
        }
    }

    /// The caller's static key is its own word until the timestamp proves it.
    #[test]
    fn a_stranger_with_the_key_of_another_is_not_authentic() {
        let (_, b) = sides([[0; 32]; 2]);
        let stranger = Identity::new(StaticSecret::from([9; 32]));
        let remote = Remote::new(&stranger, PublicKey::from(&StaticSecret::from([2; 32])), None);
        let (_, initiation) = initiate(&Side { identity: stranger, remote });
        let mut call = Call::read(&b.identity, &initiation).unwrap();
        assert!(call.authenticate(&b.remote, &initiation).is_none());
    }

    proptest! {
        #[test]
        fn altered_messages_are_refused(position in 0..INITIATION - 32, bit in 0..8_u8) {
            let (a, b) = sides([[6; 32]; 2]);
            let (pending, good) = initiate(&a);
            let mut initiation = good;
            initiation[position] ^= 1 << bit;
            // The type is checked before; the index is covered by the MACs only.
            if position >= 8 {
                prop_assert!(answer(&b, &initiation).is_none());
            }
            let (_, mut response) = answer(&b, &good).unwrap();
            let position = position % (RESPONSE - 32);
            response[position] ^= 1 << bit;
            if position >= 8 {
                prop_assert!(pending.unwrap().finish(&a.identity, &a.remote, &response).is_none());
            }
        }

        #[test]
        fn random_messages_are_refused(bytes in proptest::collection::vec(any::<u8>(), INITIATION)) {
            let (a, b) = sides([[6; 32]; 2]);
            prop_assert!(Call::read(&b.identity, bytes.as_slice().try_into().unwrap()).is_none());
            let response = bytes[..RESPONSE].try_into().unwrap();
            prop_assert!(initiate(&a).0.unwrap().finish(&a.identity, &a.remote, response).is_none());
        }
    }
}
