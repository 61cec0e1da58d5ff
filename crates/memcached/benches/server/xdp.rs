//! On our own stack over AF_XDP, beside memcached on kernel sockets, over the same veth between two namespaces that are made for it.
//!
//! ```text
//!   flmc-a: the client, kernel sockets ── va ══ vb ── flmc-b: memcached, or ours with the kernel passed by
//! ```
//!
//! A veth delivers in the context of whoever sends: what the client sends goes through the kernel's TCP of memcached in the client's time, and through
//! the XDP program of ours. So memcached's own time has half of its stack alone, and ours all of it.

use std::net::{Ipv4Addr, SocketAddr};
use std::process::Command;
use std::time::Duration;

use crate::client::{CONNECTIONS, Client};
use crate::process::{Kind, Running};

const A: &str = "flmc-a";
const B: &str = "flmc-b";
pub(crate) const SERVER: Ipv4Addr = Ipv4Addr::new(10, 11, 3, 2);

pub(crate) fn link() -> String {
    "af-xdp:vb".to_owned()
}

fn sh(command: &str) {
    assert!(Command::new("sh").args(["-ec", command]).status().unwrap().success(), "{command}");
}

/// Two namespaces with a veth between them, as long as it lives.
struct Namespaces;

impl Namespaces {
    fn new() -> Self {
        drop(Self);
        sh(&format!(
            "ip netns add {A}; ip netns add {B}
             ip link add va netns {A} numtxqueues 1 numrxqueues 1 type veth peer name vb netns {B} numtxqueues 1 numrxqueues 1
             ip -n {A} addr add 10.11.3.1/24 dev va; ip -n {A} link set va up; ip -n {B} link set vb up
             # AF_XDP sees packets as they are: the sums must be in them. For both servers.
             for end in '{A} va' '{B} vb'; do set -- $end
                 for what in tx gso tso gro; do ip netns exec $1 ethtool -K $2 $what off >/dev/null 2>&1 || true; done
             done"
        ));
        Self
    }
}

impl Drop for Namespaces {
    fn drop(&mut self) {
        sh(&format!("for n in {A} {B}; do ip netns del $n 2>/dev/null || true; done"));
    }
}

/// Makes the namespaces and runs this program in that of the client; there it measures.
pub(crate) fn run(arguments: &[String], (turns, turn): (usize, Duration), udp: bool) {
    if !arguments.iter().any(|a| a == "--inside") {
        let _namespaces = Namespaces::new();
        let mut inside = Command::new("ip");
        inside.args(["netns", "exec", A]).args(arguments).arg("--inside");
        assert!(inside.status().unwrap().success());
        return;
    }
    println!(
        "{} over a veth, one worker, {CONNECTIONS} connections, one request each under way, {turns} turns of {turn:?} each",
        if udp { "UDP" } else { "TCP" }
    );
    for get in [90, 50] {
        let mut port = 25_000;
        crate::compare(&[Kind::OursOverXdp, Kind::Memcached], turns, get, |kind| {
            port += 1;
            let server = start(kind, port);
            crate::measure(&server, Client::new(server.address(), get, udp, CONNECTIONS), turn)
        });
    }
}

/// A server at the other end. The device has the address for memcached alone.
fn start(kind: Kind, port: u16) -> Running {
    let (ours, number) = (kind == Kind::OursOverXdp, port.to_string());
    let what = if ours { "flush" } else { "replace 10.11.3.2/24" };
    sh(&format!("ip -n {B} addr {what} dev vb; ip -n {A} neigh flush dev va"));
    let mut command = Command::new("ip");
    command.args(["netns", "exec", B]);
    if ours {
        command.arg(std::env::current_exe().unwrap()).args(["--serve", &number, "--over-xdp"]);
    } else {
        let address = SERVER.to_string();
        command.args([
            "memcached",
            "-u",
            "nobody",
            "-l",
            &address,
            "-p",
            &number,
            "-U",
            &number,
            "-t",
            "1",
            "-m",
            "64",
        ]);
    }
    Running::spawn(command, SocketAddr::from((SERVER, port)))
}
