//! Step 3: the daemons, and waiting for any condition without ever missing that one of them died.

use std::{
    collections::BTreeMap, fs::OpenOptions, io::Write, os::unix::fs::OpenOptionsExt, path::Path, thread,
    time::Duration,
};

use anyhow::{Context, Result, anyhow, ensure};
use base64::{Engine, engine::general_purpose::STANDARD};
use boringtun::x25519::{PublicKey, StaticSecret};
use isthmus_lab::{bins::Bins, node::Node, sandbox::processes::state_of, wait};

use super::{
    ceremony::Pki,
    config,
    network::Network,
    plan::{self, SITES},
};

/// How long a daemon that is under suspicion may take to answer.
const ANSWER_LIMIT: Duration = Duration::from_secs(1);

/// Every daemon of the demo.
pub(super) struct Fabric {
    nodes: Vec<Node>,
}

impl Fabric {
    /// Starts one daemon for each gateway and one for each site's router, and waits until all are ready.
    pub(super) fn start(network: &Network, directory: &Path, pki: &Pki, bins: &Bins) -> Result<Self> {
        let mut fabric = Self { nodes: Vec::new() };
        let mut public_keys = BTreeMap::new();
        for (_, gateway) in plan::gateways() {
            let node = Node::new(gateway.name, network.get(gateway.name)?, directory, bins)?;
            public_keys.insert(gateway.name, make_tunnel_key(&node)?);
            fabric.nodes.push(node);
        }
        for (site, gateway) in plan::gateways() {
            let node = fabric.node_mut(gateway.name)?;
            let text = config::gateway(site, gateway, node, pki, &public_keys);
            node.start(&text)?;
        }
        for site in &SITES {
            if let Some(asn) = site.router_asn {
                let mut node = Node::new(&site.host(), network.get(&site.host())?, directory, bins)?;
                node.start(&config::site_router(site, asn, &node))?;
                fabric.nodes.push(node);
            }
        }
        Ok(fabric)
    }

    /// Waits until each daemon says that it is ready.
    pub(super) fn wait_ready(&mut self) -> Result<()> {
        for index in 0..self.nodes.len() {
            let what = format!("readiness of {}", self.nodes[index].name());
            let ready = self.until(&what, Duration::from_secs(20), |fabric| {
                let node = &fabric.nodes[index];
                let status = node.status()?;
                ensure!(status.ready, "it waits for {}", status.waiting_for.join(", "));
                Ok(())
            });
            ready.map_err(|error| {
                self.ensure_alive().map_or_else(|dead| dead, |()| self.nodes[index].blame(error))
            })?;
        }
        Ok(())
    }

    /// Waits until every BGP session is established and every path that BFD watches is up.
    pub(super) fn wait_whole(&mut self, limit: Duration) -> Result<()> {
        self.until("every BGP and BFD session", limit, |fabric| {
            fabric.nodes.iter().try_for_each(ensure_whole)
        })
    }

    /// One of its daemons.
    pub(super) fn node(&self, name: &str) -> Result<&Node> {
        self.nodes
            .iter()
            .find(|node| node.name() == name)
            .with_context(|| format!("no daemon is called {name}"))
    }

    fn node_mut(&mut self, name: &str) -> Result<&mut Node> {
        self.nodes
            .iter_mut()
            .find(|node| node.name() == name)
            .with_context(|| format!("no daemon is called {name}"))
    }

    /// Daemons, in the order of their start.
    pub(super) fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// Every daemon that should run, does.
    pub(super) fn ensure_alive(&mut self) -> Result<()> {
        self.nodes.iter_mut().try_for_each(Node::ensure_alive)
    }

    /// `error`, and every daemon that is not running or hangs: whatever went wrong, they are the likelier cause.
    pub(super) fn explain(&mut self, error: anyhow::Error) -> anyhow::Error {
        let mut suspects: Vec<String> =
            self.nodes.iter_mut().filter_map(|node| (!node.is_alive()).then(|| dead(node))).collect();
        suspects.extend(self.hanging());
        if suspects.is_empty() {
            return error;
        }
        anyhow!("{error:#}\n--- look at these daemons first: {}", suspects.join("; "))
    }

    /// Asks all at once, so that many that hang take no longer than one.
    fn hanging(&mut self) -> Vec<String> {
        let alive: Vec<bool> = self.nodes.iter_mut().map(Node::is_alive).collect();
        let alive = self.nodes.iter().zip(alive).filter_map(|(node, alive)| alive.then_some(node));
        thread::scope(|scope| {
            let asked: Vec<_> = alive.map(|node| scope.spawn(|| hangs(node))).collect();
            asked.into_iter().filter_map(|thread| thread.join().unwrap_or_default()).collect()
        })
    }

    /// Waits for a condition, and not one moment longer when a daemon has died.
    pub(super) fn until<T>(
        &mut self,
        what: &str,
        limit: Duration,
        mut check: impl FnMut(&Self) -> Result<T>,
    ) -> Result<T> {
        let found = wait::until(what, limit, || match self.ensure_alive() {
            Err(dead) => Ok(Err(dead)),
            Ok(()) => check(self).map(Ok),
        });
        found?
    }

    /// Runs work that blocks, as [`Fabric::until`] waits for conditions.
    pub(super) fn watch<T: Send + 'static>(
        &mut self,
        what: &str,
        limit: Duration,
        work: impl FnOnce() -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let mut thread = Some(thread::spawn(work));
        self.until(what, limit, |_| {
            ensure!(thread.as_ref().is_some_and(thread::JoinHandle::is_finished), "it is not done");
            let done = thread.take().context("it was done already")?;
            Ok(done.join().map_err(|_| anyhow!("{what} panicked")))
        })??
    }

    /// Kills a gateway as a machine dies: its links go dark and its daemon has no last word.
    pub(super) fn kill(&mut self, name: &str) -> Result<()> {
        let node = self.node_mut(name)?;
        node.netns().link_down("wan")?;
        node.netns().link_down("lan")?;
        node.kill()?;
        self.nodes.retain(|node| node.name() != name);
        Ok(())
    }

    /// SIGTERM to all, then waits for all.
    pub(super) fn stop(mut self) -> Result<Vec<Node>> {
        self.ensure_alive()?;
        for node in &self.nodes {
            node.signal(nix::sys::signal::Signal::SIGTERM)?;
        }
        for node in &mut self.nodes {
            let status = node.wait_end()?;
            ensure!(
                status.success(),
                node.blame(anyhow!("{} ended with {status} after SIGTERM", node.name()))
            );
        }
        Ok(self.nodes)
    }
}

fn ensure_whole(node: &Node) -> Result<()> {
    for neighbor in node.bgp_neighbors()? {
        let (name, peer, why) = (node.name(), &neighbor.name, &neighbor.state_reason);
        ensure!(neighbor.state == "Established", "BGP {name} to {peer}: {}, {why}", neighbor.state);
    }
    for session in node.bfd_sessions()? {
        let (name, peer, why) = (node.name(), &session.name, &session.state_reason);
        ensure!(session.state == "Up", "BFD {name} to {peer}: {}, {why}", session.state);
    }
    Ok(())
}

fn dead(node: &Node) -> String {
    format!("{} is not running", node.name())
}

fn hangs(node: &Node) -> Option<String> {
    node.status_within(ANSWER_LIMIT).err()?;
    let stopped = node.pid().and_then(state_of).is_some_and(|state| state.eq_ignore_ascii_case("t"));
    let why = if stopped { " (its process is stopped)" } else { "" };
    Some(format!("{} does not answer on its control socket within {ANSWER_LIMIT:?}{why}", node.name()))
}

/// Writes a fresh private key where the daemon looks for it, and returns the public one for its peers.
fn make_tunnel_key(node: &Node) -> Result<String> {
    let private = StaticSecret::from(rand::random::<[u8; 32]>());
    let path = node.state_dir().join("tunnel.key");
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    writeln!(file, "{}", STANDARD.encode(private.to_bytes()))?;
    Ok(STANDARD.encode(PublicKey::from(&private).as_bytes()))
}
