use std::{
    fs,
    io::Write as _,
    os::{
        fd::AsRawFd as _,
        unix::{
            fs::PermissionsExt as _,
            net::{UnixListener as StdListener, UnixStream as StdStream},
            process::CommandExt as _,
        },
    },
    path::Path,
    process::{Child, Command, Stdio},
    time::SystemTime,
};

use isthmus_pki::TrustDomain;
use nix::{
    sys::wait::waitpid,
    unistd::{ForkResult, Pid, fork},
};

use super::*;
use crate::identity::config::{Entry, Selector};

fn own() -> Caller {
    let (ours, _theirs) = StdStream::pair().unwrap();
    ours.set_nonblocking(true).unwrap();
    Caller::attest(&UnixStream::from_std(ours).unwrap()).unwrap()
}

/// As if the process had connected.
fn caller(pid: u32) -> Caller {
    let process = pidfd::watch(pidfd::open(pid).unwrap()).unwrap();
    let Status { uid, gid, .. } = proc::status(&directory(pid)).unwrap();
    let start_time = proc::start_time(&directory(pid)).unwrap();
    Caller { pid, uid, gid, start_time, process, known: Mutex::default() }
}

fn registry(selectors: &[&str]) -> Registry {
    let entry = Entry {
        path: "/x".into(),
        selectors: selectors.iter().map(|text| Selector::parse(text).unwrap()).collect(),
        ttl: Duration::from_secs(3600),
        jwt_ttl: Duration::from_secs(300),
        dns_names: Vec::new(),
        hint: String::new(),
        federates_with: Vec::new(),
    };
    Registry::new(TrustDomain::parse("fabric.example").unwrap(), vec![entry]).unwrap()
}

fn attestor(registry: &Registry) -> Attestor {
    Attestor::new(registry.wants(), None)
}

async fn matches(caller: &Caller, selectors: &[&str]) -> bool {
    let registry = registry(selectors);
    let facts = caller.facts(&attestor(&registry), &registry).await.unwrap();
    !registry.identities(&facts).is_empty()
}

fn skipped(what: &str, why: &str) {
    assert!(std::env::var("ISTHMUS_PEERS").as_deref() != Ok("required"), "{what}: {why}");
    io::stderr().write_all(format!("SKIPPED {what}: {why}\n").as_bytes()).unwrap();
}

fn end(mut child: Child) {
    child.kill().unwrap();
    child.wait().unwrap();
}

#[tokio::test]
async fn we_are_ourselves() {
    let caller = own();
    assert_eq!(caller.pid(), std::process::id());
    caller.check().unwrap();
    let (uid, gid) = (caller.uid, caller.gid);
    let [user, group] = [format!("unix:uid:{uid}"), format!("unix:gid:{gid}")];
    assert!(matches(&caller, &[&user]).await);
    assert!(matches(&caller, &[&user, &group]).await);
    assert!(!matches(&caller, &[&user, &format!("unix:gid:{}", gid + 1)]).await);
    assert!(!matches(&caller, &[&format!("unix:uid:{}", uid + 1)]).await);
}

#[tokio::test]
async fn names_path_and_hash_are_the_callers() {
    let caller = own();
    let exe = std::env::current_exe().unwrap();
    let digest = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, &fs::read(&exe).unwrap());
    let digest: String = digest.as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
    let user = names::user(caller.uid).unwrap();
    let group = names::group(caller.gid).unwrap();
    let selectors = [
        format!("unix:user:{user}"),
        format!("unix:group:{group}"),
        format!("unix:path:{}", exe.display()),
        format!("unix:sha256:{digest}"),
    ];
    for selector in &selectors {
        assert!(matches(&caller, &[selector]).await, "{selector}");
    }
    let other = format!("unix:sha256:{}", "00".repeat(32));
    for selector in [format!("unix:user:{user}x"), format!("unix:path:{}x", exe.display()), other] {
        assert!(!matches(&caller, &[&selector]).await, "{selector}");
    }
}

#[tokio::test]
async fn supplementary_groups_count_by_number_and_by_name() {
    if !nix::unistd::geteuid().is_root() {
        return skipped("supplementary_groups_count_by_number_and_by_name", "only root may set groups");
    }
    let mut command = Command::new("sleep");
    command.arg("60");
    // SAFETY: one system call between fork and exec, with memory that was made before.
    unsafe {
        command.pre_exec(|| {
            let groups = [libc::gid_t::from(1u32), 4242];
            if libc::setgroups(2, groups.as_ptr()) == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
        });
    }
    let child = command.spawn().unwrap();
    let caller = caller(child.id());
    let name = names::group(1).unwrap();
    assert!(matches(&caller, &["unix:supplementary_gid:4242"]).await);
    assert!(matches(&caller, &["unix:supplementary_gid:1", &format!("unix:group:{name}")]).await);
    assert!(!matches(&caller, &["unix:supplementary_gid:4243"]).await);
    end(child);
}

#[tokio::test]
async fn a_recycled_pid_or_a_changed_user_is_refused() {
    let other = Caller { start_time: 1, ..own() };
    assert!(matches!(other.check(), Err(Refusal::Gone)));
    let own = own();
    let other = Caller { uid: own.uid + 1, ..own };
    assert!(matches!(other.check(), Err(Refusal::Changed)));
    let registry = registry(&["unix:uid:0"]);
    assert!(matches!(other.facts(&attestor(&registry), &registry).await, Err(Refusal::Changed)));
}

#[tokio::test]
async fn an_ended_process_is_refused() {
    let mut child = Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
    let caller = caller(child.id());
    let registry = registry(&["unix:uid:0", "unix:path:/bin/cat"]);
    let attestor = attestor(&registry);
    caller.facts(&attestor, &registry).await.unwrap();
    child.kill().unwrap();
    caller.ended().await;
    // Not yet waited for: a zombie is gone as well.
    assert!(matches!(caller.facts(&attestor, &registry).await, Err(Refusal::Gone)));
    child.wait().unwrap();
    assert!(matches!(caller.facts(&attestor, &registry).await, Err(Refusal::Gone)));
}

/// Starts processes until one has this number.
fn recycle(pid: i32) -> Option<Child> {
    let directory = format!("/proc/{pid}");
    for _ in 0..200 {
        fs::write("/proc/sys/kernel/ns_last_pid", (pid - 1).to_string()).ok()?;
        let child = Command::new("sleep").arg("60").spawn().unwrap();
        if child.id() == u32::try_from(pid).unwrap() {
            return Some(child);
        }
        end(child);
        assert!(!Path::new(&directory).exists() || fs::read_link(format!("{directory}/exe")).is_ok());
    }
    None
}

/// Connects from a process that ends at once, as root does it all day; gives its number.
fn connect_and_end(path: &Path) -> Pid {
    let address = nix::sys::socket::UnixAddr::new(path).unwrap();
    let client = nix::sys::socket::socket(
        nix::sys::socket::AddressFamily::Unix,
        nix::sys::socket::SockType::Stream,
        nix::sys::socket::SockFlag::empty(),
        None,
    )
    .unwrap();
    // SAFETY: the child makes two system calls with memory that was made before, and ends.
    match unsafe { fork() }.unwrap() {
        ForkResult::Parent { child } => {
            waitpid(child, None).unwrap();
            child
        }
        ForkResult::Child => {
            let failed = nix::sys::socket::connect(client.as_raw_fd(), &address).is_err();
            // SAFETY: ends the process at once, without destructors of what it shares with its parent.
            unsafe { libc::_exit(i32::from(failed)) }
        }
    }
}

/// spiffe/spire's peertracker exists for this: the number of a caller that has ended is another process's by the time of attestation.
#[tokio::test]
async fn a_process_that_has_the_callers_number_is_not_the_caller() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("socket");
    let listener = StdListener::bind(&path).unwrap();
    let pid = connect_and_end(&path);
    let Some(child) = recycle(pid.as_raw()) else {
        return skipped(
            "a_process_that_has_the_callers_number_is_not_the_caller",
            "ns_last_pid can't be written here",
        );
    };
    let (stream, _) = listener.accept().unwrap();
    stream.set_nonblocking(true).unwrap();
    let stream = UnixStream::from_std(stream).unwrap();
    assert_eq!(stream.peer_cred().unwrap().pid(), Some(pid.as_raw()), "the kernel still names that number");
    assert!(matches!(Caller::attest(&stream), Err(Refusal::Gone)));
    end(child);
}

#[tokio::test]
async fn a_number_recycled_after_attestation_is_refused() {
    let mut first = Command::new("sleep").arg("60").spawn().unwrap();
    let caller = caller(first.id());
    let pid = i32::try_from(first.id()).unwrap();
    let registry = registry(&["unix:uid:0", "unix:path:/bin/sleep"]);
    let attestor = attestor(&registry);
    caller.facts(&attestor, &registry).await.unwrap();
    first.kill().unwrap();
    first.wait().unwrap();
    let Some(second) = recycle(pid) else {
        return skipped(
            "a_number_recycled_after_attestation_is_refused",
            "ns_last_pid can't be written here",
        );
    };
    assert!(matches!(caller.facts(&attestor, &registry).await, Err(Refusal::Gone)));
    end(second);
}

/// A program of our own that another can be put in the place of: waits for a line, then becomes what the line names.
fn chameleon() -> Child {
    Command::new("/bin/sh").args(["-c", "read next; exec $next"]).stdin(Stdio::piped()).spawn().unwrap()
}

async fn until_it_runs(pid: u32, program: &str) {
    let is = |exe: &Path| exe.ends_with(program);
    while !fs::read_link(directory(pid).join("exe")).is_ok_and(|exe| is(&exe)) {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn another_program_in_the_same_process_is_attested_anew() {
    let mut child = chameleon();
    let caller = caller(child.id());
    let shell = fs::canonicalize("/bin/sh").unwrap();
    let registry = registry(&[&format!("unix:path:{}", shell.display())]);
    let attestor = attestor(&registry);
    let facts = caller.facts(&attestor, &registry).await.unwrap();
    assert!(!registry.identities(&facts).is_empty());
    // Nothing new: the same facts, not gathered again.
    assert!(Arc::ptr_eq(&facts, &caller.facts(&attestor, &registry).await.unwrap()));
    child.stdin.take().unwrap().write_all(b"sleep 60\n").unwrap();
    until_it_runs(child.id(), "sleep").await;
    let facts = caller.facts(&attestor, &registry).await.unwrap();
    assert!(registry.identities(&facts).is_empty(), "its identity went with the program");
    end(child);
}

/// Hands out whatever file lies at its path, which is the same after the upgrade.
#[tokio::test]
async fn a_replaced_executable_is_another() {
    let dir = tempfile::tempdir().unwrap();
    let program = fs::canonicalize(dir.path()).unwrap().join("program");
    fs::copy("/bin/sleep", &program).unwrap();
    let child = Command::new(&program).arg("60").spawn().unwrap();
    let (caller, selector) = (caller(child.id()), format!("unix:path:{}", program.display()));
    assert!(matches(&caller, &[&selector]).await);
    fs::rename(&program, dir.path().join("old")).unwrap();
    fs::copy("/bin/cat", &program).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    assert!(!matches(&caller, &[&selector]).await);
    end(child);
}

/// In a mount namespace of his own, a user can put his program at any path.
#[tokio::test]
async fn a_path_in_the_callers_own_mount_namespace_proves_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let mine = dir.path().join("mine");
    fs::copy("/bin/sleep", &mine).unwrap();
    let script = format!("mount --bind {} /bin/true && exec /bin/true 60", mine.display());
    let child =
        Command::new("unshare").args(["--mount", "/bin/sh", "-c", &script]).stderr(Stdio::null()).spawn();
    let Ok(mut child) = child else {
        return skipped("a_path_in_the_callers_own_mount_namespace_proves_nothing", "unshare is not on PATH");
    };
    let exe = directory(child.id()).join("exe");
    while !fs::read_link(&exe).is_ok_and(|exe| exe.ends_with("true")) {
        if child.try_wait().unwrap().is_some() {
            return skipped(
                "a_path_in_the_callers_own_mount_namespace_proves_nothing",
                "mounts are not allowed here",
            );
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let (caller, shown) = (caller(child.id()), fs::read_link(&exe).unwrap());
    assert!(!matches(&caller, &[&format!("unix:path:{}", shown.display())]).await, "{}", shown.display());
    end(child);
}

#[tokio::test]
async fn a_hash_is_computed_for_those_it_can_help_only() {
    let caller = own();
    let hash = format!("unix:sha256:{}", "00".repeat(32));
    for (selectors, expected) in [
        ([format!("unix:uid:{}", caller.uid), hash.clone()], true),
        ([format!("unix:uid:{}", caller.uid + 1), hash], false),
    ] {
        let registry = registry(&[&selectors[0], &selectors[1]]);
        let facts = caller.facts(&attestor(&registry), &registry).await.unwrap();
        assert_eq!(facts.sha256.is_some(), expected, "{selectors:?}");
    }
}

#[tokio::test]
async fn a_reload_that_asks_for_more_gathers_more() {
    let caller = own();
    let (few, many) = (registry(&["unix:uid:0"]), registry(&["unix:group:root", "unix:path:/x"]));
    let first = attestor(&few);
    assert!(first.serves(few.wants(), None) && !first.serves(many.wants(), None));
    assert_eq!(caller.facts(&first, &few).await.unwrap().path, None);
    assert!(caller.facts(&attestor(&many), &many).await.unwrap().path.is_some());
    // The same kinds of facts, but now an entry hangs on the hash.
    let user =
        |uid: u32| registry(&[&format!("unix:uid:{uid}"), &format!("unix:sha256:{}", "00".repeat(32))]);
    let (others, ours) = (user(caller.uid + 1), user(caller.uid));
    let attestor = attestor(&others);
    assert_eq!(caller.facts(&attestor, &others).await.unwrap().sha256, None);
    assert!(caller.facts(&attestor, &ours).await.unwrap().sha256.is_some());
}

/// Directory of a cgroup that is removed at the end; `None`: there can't be one here.
struct Cgroup(PathBuf);

impl Cgroup {
    fn new(below: &str) -> Option<Self> {
        let mounted = |path: &&&str| Path::new(path).join("cgroup.procs").exists();
        let base =
            ["/sys/fs/cgroup/systemd", "/sys/fs/cgroup/unified", "/sys/fs/cgroup"].iter().find(mounted)?;
        let path = Path::new(base).join(format!("isthmus-test-{}.slice", std::process::id())).join(below);
        fs::create_dir_all(&path).ok()?;
        Some(Self(path))
    }

    fn put(&self, pid: u32) {
        fs::write(self.0.join("cgroup.procs"), pid.to_string()).unwrap();
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        let mut path = self.0.as_path();
        while fs::remove_dir(path).is_ok() || path.to_string_lossy().contains("isthmus-test-") {
            let Some(parent) = path.parent() else { return };
            path = parent;
            if !path.to_string_lossy().contains("isthmus-test-") {
                return;
            }
        }
    }
}

#[tokio::test]
async fn a_systemd_unit_is_told_by_the_real_cgroup_and_followed() {
    let Some(unit) = Cgroup::new("isthmus-test.service/worker") else {
        return skipped(
            "a_systemd_unit_is_told_by_the_real_cgroup_and_followed",
            "no cgroup can be made here",
        );
    };
    let child = Command::new("sleep").arg("60").spawn().unwrap();
    let caller = caller(child.id());
    let registry = registry(&["systemd:unit:isthmus-test.service"]);
    let attestor = attestor(&registry);
    let has_one =
        async || !registry.identities(&caller.facts(&attestor, &registry).await.unwrap()).is_empty();
    assert!(!has_one().await);
    unit.put(child.id());
    assert!(has_one().await);
    assert!(!matches(&caller, &["systemd:user-unit:isthmus-test.service"]).await);
    // It leaves the unit, and what it got by it.
    let other = Cgroup::new("isthmus-other.service").unwrap();
    other.put(child.id());
    assert!(!has_one().await);
    end(child);
}

/// Ten thousand pushes to callers that did not change read a few small files each, and hash and ask nothing.
#[tokio::test]
async fn callers_that_do_not_change_stay_cheap() {
    let digest = format!("unix:sha256:{}", "00".repeat(32));
    let registry = registry(&["unix:uid:0", "systemd:unit:x.service", &digest]);
    let (attestor, callers) = (attestor(&registry), (0..50).map(|_| own()).collect::<Vec<_>>());
    let mut first = Vec::new();
    for caller in &callers {
        first.push(caller.facts(&attestor, &registry).await.unwrap());
    }
    let start = SystemTime::now();
    for _ in 0..20 {
        for (caller, before) in callers.iter().zip(&first) {
            assert!(Arc::ptr_eq(before, &caller.facts(&attestor, &registry).await.unwrap()));
        }
    }
    // A figure for whoever runs it with --nocapture; no assertion on it.
    io::stderr()
        .write_all(format!("re-attested 1000 times in {:?}\n", start.elapsed().unwrap()).as_bytes())
        .unwrap();
    assert!(
        size_of::<Known>() <= 128 && size_of::<Caller>() <= 256,
        "{} {}",
        size_of::<Known>(),
        size_of::<Caller>()
    );
}
