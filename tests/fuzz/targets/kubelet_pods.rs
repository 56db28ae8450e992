//! The kubelet's list of pods: never more containers than it names, and no panic.
#![no_main]

use isthmusd::identity::attest::{cgroup::Container, kubelet};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let container = Container { id: "a".repeat(64), pod_uid: None };
    if let Ok(containers) = kubelet::parse(data, Some("n1")) {
        let _ = containers.find(&container);
    }
});
