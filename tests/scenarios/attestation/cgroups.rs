//! Real cgroups, taken away at the end.

use std::{
    fs,
    path::{Path, PathBuf},
};

/// A cgroup, with those above it that had to be made.
pub(crate) struct Cgroup {
    path: PathBuf,
    made: Vec<PathBuf>,
}

impl Cgroup {
    /// `None`: there can't be one here.
    pub(crate) fn new(below: &str) -> Option<Self> {
        let bases = ["/sys/fs/cgroup/systemd", "/sys/fs/cgroup/unified", "/sys/fs/cgroup"];
        let base = bases.iter().map(Path::new).find(|base| base.join("cgroup.procs").exists())?;
        let mut cgroup = Self { path: base.to_owned(), made: Vec::new() };
        for part in below.split('/') {
            cgroup.path.push(part);
            match fs::create_dir(&cgroup.path) {
                Ok(()) => cgroup.made.push(cgroup.path.clone()),
                Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
                Err(_) => return None,
            }
        }
        fs::write(cgroup.path.join("cgroup.procs"), "").is_ok().then_some(cgroup)
    }

    /// For a shell: moves itself there.
    pub(crate) fn enter(&self) -> String {
        format!("echo 0 > {}/cgroup.procs && ", self.path.display())
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        for path in self.made.iter().rev() {
            // Another test's cgroup may be below: then it takes this one away.
            let _ = fs::remove_dir(path);
        }
    }
}
