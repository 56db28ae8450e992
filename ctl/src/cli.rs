//! The command line: nouns, verbs and the options that all of them share.

use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};
use ipnet::IpNet;

use crate::audit::AuditVerb;
use crate::events::Since;
use crate::failure::Failure;

const EXIT_CODES: &str =
    "Exit codes: 0 ok, 1 failed, 2 usage, 3 invalid configuration, 4 daemon unreachable, 5 degraded";

/// Shows and explains a running Isthmus node.
///
/// Data goes to stdout, messages to stderr. JSON and YAML documents carry a `schema` field and stay compatible within it.
#[derive(Debug, Parser)]
#[command(name = "isthmusctl", version, disable_help_subcommand = true, after_help = EXIT_CODES)]
pub(crate) struct Arguments {
    /// Control socket of the daemon.
    #[arg(long, global = true, value_name = "PATH", default_value = "/run/isthmus/isthmusd.sock")]
    pub(crate) socket: PathBuf,
    /// How to print.
    #[arg(short, long, global = true, value_enum, value_name = "FORMAT", default_value_t = Format::Table)]
    pub(crate) output: Format,
    /// Ask again each second until interrupted; reconnects when the daemon restarts.
    #[arg(long, global = true)]
    pub(crate) watch: bool,
    /// When to colour; `auto` honours NO_COLOR, CLICOLOR_FORCE and TERM.
    #[arg(long, global = true, value_enum, value_name = "WHEN", default_value_t = Color::Auto)]
    pub(crate) color: Color,
    #[command(subcommand)]
    pub(crate) noun: Noun,
}

/// The form of the data on stdout.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// Columns for a person.
    Table,
    /// One JSON document; with `--watch` one a line.
    Json,
    /// One YAML document; with `--watch` a stream of them.
    Yaml,
}

/// When to colour the output.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Color {
    Auto,
    Always,
    Never,
}

impl From<Color> for anstream::ColorChoice {
    fn from(color: Color) -> Self {
        match color {
            Color::Auto => Self::Auto,
            Color::Always => Self::Always,
            Color::Never => Self::Never,
        }
    }
}

#[derive(Debug, Subcommand)]
pub(crate) enum Noun {
    /// The node in one view: what runs, what is ready, what is not and why.
    Status {
        /// Exit with 5 when anything is degraded.
        #[arg(long)]
        exit_code: bool,
    },
    /// Tunnel peers with their liveness and counters.
    Peers,
    /// The tunnel engine: where it listens, its switches, and how much each of its system calls carries.
    Tunnel {
        #[command(subcommand)]
        verb: Option<TunnelVerb>,
    },
    /// Prefixes with every path to them and the state of the kernel route.
    #[command(args_conflicts_with_subcommands = true)]
    Routes {
        /// Only this prefix and what it covers; an address means its host prefix.
        #[arg(value_parser = prefix)]
        prefix: Option<IpNet>,
        #[command(subcommand)]
        verb: Option<RoutesVerb>,
    },
    /// The BGP speaker.
    Bgp {
        #[command(subcommand)]
        verb: BgpVerb,
    },
    /// What happened on the node since it was started, as far as it is kept: the last 4096 lines of its log at INFO and above.
    Events {
        /// Only what happened since then: 10m, or 2026-06-01T12:00:00Z.
        #[arg(long, value_name = "SPAN|TIME")]
        since: Option<Since>,
        /// Only of this part of the daemon: bgp, bfd, tunnel, fib, identity, api, app.
        #[arg(long, value_name = "NAME")]
        subsystem: Option<String>,
        /// Go on with what happens, until interrupted; JSON is one document a line.
        #[arg(long)]
        follow: bool,
    },
    /// Watched paths: who answers, how soon silence is noticed, and why a path is down.
    Bfd {
        /// Only the session of this name or address, in detail.
        name: Option<String>,
    },
    /// Takes the node out of service without losing a packet: neighbors are asked to take other ways (RFC 8326), sessions end after a
    /// while, kernel routes go. The daemon stays until it is stopped, and is not ready meanwhile.
    Drain {
        /// How long neighbors may take to move away; an hour at most.
        #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = humantime::parse_duration)]
        wait: Duration,
        /// Take the node back into service.
        #[arg(long, conflicts_with = "wait")]
        undo: bool,
    },
    /// Every certificate that the node holds or trusts.
    Certs {
        #[command(subcommand)]
        verb: Option<CertsVerb>,
    },
    /// SPIFFE identities of the calling process.
    Svid {
        #[command(subcommand)]
        verb: SvidVerb,
    },
    /// Keys that change hands: leaves, site CAs, roots; and what to do when one is in a stranger's hands.
    Rotate {
        #[command(subcommand)]
        verb: RotateVerb,
    },
    /// Keys of JWT-SVIDs that this node believes, and the issuers of other sites that it asks for more.
    Fabric {
        #[command(subcommand)]
        verb: FabricVerb,
    },
    /// Join tokens of an issuer: each lets one node of its site in, once.
    Token {
        #[command(subcommand)]
        verb: TokenVerb,
    },
    /// Configuration files.
    Config {
        #[command(subcommand)]
        verb: ConfigVerb,
    },
    /// The issuer's log of what it issued and refused; reads its files and asks no daemon.
    Audit {
        #[command(subcommand)]
        verb: AuditVerb,
    },
    /// Shell completions and manual pages, for packagers.
    #[command(hide = true)]
    Generate {
        #[command(subcommand)]
        what: Generate,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum TunnelVerb {
    /// The switches of the packet path; with a name and `on` or `off` turns one, until the next start or until a reload changes it.
    Offload {
        /// Which one to turn.
        #[arg(value_enum, requires = "to")]
        name: Option<OffloadName>,
        /// What to turn it to.
        #[arg(value_enum, value_name = "STATE")]
        to: Option<Switch>,
    },
}

/// The switches that isthmusd has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum OffloadName {
    /// TCP bursts from the TUN device.
    TunTso,
    /// UDP bursts from the TUN device.
    TunUso,
    /// TCP merged before it is written to the TUN device.
    TunTcpGro,
    /// UDP merged before it is written to the TUN device.
    TunUdpGro,
    /// Several outer datagrams with one send.
    UdpGso,
    /// Several outer datagrams with one receive.
    UdpGro,
}

impl OffloadName {
    /// As isthmusd calls it.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::TunTso => "tun-tso",
            Self::TunUso => "tun-uso",
            Self::TunTcpGro => "tun-tcp-gro",
            Self::TunUdpGro => "tun-udp-gro",
            Self::UdpGso => "udp-gso",
            Self::UdpGro => "udp-gro",
        }
    }
}

/// The two states of a switch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Switch {
    /// Use it from the next batch on.
    On,
    /// Go without it from the next batch on.
    Off,
}

#[derive(Debug, Subcommand)]
pub(crate) enum RoutesVerb {
    /// What the node would do with a packet to this address, and why.
    Why { address: IpAddr },
}

#[derive(Debug, Subcommand)]
pub(crate) enum BgpVerb {
    /// Sessions with their state, the reason for it, and prefix counts.
    Neighbors {
        /// Only the neighbor of this name or address, in detail.
        name: Option<String>,
    },
    /// Routes: those that neighbors sent, those that they were told, or those that are used; with every attribute in JSON.
    Rib {
        /// Which of them.
        #[arg(value_enum)]
        table: RibTable,
        /// Only this prefix; an address means its host prefix.
        #[arg(value_parser = prefix)]
        prefix: Option<IpNet>,
        /// What the prefix covers, too.
        #[arg(long, requires = "prefix")]
        longer: bool,
        /// Only from, or to, the neighbor of this name or address.
        #[arg(long, value_name = "NAME")]
        neighbor: Option<String>,
    },
    /// Writes what neighbors sent, used or not, into a file in MRT format (RFC 6396), as route collectors do.
    Dump {
        /// Whole or not at all; "-" for stdout.
        #[arg(value_name = "FILE")]
        file: PathBuf,
        /// Replace the file if it is there.
        #[arg(long)]
        force: bool,
    },
    /// Ends a session, which starts again at once (Cease/Administrative Reset), and any hold-down.
    Clear {
        /// Name or address of the neighbor; "all" for every one.
        #[arg(value_name = "NAME|all")]
        neighbor: String,
        /// Leave the session alone: judge what the neighbor sent again, send it everything again, or both.
        #[arg(long, value_enum, value_name = "DIRECTION")]
        soft: Option<Soft>,
    },
}

/// The tables of RFC 4271 section 3.2.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum RibTable {
    /// What neighbors sent, used or not, and why not.
    In,
    /// What neighbors were told.
    Out,
    /// What is used.
    Best,
}

impl RibTable {
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::In => "in",
            Self::Out => "out",
            Self::Best => "best",
        }
    }
}

/// Directions of a soft reset.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Soft {
    /// Judge what the neighbor sent again.
    In,
    /// Send the neighbor everything again.
    Out,
    /// Both.
    Both,
}

#[derive(Debug, Subcommand)]
pub(crate) enum FabricVerb {
    /// The keys that tokens of the trust domain are believed with now, each with the CA that vouches for it.
    Keys,
    /// Whom [fabric] peers names, who answers there, and when that was.
    Peers,
}

#[derive(Debug, Subcommand)]
pub(crate) enum CertsVerb {
    /// Shows the certificates in a PEM file; asks no daemon.
    Inspect { file: PathBuf },
    /// Seventeen checks of directories, files and Istio clusters that share a root; asks no daemon.
    Doctor(CertsDoctor),
}

/// Options of `certs doctor`.
#[derive(Args, Debug)]
pub(crate) struct CertsDoctor {
    /// Directories, each of one cluster (such as a cacerts directory), and single files: PEM, or JSON and YAML that kubectl or istioctl
    /// wrote.
    #[arg(value_name = "DIR|FILE")]
    pub(crate) paths: Vec<PathBuf>,
    /// Read a live cluster through kubectl, by its kubeconfig context; several are compared.
    #[arg(long)]
    pub(crate) context: Vec<String>,
    /// Istiod's namespace.
    #[arg(long, default_value = "istio-system")]
    pub(crate) namespace: String,
    /// What Envoy's admin interface answered: /certs, or /stats as text.
    #[arg(long, value_name = "FILE")]
    pub(crate) envoy_admin: Vec<PathBuf>,
    /// Longest life of a workload's certificate, in hours.
    #[arg(long, value_name = "HOURS", default_value_t = 24, value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) workload_ttl_hours: u16,
}

#[derive(Debug, Subcommand)]
pub(crate) enum SvidVerb {
    /// Fetches the X.509-SVIDs of the calling process from the SPIFFE Workload API.
    Fetch(SvidFetch),
}

/// Options of `svid fetch`.
#[derive(Args, Debug)]
pub(crate) struct SvidFetch {
    /// Workload API socket [default: $SPIFFE_ENDPOINT_SOCKET, else unix:///run/isthmus/workload.sock]
    #[arg(long, value_name = "unix:///PATH")]
    pub(crate) workload_socket: Option<String>,
    /// Write svid.pem, key.pem (0600) and bundle.pem into this directory; further identities as svid.1.pem and so on.
    #[arg(long, value_name = "DIR")]
    pub(crate) write: Option<PathBuf>,
}

/// How to order a step of a rotation.
#[derive(Args, Debug)]
pub(crate) struct Ordering {
    /// Show what would be done, or what stands in the way, and do nothing.
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Pass over nodes that lag and times that have not come; the reason goes into the journal and the audit log.
    #[arg(long = "override", value_name = "REASON")]
    pub(crate) override_reason: Option<String>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum RotateVerb {
    /// Where every rotation stands: what is done, what can be ordered, what waits and for whom.
    Status,
    /// Give every workload a new certificate now.
    Leaf(Ordering),
    /// The site's CA, under the same root.
    #[command(subcommand)]
    Intermediate(IntermediateVerb),
    /// The fabric's root.
    #[command(subcommand)]
    Root(RootVerb),
    /// A site CA's key is in a stranger's hands: move its leaves to the prepared CA and refuse what it issued.
    Taint {
        /// First digits, 8 or more, of the CA's key, as `rotate status` shows it.
        ca: String,
        /// What happened; goes into the statement that other nodes get.
        #[arg(long, value_name = "TEXT", default_value = "")]
        reason: String,
        #[command(flatten)]
        ordering: Ordering,
    },
    /// Take a root's CRL that lists the tainted CA, for verifiers that are not ours.
    Revoke {
        /// First digits, 8 or more, of the CA's key.
        ca: String,
        /// The CRL that the root signed, PEM or DER.
        #[arg(long, value_name = "FILE")]
        crl: PathBuf,
        #[command(flatten)]
        ordering: Ordering,
    },
    /// A node is gone for good: wait for it no longer.
    Forget {
        /// Its name.
        node: String,
        #[command(flatten)]
        ordering: Ordering,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum IntermediateVerb {
    /// Make the next CA's key, which stays here, and a request for its certificate.
    Prepare {
        /// Write the request here too; by default it is printed.
        #[arg(long, value_name = "FILE")]
        out: Option<PathBuf>,
        #[command(flatten)]
        ordering: Ordering,
    },
    /// Take the certificate that the ceremony made.
    Install {
        /// The certificate, PEM or DER.
        certificate: PathBuf,
        #[command(flatten)]
        ordering: Ordering,
    },
    /// Issue with the prepared CA from now on.
    Activate(Ordering),
    /// Destroy the keys of CAs whose last leaf is dead.
    Retire(Ordering),
}

#[derive(Debug, Subcommand)]
pub(crate) enum RootVerb {
    /// Put a charter in force that adds a root, or changes which CAs are pinned.
    Publish {
        /// The charter, as `isthmus-ca charter sign` wrote it.
        charter: PathBuf,
        #[command(flatten)]
        ordering: Ordering,
    },
    /// Issue with the prepared CA under the new root from now on.
    Activate {
        /// What was checked, such as "certs doctor on east and west": that Istio's cacerts of every cluster hold the new root.
        #[arg(long, value_name = "TEXT")]
        istio_checked: Option<String>,
        #[command(flatten)]
        ordering: Ordering,
    },
    /// Put a charter in force that drops the old root.
    Retire {
        /// The charter, signed by the old root and the new one.
        charter: PathBuf,
        #[command(flatten)]
        ordering: Ordering,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum TokenVerb {
    /// Makes a token and prints it, this once: put it into the file that [identity] join_token_file of that node names, mode 0600.
    Create {
        /// Name of the node that may join with it, as in its [node].
        #[arg(long, value_name = "NAME")]
        node: String,
        /// How long it can be used: 30s to 7d.
        #[arg(long, value_name = "DURATION", default_value = "10m", value_parser = humantime::parse_duration)]
        ttl: Duration,
    },
    /// Tokens that can be used, and for a day those that were or have expired; none is shown itself.
    List,
    /// Takes an unused token back.
    Revoke {
        /// As `token list` shows it.
        id: String,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum ConfigVerb {
    /// Validates a configuration with `isthmusd --check` and exits as that does: 0 valid, 3 invalid.
    Check {
        #[arg(default_value = "/etc/isthmus/isthmusd.toml")]
        file: PathBuf,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum Generate {
    /// Prints a completion script.
    Completions { shell: clap_complete::Shell },
    /// Writes the manual pages into a directory.
    Man { directory: PathBuf },
}

impl Arguments {
    /// Refuses combinations that the parser cannot see.
    pub(crate) fn validate(&self) -> Result<(), Failure> {
        if self.watch && !self.noun.can_watch() {
            return Err(Failure::usage(
                "--watch is for state of the daemon that changes; this command asks once and ends",
            ));
        }
        Ok(())
    }
}

impl Noun {
    fn can_watch(&self) -> bool {
        match self {
            Self::Status { exit_code } => !exit_code,
            Self::Tunnel { verb: Some(TunnelVerb::Offload { to, .. }) } => to.is_none(),
            Self::Peers | Self::Fabric { .. } | Self::Tunnel { verb: None } => true,
            Self::Bgp { verb } => !matches!(verb, BgpVerb::Clear { .. } | BgpVerb::Dump { .. }),
            Self::Routes { .. } | Self::Bfd { .. } | Self::Certs { verb: None } => true,
            Self::Events { follow, .. } => !follow,
            Self::Rotate { verb } => matches!(verb, RotateVerb::Status),
            Self::Certs { .. } | Self::Svid { .. } | Self::Config { .. } | Self::Drain { .. } => false,
            Self::Audit { .. } | Self::Token { .. } | Self::Generate { .. } => false,
        }
    }
}

/// A prefix in CIDR notation, host bits cleared; an address stands for its host prefix.
fn prefix(text: &str) -> Result<IpNet, String> {
    if let Ok(address) = text.parse::<IpAddr>() {
        return Ok(IpNet::from(address));
    }
    text.parse::<IpNet>()
        .map(|prefix| prefix.trunc())
        .map_err(|_| "expected a prefix such as 10.20.0.0/16 or fd00:20::/32, or an address".to_owned())
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn a_prefix_is_canonical_and_an_address_is_a_host() {
        assert_eq!(prefix("10.1.2.3/8").expect("valid").to_string(), "10.0.0.0/8");
        assert_eq!(prefix("fd00::1").expect("valid").to_string(), "fd00::1/128");
        assert!(prefix("10.0.0.0/33").is_err());
        assert!(prefix("gw1").is_err());
    }

    #[test]
    fn a_switch_is_called_as_it_is_written() {
        for name in OffloadName::value_variants() {
            let value = name.to_possible_value().expect("none is hidden");
            assert_eq!(value.get_name(), name.as_str());
        }
    }

    #[test]
    fn only_changing_state_can_be_watched() {
        let watch = |line: &str| Arguments::parse_from(line.split(' ')).validate();
        assert!(watch("isthmusctl peers --watch").is_ok());
        assert!(watch("isthmusctl --watch routes why 10.0.0.1").is_ok());
        assert!(watch("isthmusctl --watch status --exit-code").is_err());
        assert!(watch("isthmusctl tunnel --watch").is_ok());
        assert!(watch("isthmusctl tunnel offload --watch").is_ok());
        assert!(watch("isthmusctl tunnel offload udp-gso off --watch").is_err());
        assert!(watch("isthmusctl certs inspect a.pem --watch").is_err());
        assert!(watch("isthmusctl rotate status --watch").is_ok());
        assert!(watch("isthmusctl rotate leaf --watch").is_err());
    }
}
