//! AF_XDP with `CAP_NET_RAW`, and `CAP_IPC_LOCK` for its memory: the map of the sockets is handed over by a small server of the device plugin's protocol, which has loaded the
//! program on the interface.

use flowlane_sys::bpf::claim::Claims;
use flowlane_sys::bpf::{Link, Map, MapKind, Program as Bpf, XdpMode, attach_xdp};
use flowlane_sys::netdev::Interface;
use flowlane_testnet::{Card, CardConfig, PATIENCE, Program, Scratch};
use rustix::net::{
    AddressFamily, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketAddrUnix,
    SocketFlags, SocketType,
};
use std::io::IoSlice;
use std::mem::MaybeUninit;
use std::net::UdpSocket;
use std::os::fd::{AsFd, OwnedFd};
use std::process::{Command, Output, Stdio};
use std::sync::Arc;

/// What the device plugin does before the pod starts: a map with so many entries, and a program on the near end that gives every packet to the sockets
/// in it.
struct Plugin {
    map: Arc<Map>,
    _program: Bpf,
    _link: Link,
}

impl Plugin {
    fn new(card: &Card, entries: usize) -> Self {
        let make = || {
            let interface = Interface::find("near0").unwrap();
            let map = Map::new(MapKind::XskMap, "xsks_map", 4, 4, entries).unwrap();
            let program = Claims::everything().unwrap().xdp(&map, None).unwrap();
            let (link, _) = attach_xdp(&program, &interface, XdpMode::Native).unwrap();
            Self { map: Arc::new(map), _program: program, _link: link }
        };
        card.in_near(make).unwrap()
    }
}

/// Serves the protocol at a path, for as long as the test runs: pod `web-0` may have the map of `near0`.
fn serve(path: &str, map: Arc<Map>) {
    let (family, kind) = (AddressFamily::UNIX, SocketType::SEQPACKET);
    let socket = rustix::net::socket_with(family, kind, SocketFlags::CLOEXEC, None).unwrap();
    rustix::net::bind(&socket, &SocketAddrUnix::new(path).unwrap()).unwrap();
    rustix::net::listen(&socket, 4).unwrap();
    std::thread::spawn(move || {
        while let Ok(connection) = rustix::net::accept(&socket) {
            while answer(&connection, &map) {}
        }
    });
}

/// Answers one request; `false` at the end of the connection.
fn answer(connection: &OwnedFd, map: &Map) -> bool {
    let mut text = [0; 64];
    let Ok((got, _)) = rustix::net::recv(connection, &mut text, RecvFlags::empty()) else { return false };
    let (answer, fds) = match &text[..got] {
        b"" => return false,
        b"/connect,web-0" => ("/host_ok", vec![]),
        b"/version" => ("0.1", vec![]),
        b"/xsk_map_fd,near0" => ("/fd_ack", vec![map.as_fd()]),
        b"/fin" => ("/fin_ack", vec![]),
        other if other.starts_with(b"/connect") => ("/host_nak", vec![]),
        other if other.starts_with(b"/xsk_map_fd") => ("/fd_nak", vec![]),
        _ => ("/nak", vec![]),
    };
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !fds.is_empty() {
        control.push(SendAncillaryMessage::ScmRights(&fds));
    }
    rustix::net::sendmsg(connection, &[IoSlice::new(answer.as_bytes())], &mut control, SendFlags::NOSIGNAL)
        .is_ok()
}

/// A service on the near end with these capabilities and no others.
fn service(card: &Card, capabilities: &str, link: &str) -> Command {
    let mut command = card.near().unwrap().command("prlimit");
    command
        .args([
            "--memlock=65536",
            "setpriv",
            "--no-new-privs",
            "--inh-caps=-all",
            &format!("--bounding-set=-all{capabilities}"),
        ])
        .arg(env!("CARGO_BIN_EXE_flowlane"))
        .args([
            "serve",
            "udp-echo",
            "--link",
            link,
            "--addr",
            "10.11.2.9/24",
            "--workers",
            "2",
            "--buckets",
            "2",
            "--no-pin",
        ])
        .stdin(Stdio::null());
    command
}

/// One line, exit code 2.
fn refused(output: &Output) -> String {
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!((output.status.code(), said.lines().count()), (Some(2), 1), "{said}");
    said
}

/// Every one of some flows is answered.
fn echoes(card: &Card) {
    let echo = || {
        for flow in 0..16u8 {
            let socket = UdpSocket::bind("10.11.2.1:0").unwrap();
            socket.set_read_timeout(Some(PATIENCE)).unwrap();
            socket.send_to(&[flow; 32], "10.11.2.9:8080").unwrap();
            let mut back = [0; 64];
            assert_eq!(socket.recv(&mut back).unwrap(), 32);
            assert_eq!(back[..32], [flow; 32]);
        }
    };
    card.far().run(echo).unwrap();
}

fn cannot() -> bool {
    let cannot = flowlane_testnet::requires().and_then(|()| {
        let missing = ["setpriv", "prlimit"]
            .into_iter()
            .find(|tool| Command::new(tool).arg("--version").output().is_err());
        missing.map_or(Ok(()), |tool| Err(format!("skipped, because there is no '{tool}' (util-linux)")))
    });
    if let Err(why) = &cannot {
        flowlane_testnet::skipped(why);
    }
    cannot.is_err()
}

#[test]
fn with_a_map_that_was_handed_over_no_right_to_change_the_card_is_needed() {
    if cannot() {
        return;
    }
    let card = Card::new(&CardConfig::for_test("hand", 2)).unwrap();
    let plugin = Plugin::new(&card, 64);
    let scratch = Scratch::new("handed");
    let path = scratch.path("afxdp.sock");
    serve(&path, plugin.map.clone());
    let link = format!("af-xdp:near0,map=unix:{path},pod=web-0");
    // Twice: the program and the map are there for whoever comes next.
    for _ in 0..2 {
        let mut service = Program::start(service(&card, ",+net_raw,+ipc_lock", &link));
        service.hear(", workers ");
        assert!(
            service.heard().iter().any(|line| line.contains("the XDP program is somebody else's")),
            "{:?}",
            service.heard()
        );
        echoes(&card);
        service.interrupt();
        let shown = card.near().unwrap().command("ip").args(["link", "show", "near0"]).output().unwrap();
        assert!(String::from_utf8_lossy(&shown.stdout).contains("xdp"), "the program stays");
    }
    let without = refused(&service(&card, ",+ipc_lock", &link).output().unwrap());
    assert!(without.contains("CAP_NET_RAW") && !without.contains("CAP_BPF"), "{without}");
}

#[test]
fn what_is_wrong_with_the_other_side_is_said_in_a_line() {
    if cannot() {
        return;
    }
    let card = Card::new(&CardConfig::for_test("nohan", 2)).unwrap();
    let scratch = Scratch::new("nothanded");
    let path = scratch.path("afxdp.sock");
    let try_it = |link: &str| refused(&service(&card, ",+net_raw,+ipc_lock", link).output().unwrap());
    let link = format!("af-xdp:near0,map=unix:{path},pod=web-0");
    assert!(try_it(&link).contains("nobody hands over maps at"));
    // A map and no program on the interface.
    let small = Arc::new(Map::new(MapKind::XskMap, "xsks_map", 4, 4, 1).unwrap());
    serve(&path, small);
    assert!(
        try_it(&format!("af-xdp:near0,map=unix:{path},pod=web-1"))
            .contains("the pod 'web-1' is not known there")
    );
    assert!(
        try_it(&format!("af-xdp:lo,map=unix:{path},pod=web-0"))
            .contains("no device 'lo' is handed out there")
    );
    let said = try_it(&link);
    assert!(
        said.contains("has room for 1 queue, and queue 1 is to be served: serve fewer with 'queues=0-0'"),
        "{said}"
    );
    let said = try_it(&format!("{link},queues=0"));
    assert!(
        said.contains("near0: has no XDP program: whoever hands over the map attaches one before"),
        "{said}"
    );
}
