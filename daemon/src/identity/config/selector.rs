//! Selectors: what an entry says about who may have its identity.

use std::path::{Component, Path, PathBuf};

use toml::Spanned;

use crate::config::Checker;

/// What can be known of a caller. Names are looked up when a caller is attested, not here: a user may be made later.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Selector {
    /// `unix:uid:N`: effective user.
    Uid(u32),
    /// `unix:gid:N`: effective group.
    Gid(u32),
    /// `unix:supplementary_gid:N`
    SupplementaryGid(u32),
    /// `unix:user:NAME`: of the effective user.
    User(String),
    /// `unix:group:NAME`: of the effective group or a supplementary one.
    Group(String),
    /// `unix:path:/ABSOLUTE`: the executable, in isthmusd's mount namespace.
    Path(PathBuf),
    /// `unix:sha256:HEX`: of the executable.
    Sha256([u8; 32]),
    /// `systemd:unit:NAME`: of the system's manager.
    Unit(String),
    /// `systemd:user-unit:NAME`: of any user's manager.
    UserUnit(String),
    /// `k8s:pod`: any pod of this node.
    Pod,
    /// `k8s:ns:NAME`
    Namespace(String),
    /// `k8s:sa:NAME`
    ServiceAccount(String),
    /// `k8s:pod-name:NAME`
    PodName(String),
    /// `k8s:pod-uid:UID`
    PodUid(String),
    /// `k8s:pod-label:KEY:VALUE`
    PodLabel(String, String),
    /// `k8s:container-name:NAME`
    ContainerName(String),
    /// `k8s:container-image:IMAGE`: as the pod's status has it, by name or by digest.
    ContainerImage(String),
    /// `k8s:node-name:NAME`
    NodeName(String),
}

impl Selector {
    /// Parses `TYPE:NAME:VALUE`; the error is what to write instead.
    pub fn parse(text: &str) -> Result<Self, &'static str> {
        let (kind, rest) = text.split_once(':').ok_or(KINDS)?;
        let (name, value) = rest.split_once(':').unwrap_or((rest, ""));
        match kind {
            "unix" => unix(name, value),
            "systemd" => systemd(name, value),
            "k8s" => kubernetes(name, value),
            _ => Err(KINDS),
        }
    }

    /// True if only the kubelet knows.
    pub(crate) fn is_of_a_pod(&self) -> bool {
        match self {
            Self::Uid(_) | Self::Gid(_) | Self::SupplementaryGid(_) | Self::User(_) | Self::Group(_) => false,
            Self::Path(_) | Self::Sha256(_) | Self::Unit(_) | Self::UserUnit(_) => false,
            Self::Pod | Self::Namespace(_) | Self::ServiceAccount(_) | Self::PodName(_) | Self::PodUid(_) => {
                true
            }
            Self::PodLabel(..) | Self::ContainerName(_) | Self::ContainerImage(_) | Self::NodeName(_) => true,
        }
    }
}

const KINDS: &str = "begin with \"unix:\", \"systemd:\" or \"k8s:\", for example \"unix:uid:1000\"";
const UNIX: &str = "use unix:uid, unix:gid, unix:supplementary_gid, unix:user, unix:group, unix:path or unix:sha256, for example \"unix:user:www-data\"";
const NUMBER: &str = "write the number: \"unix:uid:1000\"; by name it is unix:user or unix:group";
const PATH: &str = "write the absolute path without \".\", \"..\" and \"//\": \"unix:path:/usr/bin/api\"";
const SHA256: &str = "write 64 hexadecimal digits, as `sha256sum FILE` prints them";
const SYSTEMD: &str =
    "use \"systemd:unit:NAME.service\" or \"systemd:user-unit:NAME.service\"; a scope ends in \".scope\"";
const KUBERNETES: &str = "use k8s:pod, k8s:ns, k8s:sa, k8s:pod-name, k8s:pod-uid, k8s:pod-label, k8s:container-name, k8s:container-image or k8s:node-name, for example \"k8s:ns:payments\"";
const LABEL: &str = "write key and value: \"k8s:pod-label:app:api\"";
const VALUE: &str = "write a value after the last colon: \"unix:user:www-data\", \"k8s:ns:payments\"";

fn unix(name: &str, value: &str) -> Result<Selector, &'static str> {
    // "+1" and "01" are numbers to Rust; one number has one spelling here.
    let number = || value.parse::<u32>().ok().filter(|n| n.to_string() == value).ok_or(NUMBER);
    match name {
        "uid" => number().map(Selector::Uid),
        "gid" => number().map(Selector::Gid),
        "supplementary_gid" => number().map(Selector::SupplementaryGid),
        "user" => word(value).map(Selector::User),
        "group" => word(value).map(Selector::Group),
        "path" => absolute(value).map(Selector::Path),
        "sha256" => digest(value).map(Selector::Sha256),
        _ => Err(UNIX),
    }
}

fn systemd(name: &str, value: &str) -> Result<Selector, &'static str> {
    let is_unit = (value.ends_with(".service") || value.ends_with(".scope")) && !value.contains('/');
    match name {
        _ if !is_unit => Err(SYSTEMD),
        "unit" => Ok(Selector::Unit(value.into())),
        "user-unit" => Ok(Selector::UserUnit(value.into())),
        _ => Err(SYSTEMD),
    }
}

fn kubernetes(name: &str, value: &str) -> Result<Selector, &'static str> {
    match name {
        "pod" if value.is_empty() => Ok(Selector::Pod),
        "ns" => word(value).map(Selector::Namespace),
        "sa" => word(value).map(Selector::ServiceAccount),
        "pod-name" => word(value).map(Selector::PodName),
        "pod-uid" => word(value).map(Selector::PodUid),
        "pod-label" => label(value),
        "container-name" => word(value).map(Selector::ContainerName),
        "container-image" => word(value).map(Selector::ContainerImage),
        "node-name" => word(value).map(Selector::NodeName),
        _ => Err(KUBERNETES),
    }
}

fn word(value: &str) -> Result<String, &'static str> {
    let good = !value.is_empty() && !value.contains(|c: char| c.is_whitespace() || c.is_control());
    good.then(|| value.to_owned()).ok_or(VALUE)
}

/// A label's value may be empty, its key may not, and has no colon.
fn label(value: &str) -> Result<Selector, &'static str> {
    let (key, value) = value.split_once(':').ok_or(LABEL)?;
    let key = word(key).map_err(|_| LABEL)?;
    Ok(Selector::PodLabel(key, value.to_owned()))
}

/// As the kernel writes paths, else it would never match.
fn absolute(value: &str) -> Result<PathBuf, &'static str> {
    let path = Path::new(value);
    let plain = path.components().all(|part| matches!(part, Component::RootDir | Component::Normal(_)));
    // Component paths drop "//" and "/./": putting them together again shows whether there were any.
    let whole = path.components().collect::<PathBuf>().as_os_str() == value;
    (path.is_absolute() && plain && whole && value != "/").then(|| path.to_owned()).ok_or(PATH)
}

fn digest(value: &str) -> Result<[u8; 32], &'static str> {
    let digits = value.as_bytes();
    let mut digest = [0; 32];
    if digits.len() != 64 {
        return Err(SHA256);
    }
    for (byte, pair) in digest.iter_mut().zip(digits.chunks_exact(2)) {
        let pair = std::str::from_utf8(pair).map_err(|_| SHA256)?;
        let plain = pair.bytes().all(|b| b.is_ascii_hexdigit());
        *byte = u8::from_str_radix(pair, 16).ok().filter(|_| plain).ok_or(SHA256)?;
    }
    Ok(digest)
}

pub(super) fn check_selector(c: &mut Checker<'_>, raw: &Spanned<String>) -> Option<Selector> {
    let selector = Selector::parse(raw.get_ref());
    if let Err(help) = selector {
        c.problem(raw.span(), format!("\"{}\" is not a selector", raw.get_ref().escape_debug()), help);
    }
    selector.ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn selectors_are_read() {
        let text = |text: &str| text.to_owned();
        let hash = "00ff".repeat(16);
        for (selector, expected) in [
            ("unix:uid:0", Selector::Uid(0)),
            ("unix:gid:4294967295", Selector::Gid(u32::MAX)),
            ("unix:supplementary_gid:4", Selector::SupplementaryGid(4)),
            ("unix:user:www-data", Selector::User(text("www-data"))),
            ("unix:group:adm", Selector::Group(text("adm"))),
            ("unix:path:/usr/bin/a:b", Selector::Path("/usr/bin/a:b".into())),
            ("systemd:unit:nginx@1.service", Selector::Unit(text("nginx@1.service"))),
            ("systemd:user-unit:app.scope", Selector::UserUnit(text("app.scope"))),
            ("k8s:pod", Selector::Pod),
            ("k8s:ns:payments", Selector::Namespace(text("payments"))),
            ("k8s:sa:api", Selector::ServiceAccount(text("api"))),
            ("k8s:pod-name:api-0", Selector::PodName(text("api-0"))),
            ("k8s:pod-uid:1-2", Selector::PodUid(text("1-2"))),
            (
                "k8s:pod-label:app.kubernetes.io/name:api",
                Selector::PodLabel(text("app.kubernetes.io/name"), text("api")),
            ),
            ("k8s:pod-label:empty:", Selector::PodLabel(text("empty"), text(""))),
            ("k8s:container-name:api", Selector::ContainerName(text("api"))),
            ("k8s:container-image:r.example:5000/a:1", Selector::ContainerImage(text("r.example:5000/a:1"))),
            ("k8s:node-name:n1", Selector::NodeName(text("n1"))),
        ] {
            assert_eq!(Selector::parse(selector), Ok(expected), "{selector}");
        }
        let Ok(Selector::Sha256(digest)) = Selector::parse(&format!("unix:sha256:{}", hash.to_uppercase()))
        else {
            panic!("{hash}")
        };
        assert_eq!(digest[..4], [0, 255, 0, 255]);
    }

    #[test]
    fn what_is_none_says_what_to_write() {
        for (selector, help) in [
            ("", KINDS),
            ("unix", KINDS),
            ("docker:label:a", KINDS),
            ("unix:", UNIX),
            ("unix:pid:1", UNIX),
            ("unix:uid", NUMBER),
            ("unix:uid:-1", NUMBER),
            ("unix:uid:+1", NUMBER),
            ("unix:uid:01", NUMBER),
            ("unix:gid:4294967296", NUMBER),
            ("unix:uid:root", NUMBER),
            ("unix:user:", VALUE),
            ("unix:group:a b", VALUE),
            ("unix:path:usr/bin/a", PATH),
            ("unix:path:/usr/../bin/a", PATH),
            ("unix:path:/usr/./bin", PATH),
            ("unix:path:/usr//bin", PATH),
            ("unix:path:/usr/bin/", PATH),
            ("unix:path:/", PATH),
            ("unix:sha256:00", SHA256),
            ("systemd:unit:nginx", SYSTEMD),
            ("systemd:unit:a/b.service", SYSTEMD),
            ("systemd:slice:a.service", SYSTEMD),
            ("k8s:namespace:x", KUBERNETES),
            ("k8s:pod:x", KUBERNETES),
            ("k8s:ns", VALUE),
            ("k8s:pod-label:app", LABEL),
            ("k8s:pod-label::v", LABEL),
        ] {
            assert_eq!(Selector::parse(selector), Err(help), "{selector}");
        }
        for bad in ["g0".repeat(32), "+1".repeat(32), "é".repeat(32)] {
            assert_eq!(Selector::parse(&format!("unix:sha256:{bad}")), Err(SHA256), "{bad}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(text in "\\PC{0,60}", kind in "(unix|k8s|systemd):[a-z0-9_-]{0,12}:") {
            let _ = (Selector::parse(&text), Selector::parse(&format!("{kind}{text}")));
        }
    }
}
