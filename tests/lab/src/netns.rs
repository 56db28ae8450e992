//! Named network namespaces, in `/run/netns` as iproute2 keeps them, so that `ip netns exec` works in a sandbox too.

use std::{
    fs::File,
    future::Future,
    io,
    os::unix::process::CommandExt,
    panic::resume_unwind,
    path::{Path, PathBuf},
    process::Command,
    thread,
};

use anyhow::{Context, Result};
use nix::{
    mount::{MntFlags, MsFlags, mount, umount2},
    sched::{CloneFlags, setns, unshare},
};

const DIRECTORY: &str = "/run/netns";

/// A network namespace with a name. The value is only the name: namespaces end with the sandbox, or by [`Netns::delete`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Netns {
    name: String,
}

impl Netns {
    /// Makes one, with loopback up and addresses usable at once (no duplicate address detection).
    ///
    /// # Errors
    /// When the name is taken or not a file name, or we lack the privilege.
    pub fn create(name: &str) -> Result<Self> {
        let netns = Self::named(name);
        netns.make().with_context(|| format!("making network namespace {name}"))?;
        netns.link_up("lo")?;
        for which in ["all", "default"] {
            netns.sysctl(&format!("net.ipv6.conf.{which}.accept_dad"), "0")?;
        }
        Ok(netns)
    }

    /// One that exists already.
    pub fn named(name: &str) -> Self {
        Self { name: name.to_owned() }
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The file that stands for it.
    pub fn path(&self) -> PathBuf {
        Path::new(DIRECTORY).join(&self.name)
    }

    fn make(&self) -> Result<()> {
        std::fs::create_dir_all(DIRECTORY)?;
        let path = self.path();
        File::create_new(&path)?;
        in_new_thread(|| -> Result<()> {
            unshare(CloneFlags::CLONE_NEWNET)?;
            let none = None::<&str>;
            mount(Some("/proc/thread-self/ns/net"), &path, none, MsFlags::MS_BIND, none)?;
            Ok(())
        })
        .inspect_err(|_| {
            let _ = std::fs::remove_file(&path);
        })
    }

    /// Takes the name away; the namespace itself ends with its last process and socket.
    ///
    /// # Errors
    /// When there is no such name.
    pub fn delete(self) -> Result<()> {
        umount2(&self.path(), MntFlags::MNT_DETACH)
            .with_context(|| format!("unmounting {}", self.path().display()))?;
        Ok(std::fs::remove_file(self.path())?)
    }

    /// An open descriptor of it, for system calls that take one.
    ///
    /// # Errors
    /// When there is no such namespace.
    pub fn open(&self) -> Result<File> {
        File::open(self.path()).with_context(|| format!("no network namespace {}", self.name))
    }

    /// Runs `work` in a thread inside the namespace and waits for it; a panic in it goes on in the caller.
    ///
    /// # Errors
    /// When the namespace can't be entered.
    pub fn run<T: Send>(&self, work: impl FnOnce() -> T + Send) -> Result<T> {
        let file = self.open()?;
        in_new_thread(|| {
            setns(&file, CloneFlags::CLONE_NEWNET)
                .with_context(|| format!("entering network namespace {}", self.name))?;
            Ok(work())
        })
    }

    /// Runs a future to its end on a runtime inside the namespace: every socket it opens belongs there.
    ///
    /// # Errors
    /// When the namespace can't be entered.
    pub fn block_on<F: Future<Output: Send>>(&self, work: impl FnOnce() -> F + Send) -> Result<F::Output> {
        self.run(|| -> io::Result<F::Output> {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            Ok(runtime.block_on(async { work().await }))
        })?
        .context("starting a runtime")
    }

    /// A command that will run inside the namespace. The sandbox's end is its end too, even if nobody waits for it.
    ///
    /// # Errors
    /// When there is no such namespace.
    pub fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> Result<Command> {
        let file = self.open()?;
        let mut command = Command::new(program);
        // SAFETY: between fork and exec this makes one system call with a descriptor that the closure owns.
        unsafe { command.pre_exec(move || Ok(setns(&file, CloneFlags::CLONE_NEWNET)?)) };
        Ok(command)
    }
}

/// A thread of its own, because a namespace belongs to a thread and must not leak into the caller's.
fn in_new_thread<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    thread::scope(|scope| scope.spawn(work).join()).unwrap_or_else(|panic| resume_unwind(panic))
}
