//! `isthmusctl generate`: completions and manual pages from the one definition of the command line.

use std::path::Path;

use clap::CommandFactory as _;

use crate::cli::{Arguments, Generate};
use crate::failure::Failure;

/// Prints a completion script, or writes the manual pages.
///
/// # Errors
/// Output that cannot be written.
pub(crate) fn generate(what: Generate) -> Result<(), Failure> {
    match what {
        Generate::Completions { shell } => completions(shell),
        Generate::Man { directory } => man(&directory),
    }
}

fn completions(shell: clap_complete::Shell) -> Result<(), Failure> {
    use std::io::Write as _;
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Arguments::command(), "isthmusctl", &mut script);
    let mut stdout = std::io::stdout().lock();
    stdout.write_all(&script)?;
    stdout.flush()?;
    Ok(())
}

fn man(directory: &Path) -> Result<(), Failure> {
    let written = std::fs::create_dir_all(directory)
        .and_then(|()| clap_mangen::generate_to(Arguments::command(), directory));
    written.map_err(|error| {
        Failure::failed(format!("cannot write manual pages into {}: {error}", directory.display()))
    })
}
