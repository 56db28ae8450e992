//! `isthmusd` at one end.

use std::{fmt::Write, fs, path::Path};

use anyhow::{Context, Result};
use isthmus_lab::{bins::Bins, files::write_secret, netns::Netns, node::Node};

use super::LIMIT;
use crate::{
    contender::Contender,
    rig::{INNER_LENGTH, INNER_MTU, Side, TUNNEL_PORT},
};

/// Starts it in `netns` and waits until it is ready.
///
/// # Errors
/// When it does not start: why, and the end of its log.
pub(crate) fn start(
    contender: &Contender,
    config: &[String],
    netns: &Netns,
    side: &Side,
    dir: &Path,
) -> Result<Node> {
    let mut node = prepare(contender, config, netns, side, dir)?;
    node.restart()?;
    node.wait_ready(LIMIT).context("starting isthmusd")?;
    Ok(node)
}

/// Everything but the process: the node's directory, its key and its configuration.
///
/// # Errors
/// When a file can't be written.
pub(crate) fn prepare(
    contender: &Contender,
    config: &[String],
    netns: &Netns,
    side: &Side,
    dir: &Path,
) -> Result<Node> {
    let beside = |name: &str| contender.path.with_file_name(name);
    let (isthmusctl, isthmus_ca) = (beside("isthmusctl"), beside("isthmus-ca"));
    let bins = Bins { isthmusd: contender.path.clone(), isthmusctl, isthmus_ca };
    let node = Node::new(netns.name(), netns, dir, &bins)?;
    write_secret(&node.state_dir().join("tunnel.key"), &side.key.private)?;
    // A log of an earlier round would be quoted for this one.
    let _ = fs::remove_file(node.log());
    node.write_config(&text(&node, config, side)?)?;
    Ok(node)
}

/// The configuration file of `node`; the lines of `config` are in its section `[tunnel]`.
///
/// # Errors
/// None in practice.
pub(crate) fn text(node: &Node, config: &[String], side: &Side) -> Result<String> {
    let mut text = format!(
        "[node]\nname = {:?}\nstate_dir = {:?}\n[api]\nsocket = {:?}\n[tunnel]\naddresses = [\"{}/{INNER_LENGTH}\"]\n",
        node.name(),
        node.state_dir(),
        node.socket(),
        side.address,
    );
    writeln!(text, "listen = {TUNNEL_PORT}\nmtu = {INNER_MTU}")?;
    for line in config {
        writeln!(text, "{line}")?;
    }
    for (number, peer) in side.peers.iter().enumerate() {
        writeln!(text, "[[tunnel.peer]]\nname = \"p{number}\"\npublic_key = \"{}\"", peer.public)?;
        writeln!(text, "endpoint = \"{}\"\nallowed_ips = [\"{}/32\"]", peer.endpoint, peer.address)?;
        if peer.keepalive {
            writeln!(text, "persistent_keepalive = \"25s\"")?;
        }
        if let Some(interval) = peer.bfd {
            writeln!(text, "bfd = {{ interval = \"{}ms\", multiplier = 3 }}", interval.as_millis())?;
        }
    }
    Ok(text)
}
