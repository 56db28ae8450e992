//! Where the site CA's key is: a file, plain or encrypted; a systemd credential; a PKCS#11 token.

use std::{ops::Range, path::PathBuf};

use toml::Spanned;

use crate::config::Checker;

/// Where a private key is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeySource {
    /// PEM, PKCS#8, 0600.
    File {
        /// The file.
        path: PathBuf,
        /// What opens it if it is encrypted.
        passphrase: Option<PassphraseSource>,
    },
    /// The key itself is a systemd credential of this name.
    Credential {
        /// Name below `$CREDENTIALS_DIRECTORY`.
        name: String,
        /// What opens it if it is encrypted.
        passphrase: Option<PassphraseSource>,
    },
    /// In a token, which signs (RFC 7512).
    Token {
        /// `pkcs11:...`
        uri: String,
        /// The token's library.
        module: PathBuf,
        /// File with the PIN, 0600.
        pin_file: PathBuf,
    },
}

/// Where a passphrase is. It ends at the first line's end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PassphraseSource {
    /// A file, 0600.
    File(PathBuf),
    /// A systemd credential of this name.
    Credential(String),
}

impl KeySource {
    /// A plain PEM file.
    pub fn file(path: PathBuf) -> Self {
        Self::File { path, passphrase: None }
    }

    /// What errors name.
    pub fn place(&self) -> PathBuf {
        match self {
            Self::File { path, .. } => path.clone(),
            Self::Credential { name, .. } => format!("credential {name}").into(),
            Self::Token { uri, .. } => uri.into(),
        }
    }
}

/// The keys of `[issuer]` that say where its key is.
pub(super) struct RawKeySource {
    pub(super) key: Option<Spanned<String>>,
    pub(super) passphrase_file: Option<Spanned<PathBuf>>,
    pub(super) credential: Option<Spanned<String>>,
    pub(super) pin_file: Option<Spanned<PathBuf>>,
    pub(super) module: Option<Spanned<PathBuf>>,
}

impl RawKeySource {
    /// `section`: where to point if there is no key at all.
    pub(super) fn check(self, c: &mut Checker<'_>, section: Range<usize>) -> Option<KeySource> {
        if self.key.as_ref().is_some_and(|key| key.get_ref().starts_with("pkcs11:")) {
            return self.check_token(c);
        }
        for key in [&self.pin_file, &self.module].into_iter().flatten() {
            let help = "write key = \"pkcs11:token=...;object=...\", or remove it";
            c.problem(key.span(), "this belongs to a key in a PKCS#11 token", help);
        }
        match (self.key, self.credential) {
            (Some(key), credential) => check_file(c, &key, self.passphrase_file, credential),
            (None, Some(name)) => {
                let passphrase = check_passphrase(c, self.passphrase_file)?;
                Some(KeySource::Credential { name: check_credential(c, name)?, passphrase })
            }
            (None, None) => {
                let help =
                    "add key = \"site-ca.key\", or key_credential with the name of a systemd credential";
                c.problem(section, "the site CA has no key", help);
                None
            }
        }
    }

    fn check_token(self, c: &mut Checker<'_>) -> Option<KeySource> {
        let uri = self.key?;
        let (Some(pin_file), Some(module)) = (self.pin_file, self.module) else {
            let help = "add module = \"/usr/lib/softhsm/libsofthsm2.so\" and pin_file, a file of mode 0600";
            c.problem(uri.span(), "a key in a PKCS#11 token needs module and pin_file", help);
            return None;
        };
        c.secret_file(&pin_file, "PIN file")?;
        let module = c.readable_file(&module, "PKCS#11 module")?;
        Some(KeySource::Token { uri: uri.into_inner(), module, pin_file: c.path(pin_file.get_ref()) })
    }
}

fn check_file(
    c: &mut Checker<'_>,
    key: &Spanned<String>,
    passphrase_file: Option<Spanned<PathBuf>>,
    credential: Option<Spanned<String>>,
) -> Option<KeySource> {
    let path = Spanned::new(key.span(), PathBuf::from(key.get_ref()));
    c.secret_file(&path, "site CA key")?;
    let passphrase = match (passphrase_file, credential) {
        (Some(_), Some(name)) => {
            let help = "keep key_passphrase_file or key_credential";
            c.problem(name.span(), "the key's passphrase is named twice", help);
            return None;
        }
        (None, Some(name)) => Some(PassphraseSource::Credential(check_credential(c, name)?)),
        (file, None) => check_passphrase(c, file)?,
    };
    Some(KeySource::File { path: c.path(path.get_ref()), passphrase })
}

#[expect(clippy::option_option, reason = "no passphrase is one fact, a bad one another")]
fn check_passphrase(c: &mut Checker<'_>, file: Option<Spanned<PathBuf>>) -> Option<Option<PassphraseSource>> {
    let Some(file) = file else { return Some(None) };
    c.secret_file(&file, "passphrase file")?;
    Some(Some(PassphraseSource::File(c.path(file.get_ref()))))
}

/// A file's name, since that is what it is.
fn check_credential(c: &mut Checker<'_>, raw: Spanned<String>) -> Option<String> {
    let name = raw.get_ref();
    let good = !name.is_empty() && name.len() <= 255 && !name.contains(['/', '\0']) && !name.starts_with('.');
    let help = "write the name that LoadCredential= or LoadCredentialEncrypted= of the unit gives it";
    c.require(good, &raw, "this is not the name of a credential", help).then(|| raw.into_inner())
}
