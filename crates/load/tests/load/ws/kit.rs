//! Servers on the other end of a wire in memory: our own, and ones that do wrong.

use std::sync::Arc;
use std::time::Duration;

use flowlane::{
    Endpoint, Host, Interface, Key, ListenOptions, PairConfig, Rss, Runtime, TcpListener, TcpStream, spawn,
};
use flowlane_http::server::{Counts, Options, Server};
use flowlane_http::tls::{ClientTls, ServerName, ServerTls};
use flowlane_http::ws::{Event, Kind, Opcode, Reader, Side, deflate, frame, handshake};
use flowlane_load::report::{About, PoolAbout, Run};
use flowlane_load::ws::{Opening, Payload, WsCounts, WsLoad, WsLoadConfig};
use flowlane_load::{ClientRange, Phase, Sources};

/// What a server does.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(in super::super) enum Far {
    /// Ours.
    Good,
    /// Echoes in fragments, some empty, with a ping among them.
    Fragments,
    /// A byte of every tenth answer is another.
    Corrupts,
    /// Every tenth answer is the one before.
    Repeats,
    /// Every tenth answer is of the other kind.
    OtherKind,
    /// Every tenth answer has a byte more.
    Longer,
    /// Says something first that nobody asked for, of which it says no more than that.
    Greets,
    /// Says nothing after the handshake.
    Silent,
    /// Says nothing at all.
    Mute,
    /// This answer to the opening handshake; `KEY` stands for the right key.
    Answers(&'static str),
    /// Closes after so many answers, with this code.
    Closes(u64, Option<u16>),
    /// Ends the connection after so many answers without a close frame.
    Ends(u64),
    /// Sends these bytes in place of the first answer, again and again until they are refused.
    Says(&'static [u8], bool),
    /// Echoes, and answers no close frame.
    KeepsOpen,
    /// Agrees to compressed messages and echoes them as it is said.
    Deflates(Deflates),
}

/// How a server echoes compressed messages, which it does not look into.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(in super::super) enum Deflates {
    /// As they came.
    Well,
    /// In two fragments.
    Fragments,
    /// Every tenth answer ends too early.
    Short,
    /// Every tenth answer does not decompress.
    Garbage,
    /// Every tenth answer becomes two megabytes of two kilobytes.
    Bomb,
}

const WIRE: &str = "10.0.0.1:80";

/// A server by hand.
struct Serving {
    stream: TcpStream,
    reader: Reader,
    answers: u64,
    last: (Opcode, Vec<u8>),
}

impl Serving {
    async fn write(&self, bytes: &[u8]) -> bool {
        self.stream.write_all(bytes).await.is_ok()
    }

    /// What to send for a message; `None`: that and the end of the connection.
    fn answer(&mut self, far: Far, opcode: Opcode, message: Vec<u8>) -> (Vec<u8>, bool) {
        self.answers += 1;
        let (nth, mut out) = (self.answers, Vec::new());
        let tenth = nth % 10 == 0;
        let mut answer = (opcode, message.clone());
        match far {
            Far::Fragments => {
                let half = message.len() / 2;
                frame::head(&mut out, opcode, false, half, None);
                out.extend_from_slice(&message[..half]);
                frame::head(&mut out, Opcode::Continuation, false, 0, None);
                frame::write(&mut out, Opcode::Ping, b"among them", None);
                frame::write(&mut out, Opcode::Continuation, &message[half..], None);
                return (out, true);
            }
            Far::Corrupts if tenth => answer.1[message.len() / 2] ^= 1,
            Far::Repeats if tenth => answer = self.last.clone(),
            Far::OtherKind if tenth => {
                answer.0 = if opcode == Opcode::Text { Opcode::Binary } else { Opcode::Text }
            }
            Far::Longer if tenth => answer.1.push(b' '),
            Far::Deflates(how) => {
                match how {
                    Deflates::Short if tenth => answer.1 = vec![0],
                    Deflates::Garbage if tenth => answer.1 = vec![0xff; 9],
                    Deflates::Bomb if tenth => {
                        deflate::write(&mut out, opcode, &vec![b'x'; 2 << 20], None);
                        return (out, true);
                    }
                    _ => {}
                }
                let begin = if how == Deflates::Fragments { answer.1.len() / 2 } else { answer.1.len() };
                frame::head(&mut out, opcode, how != Deflates::Fragments, begin, None);
                // RFC 7692 §6: RSV1.
                out[0] |= 0x40;
                out.extend_from_slice(&answer.1[..begin]);
                if how == Deflates::Fragments {
                    frame::write(&mut out, Opcode::Continuation, &answer.1[begin..], None);
                }
                return (out, true);
            }
            Far::Silent => return (out, true),
            Far::Says(bytes, again) => {
                return (if again { bytes.repeat(4096) } else { bytes.to_vec() }, true);
            }
            Far::Closes(after, code) if nth > after => {
                frame::close(&mut out, code, "enough", None);
                return (out, false);
            }
            Far::Ends(after) if nth > after => return (out, false),
            _ => {}
        }
        frame::write(&mut out, answer.0, &answer.1, None);
        self.last = (opcode, message);
        (out, true)
    }

    async fn serve(mut self, far: Far) {
        let (mut bytes, mut message, mut buffer) = (Vec::new(), Vec::new(), vec![0; 1 << 16]);
        while let Ok(n @ 1..) = self.stream.read(&mut buffer).await {
            bytes.extend_from_slice(&buffer[..n]);
            loop {
                let (used, event) = self.reader.next(&mut bytes).expect("the generator's frames are good");
                let (out, goes_on) = match event {
                    None => {
                        bytes.drain(..used);
                        break;
                    }
                    Some(Event::Data { kind, bytes, last, .. }) => {
                        message.extend_from_slice(bytes);
                        if last {
                            let whole = std::mem::take(&mut message);
                            let opcode = if kind == Kind::Text { Opcode::Text } else { Opcode::Binary };
                            self.answer(far, opcode, whole)
                        } else {
                            (Vec::new(), true)
                        }
                    }
                    Some(Event::Close(_)) if far == Far::KeepsOpen => (Vec::new(), true),
                    Some(Event::Close(code)) => {
                        let mut out = Vec::new();
                        frame::close(&mut out, code, "", None);
                        (out, false)
                    }
                    Some(Event::Pong(payload)) => {
                        assert_eq!(payload, b"among them");
                        (Vec::new(), true)
                    }
                    Some(Event::Ping(_)) => (Vec::new(), true),
                };
                bytes.drain(..used);
                if !self.write(&out).await {
                    return;
                }
                if !goes_on {
                    let _ = self.stream.shutdown(std::net::Shutdown::Write);
                    while let Ok(1..) = self.stream.read(&mut buffer).await {}
                    return;
                }
            }
        }
    }
}

/// Takes the opening handshake, and goes on.
pub(in super::super) async fn serve(stream: TcpStream, far: Far) {
    if far == Far::Mute {
        return std::future::pending().await;
    }
    let (mut head, mut buffer) = (Vec::new(), vec![0; 1 << 16]);
    while !head.ends_with(b"\r\n\r\n") {
        let Ok(n @ 1..) = stream.read(&mut buffer).await else { return };
        head.extend_from_slice(&buffer[..n]);
    }
    let text = String::from_utf8(head).unwrap();
    let key = text.lines().find_map(|line| line.strip_prefix("Sec-WebSocket-Key: ")).unwrap();
    assert!(text.starts_with("GET /ws HTTP/1.1\r\nHost: far\r\n"), "{text}");
    let good =
        "HTTP/1.1 101 Yes\r\nupgrade: WebSocket\r\nconnection: upgrade\r\nsec-websocket-accept: KEY\r\n\r\n";
    let agreed = format!("{}Sec-WebSocket-Extensions: {}\r\n\r\n", &good[..good.len() - 2], deflate::OFFER);
    let answer = match far {
        Far::Answers(answer) => answer,
        Far::Deflates(_) => &agreed,
        _ => good,
    };
    let mut answer = answer.replace("KEY", &handshake::accept(key.as_bytes())).into_bytes();
    if far == Far::Greets {
        // With the answer, in one write.
        frame::write(&mut answer, Opcode::Text, b"served by nobody", None);
    }
    if stream.write_all(&answer).await.is_err() {
        return;
    }
    let last = (Opcode::Binary, vec![0; 64]);
    Serving { stream, reader: Reader::new(Side::Client, 64 << 20).deflates(true), answers: 0, last }
        .serve(far)
        .await;
}

fn rss() -> Arc<Rss> {
    Arc::new(Rss::new(Key::MICROSOFT, 1))
}

/// How connections are opened; `tls` with whom.
pub(super) fn opening(tls: Option<(ClientTls, ServerName<'static>)>) -> Arc<Opening> {
    Arc::new(Opening::new(tls, "far", "/ws", &[], false))
}

/// Compressed messages are offered.
pub(super) fn offering() -> Arc<Opening> {
    Arc::new(Opening::new(None, "far", "/ws", &[], true))
}

/// Two hundred milliseconds of messages on four connections.
pub(in super::super) fn config() -> WsLoadConfig {
    let clients: ClientRange = "10.0.1.0/24".parse().unwrap();
    WsLoadConfig {
        target: Endpoint::from(WIRE.parse::<std::net::SocketAddr>().unwrap()),
        sources: Sources::Addresses { clients: vec![clients], lanes: rss().buckets.len() },
        opening: opening(None),
        connections: 4,
        depth: 1,
        rate: None,
        poisson: false,
        payload: Payload { kind: Kind::Binary, size: 64, verify: true, words: false },
        phases: vec![Phase::hold(Duration::from_millis(200))],
        timeout: Duration::from_secs(5),
        exact: true,
        seed: 5,
        snapshots: None,
    }
}

/// A run and what came of it.
pub(super) struct Ran {
    pub(super) counts: WsCounts,
    /// Why it ended early.
    pub(super) failure: Option<String>,
    pub(super) report: Run,
    /// What our server counted.
    pub(super) server: Counts,
}

impl Ran {
    /// Errors of a kind, in all of the run.
    pub(super) fn errors(&self, kind: &str) -> u64 {
        let of = |c: &flowlane_load::report::Counts| c.errors.get(kind).map_or(0, |e| e.count);
        of(&self.report.total.counts) + of(&self.report.total.unmeasured)
    }

    /// A count that only this load has.
    pub(super) fn more(&self, name: &str) -> u64 {
        let of = |c: &flowlane_load::report::Counts| c.more.get(name).copied().unwrap_or(0);
        of(&self.report.total.counts) + of(&self.report.total.unmeasured)
    }
}

/// Runs a load against a server.
pub(super) fn run(far: Far, config: WsLoadConfig) -> Ran {
    run_with(far, config, None)
}

/// The same with a server inside TLS, if it is ours.
pub(super) fn run_with(far: Far, config: WsLoadConfig, tls: Option<ServerTls>) -> Ran {
    let load = WsLoad::new(config).unwrap();
    let on = |a: &str| Interface { addresses: vec![a.parse().unwrap()], ..Interface::default() };
    let mut builder = Runtime::builder().pin(false).seed(7);
    let options = Options { tls, max_message: 16 << 20, ws_deflate: true, ..Options::default() };
    let good = Server::new(options, rss().buckets.len()).unwrap();
    let ours = good.clone();
    let server = Host::new("server", rss(), move || {
        let good = ours.clone();
        async move {
            if far == Far::Good {
                let listener = TcpListener::bind(None, 80, Server::listen_options()).unwrap();
                let _ = good.serve(listener).await;
                return;
            }
            let listener = TcpListener::bind(None, 80, ListenOptions::default()).unwrap();
            while let Ok(stream) = listener.accept().await {
                drop(spawn(serve(stream, far)));
            }
        }
    });
    let server = builder.host(server.interface(on("10.0.0.1/16")));
    let claimed = "10.0.1.0/24".parse::<ClientRange>().unwrap().prefixes();
    let interface = Interface { claimed, ..on("10.0.0.2/16") };
    let client = builder.host(Host::new("client", rss(), load.main()).interface(interface));
    builder.pair((server, 0), (client, 0), PairConfig::default());
    let runtime = builder.start().unwrap();
    let outcome = load.wait(Duration::from_secs(1), |_| true);
    let (c, failure) = (outcome.counts, outcome.failure.clone());
    let report = runtime.stop();
    assert!(report.failures().is_empty(), "{:?}", report.failures());
    let pools = vec![PoolAbout { name: "all".into(), ..PoolAbout::default() }];
    let report = outcome.run(About { pools, failures_count: true, ..About::default() });
    let ran = Ran { counts: c, failure, report, server: good.total() };
    assert_agree(&ran);
    ran
}

/// The report says what was counted.
fn assert_agree(ran: &Ran) {
    let (c, total) = (ran.counts, &ran.report.total);
    assert_eq!(
        c.messages,
        c.answered + c.timed_out + c.lost + c.unfinished,
        "every message ends once: {c:?}"
    );
    let sum = |f: fn(&flowlane_load::report::Counts) -> u64| f(&total.counts) + f(&total.unmeasured);
    assert_eq!((sum(|t| t.sent), sum(|t| t.answered)), (c.messages, c.answered), "{c:?}");
    assert_eq!((sum(|t| t.bytes_sent), sum(|t| t.bytes_received)), (c.bytes_written, c.bytes_read));
    let connections = (sum(|t| t.connections_opened), sum(|t| t.connections_failed));
    assert_eq!(connections, (c.connected, c.not_connected));
    assert_eq!((sum(|t| t.unsent), sum(|t| t.held_up)), (c.unsent, c.held_up));
    assert!(sum(|t| t.failed) >= c.failed() + c.not_connected, "{c:?}: {total:?}");
    for (name, count) in [
        ("late", c.late),
        ("fragmented", c.fragmented),
        ("deflated", c.deflated),
        ("unasked", c.unasked),
        ("pings", c.pings),
        ("handshakes-failed", c.handshakes_failed),
        ("broken", c.broken),
        ("closed-by-server", c.closed_by_server),
        ("closed", c.closed),
        ("unclosed", c.unclosed),
    ] {
        assert_eq!(ran.more(name), count, "{name}: {c:?}");
    }
    let ended = c.broken + c.closed + c.unclosed;
    assert!(ran.failure.is_some() || ended == c.connected, "every connection ends once: {c:?}");
}
