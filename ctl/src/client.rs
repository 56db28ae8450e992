//! Reaching a gRPC service on a unix socket, and saying what to do when it cannot be reached.

use std::io;
use std::os::unix::fs::FileTypeExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use hyper_util::rt::TokioIo;
use isthmus_proto::{WHY_IN_LOG, control::control_client::ControlClient};
use tokio::net::UnixStream;
use tonic::transport::{Channel, Endpoint, Uri};
use tonic::{Code, Status, Streaming};

use crate::failure::Failure;

/// How long the daemon may take over one answer. It answers from memory; more means that it hangs.
const ANSWER_WITHIN: Duration = Duration::from_secs(10);

/// The largest answer that is taken: room for a million routes, a bound against a daemon gone wrong.
pub(crate) const LARGEST_ANSWER: usize = 512 << 20;

/// A unix socket that a daemon listens on, with the words to talk about it.
#[derive(Clone, Debug)]
pub(crate) struct Server {
    socket: PathBuf,
    /// "isthmusd", "the Workload API".
    name: &'static str,
    /// Where the user sets the path: the option here and the key in isthmusd.toml.
    where_set: &'static str,
}

impl Server {
    /// The control API.
    pub(crate) fn control(socket: &Path) -> Self {
        Self {
            socket: socket.to_owned(),
            name: "isthmusd",
            where_set: "name its socket with --socket ([api] socket in isthmusd.toml)",
        }
    }

    /// The SPIFFE Workload API.
    pub(crate) fn workload(socket: &Path) -> Self {
        Self {
            socket: socket.to_owned(),
            name: "the Workload API",
            where_set: "name its socket with --workload-socket ([workload_api] socket in isthmusd.toml)",
        }
    }

    /// Opens a channel.
    ///
    /// # Errors
    /// [`Failure::is_unreachable`] with the socket, what the system says, what that means and what to do.
    pub(crate) async fn connect(&self) -> Result<Channel, Failure> {
        // Connected here, not in the connector, so that the system's own error is at hand.
        let stream = UnixStream::connect(&self.socket).await.map_err(|error| self.refused(&error))?;
        let mut stream = Some(TokioIo::new(stream));
        let connector = tower::service_fn(move |_: Uri| {
            let stream = stream.take().ok_or_else(|| {
                io::Error::other("the connection was closed, or what came over it is no gRPC")
            });
            async move { stream }
        });
        // The authority of a unix socket is by custom "localhost"; nothing resolves it.
        Endpoint::from_static("http://localhost")
            .timeout(ANSWER_WITHIN)
            .connect_with_connector(connector)
            .await
            .map_err(|error| self.hung_up(&error))
    }

    /// The words for an answer that is an error.
    pub(crate) fn failed(&self, status: &Status) -> Failure {
        let name = self.name;
        let message = status.message();
        match status.code() {
            Code::DeadlineExceeded | Code::Cancelled => Failure::unreachable(
                format!("{name} at {} gave no answer within {} s", self.socket.display(), ANSWER_WITHIN.as_secs()),
                "the process hangs or is stopped: see journalctl -u isthmusd",
            ),
            _ if is_transport(status) => self.hung_up(status),
            Code::Unavailable if message.contains(WHY_IN_LOG) => Failure::failed(format!("{name}: {message}")).with_help(
                "journalctl -u isthmusd names the file and the reason (for an audit log: make room on its disk); once that is mended it goes on by itself",
            ),
            Code::Unavailable => Failure::unreachable(
                format!("{name} at {} is not available: {message}", self.socket.display()),
                "it is starting or stopping: try again, or see journalctl -u isthmusd",
            ),
            Code::Unimplemented => Failure::failed(format!("{name} does not know this request"))
                .with_help("isthmusctl and isthmusd are of different versions: compare isthmusctl --version with isthmusd --version"),
            Code::InvalidArgument => Failure::usage(format!("{name}: {message}")),
            Code::OutOfRange => Failure::failed(format!("{name} sent an answer that cannot be taken: {message}")),
            _ => Failure::failed(format!("{name}: {message}")),
        }
    }

    fn refused(&self, error: &io::Error) -> Failure {
        let (meaning, remedy) = self.explain(error);
        let help = format!("{meaning}: {remedy}");
        Failure::unreachable(
            format!("cannot reach {} at {}: {error}", self.name, self.socket.display()),
            help,
        )
    }

    fn explain(&self, error: &io::Error) -> (&'static str, String) {
        let start = "start it with systemctl start isthmusd";
        match error.kind() {
            io::ErrorKind::NotFound => (
                "there is no such socket, so it is not running or listens elsewhere",
                format!("{start}, or {}", self.where_set),
            ),
            io::ErrorKind::ConnectionRefused if !self.is_socket() => {
                ("that path is no socket", self.where_set.to_owned())
            }
            io::ErrorKind::ConnectionRefused => (
                "the socket is there but nobody listens, so it has stopped",
                format!("{start}, and see journalctl -u isthmusd"),
            ),
            io::ErrorKind::PermissionDenied => (
                "this user may not open the socket",
                "run as root, or as a member of the group that owns it".to_owned(),
            ),
            io::ErrorKind::WouldBlock => {
                ("its queue of connections is full, so it hangs", "see journalctl -u isthmusd".to_owned())
            }
            io::ErrorKind::InvalidInput => ("a socket path has at most 107 bytes", self.where_set.to_owned()),
            _ => ("the system refused", self.where_set.to_owned()),
        }
    }

    fn is_socket(&self) -> bool {
        // Unreadable metadata leave the likelier case: a socket without a listener.
        std::fs::metadata(&self.socket).map_or(true, |metadata| metadata.file_type().is_socket())
    }

    fn hung_up(&self, error: &dyn std::error::Error) -> Failure {
        Failure::unreachable(
            format!(
                "{} at {} gave no answer but an error: {}",
                self.name,
                self.socket.display(),
                root_cause(error)
            ),
            format!("it stopped just now, or something else listens there: try again, or {}", self.where_set),
        )
    }
}

/// The next part of an answer that comes in parts, each of which may take as long as a whole one.
pub(crate) async fn next<T>(parts: &mut Streaming<T>) -> Result<Option<T>, Status> {
    let late = |_| Status::deadline_exceeded("a part of the answer is late");
    tokio::time::timeout(ANSWER_WITHIN, parts.message()).await.map_err(late)?
}

/// A client of the control API on a connection.
pub(crate) fn control(channel: Channel) -> ControlClient<Channel> {
    ControlClient::new(channel).max_decoding_message_size(LARGEST_ANSWER)
}

/// The status was made here from a broken connection, not sent by the server.
fn is_transport(status: &Status) -> bool {
    std::error::Error::source(status).is_some()
}

fn root_cause(error: &dyn std::error::Error) -> String {
    let mut cause = error;
    while let Some(deeper) = cause.source() {
        cause = deeper;
    }
    cause.to_string()
}
