//! `[tunnel]`: from the file's words to a configuration that cannot be wrong.

mod endpoint;

use std::{
    collections::{BTreeMap, HashMap},
    path::{Path, PathBuf},
    time::Duration,
};

use base64::{Engine, prelude::BASE64_STANDARD};
use ipnet::IpNet;
use serde::Deserialize;
use toml::Spanned;
use zeroize::Zeroizing;

use super::Offload;
use crate::{
    config::{Bfd, Checker, RawBfd, check_name},
    secret::Secret32,
};
pub use endpoint::Endpoint;
use endpoint::{check_endpoint, check_endpoints};

/// A validated `[tunnel]` section.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// Name of the TUN device, 1..=15 bytes.
    pub interface: String,
    /// UDP port of the tunnel sockets (v4 and v6).
    pub listen: u16,
    /// Where the private key lives; made at first start if it is not there.
    pub private_key_file: PathBuf,
    /// The key read from `private_key_file`; `None` while the file does not exist yet.
    pub private_key: Option<Secret32>,
    /// Overlay addresses of this node, with the prefix length of the overlay.
    pub addresses: Vec<IpNet>,
    /// Inner MTU in bytes, 1280..=65475.
    pub mtu: u16,
    /// Pairs of packet threads; `None`: as many as the CPUs that this process may use call for.
    pub workers: Option<u8>,
    /// Offloads that are to be off.
    pub offloads_off: Vec<Offload>,
    /// Static peers, unique by name and by public key.
    pub peers: Vec<PeerConfig>,
}

/// A validated `[[tunnel.peer]]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerConfig {
    /// Unique name; appears in commands, metrics and logs.
    pub name: String,
    /// X25519 public key.
    pub public_key: [u8; 32],
    /// Optional symmetric key mixed into the handshake.
    pub preshared_key: Option<Secret32>,
    /// Where to dial; `None`: wait for the peer.
    pub endpoint: Option<Endpoint>,
    /// Prefixes that are this peer's own: sent to it, accepted from it, and next hops resolve through them.
    pub allowed_ips: Vec<IpNet>,
    /// Interval of unconditional keepalives.
    pub persistent_keepalive: Option<Duration>,
    /// Watches the path to the first address of `allowed_ips`; BGP neighbors behind the peer have their own.
    pub bfd: Option<Bfd>,
}

const DEFAULT_INTERFACE: &str = "isthmus0";
const DEFAULT_PORT: u16 = 51820;
const DEFAULT_MTU: u16 = 1420;
/// IPv6 needs 1280 (RFC 8200 section 5); above 65475 an outer UDP packet could not hold it.
const MTU_RANGE: std::ops::RangeInclusive<i64> = 1280..=65475;
/// More pairs of threads than these gain nothing: the kernel's side of a TUN device is the limit then.
const WORKERS: std::ops::RangeInclusive<i64> = 1..=16;
/// The kernel's IFNAMSIZ leaves 15 bytes.
const INTERFACE_NAME_MAX: usize = 15;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RawConfig {
    interface: Option<Spanned<String>>,
    listen: Option<u16>,
    private_key_file: Option<Spanned<PathBuf>>,
    #[serde(default)]
    addresses: Vec<Spanned<String>>,
    mtu: Option<Spanned<i64>>,
    workers: Option<Spanned<i64>>,
    #[serde(default)]
    offload: BTreeMap<Spanned<String>, bool>,
    #[serde(default)]
    peer: Vec<RawPeer>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawPeer {
    name: Spanned<String>,
    public_key: Spanned<String>,
    preshared_key_file: Option<Spanned<PathBuf>>,
    endpoint: Option<Spanned<String>>,
    #[serde(default)]
    allowed_ips: Vec<Spanned<String>>,
    persistent_keepalive: Option<Spanned<String>>,
    bfd: Option<Spanned<RawBfd>>,
}

impl RawConfig {
    pub(crate) fn check(self, c: &mut Checker<'_>, state_dir: &Path) -> Option<Config> {
        let interface = self.interface.map_or(Some(DEFAULT_INTERFACE.into()), |raw| check_interface(c, raw));
        let addresses: Vec<_> = self.addresses.iter().filter_map(|raw| c.address_with_length(raw)).collect();
        let mtu = self.mtu.map_or(Some(DEFAULT_MTU), |raw| check_mtu(c, &raw));
        let workers = self.workers.map(|raw| check_workers(c, &raw));
        let offloads_off = check_offloads(c, &self.offload);
        let key = check_private_key(c, self.private_key_file, state_dir);
        check_unique(c, &self.peer);
        check_endpoints(c, &self.peer, &addresses);
        let count = (self.addresses.len(), self.peer.len());
        let peers: Vec<_> = self.peer.into_iter().filter_map(|raw| raw.check(c)).collect();
        let (private_key_file, private_key) = key?;
        ((addresses.len(), peers.len()) == count).then_some(())?;
        let listen = self.listen.unwrap_or(DEFAULT_PORT);
        Some(Config {
            interface: interface?,
            listen,
            private_key_file,
            private_key,
            addresses,
            mtu: mtu?,
            workers: workers.map_or(Some(None), |workers| workers.map(Some))?,
            offloads_off: offloads_off?,
            peers,
        })
    }
}

fn check_interface(c: &mut Checker<'_>, raw: Spanned<String>) -> Option<String> {
    let name = raw.get_ref();
    let good = (1..=INTERFACE_NAME_MAX).contains(&name.len())
        && name.bytes().all(|b| b.is_ascii_graphic() && !b"/:%".contains(&b))
        && name != "."
        && name != "..";
    let message = format!("\"{}\" cannot be the name of an interface", name.escape_debug());
    let help = "use 1 to 15 printable characters without blanks, '/', ':' or '%': \"isthmus0\"";
    c.require(good, &raw, &message, help).then(|| raw.into_inner())
}

fn check_mtu(c: &mut Checker<'_>, raw: &Spanned<i64>) -> Option<u16> {
    let help = "use 1280 to 65475; 1420 fits every IPv4 and IPv6 path of 1500 bytes";
    c.require(MTU_RANGE.contains(raw.get_ref()), raw, "this MTU is out of range", help);
    u16::try_from(*raw.get_ref()).ok().filter(|mtu| MTU_RANGE.contains(&i64::from(*mtu)))
}

fn check_workers(c: &mut Checker<'_>, raw: &Spanned<i64>) -> Option<u8> {
    let help = "use 1 to 16, or leave it out: then it follows the CPUs that isthmusd may use";
    c.require(WORKERS.contains(raw.get_ref()), raw, "this number of workers is out of range", help);
    u8::try_from(*raw.get_ref()).ok().filter(|workers| WORKERS.contains(&i64::from(*workers)))
}

/// The names of the switches with underscores, as all keys are written.
fn check_offloads(c: &mut Checker<'_>, raw: &BTreeMap<Spanned<String>, bool>) -> Option<Vec<Offload>> {
    let mut off = Vec::new();
    let mut good = true;
    for (name, on) in raw {
        match Offload::named(&name.get_ref().replace('_', "-")) {
            Some(offload) if !on => off.push(offload),
            Some(_) => {}
            None => {
                let known = Offload::ALL.map(|offload| offload.as_str().replace('-', "_")).join(", ");
                let message = format!("there is no offload \"{}\"", name.get_ref().escape_debug());
                c.problem(name.span(), message, format!("the offloads are {known}"));
                good = false;
            }
        }
    }
    good.then_some(off)
}

/// A key file that does not exist yet is made at first start; one that exists must be good.
fn check_private_key(
    c: &mut Checker<'_>,
    raw: Option<Spanned<PathBuf>>,
    state_dir: &Path,
) -> Option<(PathBuf, Option<Secret32>)> {
    let raw = raw.unwrap_or_else(|| Spanned::new(0..0, state_dir.join("tunnel.key")));
    let path = c.path(raw.get_ref());
    if !path.exists() {
        return Some((path, None));
    }
    let key = read_key_file(c, &raw, "private key file")?;
    Some((path, Some(key)))
}

fn read_key_file(c: &mut Checker<'_>, raw: &Spanned<PathBuf>, what: &str) -> Option<Secret32> {
    let bytes = c.secret_file(raw, what)?;
    let key = std::str::from_utf8(&bytes).ok().and_then(decode_key).map(Secret32::new);
    if key.is_none() {
        let message = format!("{what} {} does not hold a key", c.path(raw.get_ref()).display());
        c.problem(
            raw.span(),
            message,
            "it must hold one line of 44 base64 characters, as `wg genkey` prints it",
        );
    }
    key
}

fn decode_key(text: &str) -> Option<[u8; 32]> {
    let mut bytes = Zeroizing::new([0; 33]);
    let length = BASE64_STANDARD.decode_slice(text.trim(), bytes.as_mut_slice()).ok()?;
    (length == 32).then(|| bytes[..32].try_into().expect("a slice of 32 bytes is an array of 32"))
}

/// Names, keys and prefixes must each belong to one peer.
fn check_unique(c: &mut Checker<'_>, peers: &[RawPeer]) {
    let (mut names, mut keys, mut prefixes) = (HashMap::new(), HashMap::new(), HashMap::new());
    for peer in peers {
        let name = peer.name.get_ref();
        if names.insert(name, ()).is_some() {
            let message = format!("a second peer is called \"{}\"", name.escape_debug());
            c.problem(peer.name.span(), message, "give each peer its own name");
        }
        if let Some(first) = keys.insert(peer.public_key.get_ref().trim(), name) {
            let message = format!("peer \"{}\" has this public key already", first.escape_debug());
            c.problem(
                peer.public_key.span(),
                message,
                "one peer has one key: correct it, or merge the two peers",
            );
        }
        for raw in &peer.allowed_ips {
            let Some(first) = raw.get_ref().parse::<IpNet>().ok().and_then(|net| prefixes.insert(net, name))
            else {
                continue;
            };
            let message = format!("peer \"{}\" owns this prefix already", first.escape_debug());
            c.problem(
                raw.span(),
                message,
                "a prefix belongs to one peer: let BGP announce what two peers can reach",
            );
        }
    }
}

impl RawPeer {
    fn check(self, c: &mut Checker<'_>) -> Option<PeerConfig> {
        let name = check_name(c, &self.name);
        let public_key = check_public_key(c, &self.public_key);
        let preshared_key = self.preshared_key_file.map(|raw| read_key_file(c, &raw, "preshared key file"));
        let endpoint = self.endpoint.map(|raw| check_endpoint(c, &raw));
        let allowed_ips: Vec<_> = self.allowed_ips.iter().filter_map(|raw| c.prefix(raw)).collect();
        let keepalive = Duration::from_secs(1)..=Duration::from_secs(65535);
        let persistent_keepalive = self.persistent_keepalive.map(|raw| c.duration(&raw, keepalive));
        let bfd = self.bfd.map(|raw| check_bfd(c, raw, &allowed_ips));
        (allowed_ips.len() == self.allowed_ips.len()).then_some(())?;
        Some(PeerConfig {
            name: name?,
            public_key: public_key?,
            preshared_key: preshared_key.map_or(Some(None), |key| key.map(Some))?,
            endpoint: endpoint.map_or(Some(None), |endpoint| endpoint.map(Some))?,
            allowed_ips,
            persistent_keepalive: persistent_keepalive.map_or(Some(None), |interval| interval.map(Some))?,
            bfd: bfd.map_or(Some(None), |bfd| bfd.map(Some))?,
        })
    }
}

/// A path is watched to an address of the peer, and over a tunnel that is always one hop.
fn check_bfd(c: &mut Checker<'_>, raw: Spanned<RawBfd>, allowed_ips: &[IpNet]) -> Option<Bfd> {
    let span = raw.span();
    let bfd = raw.into_inner().check(c, false)?;
    let has_host = allowed_ips.iter().any(|net| net.prefix_len() == net.max_prefix_len());
    if !has_host {
        let help = "add the peer's overlay address to allowed_ips: \"10.99.0.2/32\"";
        c.problem(span.clone(), "bfd needs an address of the peer, and allowed_ips has only networks", help);
    }
    if bfd.multihop {
        c.problem(span, "a tunnel peer is one hop away", "remove multihop");
    }
    (has_host && !bfd.multihop).then_some(bfd)
}

fn check_public_key(c: &mut Checker<'_>, raw: &Spanned<String>) -> Option<[u8; 32]> {
    let key = decode_key(raw.get_ref());
    if key.is_none() {
        c.problem(
            raw.span(),
            "this is not a public key",
            "write the 44 base64 characters that `wg pubkey` prints",
        );
    }
    key
}
