//! Streams between Flowlane and the kernel over TAP, with every setting of its offloads.
//!
//! ```text
//!   Flowlane 10.11.5.2 ══ tap0 10.11.5.1 [kernel, forwards] 10.11.6.1 ── veth, no offloads ── 10.11.6.2 [kernel]
//! ```
//!
//! The near kernel takes what was left undone on trust. The far one gets finished packets only, cut and summed by the near
//! one from what we said about them, and checks every one; so does this test, in a capture.

use crate::common::skip;
use flowlane::link::QueueStats;
use flowlane::link::tap::{self, TapOptions};

use flowlane::{
    BucketMap, HashConfig, Host, Indirection, Interface, Key, Rss, Runtime, StartError, TcpListener,
    Toeplitz, spawn,
};
use flowlane_stack::tcp::DropReason;
use flowlane_testnet::{Namespace, Program};
use std::io::{Read, Write};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpStream};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

const US: [&str; 2] = ["10.11.5.2:7", "[fd00:11:5::2]:7"];

/// Echoes on port 7 until the peer is done.
pub(crate) async fn echo() {
    let Ok(listener) = TcpListener::on_port(7) else { return };
    while let Ok(stream) = listener.accept().await {
        let serve = async move {
            let mut buffer = vec![0; 1 << 16];
            while let Ok(n @ 1..) = stream.read(&mut buffer).await {
                if stream.write_all(&buffer[..n]).await.is_err() {
                    return;
                }
            }
            let _ = stream.shutdown(Shutdown::Write);
        };
        let _ = spawn(serve);
    }
}

fn start(near: &Namespace, checksum_offload: bool, segmentation: bool) -> Runtime {
    let rss = Rss::from_parts(
        Toeplitz::new(&Key::MICROSOFT),
        HashConfig::default(),
        Indirection::new(128, 2).unwrap(),
        BucketMap::new(2, 1).unwrap(),
    );
    let interface = Interface {
        addresses: ["10.11.5.2/24", "fd00:11:5::2/64"].iter().map(|a| a.parse().unwrap()).collect(),
        ..Interface::default()
    };
    let mut builder = Runtime::builder().workers(1).pin(false).frames(8192);
    let gateway = IpAddr::from([10, 11, 5, 1]);
    let host = builder.host(Host::new("us", Arc::new(rss), echo).interface(interface).gateway(gateway));
    let options = TapOptions {
        checksum_offload,
        segmentation,
        kernel_addresses: vec![(IpAddr::from([10, 11, 5, 1]), 24)],
        ..TapOptions::new("tap0")
    };
    let open = move |memory: &_, workers| tap::open(&options, memory, workers).map_err(StartError::Link);
    builder.link(host, 0, Box::new(open));
    near.run(|| builder.start()).unwrap().unwrap()
}

/// Bytes that anyone can tell apart from any other order of them.
fn fill(state: &mut u64, into: &mut [u8]) {
    for b in into {
        *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        *b = (*state >> 56) as u8;
    }
}

/// Sends `total` bytes from a kernel socket and reads them back.
pub(crate) fn there_and_back(from: &Namespace, to: &str, total: usize) {
    let to: SocketAddr = to.parse().unwrap();
    let exchange = || {
        let mut stream = TcpStream::connect_timeout(&to, Duration::from_secs(10)).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        let mut writer = stream.try_clone().unwrap();
        let write = move || {
            let (mut state, mut chunk, mut left) = (1, vec![0; 50_000], total);
            while left > 0 {
                let n = left.min(chunk.len());
                fill(&mut state, &mut chunk[..n]);
                writer.write_all(&chunk[..n]).unwrap();
                left -= n;
            }
            writer.shutdown(Shutdown::Write).unwrap();
        };
        let write = std::thread::spawn(write);
        let (mut state, mut got, mut want, mut count) = (1, vec![0; 1 << 16], vec![0; 1 << 16], 0);
        loop {
            let n = stream.read(&mut got).unwrap();
            if n == 0 {
                break;
            }
            fill(&mut state, &mut want[..n]);
            assert!(got[..n] == want[..n], "wrong bytes after {count}");
            count += n;
        }
        write.join().unwrap();
        assert_eq!(count, total);
    };
    from.run(exchange).unwrap();
}

/// Segments that the kernel of a namespace found damaged.
pub(crate) fn bad_checksums(namespace: &Namespace) -> u64 {
    let text = namespace.run(|| std::fs::read_to_string("/proc/thread-self/net/snmp")).unwrap().unwrap();
    let mut lines = text.lines().filter_map(|l| l.strip_prefix("Tcp: "));
    let (names, values) = (lines.next().unwrap(), lines.next().unwrap());
    let at = names.split(' ').position(|n| n == "InCsumErrors").unwrap();
    values.split(' ').nth(at).unwrap().parse().unwrap()
}

/// Packets that the far kernel's capture is to have: fewer than a megabyte takes.
const LOOKED_AT: usize = 300;

/// Checks every TCP packet over IPv4 of a capture; how many came from us, and the longest, bytes of IP packet.
fn check_capture(file: &Path) -> (usize, usize) {
    let bytes = std::fs::read(file).unwrap();
    let word = |at: usize| u32::from_ne_bytes(bytes[at..at + 4].try_into().unwrap()) as usize;
    let (mut at, mut ours, mut longest) = (24, 0, 0);
    while at + 16 <= bytes.len() && at + 16 + word(at + 8) <= bytes.len() {
        let packet = &bytes[at + 16 + 14..at + 16 + word(at + 8)];
        at += 16 + word(at + 8);
        let header = usize::from(packet[0] & 15) * 4;
        let len = usize::from(u16::from_be_bytes([packet[2], packet[3]]));
        let tcp = &packet[header..len];
        let words = |b: &[u8]| -> u64 {
            b.chunks(2).map(|w| u64::from(w[0]) << 8 | u64::from(*w.get(1).unwrap_or(&0))).sum()
        };
        let mut sum = words(&packet[12..20]) + 6 + tcp.len() as u64 + words(tcp);
        while sum > 0xffff {
            sum = (sum & 0xffff) + (sum >> 16);
        }
        assert_eq!(sum, 0xffff, "a wrong checksum: {packet:02x?}");
        ours += usize::from(packet[12..16] == [10, 11, 5, 2]);
        longest = longest.max(len);
    }
    (ours, longest)
}

/// A kernel behind the near one that gets nothing but finished packets; `None` if there are no tools for it.
fn far_behind(near: &Namespace, name: &str) -> Option<Namespace> {
    let far = Namespace::new(name).unwrap();
    near.ip(&format!("link add v0 type veth peer name v1 netns {name}")).unwrap();
    near.ip("addr add 10.11.6.1/24 dev v0").unwrap();
    far.ip("addr add 10.11.6.2/24 dev v1").unwrap();
    near.ip("link set v0 up").unwrap();
    far.ip("link set v1 up").unwrap();
    far.ip("route add default via 10.11.6.1").unwrap();
    near.run(|| std::fs::write("/proc/sys/net/ipv4/ip_forward", "1")).unwrap().unwrap();
    for (namespace, end) in [(near, "v0"), (&far, "v1")] {
        let off = ["-K", end, "tx", "off", "tso", "off", "gso", "off"];
        let status =
            Command::new("ip").args(["netns", "exec", namespace.name(), "ethtool"]).args(off).output();
        if !status.is_ok_and(|s| s.status.success()) {
            return None;
        }
    }
    Some(far)
}

/// Runs `work` while what comes from us is captured at `v1` in `far`: the longest of [`LOOKED_AT`] packets, bytes; `None` if tcpdump
/// does not run here.
fn captured(far: &Namespace, work: impl FnOnce()) -> Option<usize> {
    let file = std::env::temp_dir().join(format!("{}.pcap", far.name()));
    let mut command = Command::new("ip");
    // It ends by itself, with what it was asked for: whoever ends it takes packets from it that it has not got round to.
    command
        .args(["netns", "exec", far.name(), "tcpdump", "-Z", "root", "-n", "-i", "v1"])
        .args(["-c", &LOOKED_AT.to_string(), "-w"])
        .arg(&file)
        .arg("tcp and src host 10.11.5.2");
    if !Command::new("tcpdump").arg("--version").output().is_ok_and(|o| o.status.success()) {
        return None;
    }
    let mut tcpdump = Program::start(command);
    tcpdump.hear("listening on");
    work();
    let ended = tcpdump.end();
    assert!(ended.status.success(), "{ended:?}");
    let (ours, longest) = check_capture(&file);
    let _ = std::fs::remove_file(&file);
    assert_eq!(ours, LOOKED_AT);
    Some(longest)
}

pub(crate) fn queues(runtime: &Runtime) -> QueueStats {
    runtime.handle().report().queues(0).next().unwrap().stats
}

#[test]
fn streams_with_offloads_on_and_off() {
    if skip() {
        return;
    }
    const NEAR: usize = 4_000_000;
    const FAR: usize = 1_000_000;
    let id = std::process::id();
    for (n, (checksum, segmentation)) in [(false, false), (true, false), (true, true)].into_iter().enumerate()
    {
        let near = Namespace::new(&format!("fl-tcpn-{id}-{n}")).unwrap();
        let runtime = start(&near, checksum, segmentation);
        near.ip("addr add fd00:11:5::1/64 dev tap0 nodad").unwrap();
        for us in US {
            there_and_back(&near, us, NEAR);
        }
        let stats = queues(&runtime);
        let (sent, received) = (stats.tx_bytes / stats.tx_frames, stats.rx_bytes / stats.rx_frames);
        println!("{sent} bytes a frame sent, {received} received");
        assert_eq!((sent > 1514, received > 1514), (segmentation, segmentation));
        let far = far_behind(&near, &format!("fl-tcpf-{id}-{n}"));
        match &far {
            None => flowlane_testnet::skipped(
                "skipped, because ethtool cannot switch the veth's offloads off (the far kernel)",
            ),
            Some(far) => match captured(far, || there_and_back(far, US[0], FAR)) {
                None => flowlane_testnet::skipped("skipped, because tcpdump does not run (its part only)"),
                Some(longest) => {
                    println!("the longest of {LOOKED_AT} packets captured has {longest} bytes");
                    assert!(longest <= 1500, "{longest}");
                }
            },
        }
        assert_eq!(bad_checksums(&near) + far.as_ref().map_or(0, bad_checksums), 0);
        let report = runtime.stop();
        assert_eq!(report.total(0).tcp.dropped(DropReason::BadChecksum), 0);
        assert_eq!(report.total(0).tcp.resets_sent, 0);
    }
}
