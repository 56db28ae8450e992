//! Protocol buffers and their generated code: client and server of the control API and of the SPIFFE Workload API, and of Envoy's
//! secret discovery service.
//!
//! The code in `src/gen` is committed, so a build needs no protoc; `tests/fresh.rs` proves it fresh and says how to update it.

#![forbid(unsafe_code)]

pub mod codec;
mod redact;

/// In the text of a status `UNAVAILABLE`: the daemon is well and answers, but can't do this until somebody mends what its log names.
pub const WHY_IN_LOG: &str = "the daemon's log says why";

/// The control API of `isthmusd`: package `isthmus.v1` of `proto/control.proto`.
#[allow(
    missing_docs,
    unreachable_pub,
    unused_qualifications,
    clippy::all,
    clippy::pedantic,
    reason = "generated code is changed in proto/, never by hand"
)]
#[rustfmt::skip]
pub mod control {
    include!("gen/isthmus.v1.rs");

    /// Encoded `FileDescriptorSet` of this package, for gRPC reflection.
    pub const FILE_DESCRIPTOR_SET: &[u8] = include_bytes!("gen/isthmus.v1.bin");
}

/// The BGP speaker in detail, and orders to it: `Bgp` of `proto/bgp.proto`.
#[allow(
    missing_docs,
    unreachable_pub,
    unused_qualifications,
    clippy::all,
    clippy::pedantic,
    reason = "generated code is changed in proto/, never by hand"
)]
#[rustfmt::skip]
pub mod bgp {
    include!("gen/bgp.rs");

    /// Encoded `FileDescriptorSet` of this service, for gRPC reflection.
    pub const FILE_DESCRIPTOR_SET: &[u8] = include_bytes!("gen/bgp.bin");
}

/// What happened on this node: `Events` of `proto/events.proto`.
#[allow(
    missing_docs,
    unreachable_pub,
    unused_qualifications,
    clippy::all,
    clippy::pedantic,
    reason = "generated code is changed in proto/, never by hand"
)]
#[rustfmt::skip]
pub mod events {
    include!("gen/events.rs");

    /// Encoded `FileDescriptorSet` of this service, for gRPC reflection.
    pub const FILE_DESCRIPTOR_SET: &[u8] = include_bytes!("gen/events.bin");
}

/// What nodes ask of the issuers of their site: `Issuance` of `proto/issuance.proto`.
#[allow(
    missing_docs,
    unreachable_pub,
    unused_qualifications,
    clippy::all,
    clippy::pedantic,
    reason = "generated code is changed in proto/, never by hand"
)]
#[rustfmt::skip]
pub mod issuance {
    include!("gen/issuance.rs");

    /// Encoded `FileDescriptorSet` of this service, for gRPC reflection.
    pub const FILE_DESCRIPTOR_SET: &[u8] = include_bytes!("gen/issuance.bin");
}

/// JWT keys and peers of the fabric: `Fabric` of `proto/fabric.proto`.
#[allow(
    missing_docs,
    unreachable_pub,
    unused_qualifications,
    clippy::all,
    clippy::pedantic,
    reason = "generated code is changed in proto/, never by hand"
)]
#[rustfmt::skip]
pub mod fabric {
    include!("gen/fabric.rs");

    /// Encoded `FileDescriptorSet` of this service, for gRPC reflection.
    pub const FILE_DESCRIPTOR_SET: &[u8] = include_bytes!("gen/fabric.bin");
}

/// Join tokens of an issuer: `Tokens` of `proto/tokens.proto`.
#[allow(
    missing_docs,
    unreachable_pub,
    unused_qualifications,
    clippy::all,
    clippy::pedantic,
    reason = "generated code is changed in proto/, never by hand"
)]
#[rustfmt::skip]
pub mod tokens {
    include!("gen/tokens.rs");

    /// Encoded `FileDescriptorSet` of this service, for gRPC reflection.
    pub const FILE_DESCRIPTOR_SET: &[u8] = include_bytes!("gen/tokens.bin");
}

/// The SPIFFE Workload API: `proto/workload.proto`, which has no package.
#[allow(
    missing_docs,
    unreachable_pub,
    unused_qualifications,
    clippy::all,
    clippy::pedantic,
    reason = "generated code is changed in proto/, never by hand"
)]
#[rustfmt::skip]
pub mod workload {
    include!("gen/workload.rs");

    /// Encoded `FileDescriptorSet` of this service, for gRPC reflection.
    pub const FILE_DESCRIPTOR_SET: &[u8] = include_bytes!("gen/workload.bin");
}

/// Envoy's secret discovery service, version 3: `proto/sds/`, in modules as its packages are named.
#[allow(
    missing_docs,
    unreachable_pub,
    unused_qualifications,
    clippy::all,
    clippy::pedantic,
    reason = "generated code is changed in proto/, never by hand"
)]
#[rustfmt::skip]
pub mod sds {
    pub mod envoy {
        pub mod config {
            pub mod core {
                pub mod v3 {
                    include!("gen/envoy.config.core.v3.rs");
                }
            }
        }
        pub mod extensions {
            pub mod transport_sockets {
                pub mod tls {
                    pub mod v3 {
                        include!("gen/envoy.extensions.transport_sockets.tls.v3.rs");
                    }
                }
            }
        }
        pub mod service {
            pub mod discovery {
                pub mod v3 {
                    include!("gen/envoy.service.discovery.v3.rs");
                }
            }
            pub mod secret {
                pub mod v3 {
                    include!("gen/envoy.service.secret.v3.rs");
                }
            }
        }
    }

    pub mod google {
        pub mod rpc {
            include!("gen/google.rpc.rs");
        }
    }

    /// Encoded `FileDescriptorSet` of this service, for gRPC reflection.
    pub const FILE_DESCRIPTOR_SET: &[u8] = include_bytes!("gen/sds.bin");
}

/// Rotation and incidents of a site's keys: `Rotation` of `proto/rotation.proto`.
#[allow(
    missing_docs,
    unreachable_pub,
    unused_qualifications,
    clippy::all,
    clippy::pedantic,
    reason = "generated code is changed in proto/, never by hand"
)]
#[rustfmt::skip]
pub mod rotation {
    include!("gen/rotation.rs");

    /// Encoded `FileDescriptorSet` of this service, for gRPC reflection.
    pub const FILE_DESCRIPTOR_SET: &[u8] = include_bytes!("gen/rotation.bin");
}
