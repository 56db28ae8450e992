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

/// Bound beside what listens now, and closed again if it is not taken into use.
pub(super) struct Bound {
    /// Outer `None`: the one that is there.
    issuance: Option<Option<enroll::Server>>,
    workload: Workload,
}

/// The Workload API to have from now on.
enum Workload {
    Same(Settings),
    Other(Option<Server>),
}

impl Servers {
    /// Takes what is new into use, closes what is gone, and says what that was.
    pub(super) fn take(&mut self, bound: Bound) -> Vec<String> {
        let mut changes: Vec<String> = self.take_workload(bound.workload).into_iter().collect();
        if let Some(next) = bound.issuance {
            changes.push(match &next {
                Some(next) => format!("issuer: serving {}", next.bound()),
                None => "issuer: no longer serving".into(),
            });
            self.issuance = next;
        }
        changes
    }

    fn take_workload(&mut self, workload: Workload) -> Option<String> {
        match workload {
            Workload::Same(settings) => {
                let differs = self.workload.as_ref().is_some_and(|server| server.configure(&settings));
                differs.then(|| "workload_api: other limits, or other names for Envoy's secrets".into())
            }
            Workload::Other(next) => {
                self.workload = next;
                Some(match &self.workload {
                    Some(next) => format!("workload_api: serving {}", next.path().display()),
                    None => "workload_api: stopped".into(),
                })
            }
        }
    }
}

impl Handle {
    /// Binds what is new. What is gone goes on until [`Servers::take`].
    pub(super) async fn bind(
        &self,
        servers: &Servers,
        issuer: Option<&IssuerConfig>,
        api: Option<&WorkloadApiConfig>,
    ) -> Result<Bound, Error> {
        let issuance = self.issuance(servers, issuer.and_then(|issuer| issuer.listen)).await?;
        Ok(Bound { issuance, workload: self.workload(servers.workload.as_ref(), api).await? })
    }

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

    async fn workload(
        &self,
        server: Option<&Server>,
        api: Option<&WorkloadApiConfig>,
    ) -> Result<Workload, Error> {
        let settings = api.map(|api| api.settings.clone()).unwrap_or_default();
        if server.map(Server::path) == api.map(|api| &api.socket) {
            return Ok(Workload::Same(settings));
        }
        Ok(Workload::Other(match api {
            Some(api) => Some(self.workload_server(api.socket.clone(), settings).await?),
            None => None,
        }))
    }

    async fn workload_server(&self, path: PathBuf, settings: Settings) -> Result<Server, unix_socket::Error> {
        let inner = &self.0;
        let (supply, ledger) = (inner.supply.subscribe(), inner.ledger.clone());
        Server::start(path, settings, supply, ledger, &inner.shutdown, &inner.tasks).await
    }
}
