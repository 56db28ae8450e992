//! Where a process lives, as `/proc/PID/cgroup` tells it: its systemd unit, or the container and pod it runs in. Pure.
//!
//! A cgroup's name is only worth what its place is worth: systemd hands subtrees to users (`user@UID.service`) and to services with
//! `Delegate=`, and whoever owns a subtree may make `pod.../...` or `x.service` below it. So a unit is the outermost one, and a pod
//! counts only where nobody but root and the container runtimes can make directories.

use std::path::Path;

/// Longest `/proc/PID/cgroup` that is looked at, in bytes; what follows is not read.
pub(super) const MAX_CGROUP: u64 = 64 << 10;
/// Longest `/proc/PID/mountinfo` that is looked at, in bytes.
pub(super) const MAX_MOUNTINFO: u64 = 1 << 20;

/// A container of a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Container {
    /// 64 hexadecimal digits, lower case.
    pub id: String,
    /// UID of its pod with hyphens, lower case; `None`: the path as we see it begins below the pod.
    pub pod_uid: Option<String>,
}

/// A systemd unit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unit {
    /// For example `nginx.service`.
    pub name: String,
    /// Of a user's own manager, who names units as he likes; false: the system's.
    pub of_user: bool,
}

/// Where a process lives.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Placement {
    /// Its unit; never set together with a container.
    pub unit: Option<Unit>,
    /// Its container, if a pod's.
    pub container: Option<Container>,
    /// All its cgroups are the root of what we can see: mount points may know more.
    pub at_root: bool,
}

/// Two answers where there can be only one. Nobody is attested from that.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Conflict {
    /// Hierarchies name different containers.
    #[error("its cgroups name two different containers")]
    Containers,
    /// A pod below a pod.
    #[error("its cgroup lies in a pod below another pod")]
    NestedPods,
    /// Hierarchies name different units.
    #[error("its cgroups name two different systemd units")]
    Units,
}

/// Parses `/proc/PID/cgroup` (cgroups(7)): lines of `ID:CONTROLLERS:PATH`. Lines that are none are left out.
pub fn parse(text: &[u8]) -> Result<Placement, Conflict> {
    let text = String::from_utf8_lossy(text);
    let lines: Vec<_> = text.lines().filter_map(Line::parse).collect();
    let container = agreed(lines.iter().map(|line| container(line.path)))?;
    let unit = if container.is_some() { None } else { unit_of(&lines)? };
    let at_root = !lines.is_empty() && lines.iter().all(|line| line.path == "/");
    Ok(Placement { unit, container, at_root })
}

/// The container by the roots of the cgroup file systems that a process has mounted (proc_pid_mountinfo(5)). For those whose cgroups
/// are all `/`. Only for processes of our own user namespace: in another one, users mount what they like.
pub fn from_mountinfo(text: &[u8]) -> Result<Option<Container>, Conflict> {
    let text = String::from_utf8_lossy(text);
    agreed(text.lines().filter_map(cgroup_root).map(container))
}

struct Line<'a> {
    controllers: &'a str,
    path: &'a str,
}

impl<'a> Line<'a> {
    fn parse(line: &'a str) -> Option<Self> {
        let mut fields = line.splitn(3, ':');
        fields.next()?.parse::<u32>().ok()?;
        let (controllers, path) = (fields.next()?, fields.next()?);
        path.starts_with('/').then_some(Self { controllers, path })
    }
}

/// One that all name who name any.
fn agreed(
    found: impl Iterator<Item = Result<Option<Container>, Conflict>>,
) -> Result<Option<Container>, Conflict> {
    let mut known: Option<Container> = None;
    for container in found {
        let Some(container) = container? else { continue };
        match &known {
            Some(before) if *before != container => return Err(Conflict::Containers),
            _ => known = Some(container),
        }
    }
    Ok(known)
}

/// Root of a cgroup file system mounted where it belongs.
fn cgroup_root(line: &str) -> Option<&str> {
    let (mount, kind) = line.split_once(" - ")?;
    let mut fields = mount.split(' ').skip(3);
    let (root, point) = (fields.next()?, fields.next()?);
    let is_cgroup = matches!(kind.split(' ').next(), Some("cgroup" | "cgroup2"));
    (is_cgroup && Path::new(point).starts_with("/sys/fs/cgroup")).then_some(root)
}

/// The container at a path: the component after its pod's, or the first one of a path that begins below the pod.
fn container(path: &str) -> Result<Option<Container>, Conflict> {
    let mut parts = components(path);
    let relative = parts.first() == Some(&"..");
    parts.retain(|part| *part != "..");
    let Some(at) = parts.iter().position(|part| pod_uid(part).is_some()) else {
        let id = parts.first().filter(|_| relative).and_then(|part| container_id(part));
        return Ok(id.map(|id| Container { id, pod_uid: None }));
    };
    if parts[..at].iter().any(|part| may_be_delegated(part)) {
        return Ok(None);
    }
    if parts[at + 1..].iter().any(|part| pod_uid(part).is_some()) {
        return Err(Conflict::NestedPods);
    }
    let id = parts.get(at + 1).and_then(|part| container_id(part));
    Ok(id.map(|id| Container { id, pod_uid: pod_uid(parts[at]) }))
}

/// The parts of a path. containerd without systemd, below a kubelet with it, writes three of them as one: `SLICE:cri-containerd:ID`.
fn components(path: &str) -> Vec<&str> {
    let parts = path.split('/').filter(|part| !part.is_empty());
    parts
        .flat_map(|part| match part.split(':').collect::<Vec<_>>()[..] {
            [slice, "cri-containerd" | "crio" | "docker", id] => [Some(slice), Some(id)],
            _ => [Some(part), None],
        })
        .flatten()
        .collect()
}

/// `pod<UID>` with the cgroupfs driver, `...kubepods...-pod<UID>.slice` with systemd's, where `_` stands for `-`.
fn pod_uid(part: &str) -> Option<String> {
    let uid = match part.strip_suffix(".slice") {
        Some(slice) => {
            let (above, uid) = slice.rsplit_once("-pod")?;
            above.split('-').any(|name| name == "kubepods").then_some(uid)?
        }
        None => part.strip_prefix("pod")?,
    };
    let uid = uid.replace('_', "-").to_ascii_lowercase();
    // A UUID, or the MD5 sum that a static pod has instead.
    let length = matches!(uid.len(), 32 | 36);
    (length && uid.bytes().all(|b| b.is_ascii_hexdigit() || b == b'-')).then_some(uid)
}

/// Bare with the cgroupfs driver (CRI-O: `crio-ID`), `RUNTIME-ID.scope` with systemd's.
fn container_id(part: &str) -> Option<String> {
    const RUNTIMES: [&str; 4] = ["cri-containerd-", "crio-", "docker-", "libpod-"];
    let bare = part.strip_suffix(".scope").unwrap_or(part);
    let id = RUNTIMES.iter().find_map(|runtime| bare.strip_prefix(runtime)).unwrap_or(part);
    (id.len() == 64 && id.bytes().all(|b| b.is_ascii_hexdigit())).then(|| id.to_ascii_lowercase())
}

/// True where somebody else than root and the runtimes may make cgroups below.
fn may_be_delegated(part: &str) -> bool {
    const RUNTIMES: [&str; 10] = [
        "containerd.service",
        "crio.service",
        "docker.service",
        "kubelet.service",
        "k3s.service",
        "k3s-agent.service",
        "rke2-server.service",
        "rke2-agent.service",
        "snap.microk8s.daemon-containerd.service",
        "init.scope",
    ];
    let users = part == "user.slice" || part.starts_with("lxc");
    users || is_unit(part) && !RUNTIMES.contains(&part) && container_id(part).is_none()
}

/// systemd keeps its own hierarchy of version 1, version 2 or both. In both, a container runtime may have moved a process in the one
/// only: the old one decides then, and the other may not disagree.
fn unit_of(lines: &[Line<'_>]) -> Result<Option<Unit>, Conflict> {
    let path =
        |controllers: &str| lines.iter().find(|line| line.controllers == controllers).map(|line| line.path);
    match (path("name=systemd"), path("")) {
        (Some(own), None | Some("/")) => Ok(unit(own)),
        (None | Some("/"), Some(unified)) => Ok(unit(unified)),
        (Some(own), Some(unified)) => match (unit(own), unit(unified)) {
            (Some(own), Some(unified)) if own != unified => Err(Conflict::Units),
            (own, _) => Ok(own),
        },
        (None, None) => Ok(None),
    }
}

/// The outermost unit of a path, which systemd itself made, and within a user's manager the one that this made.
fn unit(path: &str) -> Option<Unit> {
    let mut parts = path.strip_prefix('/')?.split('/').skip_while(|part| part.ends_with(".slice"));
    let name = parts.next().filter(|part| is_unit(part) && container_id(part).is_none())?;
    if !(name.starts_with("user@") && name.ends_with(".service")) {
        return Some(Unit { name: unescaped(name).into(), of_user: false });
    }
    let mut inner = parts.skip_while(|part| part.ends_with(".slice"));
    let inner = inner.next().filter(|part| is_unit(part));
    Some(Unit { name: unescaped(inner.unwrap_or(name)).into(), of_user: inner.is_some() })
}

fn is_unit(part: &str) -> bool {
    part.ends_with(".service") || part.ends_with(".scope")
}

/// systemd puts `_` before names that could be the kernel's.
fn unescaped(part: &str) -> &str {
    part.strip_prefix('_').unwrap_or(part)
}

#[cfg(test)]
mod tests;
