//! The programs that are compared, and where they are.

use std::{
    env, fmt,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use anyhow::{Context, Result, bail, ensure};
use clap::ValueEnum;
use isthmus_lab::router::Kind;
use serde::{Deserialize, Serialize};

/// Installs every rival.
const INSTALLER: &str = "bench/install-rivals.sh installs it";

/// A program that carries packets, or one that speaks BGP; ours does both.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Name {
    /// Our daemon.
    Isthmus,
    /// WireGuard's own, in Go.
    WireguardGo,
    /// Cloudflare's, in Rust.
    BoringtunCli,
    /// Mullvad's, in Rust.
    Gotatun,
    /// The speaker of most route servers, in C.
    Bird,
    /// What became of Quagga, in C.
    Frr,
    /// The speaker inside of Cilium, in Go.
    Gobgp,
}

impl Name {
    /// Those that carry packets, ours first.
    pub(crate) const TUNNELS: [Self; 4] =
        [Self::Isthmus, Self::WireguardGo, Self::BoringtunCli, Self::Gotatun];
    /// Those that speak BGP, ours first.
    pub(crate) const SPEAKERS: [Self; 4] = [Self::Isthmus, Self::Bird, Self::Frr, Self::Gobgp];

    fn program(self) -> &'static str {
        match self {
            Self::Isthmus => "isthmusd",
            Self::WireguardGo => "wireguard-go",
            Self::BoringtunCli => "boringtun-cli",
            Self::Gotatun => "gotatun",
            Self::Bird => Kind::Bird.program(),
            Self::Frr => Kind::Frr.program(),
            Self::Gobgp => Kind::Gobgp.program(),
        }
    }

    /// Arguments before the name of the interface: stay in the foreground, keep root.
    pub(crate) fn arguments(self) -> &'static [&'static str] {
        match self {
            Self::Isthmus | Self::Bird | Self::Frr | Self::Gobgp => &[],
            Self::WireguardGo => &["-f"],
            Self::BoringtunCli | Self::Gotatun => &["-f", "--disable-drop-privileges"],
        }
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.to_possible_value().map_or(Ok(()), |value| f.write_str(value.get_name()))
    }
}

/// A program that takes part.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Contender {
    /// Which.
    pub(crate) name: Name,
    /// Its file.
    pub(crate) path: PathBuf,
    /// What it says of itself.
    pub(crate) version: String,
}

/// What the caller wants of the selection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wanted<'a> {
    /// Those that can be compared.
    pub(crate) of: &'a [Name],
    /// Of these, none of which may be missing; empty: all that there are.
    pub(crate) names: &'a [Name],
    /// Our daemon; `None`: the one beside this program.
    pub(crate) isthmusd: Option<&'a Path>,
    /// Also a daemon that was built without optimisation.
    pub(crate) allow_debug: bool,
}

/// Finds the programs; `skip` hears of each that is left out.
///
/// # Errors
/// When one that was named is missing, or our daemon is one that says nothing about speed.
pub(crate) fn select(wanted: Wanted<'_>, mut skip: impl FnMut(String)) -> Result<Vec<Contender>> {
    let names = if wanted.names.is_empty() { wanted.of } else { wanted.names };
    let mut found = Vec::new();
    for name in names {
        ensure!(wanted.of.contains(name), "{name} can't be compared here");
        ensure!(found.iter().all(|contender: &Contender| contender.name != *name), "{name} is named twice");
        let path = if *name == Name::Isthmus { ours(wanted).map(Some) } else { Ok(on_path(name.program())) }?;
        match path {
            Some(path) => found.push(Contender { name: *name, version: version(&path)?, path }),
            None if wanted.names.is_empty() => skip(format!("{name}: not on PATH ({INSTALLER})")),
            None => bail!("{name} is not on PATH: {INSTALLER}"),
        }
    }
    Ok(found)
}

fn ours(wanted: Wanted<'_>) -> Result<PathBuf> {
    let beside = || Ok::<_, anyhow::Error>(env::current_exe()?.with_file_name("isthmusd"));
    let path = wanted.isthmusd.map_or_else(beside, |path| Ok(path.to_owned()))?;
    let path = path.canonicalize().with_context(|| {
        format!(
            "no {}: build it (cargo build --release -p isthmusd), or name it by --isthmusd",
            path.display()
        )
    })?;
    let debug = path.parent().is_some_and(|dir| dir.ends_with("debug"));
    ensure!(
        wanted.allow_debug || !debug,
        "{} is a debug build, which says nothing about speed: cargo build --release -p isthmusd -p isthmus-bench, or --allow-debug",
        path.display()
    );
    Ok(path)
}

/// Makes sure that this program may carry packets itself.
///
/// # Errors
/// When it was built without optimisation and that was not asked for.
pub(crate) fn check_self(allow_debug: bool) -> Result<()> {
    ensure!(
        allow_debug || !cfg!(debug_assertions),
        "this is a debug build, and the near end runs inside of it: cargo build --release -p isthmus-bench, or --allow-debug"
    );
    Ok(())
}

/// Makes sure that the tools that measure are there.
///
/// # Errors
/// The first that is missing, and how to get it.
pub(crate) fn check_tools(contenders: &[Contender]) -> Result<()> {
    let rivals = contenders.iter().any(|contender| contender.name != Name::Isthmus);
    for (tool, package, needed) in
        [("iperf3", "iperf3", true), ("ping", "iputils-ping", true), ("wg", "wireguard-tools", rivals)]
    {
        ensure!(!needed || on_path(tool).is_some(), "{tool} is not on PATH: apt-get install {package}");
    }
    Ok(())
}

/// Makes sure that there is what cuts paths.
///
/// # Errors
/// When it is missing, and how to get it.
pub(crate) fn check_cutter() -> Result<()> {
    ensure!(on_path("nft").is_some(), "nft is not on PATH: {INSTALLER}");
    Ok(())
}

/// A path that begins with a slash stays what it is, whatever it is joined to.
fn on_path(program: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH")?;
    env::split_paths(&path).map(|dir| dir.join(program)).find(|file| file.is_file())
}

/// The first line of `--version`, which each of them knows.
fn version(path: &Path) -> Result<String> {
    let mut command = Command::new(path);
    let output = command.arg("--version").stdin(Stdio::null()).output();
    let output = output.with_context(|| format!("running {} --version", path.display()))?;
    // BIRD says it on standard error.
    let said = if output.stdout.is_empty() { output.stderr } else { output.stdout };
    let said = String::from_utf8_lossy(&said);
    Ok(said.lines().next().unwrap_or_default().trim().to_owned())
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::PermissionsExt};

    use super::*;

    fn program(dir: &Path) -> PathBuf {
        fs::create_dir_all(dir).unwrap();
        let path = dir.join("isthmusd");
        fs::write(&path, "#!/bin/sh\necho isthmusd 1.2.3\necho more\n").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        path
    }

    fn select_ours(path: &Path, allow_debug: bool) -> Result<Vec<Contender>> {
        let wanted =
            Wanted { of: &Name::TUNNELS, names: &[Name::Isthmus], isthmusd: Some(path), allow_debug };
        select(wanted, |why| panic!("{why}"))
    }

    #[test]
    fn a_debug_build_is_refused_unless_asked_for() {
        let dir = tempfile::tempdir().unwrap();
        let (release, debug) = (program(&dir.path().join("release")), program(&dir.path().join("debug")));
        let found = select_ours(&release, false).unwrap();
        assert_eq!((found.len(), found[0].version.as_str()), (1, "isthmusd 1.2.3"));
        assert!(select_ours(&debug, false).unwrap_err().to_string().contains("--allow-debug"));
        assert_eq!(select_ours(&debug, true).unwrap().len(), 1);
    }

    #[test]
    fn a_missing_daemon_is_an_error_with_its_remedy() {
        let error = format!("{:#}", select_ours(Path::new("/nonexistent/isthmusd"), false).unwrap_err());
        assert!(
            error.contains("/nonexistent/isthmusd") && error.contains("cargo build --release"),
            "{error}"
        );
    }

    #[test]
    fn a_program_cannot_run_against_itself() {
        let dir = tempfile::tempdir().unwrap();
        let path = program(dir.path());
        let names = [Name::Isthmus, Name::Isthmus];
        let wanted = |names| Wanted { of: &Name::TUNNELS, names, isthmusd: Some(&path), allow_debug: false };
        assert!(select(wanted(&names), |_| ()).unwrap_err().to_string().contains("twice"));
        let error = select(wanted(&[Name::Bird]), |_| ()).unwrap_err().to_string();
        assert_eq!(error, "bird can't be compared here");
    }

    #[test]
    fn names_are_those_of_the_command_line() {
        for name in Name::TUNNELS.into_iter().chain(Name::SPEAKERS) {
            assert_eq!(serde_json::to_value(name).unwrap(), name.to_string());
        }
    }
}
