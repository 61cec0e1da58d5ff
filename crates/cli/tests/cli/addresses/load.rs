//! Loads at addresses that others give.

use std::process::Output;

use flowlane_testnet::Program;
use rustix::process::Signal;
use serde_json::Value;

use super::{FLOWLANE, Site, leases};

/// What loads are sent to, in the namespace of the server of addresses.
struct Targets {
    _programs: Vec<Program>,
}

impl Targets {
    fn of(site: &Site, services: &[&str]) -> Self {
        let start = |service: &&str| {
            let mut command = site.far.command(FLOWLANE);
            command.args(["serve"]).args(service.split(' ')).args(["--workers", "1", "--no-pin"]);
            Program::ready(command, " on ")
        };
        Self { _programs: services.iter().map(start).collect() }
    }
}

/// The report of a run that went well but for a machine that is slow.
fn report(output: &Output) -> Value {
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(matches!(output.status.code(), Some(0 | 3)), "{said}");
    serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{e}: {said}"))
}

/// Something was sent, and all of it answered.
fn all_answered(report: &Value) {
    let counts = &report["total"]["counts"];
    let (sent, answered) = (counts["sent"].as_u64().unwrap(), counts["answered"].as_u64().unwrap());
    assert!(sent > 0 && answered > 0 && counts["failed"] == 0, "{counts}");
}

/// Each kind of load begins when its address is there, and gives it back at its end. The interface has no other address.
// Long: each of its loads waits until its address has been probed (RFC 5227).
#[test]
fn every_load_takes_an_address_and_gives_it_back() {
    let Some(site) = Site::new("l") else { return };
    let mut server = site.server("10.77.0.50,10.77.0.59,255.255.255.0,2m", &[]);
    let services = ["udp-echo --port 7", "tcp-echo --port 8", "http --port 80", "memcached --port 11211"];
    let _targets = Targets::of(&site, &services);
    for load in [
        "udp 10.77.0.1:7 -r 200",
        "tcp 10.77.0.1:8 -c 3 --size 64",
        "tcp 10.77.0.1:8 --mode connect -c 3",
        "http http://10.77.0.1/ -c 3",
        "http http://10.77.0.1/ -c 3 --no-keepalive",
        "memcached 10.77.0.1 -c 3 --fill --keys 100",
    ] {
        let words: Vec<&str> = load.split(' ').collect();
        let output = site.load("dhcp", &words).args(["-d", "500ms", "--json"]).output().unwrap();
        all_answered(&report(&output));
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(said.contains("waiting for an address by DHCP") && said.contains(" by DHCP from "), "{said}");
        server.hear("DHCPRELEASE(far0)");
    }
}

/// With SLAAC, and with both: a target of each family is reached.
// Long: each of its loads waits until its addresses have been probed.
#[test]
fn loads_at_addresses_that_routers_advertise() {
    let Some(site) = Site::new("s") else { return };
    let more = ["--enable-ra", "--dhcp-range=fd77::,ra-only,64,10m"];
    let _server = site.server("10.77.0.50,10.77.0.59,255.255.255.0,2m", &more);
    let _targets = Targets::of(&site, &["udp-echo --port 7", "http --port 80"]);
    for (addr, load) in [
        ("slaac", "udp [fd77::1]:7 -r 200 --interface-id eui64"),
        ("dhcp,slaac", "http http://[fd77::1]/ http://10.77.0.1/ -c 4"),
        ("dhcp,fd77::9/64", "udp [fd77::1]:7 -r 200"),
    ] {
        let words: Vec<&str> = load.split(' ').collect();
        all_answered(&report(&site.load(addr, &words).args(["-d", "500ms", "--json"]).output().unwrap()));
    }
}

/// The router is the one that the lease names; where it names none, there is no way beyond the network.
// Long: each of its loads waits until its address has been probed (RFC 5227).
#[test]
fn the_router_of_the_lease_is_used() {
    let Some(site) = Site::new("g") else { return };
    site.far.ip("addr add 10.99.0.1/32 dev lo").unwrap();
    let _targets = Targets::of(&site, &["udp-echo --port 7", "http --port 80"]);
    let range = "10.77.0.50,10.77.0.59,255.255.255.0,2m";
    let loads = [&["udp", "10.99.0.1:7", "-r", "200"][..], &["http", "http://10.99.0.1/", "-c", "2"]];
    let server = site.server(range, &[]);
    for load in loads {
        all_answered(&report(&site.load("dhcp", load).args(["-d", "500ms", "--json"]).output().unwrap()));
    }
    drop(server);
    let mut server = site.server(range, &["--dhcp-option=3"]);
    for load in loads {
        let output = site.load("dhcp", load).output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{said}");
        let last = said.lines().last().unwrap();
        assert!(last.contains("10.99.0.1 is in none of our networks (10.77.0."), "{said}");
        assert!(last.contains("named no router") && !said.contains("latency"), "{said}");
        server.hear("DHCPRELEASE(far0)");
    }
}

/// ^C gives the address back, in the run and while it is waited for.
// Long: each of its loads waits until its address has been probed (RFC 5227).
#[test]
fn a_load_that_is_ended_gives_its_address_back() {
    let Some(site) = Site::new("e") else { return };
    let mut server = site.server("10.77.0.50,10.77.0.59,255.255.255.0,2m", &[]);
    let _targets = Targets::of(&site, &["udp-echo --port 7", "http --port 80"]);
    for load in
        [&["udp", "10.77.0.1:7", "-r", "200"][..], &["http", "http://10.77.0.1/", "-c", "2", "-r", "50"]]
    {
        let mut command = site.load("dhcp", load);
        command.args(["-d", "60s", "--lines"]);
        let mut program = Program::start(command);
        // A line of figures: the run is under way.
        program.hear("sent/s");
        program.signal(Signal::INT);
        let ended = program.end();
        assert_eq!(ended.status.code(), Some(130), "{:?}", ended.said);
        server.hear("DHCPRELEASE(far0)");
    }
    assert_eq!(leases(&site), "", "none is left");
    drop(server);
    let mut program = Program::start(site.load("dhcp", &["http", "http://10.77.0.1/"]));
    program.hear("waiting for");
    program.signal(Signal::INT);
    let ended = program.end();
    assert_eq!(ended.status.code(), Some(130), "{:?}", ended.said);
    assert!(ended.said.join("\n").contains("ended before it had an address"), "{:?}", ended.said);
}

#[test]
fn where_nobody_answers_a_load_says_so_in_one_line() {
    let Some(site) = Site::new("w") else { return };
    for (addr, load, words) in [
        ("dhcp", "udp 10.77.0.1:7", "--addr dhcp: no server gave an address within 1.00 s"),
        ("slaac", "tcp [fd77::1]:7", "--addr slaac: no router advertised a prefix"),
        ("dhcp", "http http://10.77.0.1/", "--addr dhcp: no server gave an address within 1.00 s"),
        ("dhcp,slaac", "ws ws://10.77.0.1/", "--addr dhcp,slaac: no server gave"),
    ] {
        let load: Vec<&str> = load.split(' ').collect();
        let output = site.load(addr, &load).args(["--address-wait", "1s"]).output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{said}");
        let lines: Vec<&str> = said.lines().collect();
        assert!(lines.len() == 2 && lines[1].contains(words) && output.stdout.is_empty(), "{said}");
    }
}
