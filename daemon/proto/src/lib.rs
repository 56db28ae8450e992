//! Protocol buffers and their generated code: client and server of the control API and of the SPIFFE Workload API.
//!
//! The code in `src/gen` is committed, so a build needs no protoc; `tests/fresh.rs` proves it fresh and says how to update it.

#![forbid(unsafe_code)]

mod redact;

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
