//! The Linux kernel as the peer of `flowlane serve` over every link: datagrams and echo requests of every length, in both
//! families, its own tunnel devices where it has them, and its client of TCP Fast Open.

use flowlane_testnet::{Namespace, PATIENCE, Program};
use rustix::net::{AddressFamily, SendFlags, SocketType, sendto, socket};
use serde_json::Value;
use std::io::Read;
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::process::{Command, Stdio};

/// One packet, the last that fits one, the first in two, several, and nearly the longest there is.
const SIZES: [usize; 8] = [1, 1400, 1472, 1473, 3000, 9000, 60_000, 65_000];

/// A namespace for the kernel's side, and what reaches it: a veth, or a TAP that `serve` makes in it.
struct Peer {
    name: String,
    kind: &'static str,
    _tap: Option<Namespace>,
}

impl Peer {
    /// `None`, having said why, where there can be none.
    fn new(kind: &'static str, tag: &str) -> Option<Self> {
        if let Err(why) = flowlane_testnet::requires() {
            flowlane_testnet::skipped(why);
            return None;
        }
        let name = format!("fp{tag}{}", std::process::id());
        let tap = (kind == "tap").then(|| Namespace::new(&name).unwrap());
        if tap.is_none() {
            let up =
                Command::new(env!("CARGO_BIN_EXE_flowlane")).args(["lab", "up", "--name", &name]).output();
            assert!(up.unwrap().status.success());
        }
        Some(Self { name, kind, _tap: tap })
    }

    /// The kernel's interface.
    fn interface(&self) -> String {
        if self.kind == "tap" { "tap0".into() } else { format!("{}1", self.name) }
    }

    fn ip(&self, arguments: &str) -> Result<(), flowlane_testnet::Error> {
        flowlane_testnet::ip(&format!("-n {} {arguments}", self.name))
    }

    fn inside<R: Send>(&self, work: impl FnOnce() -> R + Send) -> R {
        let namespace = std::mem::ManuallyDrop::new(Namespace::adopt(&self.name));
        namespace.run(work).unwrap()
    }

    /// `flowlane serve udp-echo` on 10.11.2.1 and fd00:11:2::1, ready.
    fn serve(&self, more: &str) -> Program {
        self.serve_as("udp-echo", more)
    }

    /// Another service.
    fn serve_as(&self, service: &str, more: &str) -> Program {
        let near = if self.kind == "tap" { "tap0".into() } else { format!("{}0", self.name) };
        let program = env!("CARGO_BIN_EXE_flowlane");
        let arguments = format!(
            "serve {service} --link {}:{near} --addr 10.11.2.1/24,fd00:11:2::1/64 --workers 2 --rss software --no-pin --json {more}",
            self.kind
        );
        let mut command = Command::new(program);
        if self.kind == "tap" {
            // It makes the interface, and where it is started is where that appears.
            command = Command::new("ip");
            command.args(["netns", "exec", &self.name, program]);
        }
        command.args(arguments.split_whitespace()).stdin(Stdio::null());
        let program = Program::ready(command, &format!("{service} on"));
        if self.kind == "tap" {
            self.ip("addr add 10.11.2.2/24 dev tap0").unwrap();
            self.ip("addr add fd00:11:2::2/64 dev tap0 nodad").unwrap();
            self.ip("link set tap0 up").unwrap();
        }
        program
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        if self.kind != "tap" {
            let down = ["lab", "down", "--name", &self.name];
            let _ = Command::new(env!("CARGO_BIN_EXE_flowlane")).args(down).output();
        }
    }
}

/// ^C; its summary.
fn end(service: Program) -> Value {
    serde_json::from_str(service.interrupt().lines().last().unwrap()).unwrap()
}

/// So many that it cannot be by chance that all of them have the bucket of their addresses: the key is drawn at random.
const PORTS: usize = 16;

/// Sends datagrams of every size from several ports; every one must come back as it was. Nothing sends a datagram again that a
/// busy machine's interface has no room for, so one that is missing is asked for again.
fn ask(to: &str) {
    let to: SocketAddr = to.parse().unwrap();
    let any = if to.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
    for port in 0..PORTS {
        let socket = UdpSocket::bind(any).unwrap();
        socket.connect(to).unwrap();
        socket.set_read_timeout(Some(PATIENCE / 6)).unwrap();
        for size in SIZES {
            let sent: Vec<u8> = (0..size).map(|i| (((i + port) * 31) >> 2) as u8).collect();
            let mut got = vec![0; 66_000];
            let answer = (0..3).find_map(|_| {
                socket.send(&sent).unwrap();
                socket.recv(&mut got).ok()
            });
            let n = answer.unwrap_or_else(|| panic!("{size} bytes to {to}: no answer"));
            assert!(got[..n] == sent, "{size} bytes to {to}");
        }
    }
}

/// `ping` with several sizes, of which each is answered; without the program, says so. One of the three may be lost to a full
/// queue of a busy machine.
fn ping(peer: &Peer, to: &str) {
    for size in ["56", "1473", "60000"] {
        let arguments =
            ["netns", "exec", &peer.name, "ping", "-n", "-c", "3", "-i", "0.2", "-W", "10", "-s", size, to];
        let output = Command::new("ip").args(arguments).output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        let complaint = String::from_utf8_lossy(&output.stderr).into_owned();
        if complaint.contains("No such file") {
            return flowlane_testnet::skipped("skipped, because there is no ping (its part only)");
        }
        let answered = ["2 received", "3 received"].iter().any(|enough| said.contains(enough));
        assert!(answered, "{size} to {to}: {said}{complaint}");
    }
}

/// Datagrams that came in fragments and went to another bucket, as 'flowlane stat' shows them, of both families.
fn redirected(control: &str) -> Vec<u64> {
    let arguments = ["stat", "-s", "--control", control];
    let output = Command::new(env!("CARGO_BIN_EXE_flowlane")).args(arguments).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let count =
        |line: &str| line.trim().strip_suffix(" of them for another bucket").map(|n| n.parse().unwrap());
    // IPv4 and IPv6 come before the tunnels, which count theirs in the same words.
    said.lines().filter_map(count).take(2).collect()
}

fn lengths_over(kind: &'static str, tag: &str) {
    for more in ["--udp-4tuple", ""] {
        let Some(peer) = Peer::new(kind, tag) else { return };
        let control = std::env::temp_dir().join(format!("{}.sock", peer.name)).display().to_string();
        let service = peer.serve(&format!("{more} --control {control}"));
        for to in ["10.11.2.1", "fd00:11:2::1"] {
            let with_port = if to.contains(':') { format!("[{to}]:8080") } else { format!("{to}:8080") };
            peer.inside(|| ask(&with_port));
            ping(&peer, to);
        }
        // The trade of docs/fragments.md: on four fields, datagrams in fragments are handed over; on two, they are not.
        let redirected = redirected(&control);
        assert_eq!(redirected.len(), 2);
        assert!(redirected.iter().all(|n| (*n > 0) != more.is_empty()), "{more}: {redirected:?}");
        let summary = end(service);
        let want = 2 * PORTS * SIZES.len();
        assert_eq!((&summary["received"], &summary["sent"]), (&want.into(), &want.into()), "{summary}");
    }
}

// Long: every length of datagram goes both ways.
#[test]
fn every_length_over_af_packet() {
    lengths_over("af-packet", "p");
}

// Long: every length of datagram goes both ways.
#[test]
fn every_length_over_af_xdp() {
    lengths_over("af-xdp", "x");
}

// Long: every length of datagram goes both ways.
#[test]
fn every_length_over_tap() {
    lengths_over("tap", "t");
}

/// The kernel's own tunnel device as the peer: what `ip link add` needs, and what `--tunnel` does.
fn tunnel_to_the_kernel(kind: &'static str, tag: &str, device: &str, ours: &str) {
    let Some(peer) = Peer::new(kind, tag) else { return };
    let service = peer.serve(&format!("--udp-4tuple --tunnel {ours},addr=192.168.9.1/24,addr=fd09::1/64"));
    let device = device.replace("DEV", &peer.interface());
    if let Err(why) = peer.ip(&format!("link add tun9 type {device}")) {
        flowlane_testnet::skipped(format_args!("skipped, because this kernel has no such tunnel: {why}"));
        return;
    }
    peer.ip("addr add 192.168.9.2/24 dev tun9").unwrap();
    peer.ip("addr add fd09::2/64 dev tun9 nodad").unwrap();
    peer.ip("link set tun9 up").unwrap();
    for to in ["192.168.9.1", "fd09::1"] {
        let with_port = if to.contains(':') { format!("[{to}]:8080") } else { format!("{to}:8080") };
        peer.inside(|| ask(&with_port));
        ping(&peer, to);
    }
    let summary = end(service);
    let want = 2 * PORTS * SIZES.len();
    assert_eq!((&summary["received"], &summary["sent"]), (&want.into(), &want.into()), "{summary}");
}

// Long: every length of datagram goes both ways.
#[test]
fn the_kernels_vxlan() {
    for (kind, tag) in [("af-packet", "vp"), ("af-xdp", "vx"), ("tap", "vt")] {
        tunnel_to_the_kernel(
            kind,
            tag,
            "vxlan id 7 local 10.11.2.2 remote 10.11.2.1 dstport 4789 dev DEV",
            "vxlan,vni=7,local=10.11.2.1,remote=10.11.2.2",
        );
    }
    tunnel_to_the_kernel(
        "af-packet",
        "v6",
        "vxlan id 7 local fd00:11:2::2 remote fd00:11:2::1 dstport 4789 dev DEV",
        "vxlan,vni=7,local=fd00:11:2::1,remote=fd00:11:2::2",
    );
}

#[test]
fn the_kernels_geneve() {
    let ours = "geneve,vni=9,local=10.11.2.1,remote=10.11.2.2";
    tunnel_to_the_kernel("af-packet", "g", "geneve id 9 remote 10.11.2.1", ours);
}

#[test]
fn the_kernels_gre() {
    let ends = "local 10.11.2.2 remote 10.11.2.1";
    let ours = "local=10.11.2.1,remote=10.11.2.2";
    tunnel_to_the_kernel("af-packet", "r", &format!("gre {ends} key 5"), &format!("gre,key=5,{ours}"));
    tunnel_to_the_kernel(
        "af-packet",
        "rt",
        &format!("gretap {ends} csum"),
        &format!("gretap,checksum,{ours}"),
    );
}

/// The kernel's client asks for a cookie, and from then on its requests come with the SYN, whichever lane they come to.
#[test]
fn the_kernel_opens_fast() {
    let Some(peer) = Peer::new("af-packet", "fo") else { return };
    let service = peer.serve_as("tcp-echo", "--fast-open 8");
    peer.inside(|| {
        std::fs::write("/proc/sys/net/ipv4/tcp_fastopen", "1").unwrap();
        let to: SocketAddr = "10.11.2.1:8080".parse().unwrap();
        for n in 0..8_u8 {
            let socket = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
            let sent = sendto(&socket, &[n; 200], FAST_OPEN, &to).unwrap();
            assert_eq!(sent, 200);
            let mut stream = TcpStream::from(socket);
            stream.set_read_timeout(Some(PATIENCE)).unwrap();
            stream.shutdown(std::net::Shutdown::Write).unwrap();
            let mut got = Vec::new();
            stream.read_to_end(&mut got).unwrap();
            assert_eq!(got, [n; 200]);
        }
        assert_eq!(extended("TCPFastOpenActive"), 7);
        assert_eq!(extended("TCPFastOpenActiveFail"), 0);
    });
    end(service);
}

/// `MSG_FASTOPEN`.
const FAST_OPEN: SendFlags = SendFlags::from_bits_retain(0x2000_0000);

/// A counter of the kernel's, in the namespace of the calling thread.
fn extended(name: &str) -> u64 {
    let text = std::fs::read_to_string("/proc/thread-self/net/netstat").unwrap();
    let mut lines = text.lines().filter(|line| line.starts_with("TcpExt:"));
    let (names, values) = (lines.next().unwrap(), lines.next().unwrap());
    let at = names.split_whitespace().position(|word| word == name).unwrap();
    values.split_whitespace().nth(at).unwrap().parse().unwrap()
}
