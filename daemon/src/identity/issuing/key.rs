//! Fetches the site CA's key from where it is.

use std::path::{Path, PathBuf};

use isthmus_pki::{
    Key, key,
    token::{Location, Uri},
};
use zeroize::Zeroizing;

use super::Error;
use crate::{
    identity::{
        config::{KeySource, PassphraseSource},
        files,
    },
    secret_file::Rule,
};

/// Where systemd puts a service's credentials (systemd.exec(5)).
const CREDENTIALS: &str = "CREDENTIALS_DIRECTORY";

/// Reads the key. `credentials`: the directory that systemd names, if it does.
fn load(source: &KeySource, credentials: Option<&Path>) -> Result<Key, Error> {
    let (path, rule, passphrase) = match source {
        KeySource::File { path, passphrase } => (path.clone(), Rule::Private, passphrase),
        KeySource::Credential { name, passphrase } => {
            (credential(credentials, name)?, Rule::Credential, passphrase)
        }
        KeySource::Token { uri, module, pin_file } => return in_token(uri, module, pin_file),
    };
    let bytes = files::secret(&path, rule)?;
    let passphrase = passphrase.as_ref().map(|source| read_passphrase(source, credentials)).transpose()?;
    Key::from_pem(&bytes, passphrase.as_deref().map(Vec::as_slice)).map_err(|reason| refused(&path, &reason))
}

/// Reads the key, with the credentials of this process.
pub(in crate::identity) fn open(source: &KeySource) -> Result<Key, Error> {
    load(source, credentials_directory().as_deref())
}

/// Reads a passphrase, with the credentials of this process.
pub(in crate::identity) fn passphrase(source: &PassphraseSource) -> Result<Zeroizing<Vec<u8>>, Error> {
    read_passphrase(source, credentials_directory().as_deref())
}

/// A place in a token, with the PIN that opens it.
pub(in crate::identity) fn token_location(
    uri: &str,
    module: &Path,
    pin_file: &Path,
) -> Result<Location, Error> {
    let fail = |reason: String| Error::KeySource { place: uri.into(), reason };
    let pin = read_passphrase(&PassphraseSource::File(pin_file.into()), None)?;
    let uri = Uri::parse(uri).map_err(|e| fail(e.to_string()))?;
    Location::new(uri, Some(module.into()), &pin).map_err(|e| fail(e.to_string()))
}

/// The directory in this process's environment.
fn credentials_directory() -> Option<PathBuf> {
    std::env::var_os(CREDENTIALS).map(PathBuf::from)
}

fn credential(directory: Option<&Path>, name: &str) -> Result<PathBuf, Error> {
    directory.map(|directory| directory.join(name)).ok_or_else(|| Error::KeySource {
        place: format!("key_credential {name:?}"),
        reason: format!(
            "${CREDENTIALS} is not set; start isthmusd by systemd, with LoadCredential={name}:/FILE in its unit"
        ),
    })
}

/// The key stays in the token, and the token signs.
fn in_token(uri: &str, module: &Path, pin_file: &Path) -> Result<Key, Error> {
    let location = token_location(uri, module, pin_file)?;
    Key::in_token(&location).map_err(|e| Error::KeySource { place: uri.into(), reason: e.to_string() })
}

/// The first line: editors and `echo` end files with one that nobody typed.
fn read_passphrase(
    source: &PassphraseSource,
    credentials: Option<&Path>,
) -> Result<Zeroizing<Vec<u8>>, Error> {
    let mut bytes = match source {
        PassphraseSource::File(path) => files::secret(path, Rule::Private)?,
        PassphraseSource::Credential(name) => {
            files::secret(&credential(credentials, name)?, Rule::Credential)?
        }
    };
    let end = bytes.iter().position(|b| matches!(b, b'\n' | b'\r')).unwrap_or(bytes.len());
    bytes.truncate(end);
    Ok(bytes)
}

fn refused(path: &Path, reason: &key::Error) -> Error {
    let remedy = match reason {
        key::Error::Encrypted => "; name its passphrase with key_passphrase_file or key_credential",
        _ => "",
    };
    Error::KeySource { place: path.display().to_string(), reason: format!("{reason}{remedy}") }
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::PermissionsExt as _};

    use isthmus_pki::Curve;

    use super::*;

    struct Files(tempfile::TempDir, Key);

    impl Files {
        fn new() -> Self {
            Self(tempfile::tempdir().unwrap(), Key::generate(Curve::P256).unwrap())
        }

        fn write(&self, name: &str, bytes: &[u8], mode: u32) -> PathBuf {
            let path = self.0.path().join(name);
            fs::write(&path, bytes).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            path
        }

        fn sealed(&self) -> PathBuf {
            let sealed = self.1.to_encrypted_pem(b"correct horse", &[1; 16], &[2; 16]).unwrap();
            self.write("sealed.key", sealed.as_bytes(), 0o600)
        }

        fn load(&self, source: &KeySource) -> Result<(), String> {
            let key = load(source, Some(self.0.path())).map_err(|error| error.to_string())?;
            assert_eq!(key.public(), self.1.public());
            Ok(())
        }
    }

    #[test]
    fn a_sealed_key_opens_with_the_passphrase_from_a_file_or_a_credential() {
        let files = Files::new();
        let path = files.sealed();
        let good = files.write("pass", b"correct horse\n", 0o600);
        files.write("pass-credential", b"correct horse", 0o440);
        for source in [PassphraseSource::File(good), PassphraseSource::Credential("pass-credential".into())] {
            files.load(&KeySource::File { path: path.clone(), passphrase: Some(source) }).unwrap();
        }
        let error = files.load(&KeySource::file(path.clone())).unwrap_err();
        assert!(error.contains("sealed.key") && error.contains("key_passphrase_file"), "{error}");
        let wrong = PassphraseSource::File(files.write("wrong", b"battery staple", 0o600));
        let error = files.load(&KeySource::File { path, passphrase: Some(wrong) }).unwrap_err();
        assert!(error.contains("wrong passphrase") && !error.contains("battery"), "{error}");
    }

    #[test]
    fn a_credential_can_be_the_key_itself() {
        let files = Files::new();
        files.write("site-ca", files.1.to_pem().as_bytes(), 0o440);
        let source = KeySource::Credential { name: "site-ca".into(), passphrase: None };
        files.load(&source).unwrap();
        let error = load(&source, None).unwrap_err().to_string();
        assert!(error.contains("LoadCredential=site-ca:"), "{error}");
        files.write("site-ca", files.1.to_pem().as_bytes(), 0o444);
        assert!(files.load(&source).unwrap_err().contains("0444"));
    }

    #[test]
    fn a_passphrase_that_others_can_read_is_refused() {
        let files = Files::new();
        let passphrase = Some(PassphraseSource::File(files.write("pass", b"correct horse", 0o644)));
        let error = files.load(&KeySource::File { path: files.sealed(), passphrase }).unwrap_err();
        assert!(error.contains("pass") && error.contains("0644"), "{error}");
    }
}
