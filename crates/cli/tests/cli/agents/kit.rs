//! A NATS server, agents, and a web server that counts.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::process::{Command, Output, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use flowlane_testnet::{Program, free_port};
use serde_json::Value;

/// A NATS server on a port of its own.
pub(super) struct Nats {
    pub(super) program: Program,
    pub(super) port: u16,
    /// User and password with an @ behind them, if it wants some.
    pub(super) login: String,
}

impl Nats {
    /// Starts one; `None` where there is none, which is said.
    pub(super) fn start(more: &[&str]) -> Option<Self> {
        let mut there = Command::new("nats-server");
        if there.arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status().is_err() {
            flowlane_testnet::skipped(
                "skipped, because there is no nats-server (Debian's package nats-server)",
            );
            return None;
        }
        let port = free_port();
        Some(Self { program: Self::on(port, more), port, login: String::new() })
    }

    fn on(port: u16, more: &[&str]) -> Program {
        let mut command = Command::new("nats-server");
        command.args(["-a", "127.0.0.1", "-p", &port.to_string()]).args(more);
        let mut program = Program::start(command);
        while !program.says().contains("Server is ready") {}
        program
    }

    /// The same again, once the one before is gone.
    pub(super) fn again(&mut self) {
        self.program = Self::on(self.port, &[]);
    }

    pub(super) fn url(&self) -> String {
        format!("nats://{}127.0.0.1:{}", self.login, self.port)
    }

    /// An agent that waits for work.
    pub(super) fn agent(&self, name: &str, more: &[&str]) -> Program {
        let mut command = Command::new(env!("CARGO_BIN_EXE_flowlane"));
        command.args(["load", "agent", "--group", "lab", "--nats", &self.url(), "--name", name]).args(more);
        Program::ready(command, &format!("agent {name} of group lab"))
    }

    /// A load of requests that agents make.
    pub(super) fn load(&self, arguments: &[&str]) -> Command {
        self.load_of("http", arguments)
    }

    /// A load of any kind that agents make.
    pub(super) fn load_of(&self, load: &str, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_flowlane"));
        command.args(["load", load, "--nats", &self.url()]).args(arguments);
        command
    }
}

/// A web server on the kernel's loopback, a thread for each connection: how many requests it heard.
pub(super) fn server() -> (SocketAddr, Arc<AtomicU64>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let heard = Arc::new(AtomicU64::new(0));
    let count = heard.clone();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let (count, mut stream) = (count.clone(), stream.unwrap());
            std::thread::spawn(move || {
                let mut lines = BufReader::new(stream.try_clone().unwrap());
                loop {
                    let mut line = String::new();
                    match lines.by_ref().take(4096).read_line(&mut line) {
                        Ok(n) if n > 0 => {}
                        _ => return,
                    }
                    if line != "\r\n" {
                        continue;
                    }
                    count.fetch_add(1, Ordering::Relaxed);
                    if stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello").is_err() {
                        return;
                    }
                }
            });
        }
    });
    (address, heard)
}

/// The report that a load printed, whose schedule a busy machine may not have kept.
pub(super) fn report(output: &Output) -> Value {
    let said = String::from_utf8_lossy(&output.stderr);
    let report: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{e}: {said}"));
    flowlane_schema::check("load-run", &report);
    report
}

/// That a load refused in one line.
pub(super) fn refused(mut command: Command, code: i32, word: &str) {
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{said}");
    assert!(said.lines().count() == 1 && said.contains(word), "'{word}' in {said}");
}
