//! The sockets of the subsystem: bound, moved and closed as the configuration says.

use std::{net::SocketAddr, path::PathBuf};

use super::{
    config::{IssuerConfig, WorkloadApiConfig},
    enroll,
    error::Error,
    handle::Handle,
    workload::{Server, Settings},
};
use crate::unix_socket;

/// What listens now.
#[derive(Default)]
pub(super) struct Servers {
    workload: Option<Server>,
    issuance: Option<enroll::Server>,
}

impl Servers {
    /// Where the issuance service listens.
    pub(super) fn issuance(&self) -> Option<SocketAddr> {
        self.issuance.as_ref().map(enroll::Server::bound)
    }
}

impl Handle {
    /// Binds what is new and closes what is gone, and says what that was. On an error all is as it was.
    pub(super) async fn serve(
        &self,
        servers: &mut Servers,
        issuer: Option<&IssuerConfig>,
        api: Option<&WorkloadApiConfig>,
    ) -> Result<Vec<String>, Error> {
        let issuance = self.issuance(servers, issuer.and_then(|issuer| issuer.listen)).await?;
        let mut changes = Vec::new();
        changes.extend(self.serve_workloads(&mut servers.workload, api).await?);
        if let Some(next) = issuance {
            changes.push(match &next {
                Some(next) => format!("issuer: serving {}", next.bound()),
                None => "issuer: no longer serving".into(),
            });
            servers.issuance = next;
        }
        Ok(changes)
    }

    /// The issuance service to have from now on; outer `None`: the one that is there.
    async fn issuance(
        &self,
        servers: &Servers,
        listen: Option<SocketAddr>,
    ) -> Result<Option<Option<enroll::Server>>, Error> {
        let inner = &self.0;
        if servers.issuance.as_ref().map(enroll::Server::asked) == listen {
            return Ok(None);
        }
        let (Some(listen), Some(tokens)) = (listen, inner.tokens.clone()) else { return Ok(Some(None)) };
        let (live, fleet) = (self.live(), inner.fleet.clone());
        let server =
            enroll::Server::start(listen, live, tokens, fleet, &inner.shutdown, &inner.tasks).await?;
        Ok(Some(Some(server)))
    }

    /// The new one is bound before the old one goes: if that fails, all stays.
    async fn serve_workloads(
        &self,
        server: &mut Option<Server>,
        api: Option<&WorkloadApiConfig>,
    ) -> Result<Option<String>, Error> {
        let settings = api.map(|api| api.settings.clone()).unwrap_or_default();
        if server.as_ref().map(Server::path) == api.map(|api| &api.socket) {
            let differs = server.as_ref().is_some_and(|server| server.configure(&settings));
            return Ok(
                differs.then(|| "workload_api: other limits, or other names for Envoy's secrets".into())
            );
        }
        *server = match api {
            Some(api) => Some(self.workload_server(api.socket.clone(), settings).await?),
            None => None,
        };
        Ok(Some(match server {
            Some(next) => format!("workload_api: serving {}", next.path().display()),
            None => "workload_api: stopped".into(),
        }))
    }

    async fn workload_server(&self, path: PathBuf, settings: Settings) -> Result<Server, unix_socket::Error> {
        let inner = &self.0;
        let (supply, ledger) = (inner.supply.subscribe(), inner.ledger.clone());
        Server::start(path, settings, supply, ledger, &inner.shutdown, &inner.tasks).await
    }
}
