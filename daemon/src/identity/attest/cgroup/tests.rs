use proptest::prelude::*;

use super::*;

const UID: &str = "7f3c1d2e-0a4b-4c5d-8e9f-102132435465";
const UID_: &str = "7f3c1d2e_0a4b_4c5d_8e9f_102132435465";
const OTHER: &str = "11111111-2222-3333-4444-555555555555";
const STATIC: &str = "0123456789abcdef0123456789abcdef";
const ID: &str = "aa11bb22cc33dd44ee55ff6600778899aa11bb22cc33dd44ee55ff6600778899";
const NODE: &str = "0000000000000000000000000000000000000000000000000000000000000001";

/// Writes the long names for the short ones.
fn long(text: &str) -> String {
    let names =
        [("UID_", UID_), ("UID", UID), ("OTHER", OTHER), ("STATIC", STATIC), ("NODE", NODE), ("CID", ID)];
    names.iter().fold(text.to_owned(), |text, (short, long)| text.replace(short, long))
}

fn place(text: &str) -> Result<Placement, Conflict> {
    parse(long(text).as_bytes())
}

fn contained(text: &str) -> Option<(String, Option<String>)> {
    let placement = place(text).unwrap_or_else(|error| panic!("{text}: {error}"));
    assert_eq!(placement.unit, None, "{text}: a container has no unit");
    placement.container.map(|container| (container.id, container.pod_uid))
}

/// Shapes of real nodes (spiffe/spire#1535, #2578, #4004, #4088, #7060): versions, runtimes, drivers, classes of service.
#[test]
fn pods_of_all_shapes_are_found() {
    for text in [
        // Version 1, cgroupfs driver: burstable, best effort, guaranteed.
        "11:memory:/kubepods/burstable/podUID/CID\n1:name=systemd:/kubepods/burstable/podUID/CID\n",
        "11:memory:/kubepods/besteffort/podUID/CID\n",
        "11:memory:/kubepods/podUID/CID\n",
        // Version 1, systemd driver, docker.
        "4:cpu,cpuacct:/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-podUID_.slice/docker-CID.scope\n",
        // Version 2, systemd driver: containerd, CRI-O with crun's own group below, podman; each class.
        "0::/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-podUID_.slice/cri-containerd-CID.scope\n",
        "0::/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-podUID_.slice/crio-CID.scope/container\n",
        "0::/kubepods.slice/kubepods-podUID_.slice/cri-containerd-CID.scope\n",
        "0::/kubepods.slice/kubepods-podUID_.slice/libpod-CID.scope\n",
        // Version 2, cgroupfs driver; CRI-O names its groups also there.
        "0::/kubepods/besteffort/podUID/CID\n",
        "0::/kubepods/burstable/podUID/crio-CID\n",
        // A kubelet for systemd above a containerd without.
        "0::/system.slice/containerd.service/kubepods-burstable-podUID_.slice:cri-containerd:CID\n",
        "3:cpuset:/kubepods-besteffort-podUID_.slice:cri-containerd:CID\n",
        // kind, from inside its node and from the host below it.
        "0::/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-besteffort.slice/kubelet-kubepods-besteffort-podUID_.slice/cri-containerd-CID.scope\n",
        "9:pids:/kubelet/kubepods/besteffort/podUID/CID\n",
        "9:pids:/docker/NODE/kubelet/kubepods/besteffort/podUID/CID\n",
        "0::/system.slice/docker-NODE.scope/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-podUID_.slice/cri-containerd-CID.scope\n",
        // A process that made groups of its own below: systemd or docker in the container.
        "0::/kubepods/podUID/CID/init.scope\n",
        "0::/kubepods/podUID/CID/docker/NODE\n",
        // Version 1 and the service that the runtime left in version 2.
        "5:cpu:/kubepods/podUID/CID\n1:name=systemd:/kubepods/podUID/CID\n0::/system.slice/containerd.service\n",
        "5:cpu:/kubepods/podUID/CID\n2:rdma:/\n0::/\n",
        // We are in a cgroup namespace: a pod of our class, a pod of another.
        "0::/../../kubepods-burstable-podUID_.slice/cri-containerd-CID.scope\n",
        "0::/../../../kubepods-besteffort.slice/kubepods-besteffort-podUID_.slice/cri-containerd-CID.scope\n",
        // Upper case and junk between.
        "no line\n:::\n7:x:relative\n0::/KUBEPODS/podUID/CID\n",
    ] {
        assert_eq!(contained(text), Some((ID.into(), Some(UID.into()))), "{text}");
    }
    let fixed = "0::/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-podSTATIC.slice/cri-containerd-CID.scope\n";
    assert_eq!(contained(fixed), Some((ID.into(), Some(STATIC.into()))));
    // A container of our own pod, seen from our cgroup namespace.
    assert_eq!(contained("0::/../cri-containerd-CID.scope\n"), Some((ID.into(), None)));
}

#[test]
fn what_is_no_container_of_a_pod_is_none() {
    for text in [
        "",
        "0::/\n",
        "0::/docker/CID\n",
        "0::/system.slice/docker-CID.scope\n",
        "0::/cri-containerd-CID.scope\n",
        // The pod itself, and ids that are too short or no hexadecimal.
        "0::/kubepods/burstable/podUID\n",
        "0::/kubepods/podUID/aa11\n",
        "0::/kubepods/podUID/xyzCID\n",
        "0::/kubepods/podUID/x/CID\n",
        "0::/kubepods/podxyz/CID\n",
        "0::/some.slice/some-podUID_.slice/cri-containerd-CID.scope\n",
    ] {
        assert_eq!(contained(text), None, "{text}");
    }
    // The runtime's monitor beside the container is a process of the host.
    let monitor = place("0::/kubepods.slice/kubepods-podUID_.slice/crio-conmon-CID.scope\n").unwrap();
    assert_eq!(
        (monitor.container, monitor.unit.map(|unit| unit.name)),
        (None, Some(long("crio-conmon-CID.scope")))
    );
}

/// What users can make themselves must not look like a pod, nor like a system unit.
#[test]
fn a_delegated_subtree_proves_nothing() {
    for below in [
        "/user.slice/user-1000.slice/user@1000.service/app.slice/",
        "/user.slice/",
        "/system.slice/mine.service/",
        "/machine.slice/machine-x.scope/",
        "/lxc.payload.x/",
        "/lxc/x/",
        "/../../../user.slice/user-1000.slice/user@1000.service/",
    ] {
        for pod in ["kubepods/podUID/CID", "kubepods.slice/kubepods-podUID_.slice/cri-containerd-CID.scope"] {
            assert_eq!(place(&format!("0::{below}{pod}\n")).unwrap().container, None, "{below}{pod}");
        }
    }
    let units = [
        ("/user.slice/user-1000.slice/user@1000.service/app.slice/sshd.service", "sshd.service", true),
        ("/user.slice/user-1000.slice/user@1000.service/init.scope", "init.scope", true),
        ("/user.slice/user-1000.slice/user@1000.service", "user@1000.service", false),
        ("/system.slice/mine.service/sshd.service", "mine.service", false),
    ];
    for (path, name, of_user) in units {
        let unit = place(&format!("0::{path}\n")).unwrap().unit;
        assert_eq!(unit, Some(Unit { name: name.into(), of_user }), "{path}");
    }
    for path in [
        "/docker/CID/system.slice/sshd.service",
        "/lxc.payload.x/system.slice/sshd.service",
        "/x/sshd.service",
        "/../sshd.service",
        "/../system.slice/sshd.service",
    ] {
        assert_eq!(place(&format!("0::{path}\n")).unwrap().unit, None, "{path}");
    }
}

#[test]
fn units_are_found_in_either_version() {
    for (text, name) in [
        ("0::/system.slice/nginx.service\n", "nginx.service"),
        ("1:name=systemd:/system.slice/nginx.service\n0::/\n", "nginx.service"),
        ("1:name=systemd:/system.slice/nginx.service\n0::/system.slice/nginx.service\n", "nginx.service"),
        ("1:name=systemd:/\n0::/system.slice/nginx.service\n", "nginx.service"),
        ("0::/a.slice/a-b.slice/a-b-c.slice/nginx@1.service/worker\n", "nginx@1.service"),
        ("0::/nginx.service\n", "nginx.service"),
        ("0::/system.slice/_cgroup.service\n", "cgroup.service"),
        ("0::/user.slice/user-0.slice/session-2.scope\n", "session-2.scope"),
    ] {
        assert_eq!(place(text).unwrap().unit, Some(Unit { name: name.into(), of_user: false }), "{text}");
    }
    // A container that the runtime moved in version 1 only is not the runtime's service.
    let moved = "1:name=systemd:/docker/CID\n0::/system.slice/containerd.service\n";
    assert_eq!(place(moved).unwrap(), Placement::default());
    for none in ["0::/system.slice\n", "2:cpu:/system.slice/nginx.service\n", "0::/\n"] {
        assert_eq!(place(none).unwrap().unit, None, "{none}");
    }
}

#[test]
fn two_answers_are_refused() {
    for (text, conflict) in [
        ("2:cpu:/kubepods/podUID/CID\n1:pids:/kubepods/podUID/NODE\n", Conflict::Containers),
        ("2:cpu:/kubepods/podUID/CID\n1:pids:/kubepods/podOTHER/CID\n", Conflict::Containers),
        ("0::/kubepods/podUID/CID/kubepods/podOTHER/NODE\n", Conflict::NestedPods),
        ("0::/kubepods/podUID/podUID/CID\n", Conflict::NestedPods),
        ("1:name=systemd:/system.slice/a.service\n0::/system.slice/b.service\n", Conflict::Units),
    ] {
        assert_eq!(place(text), Err(conflict), "{text}");
    }
}

#[test]
fn mount_points_tell_where_the_cgroups_do_not() {
    let mounts = |root: &str, point: &str, kind: &str| {
        let text = format!(
            "21 20 0:5 / /proc rw - proc proc rw\n31 23 0:27 {root} {point} ro,nosuid master:9 - {kind} cgroup rw\nnonsense\n"
        );
        from_mountinfo(long(&text).as_bytes())
    };
    let pod = "/kubepods/burstable/podUID/CID";
    let found = Some(Container { id: ID.into(), pod_uid: Some(UID.into()) });
    assert_eq!(mounts(pod, "/sys/fs/cgroup", "cgroup2"), Ok(found.clone()));
    assert_eq!(mounts(pod, "/sys/fs/cgroup/memory", "cgroup"), Ok(found));
    assert_eq!(mounts("/../cri-containerd-CID.scope", "/sys/fs/cgroup", "cgroup2").unwrap().unwrap().id, ID);
    // Other file systems and other places hold what anybody put there.
    assert_eq!(mounts(pod, "/sys/fs/cgroup", "tmpfs"), Ok(None));
    assert_eq!(mounts(pod, "/mnt", "cgroup2"), Ok(None));
    assert_eq!(mounts(pod, "/sys/fs/cgroups", "cgroup2"), Ok(None));
    assert_eq!(mounts("/", "/sys/fs/cgroup", "cgroup2"), Ok(None));
    let two = format!(
        "1 1 0:1 /kubepods/podUID/CID /sys/fs/cgroup/cpu rw - cgroup cgroup rw\n1 1 0:1 /kubepods/podUID/NODE /sys/fs/cgroup/pids rw - cgroup cgroup rw\n"
    );
    assert_eq!(from_mountinfo(long(&two).as_bytes()), Err(Conflict::Containers));
    assert!(place("0::/\n").unwrap().at_root);
    assert!(place("1:name=systemd:/\n0::/\n").unwrap().at_root);
    assert!(!place("1:name=systemd:/x\n0::/\n").unwrap().at_root);
    assert!(!place("").unwrap().at_root);
}

proptest! {
    #[test]
    fn random_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        let _ = (parse(&bytes), from_mountinfo(&bytes));
    }

    /// Whatever path a user makes below what is his, he gets no pod by it and no unit of the system but his own.
    #[test]
    fn users_cannot_leave_their_subtree(parts in proptest::collection::vec("(pod|kubepods-pod|crio-|kubepods|x)?(UID|UID_|CID|system)?(\\.slice|\\.scope|\\.service)?", 0..6)) {
        let path = parts.join("/");
        if let Ok(placement) = place(&format!("0::/user.slice/user-1000.slice/user@1000.service/{path}\n")) {
            prop_assert_eq!(placement.container, None);
            let unit = placement.unit.unwrap();
            prop_assert!(unit.of_user || unit.name == "user@1000.service");
        }
    }

    #[test]
    fn what_is_found_is_well_formed(parts in proptest::collection::vec("(pod|kubepods-pod|crio-|docker-)?(UID|UID_|CID|NODE)(\\.slice|\\.scope)?", 0..5)) {
        if let Ok(Placement { container: Some(container), .. }) = place(&format!("0::/kubepods/{}\n", parts.join("/"))) {
            prop_assert_eq!(container.id.len(), 64);
            prop_assert!(container.id.bytes().all(|b| b.is_ascii_hexdigit()));
            let uid = container.pod_uid.unwrap();
            prop_assert!(uid == UID, "{}", uid);
        }
    }
}
