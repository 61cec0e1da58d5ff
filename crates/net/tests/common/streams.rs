//! Streams that test programs of this folder send: every byte can be told from its neighbours, and the other end echoes.

use std::net::{Shutdown, SocketAddr};

use flowlane::{ListenOptions, OwnedBytes, TcpListener, TcpStream, current, spawn};

/// A stream of bytes that anyone can tell apart from any other order of them.
struct Bytes(u64);

impl Bytes {
    fn fill(&mut self, into: &mut [u8]) {
        for b in into {
            self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            *b = (self.0 >> 56) as u8;
        }
    }
}

/// Echoes until the peer is done, then says so.
pub(crate) async fn echo(at: SocketAddr) {
    let listener = TcpListener::bind(Some(at.ip()), at.port(), ListenOptions::default()).unwrap();
    while let Ok(stream) = listener.accept().await {
        spawn(async move {
            let mut buffer = vec![0; 1 << 14];
            while let Ok(n @ 1..) = stream.read(&mut buffer).await {
                if stream.write_all(&buffer[..n]).await.is_err() {
                    return;
                }
            }
            let _ = stream.shutdown(Shutdown::Write);
        })
        .unwrap();
    }
}

/// Sends `total` bytes, reads them back, and compares; how many came. Each lane has bytes of its own.
pub(crate) async fn there_and_back(server: SocketAddr, total: usize) -> Result<u64, String> {
    stream_of(server, u64::from(current().unwrap().bucket.0) + 1, total).await
}

/// As [`there_and_back`], with bytes of its own for each seed.
pub(crate) async fn stream_of(server: SocketAddr, seed: u64, total: usize) -> Result<u64, String> {
    let stream = TcpStream::connect(server).await.map_err(|e| format!("connect: {e}"))?;
    let (reader, writer) = stream.into_split();
    spawn(async move {
        let (mut bytes, mut chunk, mut left) = (Bytes(seed), vec![0; 50_000], total);
        while left > 0 {
            let n = left.min(chunk.len());
            bytes.fill(&mut chunk[..n]);
            // Copied and given away in turn.
            let written = if left / chunk.len() % 2 == 0 {
                writer.as_ref().write_all(&chunk[..n]).await
            } else {
                writer.as_ref().write_owned(OwnedBytes::new(chunk[..n].to_vec())).await
            };
            if written.is_err() {
                return;
            }
            left -= n;
        }
    })
    .unwrap();
    let (mut bytes, mut got, mut want, mut count) = (Bytes(seed), vec![0; 1 << 16], vec![0; 1 << 16], 0);
    loop {
        let n = reader.as_ref().read(&mut got).await.map_err(|e| format!("after {count} bytes: {e}"))?;
        if n == 0 {
            return Ok(count);
        }
        bytes.fill(&mut want[..n]);
        if got[..n] != want[..n] {
            return Err(format!("wrong bytes after {count}"));
        }
        count += n as u64;
    }
}
