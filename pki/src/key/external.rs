//! Keys that sign elsewhere: in a PKCS#11 token, an HSM, a cloud's key service.

use aws_lc_rs::digest;
use isthmus_token::{Curve, TokenKey};

use super::Error;

/// A private key that we may use but not see. ECDSA P-256 with SHA-256 or P-384 with SHA-384.
pub trait Signer: Send + Sync {
    /// DER SubjectPublicKeyInfo of its public half.
    fn spki(&self) -> &[u8];

    /// An ECDSA signature of the message in DER (RFC 3279 section 2.2.3).
    ///
    /// # Errors
    /// Words for a person: what failed, and what to do.
    fn sign(&self, message: &[u8]) -> Result<Vec<u8>, String>;
}

impl Signer for TokenKey {
    fn spki(&self) -> &[u8] {
        TokenKey::spki(self)
    }

    fn sign(&self, message: &[u8]) -> Result<Vec<u8>, String> {
        let algorithm = match self.curve() {
            Curve::P256 => &digest::SHA256,
            Curve::P384 => &digest::SHA384,
        };
        self.sign_digest(digest::digest(algorithm, message).as_ref()).map_err(|e| e.to_string())
    }
}

/// Modules differ in what they take for a digest and give for a signature: one trial tells.
pub(super) fn try_out(signer: &dyn Signer, key: &super::PublicKey) -> Result<(), Error> {
    const MESSAGE: &[u8] = b"isthmus: does this token sign as it should?";
    let signature = signer.sign(MESSAGE).map_err(Error::External)?;
    if key.verifies(MESSAGE, &signature) {
        return Ok(());
    }
    Err(Error::External("its signature does not verify with the public key that it shows".into()))
}
