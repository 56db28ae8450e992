//! `Debug` of messages that carry private keys or bearer tokens: it shows whose they are, never what they are.

use std::fmt;

use crate::{
    issuance::{EnrollRequest, IssueJwtResponse},
    sds::envoy::{config::core::v3::DataSource, service::discovery::v3::DiscoveryResponse},
    tokens::CreateTokenResponse,
    workload::{Jwtsvid, ValidateJwtsvidRequest, X509svid},
};

impl fmt::Debug for X509svid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("X509svid")
            .field("spiffe_id", &self.spiffe_id)
            .field("hint", &self.hint)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for Jwtsvid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Jwtsvid")
            .field("spiffe_id", &self.spiffe_id)
            .field("hint", &self.hint)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for ValidateJwtsvidRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ValidateJwtsvidRequest").field("audience", &self.audience).finish_non_exhaustive()
    }
}

impl fmt::Debug for EnrollRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EnrollRequest")
            .field("site", &self.site)
            .field("node", &self.node)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for IssueJwtResponse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IssueJwtResponse").field("expires_at", &self.expires_at).finish_non_exhaustive()
    }
}

impl fmt::Debug for CreateTokenResponse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CreateTokenResponse").field("info", &self.info).finish_non_exhaustive()
    }
}

impl fmt::Debug for DataSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DataSource").finish_non_exhaustive()
    }
}

impl fmt::Debug for DiscoveryResponse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DiscoveryResponse")
            .field("version_info", &self.version_info)
            .field("nonce", &self.nonce)
            .field("resources", &self.resources.len())
            .finish_non_exhaustive()
    }
}
