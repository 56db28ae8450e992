//! The answer of a call as gRPC frames, each in memory of its own that is wiped and given back once it is sent.
//!
//! The encoder of the gRPC library keeps the memory of the last message for as long as the call is open: 3 KiB for each workload, and its
//! private key is in them. So what it is given to encode is empty, and the true answer travels beside it, in the extensions.

use std::{
    pin::Pin,
    sync::{Arc, Mutex, PoisonError},
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use http::{Extensions, HeaderMap};
use http_body::Frame;
use prost::Message;
use tokio_stream::{Empty, Stream, empty};
use tonic::{Code, Response, Status, body::Body};
use zeroize::Zeroizing;

/// A flag for compression and four bytes of length.
const PREFIX: usize = 5;

/// What the library encodes instead.
pub(super) type Nothing<T> = Empty<Result<T, Status>>;

/// The body of an answer on its way through the library.
#[derive(Clone)]
struct Aside(Arc<Mutex<Option<Body>>>);

/// Answers with `messages`: [`taken`] has them at the other end.
pub(super) fn answer<T: Message + 'static>(
    messages: impl Stream<Item = Result<T, Status>> + Send + 'static,
) -> Response<Nothing<T>> {
    let body = Body::new(Frames { messages: Box::pin(messages), is_over: false });
    let mut response = Response::new(empty());
    response.extensions_mut().insert(Aside(Arc::new(Mutex::new(Some(body)))));
    response
}

/// What [`answer`] has set aside.
pub(super) fn taken(extensions: &mut Extensions) -> Option<Body> {
    extensions.remove::<Aside>()?.take()
}

impl Aside {
    fn take(&self) -> Option<Body> {
        // Nothing is done under this lock that could panic.
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

struct Frames<S> {
    messages: Pin<Box<S>>,
    is_over: bool,
}

impl<T: Message, S: Stream<Item = Result<T, Status>>> http_body::Body for Frames<S> {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        if self.is_over {
            return Poll::Ready(None);
        }
        let frame = match ready!(self.messages.as_mut().poll_next(cx)) {
            Some(Ok(message)) => Frame::data(framed(&message)),
            Some(Err(status)) => self.end(&status),
            None => self.end(&Status::new(Code::Ok, "")),
        };
        Poll::Ready(Some(Ok(frame)))
    }

    fn is_end_stream(&self) -> bool {
        self.is_over
    }
}

impl<S> Frames<S> {
    fn end(&mut self, status: &Status) -> Frame<Bytes> {
        self.is_over = true;
        let mut trailers = HeaderMap::new();
        if status.add_header(&mut trailers).is_err() {
            // Only a status with metadata of its caller's can fail, and ours have none.
            tracing::warn!(%status, "a status of the Workload API can't be written as trailers");
        }
        Frame::trailers(trailers)
    }
}

/// One message behind its prefix.
fn framed(message: &impl Message) -> Bytes {
    let length = message.encoded_len();
    let mut frame = Zeroizing::new(Vec::with_capacity(PREFIX + length));
    frame.push(0);
    // The messages of this API are far from 4 GiB.
    frame.extend_from_slice(&u32::try_from(length).unwrap_or(u32::MAX).to_be_bytes());
    message.encode_raw(&mut *frame);
    Bytes::from_owner(frame)
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt as _;
    use isthmus_proto::workload::JwtBundlesResponse;
    use tokio_stream::iter;

    use super::*;

    fn message(domain: &str) -> JwtBundlesResponse {
        JwtBundlesResponse { bundles: [(domain.to_owned(), vec![7; 300])].into() }
    }

    async fn all(messages: Vec<Result<JwtBundlesResponse, Status>>) -> (Vec<u8>, HeaderMap) {
        let aside = answer(iter(messages)).extensions_mut().remove::<Aside>().unwrap();
        let body = aside.take().unwrap();
        assert!(aside.take().is_none(), "it is there once");
        let collected = body.collect().await.unwrap();
        let trailers = collected.trailers().unwrap().clone();
        (collected.to_bytes().to_vec(), trailers)
    }

    #[tokio::test]
    async fn messages_are_framed_and_the_end_is_in_the_trailers() {
        let (first, second) = (message("spiffe://a"), JwtBundlesResponse::default());
        let (bytes, trailers) = all(vec![Ok(first.clone()), Ok(second)]).await;
        let encoded = first.encode_to_vec();
        let length = u8::try_from(encoded.len() - 256).unwrap();
        let expected = [&[0, 0, 0, 1, length][..], &encoded, &[0; PREFIX]].concat();
        assert_eq!(bytes, expected);
        assert_eq!(trailers["grpc-status"], "0");
    }

    #[tokio::test]
    async fn an_error_is_the_end() {
        let denied = Status::permission_denied("no identity issued");
        let (bytes, trailers) = all(vec![Err(denied), Ok(message("spiffe://late"))]).await;
        assert_eq!(bytes, b"");
        assert_eq!(
            (&trailers["grpc-status"], &trailers["grpc-message"]),
            (&"7".parse().unwrap(), &"no%20identity%20issued".parse().unwrap())
        );
    }
}
