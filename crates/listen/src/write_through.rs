//! A stream that flushes whatever is written to it, and notes on its connection when it still buffers some.
//!
//! TLS buffers what the kernel does not take. Nothing else sees that it has not been sent.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::client_connections::ClientConnection;

/// The stream of a connection.
pub(crate) struct WriteThrough<S> {
    stream: S,
    connection: Arc<ClientConnection>,
}

impl<S: AsyncWrite + Unpin> WriteThrough<S> {
    /// Wraps the stream of this connection.
    pub fn new(stream: S, connection: &Arc<ClientConnection>) -> WriteThrough<S> {
        let connection = Arc::clone(connection);
        WriteThrough { stream, connection }
    }

    fn flush(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.stream).poll_flush(context);
        self.connection.set_unflushed(flushed.is_pending());
        flushed
    }

    /// Flushes what the stream has taken. What it still buffers leaves with the next flush.
    fn written(
        &mut self,
        context: &mut Context<'_>,
        written: Poll<io::Result<usize>>,
    ) -> Poll<io::Result<usize>> {
        let count = ready!(written)?;
        match self.flush(context) {
            Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
            Poll::Ready(Ok(())) | Poll::Pending => Poll::Ready(Ok(count)),
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for WriteThrough<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        read: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, read)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for WriteThrough<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        octets: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(context, octets);
        self.written(context, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(context, parts);
        self.written(context, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
