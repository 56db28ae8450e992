//! `/proc/PID/cgroup` and `mountinfo` of a process that may have chosen the names in them.
#![no_main]

use isthmusd::identity::attest::cgroup::{self, Container};
use libfuzzer_sys::fuzz_target;

fn check(container: Option<&Container>) {
    let Some(Container { id, pod_uid }) = container else { return };
    assert!(id.len() == 64 && id.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f')));
    assert!(pod_uid.as_ref().is_none_or(|uid| matches!(uid.len(), 32 | 36)));
}

fuzz_target!(|data: &[u8]| {
    if let Ok(placement) = cgroup::parse(data) {
        check(placement.container.as_ref());
        assert!(placement.container.is_none() || placement.unit.is_none());
        assert!(placement.unit.is_none_or(|unit| !unit.name.contains('/')));
    }
    if let Ok(container) = cgroup::from_mountinfo(data) {
        check(container.as_ref());
    }
    // Whatever a user makes below what systemd has handed to him is no pod and no unit of the system.
    let own = [b"0::/user.slice/user-1000.slice/user@1000.service/", data].concat();
    if !data.contains(&b'\n') && !data.contains(&b'\r') {
        let placement = cgroup::parse(&own).expect("one line can't contradict itself there");
        assert_eq!(placement.container, None);
        assert!(placement.unit.is_some_and(|unit| unit.of_user || unit.name == "user@1000.service"));
    }
});
