//! Programs that use a foreign SPIFFE library and tell by lines of JSON what they see.

use std::{
    io::{BufRead as _, BufReader},
    process::{Child, Command, Stdio},
    sync::mpsc::{Receiver, channel},
    thread,
    time::Duration,
};

use isthmus_lab::peers;
use serde_json::Value;

const LIMIT: Duration = Duration::from_secs(30);
const PYTHON: &str = "/usr/local/lib/isthmus-peers/python/bin/python";
const CLIENT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/interop/spiffe/python/client.py");
const GO: &str = "/usr/local/bin/isthmus-peer-spiffe";

/// Whose library.
#[derive(Clone, Copy)]
pub(crate) enum Language {
    Python,
    Go,
}

/// False after a line that says what is missing; where peers are required, that is a failure.
pub(crate) fn installed(test: &str) -> bool {
    peers::installed(test, &[PYTHON, GO])
}

impl Language {
    /// Program and first arguments.
    pub(crate) fn program(self) -> (&'static str, &'static [&'static str]) {
        match self {
            Self::Python => (PYTHON, &[CLIENT]),
            Self::Go => (GO, &[]),
        }
    }

    /// The default identity in a line of `watch`.
    pub(crate) fn id(self, line: &Value) -> &str {
        let id = match self {
            Self::Python => &line["id"],
            Self::Go => &line["ids"][0],
        };
        id.as_str().unwrap_or_default()
    }

    /// The serial number in a line of `watch`.
    pub(crate) fn serial(self, line: &Value) -> String {
        let serial = match self {
            Self::Python => &line["serial"],
            Self::Go => &line["serials"][0],
        };
        serial.as_str().unwrap_or_default().to_owned()
    }
}

/// A running program. It is told to end, and if need be killed, when this is dropped.
pub(crate) struct Program {
    child: Child,
    lines: Receiver<String>,
}

impl Program {
    pub(crate) fn spawn(mut command: Command) -> Self {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        let (sender, lines) = channel();
        thread::spawn(move || {
            for line in output.lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        Self { child, lines }
    }

    /// The next line of JSON; whatever else is said is passed over.
    pub(crate) fn line(&mut self) -> Value {
        loop {
            if let Ok(value) = serde_json::from_str(&self.text()) {
                return value;
            }
        }
    }

    /// The next line that begins so; whatever else is said is passed over.
    pub(crate) fn line_of(&mut self, beginning: &str) -> String {
        loop {
            let line = self.text();
            if line.starts_with(beginning) {
                return line;
            }
        }
    }

    fn text(&mut self) -> String {
        self.lines.recv_timeout(LIMIT).expect("the program says something in time")
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        for _ in 0..50 {
            if matches!(self.child.try_wait(), Ok(Some(_))) {
                return;
            }
            thread::sleep(Duration::from_millis(100));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
