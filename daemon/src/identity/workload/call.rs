//! A call: first the future of an answer, then the answer itself.

use std::{
    convert::Infallible,
    pin::Pin,
    task::{Context, Poll},
};

use bytes::Bytes;
use http::{HeaderMap, Response};
use http_body::{Body as _, Frame};
use isthmus_http2::{Code, Connection};
use tonic::{Status, body::Body};

use super::{frames, inbox::Inbox};

/// Whether a call goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Turn {
    Open,
    Done,
}

type Answer = dyn Future<Output = Result<Response<Body>, Infallible>> + Send;

enum State {
    Asked(Pin<Box<Answer>>),
    /// What could not be sent yet, and where more comes from.
    Answering {
        rest: Bytes,
        body: Body,
    },
}

/// An open call.
pub(super) struct Call {
    pub(super) stream: u32,
    /// Gone once the call takes no more.
    inbox: Option<Inbox>,
    state: State,
}

impl Call {
    pub(super) fn new(
        stream: u32,
        inbox: Inbox,
        answer: impl Future<Output = Result<Response<Body>, Infallible>> + Send + 'static,
    ) -> Self {
        Self { stream, inbox: Some(inbox), state: State::Asked(Box::pin(answer)) }
    }

    /// Content came; false: nobody takes it.
    pub(super) fn hear(&mut self, bytes: &[u8], is_last: bool) -> bool {
        self.inbox.as_ref().is_some_and(|inbox| inbox.put(bytes, is_last))
    }

    /// Says what there is to say, as long as there is room for it.
    pub(super) fn advance(&mut self, connection: &mut Connection, cx: &mut Context<'_>) -> Turn {
        loop {
            let turn = match &mut self.state {
                State::Asked(answer) => match answer.as_mut().poll(cx) {
                    Poll::Pending => Poll::Pending,
                    Poll::Ready(Ok(answer)) => Poll::Ready(self.begin(answer, connection)),
                },
                State::Answering { rest, body } => go_on(self.stream, rest, body, connection, cx),
            };
            match turn {
                Poll::Ready(Turn::Open) => {}
                Poll::Ready(Turn::Done) => return Turn::Done,
                Poll::Pending => break,
            }
        }
        self.settle(connection, cx);
        Turn::Open
    }

    fn begin(&mut self, answer: Response<Body>, connection: &mut Connection) -> Turn {
        let (mut parts, body) = answer.into_parts();
        let body = frames::taken(&mut parts.extensions).unwrap_or(body);
        let status = [(&b":status"[..], parts.status.as_str().as_bytes())];
        let is_last = body.is_end_stream();
        connection.send_fields(self.stream, status.into_iter().chain(fields(&parts.headers)), is_last);
        self.state = State::Answering { rest: Bytes::new(), body };
        if is_last { Turn::Done } else { Turn::Open }
    }

    /// The client may send as much as was taken.
    fn settle(&mut self, connection: &mut Connection, cx: &Context<'_>) {
        let Some(inbox) = &self.inbox else { return };
        connection.read(self.stream, inbox.taken(cx));
        if inbox.is_abandoned() {
            // What it left is nobody's; the connection takes it.
            connection.read(self.stream, usize::MAX);
            self.inbox = None;
        }
    }
}

fn fields(map: &HeaderMap) -> impl Iterator<Item = (&[u8], &[u8])> {
    map.iter().map(|(name, value)| (name.as_str().as_bytes(), value.as_bytes()))
}

fn go_on(
    stream: u32,
    rest: &mut Bytes,
    body: &mut Body,
    connection: &mut Connection,
    cx: &mut Context<'_>,
) -> Poll<Turn> {
    connection.send(stream, rest);
    // Without room it is not asked: so it makes nothing that would be old when it can be sent.
    if !rest.is_empty() || connection.is_full() || connection.room(stream) == 0 {
        return Poll::Pending;
    }
    let Poll::Ready(frame) = Pin::new(body).poll_frame(cx) else { return Poll::Pending };
    match frame.map(|frame| frame.map(Frame::into_data)) {
        Some(Ok(Ok(data))) => {
            *rest = data;
            connection.send(stream, rest);
            return Poll::Ready(Turn::Open);
        }
        Some(Ok(Err(frame))) => {
            let trailers = frame.into_trailers().unwrap_or_default();
            connection.send_fields(stream, fields(&trailers), true);
        }
        Some(Err(status)) => fail(stream, &status, connection),
        None => connection.finish(stream),
    }
    Poll::Ready(Turn::Done)
}

/// The services turn what fails into trailers; this is what could not even be encoded.
fn fail(stream: u32, status: &Status, connection: &mut Connection) {
    tracing::warn!(%status, "an answer of the Workload API could not be encoded");
    connection.reset(stream, Code::Internal);
}
