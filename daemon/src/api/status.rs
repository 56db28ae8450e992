//! The node in one view: one line for each subsystem that is configured.

use isthmus_proto::control::{ConfigState as ConfigMessage, GetStatusResponse, Health, Subsystem};

use crate::{bfd, fib, identity, tunnel};

use super::{Parts, epoch};

/// Names shown in a summary before it says how many more there are.
const NAMED: usize = 3;

/// Asks every subsystem.
pub(super) async fn status(parts: &Parts) -> GetStatusResponse {
    let waiting_for = parts.readiness.waiting();
    GetStatusResponse {
        version: env!("CARGO_PKG_VERSION").into(),
        node: parts.node.name.clone(),
        site: parts.node.site.clone().unwrap_or_default(),
        spiffe_id: parts.identity.as_ref().and_then(identity::Handle::spiffe_id).unwrap_or_default(),
        started_at: epoch(parts.started_at),
        ready: waiting_for.is_empty(),
        waiting_for,
        subsystems: subsystems(parts).await,
        config: Some(config(parts)),
        pid: std::process::id(),
    }
}

async fn subsystems(parts: &Parts) -> Vec<Subsystem> {
    let mut all = Vec::new();
    all.extend(parts.identity.as_ref().map(of_identity));
    all.extend(parts.tunnel.as_ref().map(of_tunnel));
    all.extend(parts.fib.as_ref().map(of_fib));
    if let Some(bgp) = &parts.bgp {
        all.push(of_bgp(bgp).await);
    }
    if let Some(bfd) = &parts.bfd {
        all.extend(of_bfd(&bfd.sessions().await));
    }
    all
}

fn of_tunnel(handle: &tunnel::Handle) -> Subsystem {
    let peers = handle.peers();
    let count = |state| peers.iter().filter(|peer| peer.state == state).count();
    let down = peers.iter().filter(|peer| peer.state == tunnel::State::Down);
    let down: Vec<String> = down.map(|peer| format!("{}: {}", peer.name, peer.state_reason)).collect();
    let idle = match count(tunnel::State::Idle) {
        0 => String::new(),
        idle => format!(", {idle} idle"),
    };
    let summary = format!("{} of {} peers up{idle}", count(tunnel::State::Up), peers.len());
    subsystem("tunnel", health(down.len(), peers.len()), summary, &down)
}

async fn of_bgp(handle: &crate::bgp::Handle) -> Subsystem {
    let mut neighbors = handle.neighbors().await;
    // Who came by a template and went is not missed.
    neighbors.retain(|neighbor| !neighbor.dynamic || neighbor.is_established());
    let down: Vec<String> = neighbors
        .iter()
        .filter(|n| !n.is_established())
        .map(|n| format!("{}: {}", n.name, n.state_reason))
        .collect();
    let summary = format!("{} of {} sessions Established", neighbors.len() - down.len(), neighbors.len());
    subsystem("bgp", health(down.len(), neighbors.len()), summary, &down)
}

/// `None`: nothing is watched.
fn of_bfd(sessions: &[bfd::SessionStatus]) -> Option<Subsystem> {
    let is_up = |session: &&bfd::SessionStatus| session.status.state == bfd::State::Up;
    let down = sessions.iter().filter(|session| !is_up(session));
    let down: Vec<String> = down.map(|one| format!("{}: {}", one.config.name, one.reason())).collect();
    let summary = format!("{} of {} paths Up", sessions.len() - down.len(), sessions.len());
    (!sessions.is_empty()).then(|| subsystem("bfd", health(down.len(), sessions.len()), summary, &down))
}

fn of_fib(handle: &fib::Handle) -> Subsystem {
    let summary = handle.summary();
    let health = if summary.failed == 0 { Health::Ok } else { Health::Degraded };
    let parts = [
        (summary.installed, "installed"),
        (summary.shadowed, "shadowed"),
        (summary.failed, "failed"),
        (summary.stale, "stale"),
    ];
    let shown = parts.iter().enumerate().filter(|(i, (count, _))| *i == 0 || *count > 0);
    let text: Vec<String> = shown.map(|(_, (count, what))| format!("{count} {what}")).collect();
    subsystem("fib", health, format!("{} kernel routes", text.join(", ")), &[])
}

fn of_identity(handle: &identity::Handle) -> Subsystem {
    let (condition, summary) = handle.summary();
    let health = match condition {
        identity::Condition::Well => Health::Ok,
        identity::Condition::Degraded => Health::Degraded,
        identity::Condition::Failed => Health::Failed,
    };
    subsystem("identity", health, summary, &[])
}

/// Some down: degraded. All of several down, or the only one: failed.
fn health(down: usize, all: usize) -> Health {
    match down {
        0 => Health::Ok,
        _ if down == all => Health::Failed,
        _ => Health::Degraded,
    }
}

fn subsystem(name: &str, health: Health, mut summary: String, down: &[String]) -> Subsystem {
    for reason in down.iter().take(NAMED) {
        summary.push_str("; ");
        summary.push_str(reason);
    }
    if down.len() > NAMED {
        summary.push_str(&format!("; and {} more", down.len() - NAMED));
    }
    Subsystem { name: name.into(), health: health.into(), summary }
}

fn config(parts: &Parts) -> ConfigMessage {
    let state = parts.config.borrow();
    ConfigMessage {
        path: state.path.display().to_string(),
        loaded_at: epoch(state.loaded_at),
        generation: state.generation,
        last_error: state.last_error.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn health_of_several() {
        assert_eq!(
            [health(0, 0), health(0, 3), health(1, 3), health(3, 3)],
            [Health::Ok, Health::Ok, Health::Degraded, Health::Failed]
        );
    }

    #[test]
    fn long_lists_are_cut_and_counted() {
        let down: Vec<String> = (1..=5).map(|n| format!("p{n}: why")).collect();
        let message = subsystem("tunnel", Health::Failed, "0 of 5 peers up".into(), &down);
        assert_eq!(message.summary, "0 of 5 peers up; p1: why; p2: why; p3: why; and 2 more");
    }
}
