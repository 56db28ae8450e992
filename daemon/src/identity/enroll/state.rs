//! The SVID that the node renewed, with its key, in one file: so a crash can't leave the one without the other.

use std::{
    io,
    path::{Path, PathBuf},
};

use isthmus_pki::{
    Key,
    bundle::{self, to_pem},
};
use rustls_pki_types::CertificateDer;
use zeroize::Zeroizing;

use super::disk::{self, WriteError};
use crate::{
    identity::files::{self, FileError},
    secret_file::{Refusal, Rule},
};

/// Where it is.
pub(crate) fn path(state_dir: &Path) -> PathBuf {
    state_dir.join("identity/node.pem")
}

/// Where the join tokens of an issuer are.
pub(crate) fn tokens_path(state_dir: &Path) -> PathBuf {
    state_dir.join("identity/join-tokens.json")
}

/// Where JWT keys are that others sign with, each endorsed by a site CA.
pub(crate) fn keyring_path(state_dir: &Path) -> PathBuf {
    state_dir.join("identity/jwt-endorsements.json")
}

type Pair = (Vec<CertificateDer<'static>>, Key);

/// Reads what [`write`] wrote; `None`: there is none yet.
pub(crate) fn read(path: &Path) -> Result<Option<Pair>, FileError> {
    let bytes = match files::secret(path, Rule::Private) {
        Err(FileError::Secret { reason: Refusal::Read(error), .. })
            if error.kind() == io::ErrorKind::NotFound =>
        {
            return Ok(None);
        }
        other => other?,
    };
    let (key, certificates) = split(&bytes);
    let key = Key::from_pem(key, None).map_err(|reason| FileError::Key { path: path.to_owned(), reason })?;
    let chain = bundle::certificates(certificates)
        .map_err(|reason| FileError::Certificates { path: path.to_owned(), reason })?;
    Ok(Some((chain, key)))
}

/// The key comes first, then the chain.
fn split(bytes: &[u8]) -> (&[u8], &[u8]) {
    const MARK: &[u8] = b"-----BEGIN CERTIFICATE-----";
    let at = bytes.windows(MARK.len()).position(|window| window == MARK).unwrap_or(bytes.len());
    bytes.split_at(at)
}

/// Replaces the file whole; it is on disk when this returns.
pub(crate) fn write(path: &Path, chain: &[CertificateDer<'static>], key: &Key) -> Result<(), WriteError> {
    let (key, chain) = (key.to_pem(), to_pem(chain));
    // Room for all of it at once: a growing buffer leaves copies of a secret behind.
    let mut text = Zeroizing::new(Vec::with_capacity(key.len() + chain.len() + 1));
    text.extend_from_slice(key.as_bytes());
    if !key.ends_with('\n') {
        text.push(b'\n');
    }
    text.extend_from_slice(chain.as_bytes());
    disk::replace(path, &text)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use isthmus_pki::{Authority, Curve, Serial, TrustDomain};
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_is_written_is_read_and_half_of_it_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = path(dir.path());
        assert!(read(&path).unwrap().is_none());
        let (domain, now) = (TrustDomain::parse("td").unwrap(), time::OffsetDateTime::now_utc());
        let serial = Serial::from_random([1; 16]);
        let root = Key::generate(Curve::P256).unwrap();
        let root = Authority::root(&domain, root, time::Duration::days(1), serial, now).unwrap();
        let (key, chain) = (Key::generate(Curve::P256).unwrap(), vec![root.certificate().clone()]);
        write(&path, &chain, &key).unwrap();
        let (read_chain, read_key) = read(&path).unwrap().unwrap();
        assert_eq!((read_chain, read_key.public()), (chain, key.public()));

        let whole = fs::read(&path).unwrap();
        for length in [0, 20, whole.len() / 2, whole.len() - 40] {
            disk::replace(&path, &whole[..length]).unwrap();
            let error = read(&path).map(drop).unwrap_err().to_string();
            assert!(error.contains("node.pem"), "{error}");
        }
    }

    proptest! {
        #[test]
        fn splitting_loses_nothing(bytes in proptest::collection::vec(any::<u8>(), 0..100)) {
            let (key, chain) = split(&bytes);
            prop_assert_eq!([key, chain].concat(), bytes);
        }
    }
}
