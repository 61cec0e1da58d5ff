//! Pieces of answers that wait to be sent, and the memory that they hold.

use std::sync::Arc;

use bytes::Buf;

use super::conn::Conn;

/// Most bytes of one piece: the frame size that every peer accepts (RFC 9113 §4.2).
pub(super) const PIECE: usize = 16 << 10;

/// A piece of a body. Its bytes are counted until it is dropped.
#[derive(Debug)]
pub(super) struct Piece {
    bytes: Bytes,
    at: usize,
}

#[derive(Debug)]
enum Bytes {
    /// Of the program itself: it holds nothing.
    Static(&'static [u8]),
    /// Kept by the worker for all its connections.
    Shared(bytes::Bytes),
    Held(Vec<u8>, Arc<Conn>),
}

impl Piece {
    pub(super) fn constant(bytes: &'static [u8]) -> Self {
        Self { bytes: Bytes::Static(bytes), at: 0 }
    }

    pub(super) fn shared(bytes: bytes::Bytes) -> Self {
        Self { bytes: Bytes::Shared(bytes), at: 0 }
    }

    /// Counts the bytes, whether there is room for them or not.
    pub(super) fn held(bytes: Vec<u8>, conn: &Arc<Conn>) -> Self {
        conn.hold(bytes.capacity());
        Self { bytes: Bytes::Held(bytes, conn.clone()), at: 0 }
    }

    fn bytes(&self) -> &[u8] {
        match &self.bytes {
            Bytes::Static(bytes) => bytes,
            Bytes::Shared(bytes) => bytes,
            Bytes::Held(bytes, _) => bytes,
        }
    }
}

impl Drop for Piece {
    fn drop(&mut self) {
        if let Bytes::Held(bytes, conn) = &mut self.bytes {
            conn.let_go(bytes.capacity());
        }
    }
}

impl Buf for Piece {
    fn remaining(&self) -> usize {
        self.bytes().len() - self.at
    }

    fn chunk(&self) -> &[u8] {
        &self.bytes()[self.at..]
    }

    fn advance(&mut self, n: usize) {
        assert!(n <= self.remaining(), "beyond the end of a piece");
        self.at += n;
    }
}
