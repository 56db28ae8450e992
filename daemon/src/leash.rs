//! Streams that somebody else can end.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll},
};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};

/// A stream whose every call fails once `end` is cancelled; who waits for it then is woken.
///
/// With it lives `K`: what its dropping has to end or give back.
pub struct Leash<S, K> {
    stream: S,
    end: Pin<Box<WaitForCancellationFutureOwned>>,
    why: &'static str,
    _kept: K,
}

impl<S, K> Leash<S, K> {
    /// `why` is what the stream's owner is told when it ends.
    pub(crate) fn tie(stream: S, end: CancellationToken, why: &'static str, kept: K) -> Self {
        Self { stream, end: Box::pin(end.cancelled_owned()), why, _kept: kept }
    }

    /// The stream itself.
    pub fn get_ref(&self) -> &S {
        &self.stream
    }

    fn stay(&mut self, cx: &mut Context<'_>) -> io::Result<Pin<&mut S>>
    where
        S: Unpin,
    {
        match self.end.as_mut().poll(cx) {
            Poll::Ready(()) => Err(io::Error::new(io::ErrorKind::ConnectionAborted, self.why)),
            Poll::Pending => Ok(Pin::new(&mut self.stream)),
        }
    }
}

impl<S: AsyncRead + Unpin, K: Unpin> AsyncRead for Leash<S, K> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.stay(cx)?.poll_read(cx, buf)
    }
}

impl<S: AsyncWrite + Unpin, K: Unpin> AsyncWrite for Leash<S, K> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        self.stay(cx)?.poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.stay(cx)?.poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.stay(cx)?.poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, duplex};

    use super::*;

    #[tokio::test]
    async fn who_waits_is_woken_and_what_is_kept_goes_with_the_stream() {
        let (mut theirs, ours) = duplex(64);
        let (end, kept) = (CancellationToken::new(), Arc::new(()));
        let mut leash = Leash::tie(ours, end.clone(), "its time is over", Arc::clone(&kept));
        theirs.write_all(b"a").await.unwrap();
        assert_eq!(leash.read_u8().await.unwrap(), b'a');

        let waiting = tokio::spawn(async move {
            let read = leash.read_u8().await;
            (read, leash.write_u8(b'b').await, leash)
        });
        tokio::task::yield_now().await;
        end.cancel();
        let (read, written, leash) = waiting.await.unwrap();
        let error = read.unwrap_err();
        assert_eq!(
            (error.kind(), error.to_string().as_str()),
            (io::ErrorKind::ConnectionAborted, "its time is over")
        );
        assert!(written.is_err());
        assert_eq!(Arc::strong_count(&kept), 2);
        drop(leash);
        assert_eq!(Arc::strong_count(&kept), 1);
    }
}
