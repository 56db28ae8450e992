//! One issuer, and what foreign programs in its namespace get from it.

use std::{
    ops::{Deref, DerefMut},
    process::{Command, Output},
};

use isthmus_lab::{
    bins::Bins,
    issuer::{Issuer, entry},
};

use crate::program::{Language, Program};

/// The issuer, as it is, and programs that are told where it is.
pub(crate) struct Rig {
    issuer: Issuer,
}

impl Deref for Rig {
    type Target = Issuer;

    fn deref(&self) -> &Issuer {
        &self.issuer
    }
}

impl DerefMut for Rig {
    fn deref_mut(&mut self) -> &mut Issuer {
        &mut self.issuer
    }
}

impl Rig {
    pub(crate) fn start(bins: &Bins) -> Self {
        Self { issuer: Issuer::start(&entry("/ns/payments/sa/api", "unix:uid:0"), bins).unwrap() }
    }

    pub(crate) fn socket_text(&self) -> String {
        self.socket().display().to_string()
    }

    fn command(&self, language: Language, arguments: &[&str]) -> Command {
        let (program, first) = language.program();
        let mut command = self.issuer.netns().command(program).unwrap();
        command
            .args(first)
            .args(arguments)
            .env("SPIFFE_ENDPOINT_SOCKET", format!("unix://{}", self.socket_text()));
        command
    }

    /// Starts a program that tells what it sees.
    pub(crate) fn program(&self, language: Language, arguments: &[&str]) -> Program {
        Program::spawn(self.command(language, arguments))
    }

    fn run(&self, language: Language, arguments: &[&str]) -> (Output, String) {
        let output = self.command(language, arguments).output().unwrap();
        let said =
            format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        (output, said)
    }

    /// What a program says that succeeds.
    pub(crate) fn output(&self, language: Language, arguments: &[&str]) -> String {
        let (output, said) = self.run(language, arguments);
        assert!(output.status.success(), "{said}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// What a program says that fails.
    pub(crate) fn refusal(&self, language: Language, arguments: &[&str]) -> String {
        let (output, said) = self.run(language, arguments);
        assert!(!output.status.success(), "{said}");
        said
    }
}
