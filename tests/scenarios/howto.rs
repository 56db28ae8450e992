//! Pages for operators are tried as they are written: the test takes its configuration and its commands from the page, and changes
//! nothing but places and names.

#![expect(clippy::unwrap_used, reason = "a test: what fails here fails it")]

// What the page on incidents is rehearsed at; it needs more of it than the page on rotation does.
#[path = "compromise/desk.rs"]
#[expect(dead_code, reason = "see above")]
mod desk;
#[path = "howto/enroll.rs"]
mod enroll;
#[path = "compromise/fabric.rs"]
#[expect(dead_code, reason = "see above")]
mod fabric;
#[path = "howto/federation.rs"]
mod federation;
#[path = "howto/rotation.rs"]
mod rotation;
#[path = "compromise/workload.rs"]
#[expect(dead_code, reason = "see above")]
mod workload;

use std::time::Duration;

use isthmus_lab::node::Node;

const LIMIT: Duration = Duration::from_secs(30);

/// The page's text for this node: what the page has in `/etc/isthmus` is in the node's own directory.
fn here(node: &Node, text: &str) -> String {
    text.replace("/etc/isthmus", &node.dir().display().to_string())
}

/// Where each daemon of this machine has its state and its socket, which pages leave at their defaults.
fn own_places(node: &Node) -> String {
    format!("state_dir = {:?}\n[api]\nsocket = {:?}\n", node.state_dir(), node.socket())
}
