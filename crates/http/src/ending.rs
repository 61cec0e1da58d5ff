//! The end of a connection that its peer is to understand, and of waiting for it.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::task::Poll;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Bytes that are read from a peer whose connection is over, so that it can read our last answer.
pub(crate) const LINGER_BYTES: u64 = 1 << 20;

/// Closes our side, and reads for a time: dropping a connection with unread bytes resets it, and the peer might not receive our last
/// bytes.
pub(crate) async fn finish<S: AsyncRead + AsyncWrite + Unpin>(mut stream: S, time: Duration) {
    let (mut shut, mut lingered) = (false, 0);
    let ended = poll_fn(|cx| {
        if !shut {
            match Pin::new(&mut stream).poll_shutdown(cx) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Err(_)) => return Poll::Ready(()),
                Poll::Ready(Ok(())) => shut = true,
            }
        }
        let mut buffer = [0; 4096];
        while lingered < LINGER_BYTES {
            let mut into = ReadBuf::new(&mut buffer);
            match Pin::new(&mut stream).poll_read(cx, &mut into) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Ok(())) if !into.filled().is_empty() => lingered += into.filled().len() as u64,
                Poll::Ready(_) => break,
            }
        }
        Poll::Ready(())
    });
    within(time, ended).await;
}

/// The result of the future, or `None` if it takes longer than `time`.
pub(crate) async fn within<T>(time: Duration, future: impl Future<Output = T>) -> Option<T> {
    let (mut future, mut over) = (pin!(future), pin!(flowlane::sleep(time)));
    poll_fn(|cx| match future.as_mut().poll(cx) {
        Poll::Ready(value) => Poll::Ready(Some(value)),
        Poll::Pending => over.as_mut().poll(cx).map(|()| None),
    })
    .await
}
