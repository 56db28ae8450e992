//! The only place that knows every subsystem: builds them in order, applies a reload to each, and stops them in reverse.

mod bfd;
mod leave;
mod reload;
mod signals;
mod stages;

use std::{sync::Arc, time::SystemTime};

use anyhow::Context;
use tokio::sync::watch;

use crate::{
    api,
    bgp::{self, Families, Family},
    config::Config,
    events::Journal,
    fib, identity,
    lifecycle::{CancellationToken, Pending, Readiness, Service},
    metrics,
    routes::Board,
    tunnel,
};

pub use signals::hold_hangup;
use signals::{Signal, Signals};
use stages::Stages;

/// What `isthmusd --check` looks at beside the file itself: do certificates and keys fit together, are they valid now?
pub fn check(config: &Config) -> Result<(), identity::Error> {
    let node = config.node.site.as_deref().map(|site| (site, config.node.name.as_str()));
    identity::check(config.identity.as_ref(), config.issuer.as_ref(), node, SystemTime::now())?;
    config.federation.as_ref().map_or(Ok(()), |federation| federation.check().map_err(Into::into))
}

/// Runs a node until it is told to stop; `events` is what it says of itself. An error means that it could not start, or that a part of it
/// failed.
pub async fn run(config: Config, events: Journal) -> anyhow::Result<()> {
    let mut signals = Signals::new().context("signal handlers")?;
    warn(&config);
    let mut stages = Stages::default();
    let (service, hitless) = (Service::new(), leave::is_hitless(&config));
    let built = tokio::select! {
        built = build(config, events, &service, &mut stages) => Some(built),
        signal = signals.stop() => {
            tracing::info!(signal, "stopped before the start was complete");
            None
        }
    };
    let mut node = match built {
        Some(Ok(parts)) => Node::new(parts, stages),
        // What was started is stopped, whatever ended the start.
        other => {
            leave::choose(&service, hitless);
            stages.stop().await;
            return other.map_or(Ok(()), |built| built.map(drop));
        }
    };
    tokio::spawn(signals::announce(node.readiness.clone()));
    let result = node.serve(&mut signals).await;
    signals::stopping();
    node.stop().await;
    result
}

/// What the configuration says and hardly means.
fn warn(config: &Config) {
    config.warnings.iter().for_each(|warning| tracing::warn!("{warning}"));
}

/// Everything that runs, and what is needed to change or stop it.
pub struct Node {
    config: Config,
    readiness: Readiness,
    parts: api::Parts,
    state: watch::Sender<api::ConfigState>,
    stages: Stages,
    /// Held while a drain is ordered: the node is not ready then.
    out_of_service: Option<Pending>,
}

impl Node {
    fn new((config, readiness, parts, state): Built, stages: Stages) -> Self {
        Self { config, readiness, parts, state, stages, out_of_service: None }
    }

    /// Handles signals until one says stop, or a subsystem ends by itself.
    async fn serve(&mut self, signals: &mut Signals) -> anyhow::Result<()> {
        let mut orders = self.parts.service.subscribe();
        loop {
            tokio::select! {
                Ok(()) = orders.changed() => self.follow(*orders.borrow_and_update()).await,
                signal = signals.next() => match signal {
                    Signal::Reload => self.reload().await,
                    Signal::Stop(signal) => {
                        tracing::info!(signal, "stopping");
                        return Ok(());
                    }
                },
                error = self.stages.failure() => return Err(error),
            }
        }
    }

    /// Stops all in reverse order of start: neighbors are told, then routes go or stay, then tunnels.
    pub async fn stop(mut self) {
        leave::choose(&self.parts.service, leave::is_hitless(&self.config));
        self.stages.stop().await;
        tracing::info!("stopped");
    }
}

type Built = (Config, Readiness, api::Parts, watch::Sender<api::ConfigState>);

/// Order: what others report to first, then what they build on. The reverse is the order of stopping.
async fn build(
    config: Config,
    events: Journal,
    service: &Service,
    stages: &mut Stages,
) -> anyhow::Result<Built> {
    metrics::registry();
    let readiness = Readiness::new();
    let starting = readiness.wait_for("start of all subsystems");
    let board = Board::new();
    let state = watch::Sender::new(api::ConfigState::first(&config.path, SystemTime::now()));

    if let Some(metrics) = config.metrics.clone() {
        let token = CancellationToken::new();
        let (_, task) = metrics::start(metrics, readiness.clone(), token.clone()).await?;
        stages.push("metrics", token, task);
    }
    let identity = start_identity(&config, stages).await?;
    let tunnel = start_tunnel(&config, &board, stages).await?;
    let fib = start_fib(&config, &board, &readiness, service, stages).await?;
    let forwarding = forwarding(fib.as_ref()).await;
    let bgp = start_bgp(&config, &board, &readiness, (forwarding, service), stages).await?;
    if bgp.is_none() {
        board.set_settled();
    }
    // The first to stop: peers hear of an administrator before anything else of theirs ends.
    let bfd = bfd::start(&config, tunnel.as_ref(), bgp.as_ref(), stages).await?;
    let parts = api::Parts {
        node: Arc::new(config.node.clone()),
        started_at: SystemTime::now(),
        readiness: readiness.clone(),
        service: service.clone(),
        board,
        tunnel,
        bgp,
        bfd,
        speaker: config.bgp.as_ref().map(|bgp| api::Speaker { asn: bgp.asn, router_id: bgp.router_id }),
        fib,
        identity,
        events,
        config: state.subscribe(),
    };
    start_api(&config, &parts, stages).await?;
    drop(starting);
    Ok((config, readiness, parts, state))
}

async fn start_identity(config: &Config, stages: &mut Stages) -> anyhow::Result<Option<identity::Handle>> {
    if config.identity.is_none() {
        return Ok(None);
    }
    let token = CancellationToken::new();
    let node = config.node.site.clone().map(|site| (site, config.node.name.clone()));
    let (section, issuer, workload) =
        (config.identity.clone(), config.issuer.clone(), config.workload_api.clone());
    let handle = identity::start(section, issuer, workload, node, token.clone()).await?;
    let running = handle.clone();
    stages.push("identity", token, tokio::spawn(async move { running.stopped().await }));
    let prepared = handle.federation().prepare(config.federation.as_ref()).await?;
    for change in handle.federation().install(prepared) {
        tracing::info!("{change}");
    }
    Ok(Some(handle))
}

async fn start_tunnel(
    config: &Config,
    board: &Board,
    stages: &mut Stages,
) -> anyhow::Result<Option<tunnel::Handle>> {
    let Some(section) = config.tunnel.clone() else { return Ok(None) };
    let token = CancellationToken::new();
    let handle = tunnel::start(section, board.clone(), token.clone()).await?;
    let running = handle.clone();
    stages.push("tunnel", token, tokio::spawn(async move { running.stopped().await }));
    Ok(Some(handle))
}

async fn start_fib(
    config: &Config,
    board: &Board,
    readiness: &Readiness,
    service: &Service,
    stages: &mut Stages,
) -> anyhow::Result<Option<fib::Handle>> {
    let Some(section) = config.fib.clone() else { return Ok(None) };
    let token = CancellationToken::new();
    let (handle, task) =
        fib::start(section, board.clone(), readiness, service.clone(), token.clone()).await?;
    stages.push("fib", token, task);
    Ok(Some(handle))
}

/// Families in which packets still follow the routes of the run before us: BGP must know before its first OPEN.
async fn forwarding(fib: Option<&fib::Handle>) -> Families {
    let Some(fib) = fib else { return Families::NONE };
    let adopted = fib.adopted().await;
    let families = [(adopted.v4, Family::Ipv4Unicast), (adopted.v6, Family::Ipv6Unicast)];
    families.into_iter().filter_map(|(found, family)| found.then_some(family)).collect()
}

async fn start_bgp(
    config: &Config,
    board: &Board,
    readiness: &Readiness,
    (forwarding, service): (Families, &Service),
    stages: &mut Stages,
) -> anyhow::Result<Option<bgp::Handle>> {
    let Some(section) = config.bgp.clone() else { return Ok(None) };
    let token = CancellationToken::new();
    let (board, service) = (board.clone(), service.clone());
    let (handle, task) = bgp::start(section, board, readiness, forwarding, service, token.clone()).await?;
    stages.push("bgp", token, task);
    Ok(Some(handle))
}

async fn start_api(config: &Config, parts: &api::Parts, stages: &mut Stages) -> anyhow::Result<()> {
    let token = CancellationToken::new();
    match api::start(&config.api, parts.clone(), token.clone()).await {
        Ok(task) => stages.push("api", token, task),
        Err(error) if config.api.required => return Err(error.into()),
        Err(error) => tracing::warn!(%error, "no control API: isthmusctl cannot reach this node"),
    }
    Ok(())
}
