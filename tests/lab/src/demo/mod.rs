//! The demo: what happens outside the sandbox. The steps themselves are in [`inside`].

mod ceremony;
mod config;
mod fabric;
mod failover;
pub(crate) mod inside;
pub(crate) mod kept;
mod leave;
mod lifeline;
mod look;
mod mtls;
mod network;
mod plan;
mod progress;
mod traffic;
pub(crate) mod workload;

use std::{
    env, io,
    os::{fd::OwnedFd, unix::net::UnixStream as StdStream},
    process::{Command, ExitCode, ExitStatus, Stdio},
    time::Duration,
};

use anyhow::{Context, Result, bail};
use isthmus_lab::{
    bins::Bins,
    sandbox::{self, Lifetime, Support, processes},
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::UnixStream,
    process::Child,
    signal::unix::{SignalKind, signal},
    time::sleep,
};

/// Longer than all steps may take together: if this passes, the demo itself is broken.
const LIMIT: Duration = Duration::from_secs(240);

/// How the inner process ended.
enum End {
    Exited(ExitStatus),
    Kept,
}

/// Builds, enters a sandbox and runs the steps there.
pub(crate) fn run(keep: bool) -> Result<ExitCode> {
    let claim = keep.then(kept::Claim::take).transpose()?;
    let user = match sandbox::support() {
        Support::Root => false,
        Support::UserNamespace => true,
        Support::None(why) => bail!("the demo needs network namespaces, which this machine refuses: {why}"),
    };
    let bins = Bins::build()?;
    // One thread: the sandbox ends with the thread that spawned it.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(run_sandbox(&bins, user, claim))
}

async fn run_sandbox(bins: &Bins, user: bool, claim: Option<kept::Claim>) -> Result<ExitCode> {
    let (ours, theirs) = StdStream::pair()?;
    let mut child = spawn(bins, theirs, user, claim.is_some())?;
    ours.set_nonblocking(true)?;
    let end = tokio::select! {
        end = wait(&mut child, UnixStream::from_std(ours)?, bins, claim) => end?,
        name = interrupted()? => {
            child.kill().await?;
            bail!("ended by {name}; everything is removed");
        }
        () = sleep(LIMIT) => {
            let running = processes::listing_below(child.id().unwrap_or_default());
            child.kill().await?;
            bail!("not done after {LIMIT:?}; everything is removed. What ran:\n{running}");
        }
    };
    match end {
        End::Kept => Ok(ExitCode::SUCCESS),
        End::Exited(status) if status.success() => Ok(ExitCode::SUCCESS),
        End::Exited(status) if status.code() == Some(1) => Ok(ExitCode::FAILURE),
        End::Exited(status) => bail!("the demo's inner process ended with {status}"),
    }
}

fn spawn(bins: &Bins, lifeline: StdStream, user: bool, keep: bool) -> Result<Child> {
    let mut command = Command::new(env::current_exe()?);
    command.arg("demo-inside").args(keep.then_some("--keep")).stdin(Stdio::from(OwnedFd::from(lifeline)));
    bins.export(&mut command);
    let lifetime = if keep { Lifetime::Own } else { Lifetime::Caller };
    sandbox::enter_on_exec(&mut command, lifetime, user);
    tokio::process::Command::from(command).spawn().context("entering the sandbox")
}

/// Until the inner process ends, or says that all is up and may be left alone.
async fn wait(
    child: &mut Child,
    mut lifeline: UnixStream,
    bins: &Bins,
    claim: Option<kept::Claim>,
) -> Result<End> {
    if let Some(claim) = claim
        && lifeline.read_u8().await.is_ok()
    {
        let pid = child.id().context("the sandbox ended just now")?;
        let guide = claim.record(pid, bins)?;
        lifeline.write_u8(lifeline::STAY).await?;
        progress::say(&guide);
        return Ok(End::Kept);
    }
    let status = child.wait().await?;
    drop(lifeline);
    Ok(End::Exited(status))
}

fn interrupted() -> io::Result<impl Future<Output = &'static str>> {
    let (mut interrupt, mut terminate) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
    Ok(async move {
        tokio::select! {
            _ = interrupt.recv() => "SIGINT",
            _ = terminate.recv() => "SIGTERM",
        }
    })
}
