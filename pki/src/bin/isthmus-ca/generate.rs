//! `generate`: completions and man pages, for packagers.

use std::{fs, path::PathBuf};

use anyhow::Context as _;
use clap::{CommandFactory as _, ValueEnum as _};
use clap_complete::Shell;

use crate::{Cli, files};

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Directory; made if missing.
    out: PathBuf,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let name = || args.out.display().to_string();
    files::make_dir(&args.out)?;
    let mut command = Cli::command();
    for shell in Shell::value_variants() {
        clap_complete::generate_to(*shell, &mut command, "isthmus-ca", &args.out).with_context(name)?;
    }
    let mut page = Vec::new();
    clap_mangen::Man::new(command).render(&mut page).with_context(name)?;
    fs::write(args.out.join("isthmus-ca.1"), page).with_context(name)
}
