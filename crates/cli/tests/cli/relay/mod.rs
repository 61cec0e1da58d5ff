//! `flowlane serve relay` as people run it, on kernel sockets over the loopback: its clients and targets are sockets of this process, other
//! programs of ours, and HAProxy.

mod faults;
mod proxy;
mod streams;
mod targets;
mod udp;

use flowlane_testnet::{Ended, Program};
pub(crate) use flowlane_testnet::{PATIENCE, free_port};
use rustix::process::Signal;
use serde_json::Value;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// A relay that runs.
pub(crate) struct Relay {
    pub(crate) program: Program,
    pub(crate) port: u16,
}

/// The command, before it is run: `before` is a program that runs it.
fn command(before: &[&str], arguments: &str) -> Command {
    let mut words = before.to_vec();
    words.push(env!("CARGO_BIN_EXE_flowlane"));
    let mut command = Command::new(words[0]);
    command.args(&words[1..]).args(arguments.split_whitespace()).stdin(Stdio::null());
    command
}

/// Starts a service, and waits until it serves.
pub(crate) fn serving(before: &[&str], arguments: &str) -> Program {
    Program::ready(command(before, arguments), " port ")
}

impl Relay {
    pub(crate) fn to(targets: &[SocketAddr], more: &str) -> Self {
        Self::under(&[], targets, more)
    }

    /// As [`Relay::to`], run by another program.
    pub(crate) fn under(before: &[&str], targets: &[SocketAddr], more: &str) -> Self {
        let port = free_port();
        let to: String = targets.iter().map(|t| format!("--to {t} ")).collect();
        let workers = if more.contains("--workers") { "" } else { "--workers 2" };
        let arguments = format!(
            "serve relay {to} --addr 127.0.0.1/8 --port {port} {workers} --no-pin --json --grace 200ms {more}"
        );
        Self { program: serving(before, &arguments), port }
    }

    pub(crate) fn connect(&self) -> TcpStream {
        connect(SocketAddr::from(([127, 0, 0, 1], self.port)))
    }

    /// Processor time that it has used.
    pub(crate) fn busy(&self) -> Duration {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.program.id())).unwrap();
        let fields: Vec<&str> = stat.rsplit_once(')').unwrap().1.split_whitespace().collect();
        let ticks: u64 = fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap();
        Duration::from_millis(ticks * 1000 / rustix::param::clock_ticks_per_second())
    }

    /// The next document of a kind that it prints.
    pub(crate) fn prints(&mut self, kind: &str) -> Value {
        loop {
            let document: Value = serde_json::from_str(&self.program.prints()).unwrap();
            if document["kind"] == kind {
                return document;
            }
        }
    }

    /// Stops it as ^C does: its relay's summary.
    pub(crate) fn stop(self) -> Value {
        self.stop_for("relay-summary").0
    }

    /// As [`Relay::stop`], with the last document of another kind.
    pub(crate) fn stop_for(self, kind: &str) -> (Value, Value) {
        summary(&self.program.interrupt(), kind)
    }

    /// As [`Relay::stop`], with all that it said from the beginning.
    pub(crate) fn stop_and_hear(self) -> (Value, Vec<String>) {
        self.program.signal(Signal::INT);
        let Ended { status, printed, said } = self.program.end();
        assert!(status.success(), "{status}: {said:#?}");
        (summary(&printed, "relay-summary").0, said)
    }
}

/// The relay's summary, and the last document of this kind.
fn summary(printed: &str, kind: &str) -> (Value, Value) {
    let documents: Vec<Value> = printed.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let last = |kind: &str| documents.iter().rfind(|d| d["kind"] == kind).expect("it is printed").clone();
    let summary = last("relay-summary");
    assert_eq!(summary["open"], 0, "{summary}");
    flowlane_schema::check("serve-v1", &summary);
    (summary, last(kind))
}

/// A connection that gives up in the end.
pub(crate) fn connect(to: SocketAddr) -> TcpStream {
    patient(TcpStream::connect(to).unwrap())
}

pub(crate) fn patient(stream: TcpStream) -> TcpStream {
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.set_write_timeout(Some(PATIENCE)).unwrap();
    stream
}

/// A target in this process.
pub(crate) struct Target(pub(crate) TcpListener);

impl Target {
    pub(crate) fn new() -> Self {
        Self(TcpListener::bind("127.0.0.1:0").unwrap())
    }

    pub(crate) fn at(&self) -> SocketAddr {
        self.0.local_addr().unwrap()
    }

    pub(crate) fn accept(&self) -> TcpStream {
        let until = Instant::now() + PATIENCE;
        self.0.set_nonblocking(true).unwrap();
        loop {
            match self.0.accept() {
                Ok((stream, _)) => {
                    stream.set_nonblocking(false).unwrap();
                    return patient(stream);
                }
                Err(e) if e.kind() == ErrorKind::WouldBlock => {
                    assert!(Instant::now() < until, "no connection came");
                    poll(&self.0, rustix::event::PollFlags::IN, Duration::from_secs(1));
                }
                Err(e) => panic!("{e}"),
            }
        }
    }
}

/// Waits for an event of a socket; whether it came.
pub(crate) fn poll(of: impl std::os::fd::AsFd, what: rustix::event::PollFlags, time: Duration) -> bool {
    let mut fds = [rustix::event::PollFd::new(&of, what)];
    rustix::event::poll(&mut fds, Some(&time.try_into().unwrap())).unwrap() > 0
}

/// Closing resets.
pub(crate) fn reset(stream: TcpStream) {
    rustix::net::sockopt::set_socket_linger(&stream, Some(Duration::ZERO)).unwrap();
    drop(stream);
}

/// Reads until the connection is reset, and fails if it ends in order; how many bytes came before.
pub(crate) fn read_to_reset(mut stream: &TcpStream) -> usize {
    let (mut buffer, mut all) = (vec![0; 1 << 16], 0);
    loop {
        match stream.read(&mut buffer) {
            Ok(0) => panic!("the stream ended in order after {all} bytes"),
            Ok(n) => all += n,
            Err(e) if e.kind() == ErrorKind::ConnectionReset => return all,
            Err(e) => panic!("{e}"),
        }
    }
}

/// Bytes that depend on their place, and a digest of a stream.
pub(crate) struct Digest {
    hash: u64,
    pub(crate) len: u64,
}

impl Digest {
    pub(crate) fn new() -> Self {
        Self { hash: 0xcbf2_9ce4_8422_2325, len: 0 }
    }

    pub(crate) fn add(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.hash = (self.hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        }
        self.len += bytes.len() as u64;
    }

    pub(crate) fn value(&self) -> (u64, u64) {
        (self.hash, self.len)
    }
}

/// Writes `total` bytes made from a seed; their digest.
pub(crate) fn write(mut to: &TcpStream, seed: u64, total: usize) -> (u64, u64) {
    let (mut digest, mut state, mut left) = (Digest::new(), seed | 1, total);
    let mut piece = vec![0; 50_000];
    while left > 0 {
        for byte in &mut piece {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            *byte = state as u8;
        }
        let n = left.min(piece.len());
        to.write_all(&piece[..n]).unwrap();
        digest.add(&piece[..n]);
        left -= n;
    }
    digest.value()
}

/// Reads to the end of the stream; the digest.
pub(crate) fn read(mut from: &TcpStream) -> (u64, u64) {
    let (mut digest, mut buffer) = (Digest::new(), vec![0; 1 << 16]);
    loop {
        match from.read(&mut buffer).unwrap() {
            0 => return digest.value(),
            n => digest.add(&buffer[..n]),
        }
    }
}

#[test]
fn bad_arguments() {
    let free = free_port();
    let many: String = (1..=65).map(|p| format!("--to 127.0.0.1:{p} ")).collect();
    for (more, word) in [
        ("", "--to"),
        ("--to 10.0.0.2", "10.0.0.2:80"),
        ("--to web:80", "10.0.0.2:80"),
        ("--to 0.0.0.0:80", "connect to"),
        ("--to 127.0.0.1:1 --to 127.0.0.1:1", "given twice"),
        (many.as_str(), "65 targets"),
        (&format!("--to 127.0.0.1:{free} --port {free}"), "the relay itself"),
        (&format!("--to 127.0.0.1:{free} --port {free} --addr 127.0.0.1/8"), "the relay itself"),
        ("--to 127.0.0.1:1 --health 1ms", "--health"),
        ("--to [fe80::1]:1", "--to: fe80::1 is link-local: say on which interface it is, as fe80::1%eth0"),
        ("--to 127.0.0.1:1 --connect-timeout 0s", "--connect-timeout"),
        ("--to 127.0.0.1:1 --max-connections 0", "--max-connections"),
        ("--to 127.0.0.1:1 --balance best", "--balance"),
        ("--to 127.0.0.1:1 --proxy-out v3", "--proxy-out"),
        ("--to 127.0.0.1:1 --via tap:fl0", "over the link (--link)"),
        ("--to 127.0.0.1:1 --from kernel", "both sides are kernel sockets"),
        ("--to 127.0.0.1:1 --from tap:fl0", "--from"),
        (
            "--to 127.0.0.1:1 --from kernel --link tap:flnone0 --addr 10.11.2.1/24 --via kernel",
            "not with --via",
        ),
        (
            "--to 127.0.0.1:1 --from kernel --link tap:flnone0 --addr 10.11.2.1/24 --listen-buckets 0",
            "--listen-buckets",
        ),
        (
            &format!(
                "--to 127.0.0.1:{free} --port {free} --from kernel --link tap:flnone0 --addr 10.11.2.1/24"
            ),
            "the relay itself",
        ),
        ("--to 127.0.0.1:1 --udp --proxy-in", "--proxy-in: not with --udp"),
        ("--to 127.0.0.1:1 --udp --proxy-out v2", "--proxy-out: not with --udp"),
        ("--to 127.0.0.1:1 --udp --connect-timeout 1s", "--connect-timeout: not with --udp"),
        ("--to 127.0.0.1:1 --udp --health", "--health: not with --udp"),
        ("--to 127.0.0.1:1 --udp --idle-timeout 0s", "--idle-timeout"),
        ("--to 127.0.0.1:1 --udp --listen-buckets 0", "--listen-buckets: not with --udp"),
        ("--to 127.0.0.1:1 --udp --fast-open", "--fast-open: not with --udp"),
        ("--to 127.0.0.1:1 --udp --max-connections 0", "--max-connections"),
        ("--to [fd00::1]:1 --link tap:flnone0 --addr 10.11.2.1/24", "family"),
    ] {
        let output = command(&[], &format!("serve relay --no-pin {more}")).output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!((output.status.code(), said.lines().count()), (Some(2), 1), "{more}: {said}");
        assert!(said.contains(word), "{more}: {said}");
    }
}
