//! What a client has sent on a call and the call has not taken yet: at most a window (64 KiB).

use std::{
    convert::Infallible,
    mem,
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll, Waker},
};

use bytes::Bytes;
use http_body::{Body, Frame};

/// When so much was taken, the connection has to know before it is woken by something else.
const MUCH: usize = 8 << 10;

#[derive(Default)]
struct State {
    waiting: Vec<u8>,
    /// Taken since the connection asked.
    taken: usize,
    is_complete: bool,
    reader: Option<Waker>,
    connection: Option<Waker>,
}

/// The connection's end. Content of a call that is cut off never completes.
pub(super) struct Inbox(Arc<Mutex<State>>);

/// The call's end.
pub(super) struct Incoming(Arc<Mutex<State>>);

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    // Each change is complete before anything can panic.
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Inbox {
    pub(super) fn new(is_complete: bool) -> (Self, Incoming) {
        let state = Arc::new(Mutex::new(State { is_complete, ..State::default() }));
        (Self(Arc::clone(&state)), Incoming(state))
    }

    /// False: nobody will take it.
    pub(super) fn put(&self, bytes: &[u8], is_complete: bool) -> bool {
        if self.is_abandoned() {
            return false;
        }
        let mut state = lock(&self.0);
        state.waiting.extend_from_slice(bytes);
        state.is_complete |= is_complete;
        if let Some(reader) = state.reader.take() {
            reader.wake();
        }
        true
    }

    /// How much was taken since the last time; `cx` is woken when it is much more.
    pub(super) fn taken(&self, cx: &Context<'_>) -> usize {
        let mut state = lock(&self.0);
        match &mut state.connection {
            Some(waker) => waker.clone_from(cx.waker()),
            none => *none = Some(cx.waker().clone()),
        }
        mem::take(&mut state.taken)
    }

    /// The call has no use for more.
    pub(super) fn is_abandoned(&self) -> bool {
        Arc::strong_count(&self.0) == 1
    }
}

impl Body for Incoming {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let mut state = lock(&self.0);
        if !state.waiting.is_empty() {
            let bytes = Bytes::from(mem::take(&mut state.waiting));
            state.taken += bytes.len();
            if state.taken >= MUCH
                && let Some(connection) = state.connection.take()
            {
                connection.wake();
            }
            return Poll::Ready(Some(Ok(Frame::data(bytes))));
        }
        if state.is_complete {
            return Poll::Ready(None);
        }
        state.reader = Some(cx.waker().clone());
        Poll::Pending
    }

    fn is_end_stream(&self) -> bool {
        let state = lock(&self.0);
        state.is_complete && state.waiting.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt as _;

    use super::*;

    #[tokio::test]
    async fn what_is_put_is_taken_and_counted() {
        let (inbox, mut incoming) = Inbox::new(false);
        assert!(inbox.put(b"ab", false) && inbox.put(b"c", false));
        let reader = tokio::spawn(async move {
            let mut all = Vec::new();
            while let Some(frame) = incoming.frame().await {
                all.extend_from_slice(frame.unwrap().data_ref().unwrap());
            }
            (all, incoming.is_end_stream())
        });
        tokio::task::yield_now().await;
        assert!(inbox.put(b"d", true));
        assert_eq!(reader.await.unwrap(), (b"abcd".to_vec(), true));
        assert_eq!(inbox.taken(&Context::from_waker(Waker::noop())), 4);
        assert!(inbox.is_abandoned());
        assert!(!inbox.put(b"e", true));
    }
}
