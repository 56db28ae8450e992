//! The inner process's standard input: a socket whose other end the outer process holds. When that end closes, the outer process
//! has died, and the sandbox must go too, unless it was told to stay.

use std::{
    fs::OpenOptions,
    io::{self, Read, Write},
    os::{fd::AsFd, unix::net::UnixStream},
    process,
    sync::mpsc::{Receiver, channel},
    thread,
};

use anyhow::{Context, Result};
use nix::unistd::{dup2_stderr, dup2_stdin, dup2_stdout};

/// "You may outlive me."
pub(super) const STAY: u8 = b's';

/// The inner end.
pub(super) struct Lifeline {
    stream: UnixStream,
    stay: Receiver<()>,
}

impl Lifeline {
    /// Takes standard input, and ends this process when the outer one is gone.
    pub(super) fn hold() -> Result<Self> {
        let stream = UnixStream::from(io::stdin().as_fd().try_clone_to_owned()?);
        let mut watched = stream.try_clone()?;
        let (told, stay) = channel();
        thread::spawn(move || {
            let mut word = [0];
            if watched.read_exact(&mut word).is_err() || word != [STAY] {
                process::exit(1);
            }
            let _ = told.send(());
        });
        Ok(Self { stream, stay })
    }

    /// Says that all is up, lets go of the terminal, and stays until something ends this process.
    pub(super) fn stay(mut self) -> Result<()> {
        self.stream.write_all(b"u")?;
        self.stay.recv().context("the outer process did not answer")?;
        let null = OpenOptions::new().read(true).write(true).open("/dev/null")?;
        dup2_stdin(&null)?;
        dup2_stdout(&null)?;
        dup2_stderr(&null)?;
        loop {
            thread::park();
        }
    }
}
