//! One connection: its socket, its HTTP/2 state and the calls that are open on it, in one task without buffers of its own.
//!
//! Everything is done when the task is woken: read what has arrived, ask each call for what it has to say as long as the client has room
//! for it, and send. Nothing is read while much waits to be sent, so a client that does not read is not served either.

use std::{
    io,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Instant,
};

use http::{HeaderName, HeaderValue, Request};
use isthmus_http2::{Code, Connection, Event};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::UnixStream,
};
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};
use tonic::service::Routes;
use tower::Service as _;

use super::{
    admission::Place,
    call::{Call, Turn},
    connection::Peer,
    inbox::{Inbox, Incoming},
};

/// Most that is read at a time. It lies on the thread's stack: no connection keeps it.
const READ: usize = 8 << 10;

/// Serves one connection to its end.
pub(super) struct Exchange {
    socket: UnixStream,
    connection: Connection,
    calls: Vec<Call>,
    routes: Routes,
    peer: Peer,
    stop: Option<Pin<Box<WaitForCancellationFutureOwned>>>,
    /// No more is read or answered: the rest is sent, and that is the end.
    is_over: bool,
    _place: Place,
}

impl Exchange {
    pub(super) fn new(
        socket: UnixStream,
        peer: Peer,
        place: Place,
        routes: Routes,
        shutdown: CancellationToken,
    ) -> Self {
        let stop = Some(Box::pin(shutdown.cancelled_owned()));
        let connection = Connection::default();
        Self { socket, connection, calls: Vec::new(), routes, peer, stop, is_over: false, _place: place }
    }

    /// True if something was read.
    fn read(&mut self, cx: &mut Context<'_>) -> io::Result<bool> {
        if self.is_over || self.connection.is_full() {
            return Ok(false);
        }
        let mut space = [0; READ];
        let mut buffer = ReadBuf::new(&mut space);
        let Poll::Ready(result) = Pin::new(&mut self.socket).poll_read(cx, &mut buffer) else {
            return Ok(false);
        };
        result?;
        if buffer.filled().is_empty() {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        match self.connection.receive(buffer.filled(), Instant::now()) {
            Ok(events) => events.into_iter().for_each(|event| self.handle(event)),
            Err(fault) => {
                tracing::debug!(%fault, "a connection to the Workload API is cut");
                self.calls = Vec::new();
                self.is_over = true;
            }
        }
        Ok(true)
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::Request { stream, request, is_last } => self.begin(stream, request, is_last),
            Event::Data { stream, bytes, is_last } => {
                let taken = self.calls.iter_mut().find(|call| call.stream == stream);
                if !taken.is_some_and(|call| call.hear(&bytes, is_last)) {
                    self.connection.read(stream, bytes.len());
                }
            }
            Event::Reset { stream } => self.calls.retain(|call| call.stream != stream),
        }
    }

    fn begin(&mut self, stream: u32, request: isthmus_http2::Request, is_last: bool) {
        let (inbox, body) = Inbox::new(is_last);
        let Some(mut request) = to_http(request, body) else {
            return self.connection.reset(stream, Code::Protocol);
        };
        request.extensions_mut().insert::<Peer>(Arc::clone(&self.peer));
        // Exactly: most connections have one call, for hours.
        self.calls.reserve_exact(1);
        self.calls.push(Call::new(stream, inbox, self.routes.call(request)));
    }

    /// True if a call has said something.
    fn answer(&mut self, cx: &mut Context<'_>) -> bool {
        let before = self.connection.output().len();
        let connection = &mut self.connection;
        self.calls.retain_mut(|call| call.advance(connection, cx) == Turn::Open);
        if self.calls.is_empty() {
            self.calls = Vec::new();
        }
        self.connection.output().len() != before
    }

    /// True if something was sent.
    fn write(&mut self, cx: &mut Context<'_>) -> io::Result<bool> {
        let mut is_sent = false;
        while !self.connection.output().is_empty() {
            let Poll::Ready(sent) = Pin::new(&mut self.socket).poll_write(cx, self.connection.output())
            else {
                break;
            };
            match sent? {
                0 => return Err(io::ErrorKind::WriteZero.into()),
                sent => self.connection.sent(sent),
            }
            is_sent = true;
        }
        Ok(is_sent)
    }

    fn check_stop(&mut self, cx: &mut Context<'_>) {
        if self.stop.as_mut().is_some_and(|stop| stop.as_mut().poll(cx).is_ready()) {
            self.stop = None;
            self.connection.leave();
        }
        self.is_over |= self.stop.is_none() && self.calls.is_empty();
    }

    fn turn(&mut self, cx: &mut Context<'_>) -> io::Result<Poll<()>> {
        loop {
            let mut is_busy = self.read(cx)?;
            is_busy |= self.answer(cx);
            self.check_stop(cx);
            is_busy |= self.write(cx)?;
            if self.is_over && self.connection.output().is_empty() {
                return Ok(Poll::Ready(()));
            }
            if !is_busy {
                return Ok(Poll::Pending);
            }
        }
    }
}

impl Future for Exchange {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        // A client that has gone is nobody's business.
        self.turn(cx).unwrap_or(Poll::Ready(()))
    }
}

/// `None`: HTTP/2 allows it, and our types do not.
fn to_http(request: isthmus_http2::Request, body: Incoming) -> Option<Request<Incoming>> {
    let builder = Request::builder().version(http::Version::HTTP_2).method(&request.method[..]);
    let mut built = builder.uri(&request.path[..]).body(body).ok()?;
    for (name, value) in &request.fields {
        let (name, value) = (HeaderName::from_bytes(name).ok()?, HeaderValue::from_bytes(value).ok()?);
        built.headers_mut().try_append(name, value).ok()?;
    }
    Some(built)
}
