//! `/ws`: what tungstenite says comes back, what is wrong is answered with its code, and who falls silent or stops reading is let go.

mod deflate;

use std::net::TcpStream as KernelStream;
use std::time::Duration;

use flowlane::TcpStream;
use flowlane_http::server::{Counter, Counts, Options, Stall, Timeouts};
use flowlane_http::tls::{Alpn, ClientTls, Stream};
use flowlane_http::ws::{Event, Fault, Opcode, Reader, Side, frame};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tungstenite::protocol::frame::coding::CloseCode;
use tungstenite::protocol::{CloseFrame, WebSocketConfig};
use tungstenite::{Message, client::client_with_config};

use crate::files::over_the_loopback;
use crate::kit::{Client, all_ended, beside, beside_with, get, status};
use crate::others::{connect, tls};

const UPGRADE: &str = "GET /ws HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
    Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";
const KEY: Option<[u8; 4]> = Some([9, 200, 31, 4]);
const SHORT: Duration = Duration::from_millis(30);

/// A WebSocket's client whose frames are written by hand.
struct Peer {
    stream: Stream<TcpStream>,
    reader: Reader,
    got: Vec<u8>,
    /// What has come of a compressed message.
    part: Vec<u8>,
}

#[derive(Debug, PartialEq, Eq)]
enum Heard {
    /// A piece of a message.
    Data(Vec<u8>),
    /// A whole message that is compressed.
    Deflated(Vec<u8>),
    Ping,
    Pong(Vec<u8>),
    Close(Option<u16>),
    End,
}

impl From<Event<'_>> for Heard {
    fn from(event: Event<'_>) -> Self {
        match event {
            Event::Data { bytes, .. } => Self::Data(bytes.to_vec()),
            Event::Ping(_) => Self::Ping,
            Event::Pong(payload) => Self::Pong(payload.to_vec()),
            Event::Close(code) => Self::Close(code),
        }
    }
}

impl Peer {
    async fn open(tls: Option<ClientTls>) -> Self {
        Self::open_with(tls, "").await.0
    }

    /// Asks with these further fields; the head of the answer, too.
    async fn open_with(tls: Option<ClientTls>, fields: &str) -> (Self, String) {
        let mut stream = connect(tls).await;
        let request = UPGRADE.replace("Upgrade: websocket\r\n", &format!("Upgrade: websocket\r\n{fields}"));
        stream.write_all(request.as_bytes()).await.unwrap();
        stream.flush().await.unwrap();
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(stream.read_u8().await.unwrap());
        }
        let head = String::from_utf8(head).unwrap();
        assert!(head.starts_with("HTTP/1.1 101 Switching Protocols\r\n"), "{head}");
        assert!(head.contains("Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n"), "{head}");
        (Self { stream, reader: Reader::new(Side::Server, 1 << 30), got: Vec::new(), part: Vec::new() }, head)
    }

    async fn write(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).await.unwrap();
        self.stream.flush().await.unwrap();
    }

    async fn frame(&mut self, opcode: Opcode, payload: &[u8]) {
        let mut out = Vec::new();
        frame::write(&mut out, opcode, payload, KEY);
        self.write(&out).await;
    }

    /// The next that is whole, or a piece.
    async fn hear(&mut self) -> Heard {
        loop {
            let (used, event) = self.reader.next(&mut self.got).unwrap();
            let heard = event.and_then(|event| match event {
                Event::Data { bytes, deflated: true, last, .. } => {
                    self.part.extend_from_slice(bytes);
                    last.then(|| Heard::Deflated(std::mem::take(&mut self.part)))
                }
                event => Some(event.into()),
            });
            self.got.drain(..used);
            if let Some(heard) = heard {
                return heard;
            }
            if used > 0 {
                continue;
            }
            match self.stream.read_buf(&mut self.got).await {
                Ok(1..) => {}
                _ => return Heard::End,
            }
        }
    }
}

fn impatient() -> Timeouts {
    Timeouts { head: SHORT, idle: SHORT, body: SHORT, write: SHORT }
}

fn faults(counts: &Counts) -> u64 {
    Fault::ALL.iter().map(|fault| counts.ws_fault(*fault)).sum()
}

#[test]
fn what_tungstenite_says_comes_back() {
    let options = Options { max_message: 4 << 20, ..Options::default() };
    let (_, counts, _) = over_the_loopback(options, |address| {
        let stream = KernelStream::connect(address).unwrap();
        let config = WebSocketConfig::default().max_message_size(None).max_frame_size(None);
        let (mut socket, answer) =
            client_with_config(format!("ws://{address}/ws?a=b"), stream, Some(config)).unwrap();
        assert_eq!(answer.status(), 101);
        let next = |socket: &mut tungstenite::WebSocket<_>| socket.read().unwrap();
        for len in [0, 1, 125, 126, 127, 65_535, 65_536, 3 << 20] {
            let bytes: Vec<u8> = (0..len).map(|i| (i % 251) as u8).collect();
            let message = Message::binary(bytes);
            socket.send(message.clone()).unwrap();
            assert!(next(&mut socket) == message, "{len} bytes");
            let text = Message::text("µ€𐍈x".repeat(len / 10));
            socket.send(text.clone()).unwrap();
            assert!(next(&mut socket) == text, "{len} bytes of text");
        }
        socket.send(Message::Ping("are you there?".into())).unwrap();
        assert_eq!(next(&mut socket), Message::Pong("are you there?".into()));
        let end = CloseFrame { code: CloseCode::Library(4321), reason: "done".into() };
        socket.close(Some(end)).unwrap();
        let Message::Close(Some(answer)) = next(&mut socket) else { panic!("no close") };
        assert_eq!(answer.code, CloseCode::Library(4321));
        assert!(matches!(socket.read(), Err(tungstenite::Error::ConnectionClosed)));
    });
    let told = [
        Counter::WebSockets,
        Counter::WsText,
        Counter::WsBinary,
        Counter::WsPings,
        Counter::WsClosed,
        Counter::Success,
    ];
    assert_eq!(told.map(|counter| counts.get(counter)), [1, 8, 8, 1, 1, 0]);
    assert_eq!(counts.errors(), 0, "{counts:?}");
}

/// Plain and inside TLS, over our own stack: a message in fragments with a ping among them is one, whatever the cuts.
#[test]
fn fragments_are_joined_and_pings_among_them_answered() {
    for encrypted in [false, true] {
        let (server, clients) = tls();
        let options = Options { tls: encrypted.then_some(server), ..Options::default() };
        let (_, counts) = beside_with(options, move |server| async move {
            let mut peer = Peer::open(encrypted.then(|| clients(Alpn::Http1))).await;
            let mut bytes = Vec::new();
            let parts = ["ein ", "Gr", "", "üße"];
            for (i, part) in parts.iter().enumerate() {
                let opcode = if i == 0 { Opcode::Text } else { Opcode::Continuation };
                let begin = bytes.len();
                frame::write(&mut bytes, opcode, part.as_bytes(), KEY);
                if i + 1 < parts.len() {
                    bytes[begin] &= 0x7f;
                }
                frame::write(&mut bytes, Opcode::Ping, part.as_bytes(), KEY);
            }
            for piece in bytes.chunks(5) {
                peer.write(piece).await;
            }
            for part in &parts[..3] {
                assert_eq!(peer.hear().await, Heard::Pong(part.as_bytes().to_vec()));
            }
            assert_eq!(peer.hear().await, Heard::Data("ein Grüße".into()));
            assert_eq!(peer.hear().await, Heard::Pong("üße".into()));
            peer.frame(Opcode::Close, &[]).await;
            assert_eq!(peer.hear().await, Heard::Close(None));
            assert_eq!(peer.hear().await, Heard::End);
            drop(peer);
            all_ended(&server).await;
        });
        assert_eq!((counts.get(Counter::WsText), counts.get(Counter::WsPings)), (1, 4), "{counts:?}");
        assert_eq!((counts.errors(), counts.get(Counter::WsClosed)), (0, 1), "{counts:?}");
    }
}

#[test]
fn what_is_wrong_is_answered_with_its_code_and_counted() {
    let masked = |head: &[u8], payload: &[u8]| [head, &[0; 4], payload].concat();
    let long = [0x82, 0xff, 0x80, 0, 0, 0, 0, 0, 0, 0];
    let cases = [
        (b"\x81\x05Hello".to_vec(), 1002, Fault::Unmasked),
        (masked(b"\xc1\x81", b"x"), 1002, Fault::Reserved),
        (masked(b"\x83\x81", b"x"), 1002, Fault::Opcode),
        (masked(b"\x89\xfe\x00\x7e", &[0; 126]), 1002, Fault::LongControl),
        (masked(b"\x09\x80", b""), 1002, Fault::FragmentedControl),
        (masked(b"\x80\x80", b""), 1002, Fault::Continuation),
        ([masked(b"\x01\x80", b""), masked(b"\x81\x80", b"")].concat(), 1002, Fault::Interleaved),
        (masked(&long, b""), 1002, Fault::Length),
        (masked(b"\x88\x81", b"x"), 1002, Fault::Close),
        (masked(b"\x81\x82", b"\xc3\xc3"), 1007, Fault::Utf8),
        (masked(b"\x82\xff\0\0\0\0\0\x01\0\x01", b""), 1009, Fault::TooLong),
    ];
    for (bytes, code, fault) in cases {
        let options = Options { max_message: 1 << 16, ..Options::default() };
        let (_, counts) = beside_with(options, move |server| async move {
            let mut peer = Peer::open(None).await;
            peer.frame(Opcode::Binary, b"before").await;
            assert_eq!(peer.hear().await, Heard::Data(b"before".to_vec()));
            peer.write(&bytes).await;
            assert_eq!(peer.hear().await, Heard::Close(Some(code)), "{fault:?}");
            assert_eq!(peer.hear().await, Heard::End, "{fault:?}");
            drop(peer);
            all_ended(&server).await;
        });
        assert_eq!(
            (counts.ws_fault(fault), faults(&counts), counts.errors()),
            (1, 1, 1),
            "{fault:?} {counts:?}"
        );
    }
}

#[test]
fn requests_that_ask_for_no_websocket_are_refused() {
    let (_, counts) = beside(Options::default(), || async {
        for (from, to, expected) in [
            ("Upgrade: websocket\r\n", "", 426),
            ("Connection: Upgrade", "Connection: keep-alive", 426),
            ("Version: 13", "Version: 8", 426),
            ("dGhlIHNhbXBsZSBub25jZQ==", "short", 400),
            ("GET", "POST", 426),
            ("HTTP/1.1", "HTTP/1.0", 426),
        ] {
            let mut client = Client::connect().await;
            client.write(UPGRADE.replace(from, to)).await;
            let (head, _) = client.answer().await;
            assert_eq!(status(&head), expected, "{from}");
            if expected == 426 {
                assert!(head.contains("Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"), "{head}");
            }
        }
        // Such an answer does not end the connection.
        let mut client = Client::connect().await;
        client.write(get("/ws")).await;
        assert_eq!(status(&client.answer().await.0), 426);
        client.write(get("/size/3")).await;
        assert_eq!(client.answer().await.1, b"012");
    });
    assert_eq!((counts.get(Counter::WebSockets), counts.get(Counter::ClientError)), (0, 7));
}

/// Frames that come with the request, and a limit of requests, which is none of messages.
#[test]
fn frames_may_follow_the_request_at_once() {
    let options = Options { requests_per_connection: 1, ..Options::default() };
    let (_, counts) = beside(options, || async {
        let mut client = Client::connect().await;
        let mut bytes = UPGRADE.as_bytes().to_vec();
        frame::write(&mut bytes, Opcode::Text, b"early", KEY);
        client.write(&bytes).await;
        client.until("\r\n\r\n").await;
        assert_eq!(client.exactly(7).await, b"\x81\x05early");
    });
    assert_eq!(counts.get(Counter::WsText), 1);
}

/// A peer that says nothing is asked, and stays if it answers; one that does not answer has gone.
#[test]
fn silent_peers_are_asked_and_let_go() {
    let options = Options { timeouts: impatient(), ..Options::default() };
    let (_, counts) = beside_with(options, |server| async move {
        let mut peer = Peer::open(None).await;
        for _ in 0..3 {
            assert_eq!(peer.hear().await, Heard::Ping);
            peer.frame(Opcode::Pong, b"").await;
        }
        assert_eq!(peer.hear().await, Heard::Ping);
        assert_eq!(peer.hear().await, Heard::End);
        all_ended(&server).await;
    });
    assert_eq!((counts.get(Counter::WsAsked), counts.get(Counter::WsPongs)), (4, 3), "{counts:?}");
    assert_eq!((counts.get(Counter::WsSilent), counts.errors()), (1, 1), "{counts:?}");
}

#[test]
fn peers_that_end_without_a_word_or_do_not_read_are_counted() {
    let options =
        Options { timeouts: Timeouts { idle: Duration::from_secs(60), ..impatient() }, ..Options::default() };
    let (_, counts) = beside_with(options, |server| async move {
        let peer = Peer::open(None).await;
        drop(peer);
        all_ended(&server).await;
        let mut peer = Peer::open(None).await;
        let mut frames = Vec::new();
        frame::write(&mut frames, Opcode::Binary, &[7; 60_000], KEY);
        while peer.stream.write_all(&frames).await.is_ok() && server.total().get(Counter::WriteTimeout) == 0 {
        }
        all_ended(&server).await;
        assert_eq!(server.memory(), 0);
    });
    assert_eq!((counts.get(Counter::WsNoClose), counts.get(Counter::WriteTimeout)), (1, 1), "{counts:?}");
}

/// Messages that are not whole are kept in the lane's memory, which has an end: each lane's share is 16 KiB here.
#[test]
fn messages_that_find_no_memory_are_refused() {
    let options = Options { memory: 64 << 10, ..Options::default() };
    let (_, counts) = beside_with(options, |server| async move {
        let mut peer = Peer::open(None).await;
        let mut frames = Vec::new();
        frame::write(&mut frames, Opcode::Binary, &vec![7; 200_000], KEY);
        peer.write(&frames[..frames.len() - 1]).await;
        assert_eq!(peer.hear().await, Heard::Close(Some(1013)));
        drop(peer);
        all_ended(&server).await;
        assert_eq!(server.memory(), 0);
    });
    assert_eq!((counts.get(Counter::NoMemory), counts.errors()), (1, 1), "{counts:?}");
}

#[test]
fn a_server_that_stops_says_so_and_a_stall_delays() {
    let stall = Stall { every: Duration::from_millis(100), length: Duration::from_millis(99) };
    let (_, counts) =
        beside_with(Options { stall: Some(stall), ..Options::default() }, |server| async move {
            let mut peer = Peer::open(None).await;
            for i in 0..5u8 {
                peer.frame(Opcode::Binary, &[i]).await;
                assert_eq!(peer.hear().await, Heard::Data(vec![i]));
                let now = flowlane::now().unwrap().as_nanos() % 100_000_000;
                assert!(now < 90_000_000, "answered in the middle of a stall");
            }
            let stopping = server.clone();
            let stopped = std::thread::spawn(move || stopping.stop_within(Duration::from_secs(30)));
            assert_eq!(peer.hear().await, Heard::Close(Some(1001)));
            // What comes on the way is no longer answered.
            peer.frame(Opcode::Ping, b"late").await;
            peer.frame(Opcode::Close, &1001u16.to_be_bytes()).await;
            assert_eq!(peer.hear().await, Heard::End);
            drop(peer);
            all_ended(&server).await;
            assert_eq!(stopped.join().unwrap(), 0, "nothing had to be reset");
        });
    assert_eq!((counts.get(Counter::WsClosed), counts.errors()), (1, 0), "{counts:?}");
    assert_eq!(counts.get(Counter::WsPings), 0, "nothing follows a close frame: {counts:?}");
}
