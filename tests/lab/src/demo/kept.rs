//! A lab that stays up after `demo --keep`: where it is, how to look into it, how to end it.

use std::{
    env,
    ffi::OsString,
    fmt::Write as _,
    fs::{self, File, OpenOptions, TryLockError},
    io::{ErrorKind, Seek, Write},
    os::unix::fs::{MetadataExt, OpenOptionsExt},
    path::PathBuf,
    process::{Command, ExitCode},
    time::Duration,
};

use anyhow::{Context, Result, bail, ensure};
use isthmus_lab::{
    bins::Bins,
    netns::Netns,
    sandbox::processes::{Process, children_of},
    wait,
};
use nix::{
    libc::O_NOFOLLOW,
    sched::{CloneFlags, setns},
    sys::signal::{Signal, kill},
    unistd::{Pid, geteuid},
};

use super::{
    inside::DIRECTORY,
    look::SHOWN,
    plan::{AWS, AZURE, SITES, Site, gateways},
    progress::note,
};

/// The two processes that matter of a kept lab.
struct Kept {
    /// Killing it ends everything.
    sandbox: Process,
    /// It lives in the sandbox's namespaces.
    inside: Process,
}

/// One lab a user; in the runtime directory if there is one, for that is private and ends with the login.
fn state_file() -> PathBuf {
    let directory = env::var_os("XDG_RUNTIME_DIR").map_or_else(env::temp_dir, PathBuf::from);
    directory.join(format!("isthmus-lab-{}.state", geteuid()))
}

/// The right to start a lab that stays, from before anything is made until it is recorded or has failed. Whoever holds it holds
/// the lock of the state file: that is empty while a lab starts, and names the lab that is up.
pub(super) struct Claim {
    file: File,
    recorded: bool,
}

impl Claim {
    /// # Errors
    /// When a lab is up, or is being started.
    pub(super) fn take() -> Result<Self> {
        let mut file = lock_state()?;
        ensure!(read(&mut file)?.is_none(), "a lab is up already; end it with: {} demo down", program());
        file.set_len(0)?;
        Ok(Self { file, recorded: false })
    }

    /// Remembers the sandbox that `pid` stands for; returns how to look into it.
    pub(super) fn record(mut self, pid: u32, bins: &Bins) -> Result<String> {
        let init = only_child(pid)?;
        let inside = only_child_of_init(init)?;
        let process = |pid| Process::now(pid).with_context(|| format!("process {pid} of the lab has gone"));
        let (sandbox, inside) = (process(pid)?, process(inside)?);
        let line = format!("{} {} {} {}\n", sandbox.pid, sandbox.started, inside.pid, inside.started);
        self.file.rewind()?;
        let written = self.file.write_all(line.as_bytes());
        written.with_context(|| format!("writing {}", state_file().display()))?;
        self.recorded = true;
        Ok(guide(inside, bins))
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        if !self.recorded {
            // Still under the lock. A file that stays is empty, which means the same.
            let _ = fs::remove_file(state_file());
        }
    }
}

/// The state file, made if it is missing, and ours alone until it is closed.
fn lock_state() -> Result<File> {
    let path = state_file();
    loop {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false).mode(0o600).custom_flags(O_NOFOLLOW);
        let file = options.open(&path).with_context(|| format!("opening {}", path.display()))?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => bail!(
                "a lab is being started or removed by another isthmus-lab; wait until it is done, or interrupt it"
            ),
            Err(TryLockError::Error(error)) => {
                return Err(error).with_context(|| format!("locking {}", path.display()));
            }
        }
        // Whoever held the lock may have removed this very file meanwhile: then its lock says nothing.
        let ours = file.metadata()?;
        if fs::symlink_metadata(&path)
            .is_ok_and(|there| (there.dev(), there.ino()) == (ours.dev(), ours.ino()))
        {
            return Ok(file);
        }
    }
}

fn only_child(pid: u32) -> Result<u32> {
    children_of(pid).first().copied().context("the sandbox has ended")
}

/// Orphans become children of init too; its first child is the program it was made for.
fn only_child_of_init(init: u32) -> Result<u32> {
    children_of(init)
        .into_iter()
        .min_by_key(|pid| Process::now(*pid).map(|p| p.started))
        .context("the sandbox has ended")
}

/// The kept lab, if there is one that still runs; asks nobody to wait.
fn load() -> Result<Option<Kept>> {
    let path = state_file();
    match OpenOptions::new().read(true).custom_flags(O_NOFOLLOW).open(&path) {
        Ok(mut file) => read(&mut file),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error).with_context(|| format!("reading {}", path.display())),
    }
}

fn read(file: &mut File) -> Result<Option<Kept>> {
    let path = state_file();
    ensure!(file.metadata()?.uid() == geteuid().as_raw(), "{} is not ours: remove it", path.display());
    let text = std::io::read_to_string(file)?;
    if text.is_empty() {
        return Ok(None);
    }
    let kept = parse(&text).with_context(|| format!("{} is damaged: remove it", path.display()))?;
    Ok(kept.sandbox.is_there().then_some(kept))
}

fn parse(text: &str) -> Result<Kept> {
    let numbers: Vec<u64> = text.split_whitespace().map(str::parse).collect::<Result<_, _>>()?;
    let [sandbox, sandbox_started, inside, inside_started] = numbers[..] else { bail!("not four numbers") };
    let process = |pid: u64, started| -> Result<Process> { Ok(Process { pid: pid.try_into()?, started }) };
    Ok(Kept { sandbox: process(sandbox, sandbox_started)?, inside: process(inside, inside_started)? })
}

/// `demo down`
pub(crate) fn down() -> Result<ExitCode> {
    let mut file = lock_state()?;
    let kept = read(&mut file)?;
    if let Some(kept) = &kept {
        kill(Pid::from_raw(kept.sandbox.pid.cast_signed()), Signal::SIGKILL)?;
        wait::until_true("the lab's end", Duration::from_secs(10), || {
            !kept.sandbox.is_there() && !kept.inside.is_there()
        })?;
    }
    fs::remove_file(state_file())?;
    note(if kept.is_some() { "the lab is removed\n" } else { "no lab is up\n" });
    Ok(ExitCode::SUCCESS)
}

/// `exec NAMESPACE -- COMMAND`
pub(crate) fn exec(namespace: &str, command: &[OsString]) -> Result<ExitCode> {
    let kept = load()?.with_context(|| format!("no lab is up; start one with: {} demo --keep", program()))?;
    enter(kept.inside.pid)?;
    let netns = Netns::named(namespace);
    let file = netns.open().with_context(|| format!("the lab has: {}", names()))?;
    setns(&file, CloneFlags::CLONE_NEWNET)?;
    let (program, arguments) = command.split_first().context("no command")?;
    let status = Command::new(program).args(arguments).status();
    let status = status.with_context(|| format!("running {}", program.display()))?;
    // A signal has no code of its own: as a shell reports it.
    let code = status
        .code()
        .or_else(|| std::os::unix::process::ExitStatusExt::signal(&status).map(|signal| 128 + signal));
    Ok(ExitCode::from(code.and_then(|code| u8::try_from(code).ok()).unwrap_or(1)))
}

/// Joins the sandbox: the user namespace first, since it gives the right to enter the others.
fn enter(pid: u32) -> Result<()> {
    let mut open = Vec::new();
    for (name, flag) in [
        ("user", CloneFlags::CLONE_NEWUSER),
        ("ipc", CloneFlags::CLONE_NEWIPC),
        ("uts", CloneFlags::CLONE_NEWUTS),
        ("pid", CloneFlags::CLONE_NEWPID),
        ("mnt", CloneFlags::CLONE_NEWNS),
    ] {
        let path = format!("/proc/{pid}/ns/{name}");
        // Entering the namespace one is in is refused, and as root there is no other user namespace.
        if fs::read_link(&path)? != fs::read_link(format!("/proc/self/ns/{name}"))? {
            open.push((name, File::open(&path)?, flag));
        }
    }
    open.iter().try_for_each(|(name, file, flag)| {
        setns(file, *flag).with_context(|| format!("entering the lab's {name} namespace"))
    })
}

fn names() -> String {
    let entries = fs::read_dir("/run/netns").into_iter().flatten().flatten();
    let mut names: Vec<String> =
        entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names.join(" ")
}

fn program() -> String {
    env::current_exe().unwrap_or_else(|_| "isthmus-lab".into()).display().to_string()
}

/// Commands to look around, ready to paste.
fn guide(inside: Process, bins: &Bins) -> String {
    let (lab, ctl, shown) = (program(), bins.isthmusctl.display(), SHOWN.name);
    // A path into the sandbox's own mounts.
    let directory = format!("/proc/{}/root{DIRECTORY}", inside.pid);
    let mut text = String::from("\nThe lab is up. Look around:\n");
    for words in ["status", "peers", "routes", "bgp neighbors", "certs"] {
        let _ = writeln!(text, "  {ctl} --socket {directory}/{shown}/isthmusd.sock {words}");
    }
    let _ = writeln!(text, "  tail -n 50 {directory}/{shown}/isthmusd.log");
    let _ = writeln!(text, "  {lab} exec {} -- ip route", AWS.host());
    let _ = writeln!(text, "  {lab} exec {} -- ping -c 3 {}", AWS.host(), AZURE.host_addresses()[0]);
    let names: Vec<&str> = gateways().map(|(_, gateway)| gateway.name).collect();
    let hosts: Vec<String> = SITES.iter().map(Site::host).collect();
    let _ =
        writeln!(text, "Gateways: {}. Hosts: {}. In the middle: internet.", names.join(" "), hosts.join(" "));
    let _ = writeln!(text, "End it: {lab} demo down");
    text
}
