//! `/metrics` for Prometheus, `/healthz` and `/readyz` for whoever restarts or routes to this node.
//!
//! Liveness speaks of this process alone: a node must not be restarted because a neighbor or an API server is gone.

mod config;
mod listener;

use std::{net::SocketAddr, sync::OnceLock, time::Duration};

use axum::{
    Router,
    extract::State,
    http::{StatusCode, header},
    response::IntoResponse,
    routing::get,
};
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};
use thiserror::Error;
use tokio::{net::TcpListener, task::JoinHandle};

pub use config::*;
use listener::Listener;

use crate::lifecycle::{CancellationToken, Readiness};

/// How often samples of histograms are folded into their buckets.
const UPKEEP_INTERVAL: Duration = Duration::from_secs(5);

/// Seconds that gathering facts about a workload takes; most of it is the kubelet's.
const ATTESTATION_BUCKETS: [f64; 8] = [0.0005, 0.001, 0.005, 0.025, 0.1, 0.5, 2.5, 10.0];

/// Why the metrics server did not start.
#[derive(Debug, Error)]
pub enum Error {
    /// The address could not be bound.
    #[error(
        "metrics: cannot listen on {address}: {source}; set [metrics] listen to a free address of this node"
    )]
    Bind {
        /// The configured address.
        address: SocketAddr,
        /// Why.
        source: std::io::Error,
    },
}

/// The registry of this process. Installed on first use; every metric recorded before that is lost, so `app` calls it first.
pub fn registry() -> &'static PrometheusHandle {
    static REGISTRY: OnceLock<PrometheusHandle> = OnceLock::new();
    REGISTRY.get_or_init(|| {
        let builder = PrometheusBuilder::new().set_buckets_for_metric(
            Matcher::Full("isthmus_attestation_seconds".into()),
            &ATTESTATION_BUCKETS,
        );
        let recorder = builder.expect("there are buckets").build_recorder();
        let handle = recorder.handle();
        // Another recorder can only be there if a test set its own: then ours shows nothing, which is what that test wants.
        let _ = metrics::set_global_recorder(recorder);
        metrics::describe_gauge!("isthmus_build_info", "Version of the running daemon; always 1.");
        metrics::gauge!("isthmus_build_info", "version" => env!("CARGO_PKG_VERSION")).set(1);
        handle
    })
}

/// Serves until `shutdown`; returns the bound address.
pub async fn start(
    config: Config,
    readiness: Readiness,
    shutdown: CancellationToken,
) -> Result<(SocketAddr, JoinHandle<()>), Error> {
    let bind = |source| Error::Bind { address: config.listen, source };
    let listener = TcpListener::bind(config.listen).await.map_err(bind)?;
    let address = listener.local_addr().map_err(bind)?;
    let router = Router::new()
        .route("/metrics", get(metrics_page))
        .route("/healthz", get(|| async { "ok\n" }))
        .route("/readyz", get(ready_page))
        .with_state(readiness);
    let task = tokio::spawn(async move {
        let upkeep = tokio::spawn(upkeep(shutdown.clone()));
        if let Err(error) = axum::serve(Listener::new(listener), router)
            .with_graceful_shutdown(shutdown.cancelled_owned())
            .await
        {
            tracing::warn!(%error, "metrics server ended");
        }
        upkeep.abort();
    });
    tracing::info!(%address, "serving metrics and health");
    Ok((address, task))
}

async fn upkeep(shutdown: CancellationToken) {
    let mut interval = tokio::time::interval(UPKEEP_INTERVAL);
    while shutdown.run_until_cancelled(interval.tick()).await.is_some() {
        registry().run_upkeep();
    }
}

async fn metrics_page() -> impl IntoResponse {
    let passing = crate::scrape::update();
    ([(header::CONTENT_TYPE, "text/plain; version=0.0.4")], registry().render() + &passing)
}

async fn ready_page(State(readiness): State<Readiness>) -> (StatusCode, String) {
    let waiting = readiness.waiting();
    if waiting.is_empty() {
        return (StatusCode::OK, "ready\n".into());
    }
    (StatusCode::SERVICE_UNAVAILABLE, format!("waiting for {}\n", waiting.join(", ")))
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    async fn fetch(address: SocketAddr, path: &str) -> String {
        let mut stream = tokio::net::TcpStream::connect(address).await.unwrap();
        stream.write_all(format!("GET {path} HTTP/1.0\r\n\r\n").as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        answer
    }

    #[tokio::test]
    async fn pages() {
        registry();
        let readiness = Readiness::new();
        let pending = readiness.wait_for("fib: first reconciliation");
        let shutdown = CancellationToken::new();
        let config = Config { listen: "127.0.0.1:0".parse().unwrap() };
        let (address, task) = start(config, readiness, shutdown.clone()).await.unwrap();

        assert!(fetch(address, "/metrics").await.contains("isthmus_build_info{version="));
        assert!(fetch(address, "/healthz").await.starts_with("HTTP/1.0 200"));
        let answer = fetch(address, "/readyz").await;
        assert!(
            answer.starts_with("HTTP/1.0 503") && answer.contains("fib: first reconciliation"),
            "{answer}"
        );
        drop(pending);
        assert!(fetch(address, "/readyz").await.starts_with("HTTP/1.0 200"));

        shutdown.cancel();
        task.await.unwrap();
    }

    #[tokio::test]
    async fn port_in_use_says_so() {
        let taken = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let config = Config { listen: taken.local_addr().unwrap() };
        let error = start(config, Readiness::new(), CancellationToken::new()).await.unwrap_err();
        assert!(error.to_string().contains("Address already in use"), "{error}");
    }
}
