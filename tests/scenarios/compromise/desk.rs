//! Where people sit in an incident: a directory with the root's and the sites' files, a shell, and the page that they go by.

use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
};

use isthmus_lab::{bins::Bins, files::write_secret, node::Node};

/// The passphrase of every root here.
pub(super) const PASSPHRASE: &str = "correct horse battery staple";

/// A person would type the passphrase, once for each root.
const CA: &str = r#"#!/bin/sh
roots=0
for word in "$@"; do [ "$word" = --root ] && roots=$((roots + 1)); done
case "$1 $2" in
    "root init") roots=1 ;;
    "site sign" | "crl sign" | "charter sign") ;;
    *) roots=0 ;;
esac
while [ $roots -gt 0 ]; do
    set -- "$@" --passphrase-file pass
    roots=$((roots - 1))
done
"#;

/// A directory and the commands that are typed in it.
pub(super) struct Desk(PathBuf);

impl Desk {
    pub(super) fn new(dir: PathBuf, bins: &Bins) -> Self {
        fs::create_dir_all(dir.join("bin")).unwrap();
        write_secret(&dir.join("pass"), PASSPHRASE).unwrap();
        let program = |name: &str, text: String| {
            let path = dir.join("bin").join(name);
            fs::write(&path, text).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        };
        program("isthmus-ca", format!("{CA}exec {} \"$@\"\n", bins.isthmus_ca.display()));
        let ctl = bins.isthmusctl.display();
        program(
            "isthmusctl",
            format!("#!/bin/sh\nexec {ctl} ${{ISTHMUS_SOCKET:+--socket \"$ISTHMUS_SOCKET\"}} \"$@\"\n"),
        );
        program("systemctl", "#!/bin/sh\nkill -HUP \"$ISTHMUSD\"\n".into());
        Self(dir)
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    pub(super) fn write(&self, name: &str, text: &str) {
        fs::write(self.path(name), text).unwrap();
    }

    /// Types this, at that node or at the root machine.
    pub(super) fn types(&self, at: Option<&Node>, script: &str) -> Output {
        let mut shell = Command::new("sh");
        shell.arg("-ec").arg(script).current_dir(&self.0).stdin(Stdio::null());
        let path = std::env::var("PATH").unwrap_or_default();
        shell.env("PATH", format!("{}:{path}", self.path("bin").display()));
        if let Some(node) = at {
            shell.env("ISTHMUS_SOCKET", node.socket());
            shell.env("ISTHMUSD", node.pid().unwrap_or_default().to_string());
        }
        shell.output().unwrap()
    }

    /// What succeeds says this.
    pub(super) fn ok(&self, at: Option<&Node>, script: &str) -> String {
        let output = self.types(at, script);
        let said = said(&output);
        assert!(output.status.success(), "{script}\n{said}{}", at.map(Node::log_tail).unwrap_or_default());
        said
    }

    /// What is refused says why.
    pub(super) fn refused(&self, at: Option<&Node>, script: &str) -> String {
        let output = self.types(at, script);
        assert!(matches!(output.status.code(), Some(1 | 2)), "{script}\n{}", said(&output));
        said(&output)
    }
}

fn said(output: &Output) -> String {
    [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text).into_owned()).concat()
}

/// A section of the page on incidents: its commands, as they are to be typed.
pub(super) struct Page(Vec<Vec<String>>);

impl Page {
    pub(super) fn section(title: &str) -> Self {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/how-to/compromise.md");
        let text = fs::read_to_string(path).unwrap();
        let (_, section) = text.split_once(&format!("## {title}\n")).expect("the page has this section");
        let section = section.split("\n## ").next().unwrap_or_default();
        let blocks = section.split("```sh\n").skip(1);
        let lines = |block: &str| {
            let commands = block.split("```").next().unwrap_or_default().replace("\\\n", " ");
            commands.lines().map(without_comment).filter(|line| !line.is_empty()).collect()
        };
        Self(blocks.map(lines).collect())
    }

    /// The lines of the next block.
    pub(super) fn next(&mut self) -> Vec<String> {
        self.0.remove(0)
    }

    pub(super) fn is_over(&self) -> bool {
        self.0.is_empty()
    }
}

fn without_comment(line: &str) -> String {
    line.split(" # ").next().unwrap_or_default().trim().to_owned()
}
