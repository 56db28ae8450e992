//! The secret of a session that TCP signs (RFC 2385).

use std::{collections::HashMap, fmt, net::IpAddr, ops::Range, path::PathBuf, sync::Arc};

use ipnet::IpNet;
use toml::Spanned;
use zeroize::Zeroizing;

use super::{NeighborConfig, TemplateConfig};
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

/// The kernel keeps signing keys by address and prefix alone: who shares one shares the key, and a prefix's key is demanded of everybody
/// in it who has none of their own.
pub(super) fn check_shared(
    c: &mut Checker<'_>,
    section: Range<usize>,
    neighbors: &[NeighborConfig],
    templates: &[TemplateConfig],
) -> Option<()> {
    check_addresses(c, section.clone(), neighbors)?;
    let own = neighbors.iter().map(|one| (one, IpNet::from(one.place.address)));
    let open = own.chain(templates.iter().map(|one| (&one.settings, one.template.prefix)));
    for (neighbor, prefix) in open.filter(|(neighbor, _)| neighbor.transport.password.is_none()) {
        let demands = |one: &&TemplateConfig| {
            one.settings.transport.password.is_some() && one.template.prefix.contains(&prefix)
        };
        if let Some(template) = templates.iter().find(demands) {
            let message = format!(
                "neighbor \"{}\" is within the prefix of \"{}\", whose password the kernel demands of it too",
                neighbor.peer.name, template.template.name
            );
            c.problem(
                section,
                message,
                "give it a password_file as well, or make the prefix smaller (RFC 2385)",
            );
            return None;
        }
    }
    Some(())
}

/// Neighbors with one link-local address must share their key.
fn check_addresses(c: &mut Checker<'_>, section: Range<usize>, neighbors: &[NeighborConfig]) -> Option<()> {
    let mut keys = HashMap::<IpAddr, &NeighborConfig>::new();
    for neighbor in neighbors {
        let first = *keys.entry(neighbor.place.address).or_insert(neighbor);
        if first.transport.password != neighbor.transport.password {
            let message = format!(
                "neighbors \"{}\" and \"{}\" have one address on two interfaces, and different passwords",
                first.peer.name, neighbor.peer.name
            );
            let help =
                "give both the same password_file: the kernel does not look at the interface (RFC 2385)";
            c.problem(section, message, help);
            return None;
        }
    }
    Some(())
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
