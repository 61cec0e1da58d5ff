//! A router that is other people's program: `radvd` advertises, the kernel forwards and redirects, and our host finds its way by that.
//!
//! ```text
//!  namespace near:                 namespace router: br0, radvd                     namespace beyond
//!  Flowlane on near0 ── port0 ┬─────────── br0 ── behind0 ───────────────────────── beyond0  2001:db8:5::1
//!  2001:db8:7::2/128          └ port1 ── other0, namespace other (a router, too): 2001:db8:7::b, 2001:db8:6::1
//! ```
//!
//! Our address is alone on its network and there is no gateway, so without routers nobody is answered.

use crate::common::skip;
use flowlane::link::af_packet::{self, AfPacketOptions};
use flowlane::link::{Claim, OpenError};
use flowlane::{Host, Interface, Key, Prefix, Rss, Runtime, SocketError, StartError, UdpSocket};
use flowlane_stack::stats::DropReason;
use flowlane_testnet::Namespace;
use std::net::{Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(60);
const OURS: &str = "2001:db8:7::2";
const BEYOND: &str = "2001:db8:5::1";
const OTHER: &str = "2001:db8:7::b";
const BEHIND_OTHER: &str = "2001:db8:6::1";

/// Four namespaces.
struct Site {
    near: Namespace,
    router: Namespace,
    other: Namespace,
    beyond: Namespace,
    /// Of the router's program.
    files: PathBuf,
}

impl Site {
    fn new() -> Self {
        let made = |part| Namespace::new(&format!("fl-ra{part}-{}", std::process::id())).unwrap();
        let files = std::env::temp_dir().join(format!("fl-ra-{}", std::process::id()));
        std::fs::create_dir_all(&files).unwrap();
        let site = Self { near: made("n"), router: made("r"), other: made("o"), beyond: made("b"), files };
        for router in [&site.router, &site.other] {
            router.run(|| std::fs::write("/proc/sys/net/ipv6/conf/all/forwarding", "1")).unwrap().unwrap();
        }
        let router = |arguments: &str| site.router.ip(arguments).unwrap();
        router("link add br0 type bridge");
        // Which of several link-local addresses a router speaks from is not settled.
        router("link set br0 addrgenmode none");
        for (port, end, namespace) in [("port0", "near0", &site.near), ("port1", "other0", &site.other)] {
            router(&format!("link add {port} type veth peer name {end} netns {}", namespace.name()));
            router(&format!("link set {port} master br0 up"));
        }
        router(&format!("link add behind0 type veth peer name beyond0 netns {}", site.beyond.name()));
        for link in ["br0", "behind0"] {
            router(&format!("link set {link} up"));
        }
        router("addr add fe80::a/64 dev br0 nodad");
        router("addr add 2001:db8:7::a/64 dev br0 nodad");
        router("addr add 2001:db8:5::a/64 dev behind0 nodad");
        router("route add 2001:db8:6::/64 via fe80::b dev br0");
        // The kernel under our link has no addresses there.
        site.near.ip("link set near0 addrgenmode none").unwrap();
        site.near.ip("link set near0 up").unwrap();
        let other = |arguments: &str| site.other.ip(arguments).unwrap();
        other("link set other0 addrgenmode none");
        other("link set other0 up");
        other("addr add fe80::b/64 dev other0 nodad");
        other(&format!("addr add {OTHER}/64 dev other0 nodad"));
        other(&format!("addr add {BEHIND_OTHER}/128 dev lo nodad"));
        site.beyond.ip("link set beyond0 up").unwrap();
        site.beyond.ip(&format!("addr add {BEYOND}/64 dev beyond0 nodad")).unwrap();
        site.beyond.ip("route add default via 2001:db8:5::a").unwrap();
        site
    }

    /// Our host, an echo that takes nothing from the link but its address and what routers say.
    fn start(&self) -> Runtime {
        let echo = || async {
            let socket = UdpSocket::on_port(7)?;
            let mut batch = Vec::new();
            loop {
                socket.recv_batch(&mut batch, 64).await?;
                socket.reply_batch(&mut batch).await?;
            }
            #[allow(unreachable_code, reason = "says what the task ends with")]
            Ok::<(), SocketError>(())
        };
        let ours: Prefix = format!("{OURS}/128").parse().unwrap();
        let interface = Interface { addresses: vec![ours], ..Interface::default() };
        let mut builder = Runtime::builder().workers(1).pin(false);
        let rss = Arc::new(Rss::new(Key::MICROSOFT, 1));
        let host = builder.host(Host::new("us", rss, echo).interface(interface));
        let claim = Claim::none().address(ours.address());
        let open = move |_: &_, workers| {
            let opened = af_packet::open(&AfPacketOptions::new("near0", claim), workers);
            let opened = opened.map_err(|e: OpenError| StartError::Link(e))?;
            opened.0.hear_routers().map_err(StartError::Link)?;
            Ok(opened)
        };
        builder.link(host, 0, Box::new(open));
        self.near.run(|| builder.start()).unwrap().unwrap()
    }

    /// The router's program, advertising itself for so many seconds.
    fn advertise(&self, lifetime: u32) -> Radvd {
        let file = |name: &str| self.files.join(name).display().to_string();
        let prefix = "prefix 2001:db8:7::/64 { AdvOnLink on; AdvAutonomous on; };";
        let often = "MinRtrAdvInterval 3; MaxRtrAdvInterval 4; MinDelayBetweenRAs 3;";
        let text = format!(
            "interface br0 {{ AdvSendAdvert on; {often} AdvDefaultLifetime {lifetime}; {prefix} }};\n"
        );
        std::fs::write(file("conf"), text).unwrap();
        let arguments = ["-n", "-m", "stderr", "-C", &file("conf"), "-p", &file("pid")];
        let start = || Command::new("radvd").args(arguments).stdin(Stdio::null()).spawn();
        Radvd(self.router.run(start).unwrap().unwrap())
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.files);
    }
}

/// The router's program; asked to end, it says that it is no router any more.
struct Radvd(Child);

impl Drop for Radvd {
    fn drop(&mut self) {
        let _ = Command::new("kill").args(["-TERM", &self.0.id().to_string()]).status();
        let _ = self.0.wait();
    }
}

/// Asks us from `source`, in its namespace, until `enough`, which is told whether the last question was answered.
fn ask(from: &Namespace, source: &str, what: &str, mut enough: impl FnMut(bool) -> bool + Send) {
    let source: Ipv6Addr = source.parse().unwrap();
    let ours = SocketAddr::new(OURS.parse().unwrap(), 7);
    from.run(move || {
        let socket = std::net::UdpSocket::bind((source, 0)).unwrap();
        socket.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
        let deadline = Instant::now() + PATIENCE;
        let mut last = String::new();
        for n in 0u32.. {
            assert!(Instant::now() < deadline, "{what}: {last}");
            let question = n.to_be_bytes();
            let mut answer = [0; 16];
            // While our host is looked for in vain, the kernel says so.
            let answered = socket.send_to(&question, ours).and_then(|_| socket.recv(&mut answer));
            last = format!("{answered:?}");
            if enough(answered.is_ok_and(|len| answer[..len] == question)) {
                return;
            }
        }
    })
    .unwrap();
}

/// A counter of the kernel in a namespace.
fn counted(namespace: &Namespace, name: &str) -> u64 {
    let text = namespace.run(|| std::fs::read_to_string("/proc/thread-self/net/snmp6")).unwrap().unwrap();
    let line = text.lines().find(|line| line.split_whitespace().next() == Some(name));
    line.and_then(|line| line.split_whitespace().nth(1)?.parse().ok()).unwrap_or_default()
}

/// RFC 4861 sections 6.3.4 and 8.3, with a router that we did not write: a prefix alone, then a default route, then a redirect,
/// then the end of the default route.
#[test]
fn a_prefix_a_default_route_and_a_redirect_of_radvd() {
    if skip() {
        return;
    }
    if Command::new("radvd").arg("--version").output().is_err() {
        flowlane_testnet::skipped("skipped, because there is no radvd (Debian's package radvd)");
        return;
    }
    let site = Site::new();
    let runtime = site.start();
    let lost = || runtime.handle().report().total(0).drops.get(DropReason::NoRoute);
    let unroutable = |answered: bool, before: u64| {
        assert!(!answered, "there is no way, yet an answer came");
        lost() > before
    };
    ask(&site.other, OTHER, "what is asked arrives", |answered| unroutable(answered, 0));

    // A router that is none by default: its prefix is on the link, and that is all.
    let radvd = site.advertise(0);
    ask(&site.other, OTHER, "a neighbour by the prefix", |answered| answered);
    let before = lost();
    ask(&site.beyond, BEYOND, "no default route", |answered| unroutable(answered, before));
    drop(radvd);

    let radvd = site.advertise(9000);
    ask(&site.beyond, BEYOND, "by the default route", |answered| answered);

    // By the router, which says that the other one is nearer; then there is no way by the router any more.
    let redirected = || counted(&site.router, "Icmp6OutRedirects") > 0;
    ask(&site.other, BEHIND_OTHER, "by the router, until it redirects", |answered| answered && redirected());
    site.router.ip("route del 2001:db8:6::/64").unwrap();
    ask(&site.other, BEHIND_OTHER, "as redirected", |answered| answered);

    // Its last words: a lifetime of 0.
    drop(radvd);
    let before = lost();
    ask(&site.beyond, BEYOND, "the default route ends", |_| lost() > before);
    let before = lost();
    ask(&site.beyond, BEYOND, "and stays away", |answered| unroutable(answered, before));
    ask(&site.other, OTHER, "the prefix is on the link as before", |answered| answered);
    let drops = runtime.stop().total(0).drops;
    assert_eq!(drops.get(DropReason::NdpInvalid), 0, "routers that mean well");
}
