//! A connection whose requests have been through the [`Filter`].

use std::{
    io::{self, IoSlice},
    pin::Pin,
    task::{Context, Poll, ready},
};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::authority::Filter;

/// How many bytes are read at a time: requests are small.
const READ: usize = 2048;

/// Reads through the filter, writes as it is.
pub(crate) struct Mended<S> {
    stream: S,
    filter: Filter,
    /// What came through the filter and was not read yet.
    ready: Vec<u8>,
}

impl<S> Mended<S> {
    /// From its first byte on.
    pub(crate) fn new(stream: S) -> Self {
        Self { stream, filter: Filter::default(), ready: Vec::new() }
    }

    /// The connection itself.
    pub(crate) fn get_ref(&self) -> &S {
        &self.stream
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Mended<S> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        while this.ready.is_empty() {
            let mut space = [0; READ];
            let mut chunk = ReadBuf::new(&mut space);
            ready!(Pin::new(&mut this.stream).poll_read(cx, &mut chunk))?;
            if chunk.filled().is_empty() {
                this.filter.finish(&mut this.ready);
                break;
            }
            this.filter.feed(chunk.filled(), &mut this.ready);
        }
        let now = this.ready.len().min(buf.remaining());
        buf.put_slice(&this.ready[..now]);
        if now == this.ready.len() {
            // Most connections are silent for hours: nothing is kept for what they may say next.
            this.ready = Vec::new();
        } else {
            this.ready.drain(..now);
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Mended<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, bufs)
    }

    /// So that messages are not copied into a buffer of the connection first, which would keep its size.
    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, duplex};

    use super::*;

    #[tokio::test]
    async fn the_authority_is_mended_and_all_else_is_as_it_was() {
        let (mut theirs, ours) = duplex(7);
        let mut ours = Mended::new(ours);
        let mut wire = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
        // HEADERS, END_HEADERS, stream 1: `:authority` from the static table, as grpc for Python writes a socket's path.
        let block = [&[0x83, 0x86, 0x41, 10], &b"%2Frun%2Fx"[..]].concat();
        wire.extend([0, 0, u8::try_from(block.len()).unwrap(), 1, 4, 0, 0, 0, 1]);
        wire.extend(&block);
        wire.extend([0, 0, 3, 0, 1, 0, 0, 0, 1, b'/', b'%', b'/']);
        let expected = String::from_utf8_lossy(&wire).replacen("%2Frun%2Fx", "-2Frun-2Fx", 1);
        let writer = tokio::spawn(async move {
            theirs.write_all(&wire).await.unwrap();
            let mut back = [0; 2];
            theirs.shutdown().await.unwrap();
            theirs.read_exact(&mut back).await.unwrap();
            back
        });
        let mut read = Vec::new();
        ours.read_to_end(&mut read).await.unwrap();
        assert_eq!(String::from_utf8_lossy(&read), expected);
        ours.write_all(b"%/").await.unwrap();
        assert_eq!(&writer.await.unwrap(), b"%/");
    }
}
