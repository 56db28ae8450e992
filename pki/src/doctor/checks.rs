//! The table of the checks; each is a function in one of the files below.

mod accepted;
mod chain;
mod clock;
mod domains;
mod envoy;
mod lifetime;
mod reload;
mod roots;
mod shape;

use time::OffsetDateTime;

use super::{Inventory, finding::Reporter};

/// A check.
pub(super) struct Check {
    /// From 1.
    pub(super) number: u8,
    pub(super) name: &'static str,
    /// What comes of the failure: the symptom by which people know it.
    pub(super) why: &'static str,
    /// What it must be given.
    pub(super) needs: &'static str,
    pub(super) run: fn(&Inventory, OffsetDateTime, &mut Reporter),
}

const fn check(
    number: u8,
    name: &'static str,
    why: &'static str,
    needs: &'static str,
    run: fn(&Inventory, OffsetDateTime, &mut Reporter),
) -> Check {
    Check { number, name, why, needs, run }
}

const CACERTS: &str = "the files of cacerts";
const CAS: &str = "certificates of CAs";

/// In the order of their numbers.
#[rustfmt::skip]
pub(super) static CHECKS: [Check; 17] = [
    check(1, "chain", "CERTIFICATE_VERIFY_FAILED only between clusters: inside one, both ends know the intermediate", "the files of cacerts, or a workload's chain", chain::complete),
    check(2, "root-sets", "unknown CA between clusters: each trusts other roots", "two or more sets of roots", roots::equal),
    check(3, "istiod-accepts", "istiod does not start, or signs with another CA than the one given", CACERTS, accepted::accepted),
    check(4, "root-is-root", "an intermediate as the anchor is refused by OpenSSL and keeps its issuer's rotation out", "roots", roots::are_roots),
    check(5, "validators-agree", "it works in ztunnel and fails in Envoy, or the reverse: rustls ignores dates and path length of an anchor", "roots", roots::anchors),
    check(6, "lifetime", "workload certificates die early, then \"cert chain has expired\": a leaf never outlives its CA", "certificates", lifetime::remaining),
    check(7, "envoy-secrets", "503 UF,URX and \"Secret is not supplied by SDS\": the proxy got no certificate", "Envoy's /certs or /stats", envoy::secrets),
    check(8, "ambient-trust-domain", "ztunnel: \"expected SAN\"; ambient mode does not honour trustDomainAliases", "meshConfig or workloads' certificates", domains::ambient),
    check(9, "sidecar-trust-domain", "SAN mismatch between domains that are no aliases of each other", "meshConfig or workloads' certificates", domains::sidecar),
    check(10, "ca-in-use", "a new CA is in the Secret and the old one still signs", "cacerts and workloads' certificates", reload::in_use),
    check(11, "uri-constraints", "rustls (ztunnel, Linkerd, Isthmus) refuses every chain below a CA that constrains URIs", CAS, shape::uri_constraints),
    check(12, "readable", "one bad block makes Go, and with it istiod, drop the whole bundle, or lose a root silently", "certificates", shape::readable),
    check(13, "clock", "\"not yet valid\" now and then, on some nodes only", "clocks or certificates", clock::skew),
    check(14, "ca-key-usage", "proxies cannot reach istiod and nothing says why: extKeyUsage of a CA limits all that it issues", CAS, shape::extended_key_usage),
    check(15, "stale-intermediate", "a reissued leaf still comes with the old CA's certificate, and nobody can build its path", "workloads' chains", chain::stale),
    check(16, "path-length", "path too long: a pathLen is exceeded, or webpki's six CAs", CAS, chain::path_length),
    check(17, "istio-csr-root", "istio-csr without a pinned root trusts whatever its issuer returns, so a rotation may cut the mesh in two", "istio-csr's arguments", reload::istio_csr),
];
