//! The tunnel engine and its switches.

use base64::{Engine, prelude::BASE64_STANDARD};
use isthmus_proto::control::{
    BatchBucket, BatchSizes as BatchSizesMessage, GetTunnelResponse, Offload as OffloadMessage,
    SetOffloadRequest, SetOffloadResponse,
};
use tonic::Status;

use crate::tunnel::{BatchSizes, Error, Handle, Offload, OffloadStatus};

use super::Parts;

/// The engine; nothing where there is none.
pub(super) fn tunnel(parts: &Parts) -> GetTunnelResponse {
    parts.tunnel.as_ref().map(engine).unwrap_or_default()
}

/// Switches an offload and answers with its new state.
pub(super) async fn set_offload(
    parts: &Parts,
    request: SetOffloadRequest,
) -> Result<SetOffloadResponse, Status> {
    let wanted = named(&request.name)?;
    let handle = parts.tunnel.as_ref().ok_or_else(not_configured)?;
    handle.set_offload(wanted, request.on).await.map_err(|error| refusal(&error))?;
    let state = handle.offloads().into_iter().find(|status| status.offload == wanted);
    Ok(SetOffloadResponse { offload: state.map(offload) })
}

fn engine(handle: &Handle) -> GetTunnelResponse {
    let drops = handle.drops().into_iter();
    GetTunnelResponse {
        interface: handle.interface_name().to_owned(),
        listen_port: handle.listen_port().into(),
        public_key: BASE64_STANDARD.encode(handle.public_key()),
        workers: u32::try_from(handle.workers()).unwrap_or(u32::MAX),
        offloads: handle.offloads().into_iter().map(offload).collect(),
        batches: handle.batches().into_iter().map(|(call, sizes)| batches(call, sizes)).collect(),
        drops: drops.map(|(reason, packets)| (reason.to_owned(), packets)).collect(),
    }
}

fn offload(status: OffloadStatus) -> OffloadMessage {
    OffloadMessage {
        name: status.offload.as_str().to_owned(),
        description: status.offload.description().to_owned(),
        wanted: status.wanted,
        active: status.active,
        state_reason: status.reason,
    }
}

fn batches(call: &str, sizes: BatchSizes) -> BatchSizesMessage {
    let bucket = |(at_most, calls)| BatchBucket { at_most, calls };
    BatchSizesMessage {
        call: call.to_owned(),
        cumulative: sizes.cumulative.into_iter().map(bucket).collect(),
        packets: sizes.packets,
    }
}

fn named(name: &str) -> Result<Offload, Status> {
    Offload::named(name).ok_or_else(|| {
        let known = Offload::ALL.map(Offload::as_str).join(", ");
        let name = name.escape_debug();
        Status::invalid_argument(format!("there is no offload \"{name}\"; the offloads are {known}"))
    })
}

fn not_configured() -> Status {
    Status::failed_precondition("no tunnel is configured: isthmusd.toml has no [tunnel] section")
}

fn refusal(error: &Error) -> Status {
    match error {
        Error::Stopped => Status::unavailable(error.to_string()),
        _ => Status::failed_precondition(error.to_string()),
    }
}

#[cfg(test)]
mod tests {

    use tonic::Code;

    use super::*;

    #[test]
    fn an_unknown_switch_is_refused_with_the_known_ones() {
        for switch in Offload::ALL {
            assert_eq!(named(switch.as_str()).unwrap(), switch);
        }
        for name in ["", "udp_gso", "UDP-GSO", "x\u{1b}[2J"] {
            let status = named(name).unwrap_err();
            assert_eq!(status.code(), Code::InvalidArgument);
            for switch in Offload::ALL {
                assert!(status.message().contains(switch.as_str()), "{}", status.message());
            }
            assert!(!status.message().contains('\u{1b}'), "{:?}", status.message());
        }
    }

    #[test]
    fn a_refusal_has_the_kernels_words() {
        let reason = "the kernel refuses it: Invalid argument (os error 22)".to_owned();
        let status = refusal(&Error::Offload { offload: "tun-uso", reason });
        assert_eq!(status.code(), Code::FailedPrecondition);
        for part in ["tun-uso", "Invalid argument", "stays off"] {
            assert!(status.message().contains(part), "{}", status.message());
        }
        assert_eq!(refusal(&Error::Stopped).code(), Code::Unavailable);
        assert_eq!(not_configured().code(), Code::FailedPrecondition);
    }

    #[test]
    fn a_switch_that_the_kernel_refuses_is_wanted_and_not_active() {
        let reason = "the kernel refuses a burst".to_owned();
        let status = OffloadStatus { offload: Offload::TunUdpGro, wanted: true, active: false, reason };
        let message = offload(status);
        assert_eq!((message.name.as_str(), message.wanted, message.active), ("tun-udp-gro", true, false));
        assert_eq!(message.state_reason, "the kernel refuses a burst");
        assert_eq!(message.description, Offload::TunUdpGro.description());
    }

    #[test]
    fn batches_keep_their_buckets() {
        let sizes = BatchSizes { cumulative: vec![(Some(1), 3), (Some(2), 5), (None, 6)], packets: 107 };
        let message = batches("udp_send", sizes);
        assert_eq!((message.call.as_str(), message.packets), ("udp_send", 107));
        let buckets: Vec<_> =
            message.cumulative.iter().map(|bucket| (bucket.at_most, bucket.calls)).collect();
        assert_eq!(buckets, [(Some(1), 3), (Some(2), 5), (None, 6)]);
    }
}
