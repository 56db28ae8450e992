//! The real binaries, built as this one was.

use std::{
    env,
    ffi::OsString,
    io::{self, IsTerminal},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::OnceLock,
};

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

/// Paths of the programs that a fabric is made of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bins {
    /// The daemon.
    pub isthmusd: PathBuf,
    /// Its command.
    pub isthmusctl: PathBuf,
    /// The ceremony.
    pub isthmus_ca: PathBuf,
}

const NAMES: [&str; 3] = ["isthmusd", "isthmusctl", "isthmus-ca"];
static BUILT: OnceLock<Result<Bins, String>> = OnceLock::new();

impl Bins {
    /// Builds them once per process, with cargo, in this program's own profile and target directory; but a program that was not
    /// started by cargo takes those that lie beside it, if all do.
    ///
    /// A sandbox has no network: build before it is entered, and pass the paths on.
    ///
    /// # Errors
    /// When cargo fails; it has said why on standard error.
    pub fn build() -> Result<Self> {
        let built = BUILT.get_or_init(|| build().map_err(|error| format!("{error:#}")));
        built.clone().map_err(anyhow::Error::msg)
    }

    /// Those that an outer process passed on by [`Bins::export`].
    ///
    /// # Errors
    /// When there was none.
    pub fn from_env() -> Result<Self> {
        Self::find(|name| env::var_os(variable(name)).map(PathBuf::from))
    }

    /// Tells a child process, for [`Bins::from_env`].
    pub fn export(&self, command: &mut Command) {
        for (name, path) in NAMES.iter().zip([&self.isthmusd, &self.isthmusctl, &self.isthmus_ca]) {
            command.env(variable(name), path);
        }
    }

    fn find(mut path_of: impl FnMut(&str) -> Option<PathBuf>) -> Result<Self> {
        let mut path = |name| path_of(name).with_context(|| format!("no path of {name} is known"));
        Ok(Self { isthmusd: path(NAMES[0])?, isthmusctl: path(NAMES[1])?, isthmus_ca: path(NAMES[2])? })
    }
}

/// `ISTHMUS_LAB_BIN_ISTHMUS_CA` for `isthmus-ca`.
fn variable(name: &str) -> String {
    format!("ISTHMUS_LAB_BIN_{}", name.to_uppercase().replace('-', "_"))
}

fn build() -> Result<Bins> {
    let exe = env::current_exe().context("the path of this program")?;
    let cargo = env::var_os("CARGO");
    if let (None, Ok(beside)) = (&cargo, beside(&exe)) {
        return Ok(beside);
    }
    let cargo = cargo.unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(&cargo);
    about_us().for_each(|variable| _ = command.env_remove(variable));
    command
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .arg("build")
        .arg("--message-format=json-render-diagnostics");
    // A person sees the build's progress; a test's log does not need it.
    command.args((!io::stderr().is_terminal()).then_some("--quiet"));
    command.args(["-p", "isthmusd", "-p", "isthmusctl", "-p", "isthmus-pki", "--bins"]);
    command.args(same_place(&exe)?).stdin(Stdio::null()).stderr(Stdio::inherit());
    let output = command.output().with_context(|| format!("running {} build", cargo.display()))?;
    ensure!(output.status.success(), "cargo build ended with {}", output.status);
    let messages = String::from_utf8_lossy(&output.stdout);
    let executables: Vec<PathBuf> = messages.lines().filter_map(executable).collect();
    Bins::find(|name| {
        executables.iter().find(|path| path.file_stem().is_some_and(|stem| stem == name)).cloned()
    })
}

/// Variables by which cargo tells us of this package: build scripts that watch them would take the inner build for another one, and
/// everything above them would be built anew for each test.
fn about_us() -> impl Iterator<Item = OsString> {
    let ours =
        ["CARGO_PKG_", "CARGO_MANIFEST_", "CARGO_BIN_EXE_", "CARGO_CRATE_NAME", "CARGO_PRIMARY_PACKAGE"];
    let names = env::vars_os().map(|(name, _)| name);
    names.filter(move |name| ours.iter().any(|start| name.to_string_lossy().starts_with(start)))
}

fn beside(exe: &Path) -> Result<Bins> {
    Bins::find(|name| Some(exe.with_file_name(name)).filter(|path| path.is_file()))
}

fn executable(message: &str) -> Option<PathBuf> {
    let message: Value = serde_json::from_str(message).ok()?;
    Some(message.get("executable")?.as_str()?.into())
}

/// Arguments that make cargo build where `exe` was built: TARGET[/TRIPLE]/PROFILE[/deps]/exe, where TARGET holds what cargo knows of
/// the compiler. (The cache tag is no mark: cargo writes it only into a directory that it made itself.)
fn same_place(exe: &Path) -> Result<Vec<String>> {
    let target = exe.ancestors().find(|dir| dir.join(".rustc_info.json").is_file());
    let target = target.with_context(|| format!("{} is not in a cargo target directory", exe.display()))?;
    let mut arguments = vec!["--target-dir".to_owned(), target.display().to_string()];
    let below: Vec<_> =
        exe.strip_prefix(target)?.iter().map(|part| part.to_string_lossy().into_owned()).collect();
    let below = below.strip_suffix(&below[below.len().saturating_sub(1)..]).unwrap_or(&below);
    let profile = match below {
        [profile] => profile,
        [profile, deps] if deps == "deps" => profile,
        [triple, profile] | [triple, profile, _] => {
            arguments.extend(["--target".to_owned(), triple.clone()]);
            profile
        }
        _ => bail!("{} is not where cargo puts programs", exe.display()),
    };
    let profile = if profile == "debug" { "dev" } else { profile };
    arguments.extend(["--profile".to_owned(), profile.to_owned()]);
    Ok(arguments)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn builds_where_this_program_was_built() {
        let target = tempfile::tempdir().unwrap();
        std::fs::write(target.path().join(".rustc_info.json"), "").unwrap();
        let arguments = |below: &str| same_place(&target.path().join(below)).unwrap()[2..].join(" ");
        assert_eq!(arguments("debug/isthmus-lab"), "--profile dev");
        assert_eq!(arguments("release/deps/lab-0f"), "--profile release");
        assert_eq!(
            arguments("x86_64-unknown-linux-musl/debug/deps/lab-0f"),
            "--target x86_64-unknown-linux-musl --profile dev"
        );
        assert_eq!(
            arguments("x86_64-unknown-linux-musl/release/lab"),
            "--target x86_64-unknown-linux-musl --profile release"
        );
        assert!(same_place(Path::new("/usr/bin/true")).is_err());
    }
}
