//! The rules that chains break, and on which of them validators differ.

use serde::Serialize;

/// A rule of path validation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Rule {
    /// DER, extensions that are there twice, too many certificates.
    Unreadable,
    /// A negative serial number (RFC 5280 section 4.1.2.2).
    NegativeSerial,
    /// A critical extension that is not known.
    UnknownCritical,
    /// No way from the leaf to an anchor.
    NoPath,
    /// The search was given up after too many signatures.
    Budget,
    /// A certificate of the chain is out of date.
    Dates,
    /// The anchor is out of date.
    AnchorDates,
    /// An issuer is not a CA.
    NotCa,
    /// An issuer's keyUsage lacks keyCertSign.
    KeyCertSign,
    /// pathLen of a CA on the way.
    PathLen,
    /// pathLen of the anchor.
    AnchorPathLen,
    /// The anchor is not self-signed.
    AnchorNotRoot,
    /// A CA's certificate presented as a leaf.
    LeafIsCa,
    /// keyUsage of the leaf lacks digitalSignature.
    LeafKeyUsage,
    /// extKeyUsage of the leaf or of a CA above it.
    ExtendedKeyUsage,
    /// Name constraints.
    NameConstraints,
    /// What `-x509_strict` asks for beyond the others.
    Strict,
    /// A certificate is revoked.
    Revoked,
    /// A certificate's issuer has no list that is in force.
    RevocationUnknown,
}

impl Rule {
    /// Why some refuse where others accept.
    pub fn why_families_differ(self) -> &'static str {
        match self {
            Self::NegativeSerial => {
                "Go 1.23 and newer can't parse a negative serial number; the C libraries take it"
            }
            Self::UnknownCritical => {
                "each knows other extensions, and rustls and Envoy take an anchor with any"
            }
            Self::NoPath => {
                "OpenSSL and BoringSSL follow the one issuer that names and key identifiers point to, Go and rustls try every one; an issuer without keyCertSign is none for some"
            }
            Self::Budget => "Go gives up after 100 signature checks, and counts each root of the same name",
            Self::Dates => "they disagree about which certificates belong to the path",
            Self::AnchorDates => {
                "rustls takes only name, key and name constraints from an anchor: its dates never count there"
            }
            Self::NotCa | Self::KeyCertSign => {
                "rustls does not look at keyCertSign of a CA nor at any rights of an anchor, Envoy at none of an anchor but keyCertSign, Go lets a missing keyUsage pass"
            }
            Self::PathLen => "they count self-issued certificates differently",
            Self::AnchorPathLen => "rustls and Envoy ignore the path length of an anchor",
            Self::AnchorNotRoot => {
                "OpenSSL wants a self-signed anchor unless told -partial_chain; Go, rustls and Envoy do not"
            }
            Self::LeafIsCa => "rustls and the SPIFFE standard never take a CA for a peer; the others do",
            Self::LeafKeyUsage => {
                "BoringSSL wants digitalSignature in a leaf's keyUsage, OpenSSL that or keyAgreement, Go and rustls do not look"
            }
            Self::ExtendedKeyUsage => {
                "Go and OpenSSL also hold the anchor's extKeyUsage against what is below it, rustls and Envoy do not"
            }
            Self::NameConstraints => {
                "rustls (webpki 0.103.12 and newer) refuses every chain below a CA that constrains URIs, fulfilled or not; the others evaluate the constraint"
            }
            Self::Strict => "only `openssl verify -x509_strict` asks for it",
            Self::Revoked => "Go never looks at revocation lists",
            Self::RevocationUnknown => {
                "Go looks at no list; OpenSSL and Envoy want one for every certificate up to and including the root, rustls for every certificate below it"
            }
            Self::Unreadable => "their parsers differ in strictness",
        }
    }
}
