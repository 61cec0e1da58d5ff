//! Hosts that are plugged into a switch: what passes between the ends of a pair passes through a switch, too, also while lanes move; and
//! who asks for a port, has it, and leaves it.

use std::io::IoSliceMut;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use flowlane::control;
use flowlane::link::{Life, LinkSpec, LinkState};
use flowlane::switch::core::config::{Config, PortConfig};
use flowlane::switch::{self, Around, Options, PortLink, StartHost, Switch, SwitchError};
use flowlane::{Bucket, Host, Interface, Key, Runtime, StartError, UdpFields};
use flowlane_testnet::eventually;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendFlags, SocketAddrUnix,
    SocketFlags, SocketType,
};

use crate::streams::{echo, there_and_back};
use crate::tcp::{BUCKETS, finish, server};
use crate::traffic::{CLIENT, PATIENCE, PATIENCE_FOR_MOVES, Plan, SERVER, assert_perfect, rss};

/// A switch of ports to plug into, and its name.
pub(crate) struct Switched {
    pub(crate) switch: Switch,
    pub(crate) name: String,
    plugs: PathBuf,
}

impl Switched {
    pub(crate) fn start(ports: &[&str], workers: usize) -> Self {
        let links = ports.iter().map(|_| PortLink::Plug).collect();
        Self::start_with(ports, links, workers, |_| None, Around::default()).unwrap()
    }

    /// `hosts`: what starts hosts on the ports of the switch of this name.
    pub(crate) fn start_with(
        ports: &[&str],
        links: Vec<PortLink>,
        workers: usize,
        hosts: impl FnOnce(&str) -> Option<StartHost>,
        around: Around,
    ) -> Result<Self, SwitchError> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let name = format!("t{}-{}", std::process::id(), NUMBER.fetch_add(1, Ordering::Relaxed));
        let plugs = control::listen_for_plugs(&name).unwrap();
        let path = plugs.path().to_owned();
        let mut config = Config::new(ports.iter().map(|port| PortConfig::new(port)).collect());
        // Hosts would count probes of loops as frames that are not for them.
        config.probe = 0;
        let switch = switch::start(Options {
            config,
            links,
            plugs: Some(plugs),
            workers,
            poll: Duration::from_micros(50),
            busy_poll: None,
            spare_queues: 0,
            hosts: hosts(&name),
            around,
            before_start: || Ok(()),
        });
        Ok(Self { switch: switch?, name, plugs: path })
    }

    pub(crate) fn link(&self, port: &str) -> LinkSpec {
        format!("switch:{}/{port}", self.name).parse().unwrap()
    }

    pub(crate) fn state(&self, port: usize) -> String {
        self.switch.handle().view().unwrap().ports[port].state.clone()
    }

    /// What was dropped and lost at all ports.
    fn lost(&self) -> u64 {
        let view = self.switch.handle().view().unwrap();
        let bad = ["rx-bad", "rx-no-frame", "tx-failed"];
        let queues = |port: &switch::PortView| bad.iter().map(|name| port.queues[*name]).sum::<u64>();
        view.ports.iter().map(|port| port.drops.values().sum::<u64>() + queues(port)).sum()
    }
}

fn on(address: &str) -> Interface {
    Interface { addresses: vec![address.parse().unwrap()], ..Interface::default() }
}

/// Server and client in one runtime, each plugged into the switch; `client` in every lane of the second.
fn streams(net: &Switched, each: usize) -> (Runtime, mpsc::Receiver<Result<u64, String>>) {
    let mut builder = Runtime::builder().workers(2).pin(false).seed(7).frames(32_768);
    let of_server = rss(Key::MICROSOFT, BUCKETS, 2, UdpFields::Two);
    let host = Host::new("server", of_server.clone(), || echo(server())).interface(on("10.0.0.1/24"));
    assert_eq!(builder.host(host), SERVER);
    let (say, said) = mpsc::channel();
    let of_client = rss(Key::symmetric(), BUCKETS, 2, UdpFields::Two);
    let host = Host::new("client", of_client.clone(), move || {
        let say = say.clone();
        async move {
            let _ = say.send(there_and_back(server(), each).await);
        }
    });
    assert_eq!(builder.host(host.interface(on("10.0.0.2/24"))), CLIENT);
    net.link("a").join(&mut builder, SERVER, &[], None, &of_server);
    net.link("b").join(&mut builder, CLIENT, &[], None, &of_client);
    (builder.start().unwrap(), said)
}

fn next(random: &mut u64) -> u64 {
    *random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    *random
}

/// Streams whose bytes are compared, there and back in every lane, while lanes of both hosts move: with more workers of the switch than lines,
/// as many, and fewer.
#[test]
fn streams_through_a_switch_arrive_whole_while_lanes_move() {
    const EACH: usize = 1_000_000;
    for workers in [1, 2, 3] {
        let net = Switched::start(&["a", "b"], workers);
        let (runtime, said) = streams(&net, EACH);
        let handle = runtime.handle();
        let mut random = 0x1234_5678_9abc_def1u64;
        let begin = Instant::now();
        for moves in 0..60 {
            assert!(begin.elapsed() < PATIENCE_FOR_MOVES, "{moves} moves");
            let host = if next(&mut random) >> 63 == 0 { SERVER } else { CLIENT };
            let bucket = Bucket((random >> 40) as u16 % BUCKETS as u16);
            handle.move_lane(host, bucket, 1 - handle.worker_of(host, bucket).unwrap()).unwrap();
        }
        finish(&runtime, &said, EACH as u64);
        let report = runtime.stop();
        // Segments that nobody cut.
        let frames: u64 = report.queues(CLIENT).map(|queue| queue.stats.tx_frames).sum();
        let bytes: u64 = report.queues(CLIENT).map(|queue| queue.stats.tx_bytes).sum();
        assert!(bytes / frames > 1514, "{bytes} bytes in {frames} frames");
    }
}

/// Datagrams, each flow in its order and none lost, while lanes move.
#[test]
fn datagrams_through_a_switch_keep_their_order_while_lanes_move() {
    for workers in [1, 2] {
        let net = Switched::start(&["a", "b"], workers);
        let ends = Some([net.link("a"), net.link("b")]);
        let plan = Plan { datagrams: 700, flows: 8, window: 4, buckets: 4, ends, ..Plan::default() };
        let traffic = plan.start();
        let handle = traffic.runtime.handle();
        let (mut flows, mut reported) = (std::collections::BTreeMap::new(), 0);
        let mut random = 0x9abc_def1_1234_5678u64;
        for _ in 0..50 {
            traffic.collect(&mut flows, &mut reported);
            let host = if next(&mut random) >> 63 == 0 { SERVER } else { CLIENT };
            let bucket = Bucket((random >> 40) as u16 % 4);
            handle.move_lane(host, bucket, 1 - handle.worker_of(host, bucket).unwrap()).unwrap();
        }
        traffic.wait(&mut flows, reported);
        drop(traffic.runtime.stop());
        assert_perfect(&plan, &flows);
        assert_eq!(net.lost(), 0, "{:?}", net.switch.handle().view());
    }
}

/// Datagrams, each flow in its order and none lost, while ports move between the switch's workers, and streams whose bytes are compared.
#[test]
fn ports_move_between_workers_and_no_frame_is_lost_or_overtaken() {
    const EACH: usize = 1_000_000;
    const WORKERS: usize = 3;
    let mut random = 0x5678_9abc_1234_def1u64;
    let mut move_one = |net: &Switched| {
        let port = if next(&mut random) >> 63 == 0 { "a" } else { "b" };
        net.switch.handle().move_port(port, (random >> 40) as usize % WORKERS).unwrap();
    };
    let net = Switched::start(&["a", "b"], WORKERS);
    let ends = Some([net.link("a"), net.link("b")]);
    let plan = Plan { datagrams: 1_000, flows: 8, window: 4, buckets: 4, ends, ..Plan::default() };
    let traffic = plan.start();
    let (mut flows, mut reported, mut during) = (std::collections::BTreeMap::new(), 0, 0);
    for _ in 0..120 {
        traffic.collect(&mut flows, &mut reported);
        during += u32::from(reported == 0);
        move_one(&net);
    }
    assert!(during > 20, "only {during} moves happened under load");
    traffic.wait(&mut flows, reported);
    drop(traffic.runtime.stop());
    assert_perfect(&plan, &flows);
    assert_eq!(net.lost(), 0, "{:?}", net.switch.handle().view());

    let net = Switched::start(&["a", "b"], WORKERS);
    let (runtime, said) = streams(&net, EACH);
    (0..100).for_each(|_| move_one(&net));
    finish(&runtime, &said, EACH as u64);
}

#[test]
fn a_port_is_moved_to_a_worker_that_is_there() {
    let net = Switched::start(&["a", "b"], 2);
    let handle = net.switch.handle();
    let why = |port: &str, worker| handle.move_port(port, worker).unwrap_err().to_string();
    assert!(why("c", 0).starts_with("there is no port 'c'"), "{}", why("c", 0));
    assert!(
        why("a", 2).starts_with("there is no worker 2: the switch has workers 0 to 1"),
        "{}",
        why("a", 2)
    );
    assert!(why("a", 1).contains("no host is plugged in"), "{}", why("a", 1));
    let runtime = host(&net, "a").unwrap();
    let workers = || handle.view().unwrap().ports[0].workers.clone();
    eventually("both have a line", || workers() == [0, 1]);
    handle.move_port("a", 1).unwrap();
    assert_eq!(workers(), [1]);
    handle.move_port("a", 1).unwrap();
    handle.move_port("a", 0).unwrap();
    assert_eq!(workers(), [0]);
    drop(runtime.stop());
}

/// A host that does nothing, on a port.
fn host(net: &Switched, port: &str) -> Result<Runtime, StartError> {
    let rss = rss(Key::MICROSOFT, 2, 2, UdpFields::Two);
    let mut builder = Runtime::builder().workers(2).pin(false);
    let host =
        builder.host(Host::new("h", rss.clone(), std::future::pending::<()>).interface(on("10.0.0.3/24")));
    net.link(port).join(&mut builder, host, &[], None, &rss);
    builder.start()
}

#[test]
fn a_port_has_one_host_and_is_free_when_it_has_left() {
    let net = Switched::start(&["a", "b"], 1);
    assert_eq!(net.state(0), "down", "nobody is there");
    let first = host(&net, "a").unwrap();
    assert_eq!(net.state(0), "up");
    let why = |port| host(&net, port).err().unwrap().to_string();
    assert!(why("a").ends_with("port 'a' is taken: a host is plugged in"), "{}", why("a"));
    assert!(why("c").ends_with("the switch has no port 'c' to plug into: it has a, b"), "{}", why("c"));
    drop(first.stop());
    eventually("it is free", || net.state(0) == "down");
    drop(host(&net, "a").unwrap().stop());
    let said = std::iter::from_fn(|| net.switch.notice(Duration::ZERO)).collect::<Vec<_>>();
    assert!(said.contains(&"port a: a host is plugged in".to_owned()), "{said:?}");
}

#[test]
fn without_a_switch_a_link_says_how_to_start_one() {
    let net = Switched::start(&["a"], 1);
    let (link, path) = (net.link("a"), net.plugs.clone());
    drop(net);
    assert!(!path.exists(), "its file goes with it");
    let rss = rss(Key::MICROSOFT, 1, 1, UdpFields::Two);
    let mut builder = Runtime::builder().workers(1).pin(false);
    let host =
        builder.host(Host::new("h", rss.clone(), std::future::pending::<()>).interface(on("10.0.0.3/24")));
    link.join(&mut builder, host, &[], None, &rss);
    let why = builder.start().err().unwrap().to_string();
    assert!(why.contains("no switch named") && why.contains("flowlane switch up --name"), "{why}");
}

/// Who watches a link hears that its switch has ended.
#[test]
fn a_link_is_gone_with_its_switch() {
    let net = Switched::start(&["a"], 1);
    let link = net.link("a");
    let rss = rss(Key::MICROSOFT, 1, 1, UdpFields::Two);
    let (say, said) = mpsc::channel();
    let mut builder = Runtime::builder().workers(1).pin(false);
    let host =
        builder.host(Host::new("h", rss.clone(), std::future::pending::<()>).interface(on("10.0.0.3/24")));
    let open = link.open(&[], None, &rss);
    builder.link(
        host,
        0,
        Box::new(move |memory, workers| {
            let opened = open(memory, workers)?;
            let mut news = opened.0.life.as_ref().map(Life::watch).unwrap().unwrap();
            std::thread::spawn(move || say.send((news.wait(), news.wait())));
            Ok(opened)
        }),
    );
    let runtime = builder.start().unwrap();
    drop(net);
    assert_eq!(said.recv_timeout(PATIENCE), Ok((Some(LinkState::Gone), None)));
    drop(runtime.stop());
}

fn connect(net: &Switched) -> OwnedFd {
    let (family, kind) = (AddressFamily::UNIX, SocketType::SEQPACKET);
    let socket = rustix::net::socket_with(family, kind, SocketFlags::CLOEXEC, None).unwrap();
    rustix::net::connect(&socket, &SocketAddrUnix::new(&net.plugs).unwrap()).unwrap();
    let patience = Some(PATIENCE);
    rustix::net::sockopt::set_socket_timeout(&socket, rustix::net::sockopt::Timeout::Recv, patience).unwrap();
    socket
}

fn answer(socket: &OwnedFd) -> String {
    let mut text = [0; 300];
    // One that is closed before all was read says so.
    let n = match rustix::net::recv(socket, &mut text, RecvFlags::empty()) {
        Err(rustix::io::Errno::CONNRESET) => 0,
        got => got.unwrap().0,
    };
    String::from_utf8(text[..n].to_vec()).unwrap()
}

/// As [`answer`], with what belongs to it: a port whose lines nobody holds is down at once.
fn granted(socket: &OwnedFd) -> (String, Vec<OwnedFd>) {
    let mut text = [0; 300];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(8))];
    let mut rights = RecvAncillaryBuffer::new(&mut space);
    let into = &mut [IoSliceMut::new(&mut text)];
    let n = rustix::net::recvmsg(socket, into, &mut rights, RecvFlags::CMSG_CLOEXEC).unwrap().bytes;
    let lines = rights.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(lines) => Some(lines),
        _ => None,
    });
    let lines: Vec<OwnedFd> = lines.flatten().collect();
    assert!(!lines.is_empty());
    (String::from_utf8(text[..n].to_vec()).unwrap(), lines)
}

/// Those who say nothing, nonsense, or too much keep nobody else from a port, and are forgotten.
#[test]
fn whoever_asks_for_nothing_that_makes_sense_is_refused() {
    let net = Switched::start(&["a", "b"], 2);
    let silent: Vec<OwnedFd> = (0..200).map(|_| connect(&net)).collect();
    for request in [
        "",
        "hello",
        "flowlane-plug/1",
        "flowlane-plug/1 0 a",
        "flowlane-plug/1 65 a",
        "flowlane-plug/1 -1 a",
        "flowlane-plug/2 1 a",
    ] {
        let socket = connect(&net);
        rustix::net::send(&socket, request.as_bytes(), SendFlags::empty()).unwrap();
        if request.is_empty() {
            // Which cannot be told from an end.
            continue;
        }
        assert_eq!(answer(&socket), "no that is no request for a port", "{request}");
        assert_eq!(answer(&socket), "", "and that was all");
    }
    let socket = connect(&net);
    rustix::net::send(&socket, &[b'x'; 5000], SendFlags::empty()).unwrap();
    assert_eq!(answer(&socket), "no that is no request for a port");
    // One that is given a port and says more is unplugged.
    let talker = connect(&net);
    rustix::net::send(&talker, b"flowlane-plug/1 1 a", SendFlags::empty()).unwrap();
    let (said, _lines) = granted(&talker);
    assert_eq!(said, "mtu 1500");
    eventually("it is plugged in", || net.state(0) == "up");
    rustix::net::send(&talker, b"and more", SendFlags::empty()).unwrap();
    eventually("it is unplugged", || net.state(0) == "down");
    assert_eq!(answer(&talker), "", "without a word");
    // Of so many that say nothing the first had to go.
    assert_eq!(answer(&silent[0]), "");
    drop(host(&net, "a").unwrap().stop());
}
