//! Can this machine make a sandbox, and how?

use std::{
    env, fs,
    io::Read,
    process::{Command, Stdio},
};

use nix::unistd::geteuid;

use super::enter::{Lifetime, enter_on_exec};

/// How a sandbox can be made here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Support {
    /// We have the privilege: no user namespace is needed.
    Root,
    /// Inside a new user namespace, whose root is this user.
    UserNamespace,
    /// Not at all, and why.
    None(String),
}

/// Tries it, rather than guess from settings that differ between distributions.
pub fn support() -> Support {
    let user = !is_privileged() || env::var_os("ISTHMUS_LAB_USERNS").is_some();
    let why = match attempt(user) {
        Ok(()) if user => return Support::UserNamespace,
        Ok(()) => return Support::Root,
        Err(why) => why,
    };
    let remedy = if user {
        "run as root, or allow user namespaces (sysctl user.max_user_namespaces, kernel.apparmor_restrict_unprivileged_userns)"
    } else {
        "give this root CAP_SYS_ADMIN and CAP_NET_ADMIN, or set ISTHMUS_LAB_USERNS=1"
    };
    Support::None(format!("{why}; {remedy}"))
}

/// Root in name is not root in fact inside a container.
fn is_privileged() -> bool {
    const NET_ADMIN: u64 = 1 << 12;
    const SYS_ADMIN: u64 = 1 << 21;
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let effective = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let capabilities = effective.and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok()).unwrap_or(0);
    geteuid().is_root() && capabilities & (NET_ADMIN | SYS_ADMIN) == NET_ADMIN | SYS_ADMIN
}

fn attempt(user: bool) -> Result<(), String> {
    let mut command = Command::new("/proc/self/exe");
    command.arg("--help").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    let spawned = enter_on_exec(&mut command, Lifetime::Caller, user).spawn();
    let mut child = spawned.map_err(|error| format!("no new namespaces: {error}"))?;
    let mut said = String::new();
    if let Some(mut stderr) = child.stderr.take() {
        let _ = stderr.read_to_string(&mut said);
    }
    match child.wait() {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("the trial sandbox ended with {status}: {}", said.trim())),
        Err(error) => Err(format!("the trial sandbox: {error}")),
    }
}
