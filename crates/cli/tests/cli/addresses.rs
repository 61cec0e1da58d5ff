//! Addresses that others give (`--addr dhcp`, `--addr slaac`), with other people's servers: dnsmasq for DHCP, and for router
//! advertisements.
//!
//! ```text
//!  namespace near: near0, Flowlane ──── namespace far: far0 10.77.0.1/24, fd77::1/64, dnsmasq
//! ```

mod links;
mod load;

use flowlane_testnet::{Namespace, Program};
use std::net::UdpSocket;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

const FLOWLANE: &str = env!("CARGO_BIN_EXE_flowlane");

/// Two namespaces, and the files of a server.
struct Site {
    near: Namespace,
    far: Namespace,
    files: PathBuf,
}

impl Drop for Site {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.files);
    }
}

impl Site {
    /// `None`, with a line, where it cannot be made.
    fn new(name: &str) -> Option<Self> {
        if let Err(why) = flowlane_testnet::requires() {
            flowlane_testnet::skipped(why);
            return None;
        }
        if Command::new("dnsmasq").arg("--version").stdout(Stdio::null()).status().is_err() {
            flowlane_testnet::skipped("skipped, because there is no dnsmasq (Debian's package dnsmasq-base)");
            return None;
        }
        let made = |end| Namespace::new(&format!("fl-ad{name}{end}-{}", std::process::id())).unwrap();
        let files = std::env::temp_dir().join(format!("fl-ad{name}-{}", std::process::id()));
        std::fs::create_dir_all(&files).unwrap();
        let site = Self { near: made("n"), far: made("f"), files };
        site.near.ip(&format!("link add near0 type veth peer name far0 netns {}", site.far.name())).unwrap();
        site.near.ip("link set near0 up").unwrap();
        for arguments in [
            "link set lo up",
            "link set far0 up",
            "addr add 10.77.0.1/24 dev far0",
            "addr add fd77::1/64 dev far0 nodad",
        ] {
            site.far.ip(arguments).unwrap();
        }
        Some(site)
    }

    /// A server that gives these addresses.
    fn server(&self, range: &str, more: &[&str]) -> Program {
        dnsmasq(&self.far, "far0", range, &self.files.join("leases"), more)
    }

    fn serve(&self, addr: &str, more: &[&str]) -> Command {
        self.serve_on("af-packet:near0", addr, more)
    }

    fn serve_on(&self, link: &str, addr: &str, more: &[&str]) -> Command {
        let mut command = self.near.command(FLOWLANE);
        command
            .args(["serve", "udp-echo", "--link", link, "--addr", addr, "--port", "7"])
            .args(["--workers", "2", "--no-pin"])
            .args(more)
            .stdin(Stdio::null());
        command
    }

    /// A load at an address that others give.
    fn load(&self, addr: &str, load: &[&str]) -> Command {
        let mut command = self.near.command(FLOWLANE);
        command
            .arg("load")
            .args(load)
            .args(["--link", "af-packet:near0", "--addr", addr, "--workers", "2", "--no-pin"])
            .stdin(Stdio::null());
        command
    }

    /// Asks from many ports, so that every lane is asked.
    fn echo(&self, address: &str) {
        let ask = || {
            for _ in 0..32 {
                let any = if address.contains(':') { "[::]:0" } else { "0.0.0.0:0" };
                let socket = UdpSocket::bind(any).unwrap();
                socket.set_read_timeout(Some(Duration::from_millis(500))).unwrap();
                // A lane that has not heard of the address yet drops what comes.
                let answered = (0..40).any(|_| {
                    socket.send_to(b"there?", address).unwrap();
                    socket.recv(&mut [0; 16]).is_ok_and(|n| n == 6)
                });
                assert!(answered, "{address} does not answer");
            }
        };
        self.far.run(ask).unwrap();
    }
}

/// A server of addresses on an interface, which keeps its leases in this file.
fn dnsmasq(at: &Namespace, interface: &str, range: &str, leases: &Path, more: &[&str]) -> Program {
    let mut command = at.command("dnsmasq");
    command
        .args(["--no-daemon", "--conf-file=/dev/null", "--port=0", "--bind-interfaces"])
        .args(["--log-dhcp", "--log-facility=-", "--dhcp-authoritative"])
        .arg(format!("--interface={interface}"))
        .arg(format!("--dhcp-range={range}"))
        .arg(format!("--dhcp-leasefile={}", leases.display()))
        .args(more)
        .stdin(Stdio::null());
    let mut server = Program::start(command);
    server.hear("DHCP, IP range");
    server
}

/// The leases that the site's server has written down.
fn leases(site: &Site) -> String {
    std::fs::read_to_string(site.files.join("leases")).unwrap()
}

/// The word of a line that begins like this.
fn word<'a>(line: &'a str, begins: &str) -> &'a str {
    line.split([' ', ',']).find(|word| word.starts_with(begins)).unwrap_or_else(|| panic!("{begins}: {line}"))
}

// Long: an address is probed for seconds before it is used (RFC 5227).
#[test]
fn an_address_by_dhcp_that_is_given_back() {
    let Some(site) = Site::new("d") else { return };
    let mut server = site.server("10.77.0.50,10.77.0.59,255.255.255.0,2m", &["--dhcp-option=26,1400"]);
    let mut program = Program::start(site.serve("dhcp", &["--client-name", "flowtest"]));
    let line = program.hear("udp-echo on");
    assert!(line.contains("(by DHCP)"), "{line}");
    let address = word(&line, "10.77.0.").to_owned();
    site.echo(&format!("{address}:7"));
    server.hear("DHCPACK(far0)");
    program.interrupt();
    let release = server.hear("DHCPRELEASE(far0)");
    assert!(release.contains(&address), "{release}");
}

// Long: an address is probed for seconds before it is used (RFC 5227).
#[test]
fn addresses_by_dhcp_and_by_slaac_together() {
    let Some(site) = Site::new("b") else { return };
    let more = ["--enable-ra", "--dhcp-range=fd77::,ra-only,64,10m"];
    let _server = site.server("10.77.0.50,10.77.0.59,255.255.255.0,2m", &more);
    let mut program = Program::start(site.serve("dhcp,slaac,10.77.0.9/24", &[]));
    let line = program.hear("udp-echo on");
    assert!(line.contains("(by DHCP)") && line.contains("(by SLAAC)"), "{line}");
    site.echo(&format!("{}:7", word(&line, "10.77.0.5")));
    site.echo(&format!("[{}]:7", word(&line, "fd77:")));
    site.echo("10.77.0.9:7");
    program.interrupt();
}

/// RFC 2131 section 4.4.1: somebody has the address that the server gives.
// Long: after it has declined an address a client waits ten seconds (RFC 2131 §3.1).
#[test]
fn an_address_that_somebody_has_is_declined() {
    let Some(site) = Site::new("c") else { return };
    // The server does not see that it has gone: its own question is not asked.
    site.far.ip("addr add 10.77.0.50/32 dev lo").unwrap();
    let mut server =
        site.server("10.77.0.50,10.77.0.51,255.255.255.0,2m", &["--no-ping", "--dhcp-sequential-ip"]);
    let mut program = Program::start(site.serve("dhcp", &["--address-wait", "2m"]));
    let declined = server.hear("DHCPDECLINE(far0)");
    assert!(declined.contains("10.77.0.50"), "{declined}");
    let line = program.hear("udp-echo on");
    assert_eq!(word(&line, "10.77.0."), "10.77.0.51");
    assert!(
        program
            .heard()
            .iter()
            .any(|said| said.contains("10.77.0.50") && said.contains("somebody else has it"))
    );
    site.echo("10.77.0.51:7");
    program.interrupt();
}

#[test]
fn where_nobody_answers_one_line_says_so() {
    let Some(site) = Site::new("n") else { return };
    for (addr, words) in [("dhcp", "no server gave an address"), ("slaac", "no router advertised a prefix")] {
        let output = site.serve(addr, &["--address-wait", "1s"]).output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{said}");
        let lines: Vec<&str> = said.lines().collect();
        assert_eq!(lines.len(), 2, "{said}");
        assert!(lines[0].contains("waiting for") && lines[1].contains(words), "{said}");
    }
}

/// After the link was away, another network's server refuses the address, and gives another.
// Long: both addresses are probed for seconds before they are used (RFC 5227).
#[test]
fn an_address_that_the_server_refuses_is_replaced() {
    let Some(site) = Site::new("r") else { return };
    let first = site.server("10.77.0.50,10.77.0.50,255.255.255.0,2m", &[]);
    let mut program = Program::start(site.serve("dhcp", &[]));
    program.hear("udp-echo on");
    site.echo("10.77.0.50:7");
    drop(first);
    site.near.ip("link set near0 down").unwrap();
    program.hear("the interface is down");
    std::fs::remove_file(site.files.join("leases")).unwrap();
    let mut server = site.server("10.77.0.70,10.77.0.70,255.255.255.0,2m", &[]);
    site.near.ip("link set near0 up").unwrap();
    server.hear("DHCPNAK(far0)");
    let lost = program.hear("10.77.0.50 is not used any more");
    assert!(lost.contains("the server refuses it"), "{lost}");
    program.hear("10.77.0.70 by DHCP");
    site.echo("10.77.0.70:7");
    program.interrupt();
}

#[test]
fn kernel_sockets_and_loads_refuse_in_one_line() {
    for (arguments, words) in [
        (
            &["serve", "udp-echo", "--addr", "dhcp"][..],
            "--addr dhcp: kernel sockets have the kernel's addresses",
        ),
        (&["serve", "http", "--addr", "slaac"], "--addr slaac: kernel sockets have the kernel's addresses"),
        (&["serve", "udp-echo", "--link", "af-packet:lo", "--addr", "dhcp6"], "DHCPv6 is not supported"),
        (&["serve", "udp-echo", "--link", "pcap:,x", "--addr", "dhcp"], "nobody answers"),
        (
            &["load", "udp", "10.0.0.1:7", "--addr", "dhcp"],
            "--addr: kernel sockets have the kernel's addresses",
        ),
        (&["load", "http", "http://10.0.0.1/", "--addr", "slaac"], "--addr: kernel sockets"),
        (&["load", "tcp", "10.0.0.1:7", "--address-wait", "3s"], "--address-wait: goes with --addr dhcp"),
        (&["load", "http", "http://10.0.0.1/", "--link", "pair", "--addr", "dhcp"], "nobody answers"),
        (&["load", "udp", "10.0.0.1:7", "--link", "pcap:,x", "--addr", "dhcp"], "nobody answers"),
        (&["load", "udp", "10.0.0.1:7", "--link", "tap:x", "--addr", "dhcp,dhcp"], "once is enough"),
        (&["load", "udp", "10.0.0.1:7", "--link", "tap:x", "--addr", "slaac"], "in none of our networks"),
        (
            &["load", "udp", "10.0.0.1:7", "--link", "tap:x", "--addr", "dhcp", "--interface-id", "eui64"],
            "slaac",
        ),
        (&["load", "http", "http://10.0.0.1/", "--link", "tap:x", "--addr", "10.0.0.9"], "10.0.0.9/24"),
        (
            &["load", "udp", "10.0.0.1:7", "--link", "tap:x", "--addr", "dhcp", "--clients", "10.0.0.8/29"],
            "--clients 10.0.0.9-10.0.0.14: with --addr dhcp",
        ),
        (
            &[
                "load",
                "http",
                "http://10.0.0.1/",
                "--link",
                "tap:x",
                "--addr",
                "dhcp",
                "--clients",
                "10.0.0.8/29",
            ],
            "--clients 10.0.0.9-10.0.0.14: with --addr dhcp",
        ),
        (
            &["load", "udp", "10.0.0.1:7", "--link", "tap:x", "--addr", "dhcp", "--gateway", "10.0.0.1"],
            "--gateway 10.0.0.1: with --addr dhcp",
        ),
    ] {
        let output = Command::new(FLOWLANE).args(arguments).output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {said}");
        assert!(said.contains(words) && said.lines().count() == 1, "{arguments:?}: {said}");
    }
}
