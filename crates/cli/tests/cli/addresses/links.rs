//! Addresses that others give over other links than `af-packet`, and networks with more than one who gives.

use std::process::{Command, Stdio};

use flowlane_testnet::{Namespace, Program};

use super::{FLOWLANE, Site, dnsmasq, word};

/// Over AF_XDP, where the program takes answers before the kernel.
// Long: a DHCP server looks for three seconds whether somebody has the address that it is to offer.
#[test]
fn addresses_over_af_xdp() {
    let Some(site) = Site::new("x") else { return };
    let more = ["--enable-ra", "--dhcp-range=fd77::,ra-only,64,10m"];
    let mut server = site.server("10.77.0.50,10.77.0.59,255.255.255.0,2m", &more);
    let mut program = Program::start(site.serve_on("af-xdp:near0", "dhcp,slaac", &[]));
    let line = program.hear("udp-echo on");
    assert!(line.contains("(by DHCP)") && line.contains("(by SLAAC)"), "{line}");
    site.echo(&format!("{}:7", word(&line, "10.77.0.5")));
    site.echo(&format!("[{}]:7", word(&line, "fd77:")));
    program.interrupt();
    server.hear("DHCPRELEASE(far0)");
}

/// Over TAP, where the kernel of the same namespace is the network.
// Long: the same.
#[test]
fn addresses_over_tap() {
    let Some(site) = Site::new("t") else { return };
    for arguments in [
        "tuntap add dev tap0 mode tap multi_queue",
        "addr add 10.78.0.1/24 dev tap0",
        "addr add fd78::1/64 dev tap0 nodad",
        "link set tap0 up",
    ] {
        site.far.ip(arguments).unwrap();
    }
    let more = ["--enable-ra", "--dhcp-range=fd78::,ra-only,64,10m"];
    let range = "10.78.0.50,10.78.0.60,255.255.255.0,2m";
    let mut server = dnsmasq(&site.far, "tap0", range, &site.files.join("tap"), &more);
    let mut command = site.far.command(FLOWLANE);
    command.args(["serve", "udp-echo", "--link", "tap:tap0", "--addr", "dhcp,slaac", "--port", "7"]);
    let mut program = Program::start(command);
    let line = program.hear("udp-echo on");
    assert!(line.contains("(by DHCP)") && line.contains("(by SLAAC)"), "{line}");
    site.echo(&format!("{}:7", word(&line, "10.78.0.")));
    site.echo(&format!("[{}]:7", word(&line, "fd78:")));
    program.interrupt();
    server.hear("DHCPRELEASE(tap0)");
}

/// RFC 2131 section 4.4.1: of two servers one is chosen, the other hears so, and the address goes back to the one that gave it.
// Long: both servers look for three seconds whether somebody has the address.
#[test]
fn of_two_servers_one_is_taken() {
    let Some(site) = Site::new("2") else { return };
    let other = Namespace::new(&format!("fl-ad2o-{}", std::process::id())).unwrap();
    // far0 and the other server are on one bridge.
    for arguments in [
        "addr del 10.77.0.1/24 dev far0",
        "link add br0 type bridge",
        "link set far0 master br0",
        &format!("link add port0 type veth peer name far0 netns {}", other.name()),
        "link set port0 master br0",
        "link set port0 up",
        "link set br0 up",
        "addr add 10.77.0.1/24 dev br0",
    ] {
        site.far.ip(arguments).unwrap();
    }
    other.ip("link set far0 up").unwrap();
    other.ip("addr add 10.77.0.2/24 dev far0").unwrap();
    let range = |from: u8| format!("10.77.0.{from},10.77.0.{},255.255.255.0,2m", from + 5);
    let mut servers = [
        dnsmasq(&site.far, "br0", &range(50), &site.files.join("one"), &[]),
        dnsmasq(&other, "far0", &range(150), &site.files.join("two"), &[]),
    ];
    let mut program = Program::start(site.serve("dhcp", &[]));
    let line = program.hear("udp-echo on");
    let address = word(&line, "10.77.0.").to_owned();
    site.echo(&format!("{address}:7"));
    servers.iter_mut().for_each(|server| _ = server.hear("DHCPOFFER("));
    program.interrupt();
    let by = usize::from(address.starts_with("10.77.0.15"));
    servers[by].hear("DHCPACK(");
    let release = servers[by].hear("DHCPRELEASE(");
    assert!(release.contains(&address), "{release}");
    // The other server has neither given anything nor refused it.
    let words = servers[1 - by].heard().join("\n");
    assert!(!words.contains("DHCPACK(") && !words.contains("DHCPNAK("), "{words}");
}

/// With radvd, whose router has prefixes to use, to use no more, and not for addresses.
// Long: radvd advertises every three seconds, no oftener.
#[test]
fn prefixes_that_radvd_advertises() {
    let Some(site) = Site::new("v") else { return };
    if Command::new("radvd").arg("--version").stderr(Stdio::null()).status().is_err() {
        flowlane_testnet::skipped("skipped, because there is no radvd (Debian's package radvd)");
        return;
    }
    site.far.ip("addr add fd99::1/128 dev lo nodad").unwrap();
    let file = site.files.join("radvd.conf");
    let text = "interface far0 { AdvSendAdvert on; MinRtrAdvInterval 3; MaxRtrAdvInterval 4; AdvLinkMTU 1400;\n\
        prefix fd77::/64 { AdvValidLifetime 300; AdvPreferredLifetime 200; };\n\
        prefix fd78::/64 { AdvValidLifetime 300; AdvPreferredLifetime 0; };\n\
        prefix fd79::/64 { AdvAutonomous off; };\n};\n";
    std::fs::write(&file, text).unwrap();
    // It wants to see that it may forward.
    let mut forwards = site.far.command("sysctl");
    forwards.args(["-qw", "net.ipv6.conf.all.forwarding=1"]);
    assert!(forwards.status().unwrap().success());
    let mut radvd = site.far.command("radvd");
    radvd.arg("-n").arg("-C").arg(&file).arg("-p").arg(site.files.join("radvd.pid")).args(["-m", "stderr"]);
    let _radvd = Program::ready(radvd, "started");
    let mut program = Program::start(site.serve("slaac", &[]));
    let line = program.hear("udp-echo on");
    assert!(line.contains("fd77:") && line.contains("fd78:") && !line.contains("fd79:"), "{line}");
    site.echo(&format!("[{}]:7", word(&line, "fd77:")));
    program.interrupt();
    // Beyond the router, from the address that is preferred: from the other no answer would find back.
    let mut target = site.far.command(FLOWLANE);
    target.args(["serve", "udp-echo", "--port", "7", "--workers", "1", "--no-pin"]);
    let _target = Program::ready(target, "udp-echo on");
    let load = ["udp", "[fd99::1]:7", "-r", "200", "-d", "500ms", "--json"];
    let output = site.load("slaac", &load).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(matches!(output.status.code(), Some(0 | 3)), "{said}");
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let counts = &report["total"]["counts"];
    assert!(counts["answered"].as_u64() > Some(0) && counts["failed"] == 0, "{counts}");
}
