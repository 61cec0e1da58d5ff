//! HTTP/2 by hand: frames as bytes, for what no decent client would send.

use flowlane::TcpStream;
use flowlane_http::tls::Stream;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::others::connect;

pub(crate) const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
pub(crate) const DATA: u8 = 0;
pub(crate) const HEADERS: u8 = 1;
pub(crate) const RST_STREAM: u8 = 3;
pub(crate) const SETTINGS: u8 = 4;
pub(crate) const PING: u8 = 6;
pub(crate) const GOAWAY: u8 = 7;
pub(crate) const END_STREAM: u8 = 1;
pub(crate) const END_HEADERS: u8 = 4;

/// One frame (RFC 9113 §4.1).
pub(crate) fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let len = u32::try_from(payload.len()).unwrap().to_be_bytes();
    [&len[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// Header fields of `GET path` (RFC 7541: indexed fields, and literals that are not remembered).
pub(crate) fn fields(path: &str) -> Vec<u8> {
    let len = u8::try_from(path.len()).unwrap();
    assert!(len < 127);
    [&[0x82, 0x86, 0x01, 1, b'x', 0x04, len], path.as_bytes()].concat()
}

/// A whole request.
pub(crate) fn ask(stream: u32, path: &str) -> Vec<u8> {
    frame(HEADERS, END_HEADERS | END_STREAM, stream, &fields(path))
}

/// `SETTINGS_INITIAL_WINDOW_SIZE`
pub(crate) fn window(size: u32) -> Vec<u8> {
    frame(SETTINGS, 0, 0, &[&[0, 4], &size.to_be_bytes()[..]].concat())
}

/// A frame that was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Frame {
    pub(crate) kind: u8,
    pub(crate) flags: u8,
    pub(crate) stream: u32,
    pub(crate) payload: Vec<u8>,
}

impl Frame {
    /// The error of a GOAWAY (RFC 9113 §6.8).
    pub(crate) fn reason(&self) -> u32 {
        assert_eq!(self.kind, GOAWAY);
        u32::from_be_bytes(self.payload[4..8].try_into().unwrap())
    }
}

/// A client that says what it is told to.
pub(crate) struct Two {
    pub(crate) stream: Stream<TcpStream>,
}

impl Two {
    pub(crate) async fn connect() -> Self {
        Self { stream: connect(None).await }
    }

    pub(crate) async fn write(&mut self, bytes: impl AsRef<[u8]>) {
        self.stream.write_all(bytes.as_ref()).await.unwrap();
        self.stream.flush().await.unwrap();
    }

    /// The next frame; `None` at a proper end.
    pub(crate) async fn frame(&mut self) -> Option<Frame> {
        let mut header = [0; 9];
        if self.stream.read(&mut header[..1]).await.expect("a proper end") == 0 {
            return None;
        }
        self.stream.read_exact(&mut header[1..]).await.unwrap();
        let len = u32::from_be_bytes([0, header[0], header[1], header[2]]);
        let mut payload = vec![0; len as usize];
        self.stream.read_exact(&mut payload).await.unwrap();
        let stream = u32::from_be_bytes(header[5..9].try_into().unwrap());
        Some(Frame { kind: header[3], flags: header[4], stream, payload })
    }

    /// Reads until a frame of this kind.
    pub(crate) async fn until(&mut self, kind: u8) -> Frame {
        loop {
            let frame = self.frame().await.unwrap_or_else(|| panic!("ended before a frame of kind {kind}"));
            if frame.kind == kind {
                return frame;
            }
        }
    }

    /// Reads everything to a proper end; the last GOAWAY.
    pub(crate) async fn goodbye(&mut self) -> Frame {
        let mut last = None;
        while let Some(frame) = self.frame().await {
            if frame.kind == GOAWAY {
                last = Some(frame);
            }
        }
        last.expect("no GOAWAY before the end")
    }
}
