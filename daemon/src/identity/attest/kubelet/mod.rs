//! The kubelet's list of this node's pods, over HTTPS.
//!
//! One request a connection, and every file read anew for each: tokens, CAs and certificates are replaced below us. What comes back
//! is bounded in bytes and in time before any of it is looked at.

mod pods;
mod request;
mod tls;

use std::{future::Future, path::PathBuf, pin::Pin, time::Duration};

use crate::identity::config::KubernetesConfig;

pub(super) use pods::Containers;
pub use pods::{Disputed, parse};

/// Longest answer, in bytes. 250 pods, which is many for a node, take some 5 MiB.
const MAX_ANSWER: usize = 32 << 20;
/// Longest token, in bytes.
const MAX_TOKEN: u64 = 64 << 10;
/// Longest time for one answer.
const PATIENCE: Duration = Duration::from_secs(5);

/// Why the pods of this node are not known.
#[derive(Clone, Debug, thiserror::Error)]
pub enum Error {
    /// A token, CA or key file.
    #[error("{path}: {reason}; [workload_api.kubernetes] names it")]
    File {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// No connection.
    #[error("the kubelet at {address} can't be reached: {reason}; is it running, and is this its address?")]
    Connect {
        /// Host and port.
        address: String,
        /// What the kernel said.
        reason: String,
    },
    /// No trust.
    #[error(
        "TLS with the kubelet at {address} failed: {reason}; check ca_file, and node_name, which its certificate must carry"
    )]
    Tls {
        /// Host and port.
        address: String,
        /// rustls's verdict.
        reason: String,
    },
    /// It says no.
    #[error(
        "the kubelet answers {status}; the token in token_file needs \"get\" on nodes/pods, on kubelets before 1.33 on nodes/proxy"
    )]
    Denied {
        /// 401 or 403.
        status: u16,
    },
    /// Something else than a list.
    #[error("the kubelet's answer is not a list of pods: {0}")]
    Answer(String),
    /// Slow.
    #[error("the kubelet has not answered within {} s", PATIENCE.as_secs())]
    Slow,
}

/// Whoever knows the containers of this node.
pub(super) trait Source: Send + Sync {
    /// All of them now.
    fn containers(&self) -> Pin<Box<dyn Future<Output = Result<Containers, Error>> + Send + '_>>;
}

/// The kubelet of this node.
pub(super) struct Kubelet(KubernetesConfig);

impl Kubelet {
    pub(super) fn new(config: KubernetesConfig) -> Self {
        Self(config)
    }

    async fn list(&self) -> Result<Containers, Error> {
        let answer =
            tokio::time::timeout(PATIENCE, request::get_pods(&self.0)).await.map_err(|_| Error::Slow)??;
        let node_name = self.0.node_name.clone();
        // Some MiB of JSON: not on a thread that others wait for.
        let parsed = tokio::task::spawn_blocking(move || parse(&answer, node_name.as_deref())).await;
        parsed
            .map_err(|error| Error::Answer(error.to_string()))?
            .map_err(|error| Error::Answer(error.to_string()))
    }
}

impl Source for Kubelet {
    fn containers(&self) -> Pin<Box<dyn Future<Output = Result<Containers, Error>> + Send + '_>> {
        Box::pin(self.list())
    }
}

#[cfg(test)]
mod tests;
