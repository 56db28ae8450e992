//! The secret of a session that TCP signs (RFC 2385).

use std::{fmt, path::PathBuf, sync::Arc};

use toml::Spanned;
use zeroize::Zeroizing;

use crate::config::Checker;

/// Shared secret of TCP MD5 signatures, 1 to 80 bytes; zeroized with its last copy, never shown.
#[derive(Clone, PartialEq, Eq)]
pub struct Password(Arc<Zeroizing<Vec<u8>>>);

impl Password {
    /// What Linux takes at most (`TCP_MD5SIG_MAXKEYLEN`).
    pub const LONGEST: usize = 80;

    /// `None`: empty, or longer than [`Password::LONGEST`].
    pub fn new(bytes: &[u8]) -> Option<Self> {
        (1..=Self::LONGEST).contains(&bytes.len()).then(|| Self(Arc::new(Zeroizing::new(bytes.to_vec()))))
    }

    /// The bytes, for the one place that hands them to the kernel.
    pub(crate) fn expose(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for Password {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Password(..)")
    }
}

/// The first line of a file that nobody else can read.
pub(super) fn check(c: &mut Checker<'_>, raw: &Spanned<PathBuf>) -> Option<Password> {
    let bytes = c.secret_file(raw, "password_file")?;
    let line = bytes.split(|byte| *byte == b'\n').next().unwrap_or_default();
    let password = Password::new(line.strip_suffix(b"\r").unwrap_or(line));
    let help = "write it into the first line, without blanks around it";
    c.require(password.is_some(), raw, "a password has 1 to 80 bytes (TCP MD5, RFC 2385)", help);
    password
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_and_silence() {
        assert_eq!(Password::new(b""), None);
        assert_eq!(Password::new(&[b'x'; 81]), None);
        let longest = Password::new(&[b'x'; 80]).unwrap();
        assert_eq!(longest.expose().len(), 80);
        assert_eq!(format!("{longest:?}"), "Password(..)");
    }
}
