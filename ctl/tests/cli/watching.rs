//! `--watch`: an answer each second, and on across a restart of the daemon.

use std::io::{BufRead as _, BufReader, Lines};
use std::process::{Child, ChildStdout, Stdio};

use crate::answers;
use crate::isthmusctl;
use crate::server::Server;

/// A running `--watch`, ended when the test ends.
struct Watch {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Watch {
    fn start(server: &Server, arguments: &str) -> Self {
        let mut child = isthmusctl()
            .arg("--socket")
            .arg(server.socket())
            .args(arguments.split(' '))
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the binary starts");
        let lines = BufReader::new(child.stdout.take().expect("piped")).lines();
        Self { child, lines }
    }

    fn line(&mut self) -> String {
        self.lines.next().expect("more to come").expect("UTF-8")
    }

    /// Waits for a line of stderr.
    fn complaint(&mut self) -> String {
        let mut line = String::new();
        BufReader::new(self.child.stderr.take().expect("piped, asked once"))
            .read_line(&mut line)
            .expect("UTF-8");
        line
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        // Both fail only when it has ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn json_is_one_document_a_line() {
    let server = Server::start(answers::healthy());
    let mut watch = Watch::start(&server, "peers --watch -o json");
    for _ in 0..2 {
        let document = serde_json::from_str::<serde_json::Value>(&watch.line()).expect("a whole document");
        assert_eq!(document["peers"][0]["name"], "azure-gw1");
    }
}

#[test]
fn yaml_is_a_stream_of_documents() {
    let server = Server::start(answers::empty());
    let mut watch = Watch::start(&server, "peers --watch -o yaml");
    let lines = [watch.line(), watch.line(), watch.line(), watch.line()];
    assert_eq!(lines, ["---", "schema: isthmus.v1/peers", "peers: []", "---"]);
}

#[test]
fn tables_into_a_pipe_are_separated_by_an_empty_line() {
    let server = Server::start(answers::empty());
    let mut watch = Watch::start(&server, "peers --watch");
    assert_eq!([watch.line(), watch.line(), watch.line()], ["no tunnel peers", "", "no tunnel peers"]);
}

#[test]
fn it_says_that_the_daemon_is_gone_and_goes_on_when_it_is_back() {
    let server = Server::start(answers::empty());
    let mut watch = Watch::start(&server, "peers --watch -o json");
    assert_eq!(watch.line(), r#"{"schema":"isthmus.v1/peers","peers":[]}"#);
    let directory = server.stop();
    let complaint = watch.complaint();
    assert!(complaint.contains("isthmusctl: error: "), "{complaint}");
    let _server = Server::start_in(directory, answers::healthy());
    let back = std::iter::from_fn(|| Some(watch.line())).find(|line| line.contains("azure-gw1"));
    assert!(back.is_some());
}
