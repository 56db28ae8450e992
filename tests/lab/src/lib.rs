//! The lab: real daemons, links and traffic in network namespaces that vanish with the test that made them.
//!
//! A scenario enters a [`sandbox`], makes [`netns::Netns`] and joins them by links, starts [`node::Node`]s from the binaries that
//! [`bins`] built, and watches them through [`probe`]. Nothing here needs a tool beside Rust and Linux, so that the demo runs on a
//! bare machine.

pub mod bins;
pub mod blackhole;
pub mod corpus;
pub mod files;
pub mod forge;
pub mod issuer;
pub mod kube_api;
pub mod link;
pub mod mesh;
pub mod netns;
pub mod node;
pub mod page;
pub mod peers;
pub mod pki;
pub mod probe;
pub mod relay;
pub mod route;
pub mod router;
pub mod sandbox;
pub mod wait;
