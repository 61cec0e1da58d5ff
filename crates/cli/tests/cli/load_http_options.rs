//! Every option of `flowlane load http`, one after the other, by what it changes against our own server; and a list, made from
//! `--help`, of those that nobody tried.

use std::collections::BTreeSet;
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use flowlane_testnet::{Program, Scratch, free_port};
use serde_json::Value;

use crate::counted::count;

fn program() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_flowlane"));
    command.stdin(Stdio::null());
    command
}

/// `serve http` on a port of the loopback, with files and, if asked for, TLS.
struct Server {
    _program: Program,
    address: String,
    dir: Scratch,
}

impl Server {
    fn start(name: &str, more: &[&str]) -> Self {
        let dir = Scratch::new(&format!("options-{name}"));
        std::fs::write(dir.path("page.html"), "0123456789").unwrap();
        let port = free_port();
        let mut command = program();
        command
            .args(["serve", "http", "--addr", "127.0.0.1/8", "--no-pin", "--dir"])
            .arg(dir.dir())
            .args(["--port", &port.to_string()])
            .args(more);
        let program = Program::ready(command, "http on 127.0.0.1");
        Self { _program: program, address: format!("127.0.0.1:{port}"), dir }
    }
}

fn run(url: &str, arguments: &[&str]) -> (Output, Value) {
    let output = program()
        .args(["load", "http", url, "--json", "--quiet", "--no-pin"])
        .args(arguments)
        .output()
        .unwrap();
    let report = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|e| panic!("{arguments:?}: {e}: {}", String::from_utf8_lossy(&output.stderr)));
    (output, report)
}

/// An option, where it is tried, and what is to be seen of it.
type Case<'a> = (&'a str, &'a str, &'a [&'a str], fn(&Value) -> bool);

fn all_answered(r: &Value) -> bool {
    count(r, "sent") > 0 && count(r, "answered") == count(r, "sent") && count(r, "failed") == 0
}

/// SHA-256 of "hello".
const HELLO: &str = "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824";

const CASES: &[Case<'_>] = &[
    ("connections", "/", &["-c", "3", "-n", "50"], |r| r["total"]["concurrency-max"] == 3),
    (
        "home-ports",
        "/",
        &["--home-ports", "--key", "microsoft", "--workers", "2", "-c", "8", "-n", "40", "--no-keepalive"],
        |r| all_answered(r) && r["home-ports"]["home"] == 40 && r["home-ports"]["elsewhere"] == 0,
    ),
    ("burst", "/", &["-c", "20", "--burst", "2", "-n", "100"], |r| {
        count(r, "connections-opened") == 20 && all_answered(r)
    }),
    ("rate", "/", &["--rate", "200", "-d", "500ms"], |r| count(r, "sent") + count(r, "unsent") == 100),
    ("duration", "/", &["--rate", "100", "-d", "300ms"], |r| count(r, "sent") + count(r, "unsent") == 30),
    ("poisson", "/", &["--rate", "200", "--poisson", "-d", "200ms"], |r| {
        r["setup"]["schedule"].as_str().unwrap().contains("Poisson") && all_answered(r)
    }),
    ("ramp", "/", &["--rate", "200", "--ramp", "200ms", "-d", "200ms"], |r| {
        r["phases"][0]["name"] == "ramp" && r["total"]["unmeasured"]["sent"].as_u64().unwrap() > 5
    }),
    ("warm-up", "/", &["--rate", "200", "--warm-up", "200ms", "-d", "200ms"], |r| {
        r["phases"][0]["name"] == "warm-up" && r["total"]["unmeasured"]["sent"].as_u64().unwrap() > 10
    }),
    ("waiting", "/delay/60000", &["-c", "2", "-n", "2", "-d", "100ms", "--waiting", "100ms"], |r| {
        count(r, "sent") == 2 && count(r, "answered") == 0
    }),
    ("timeout", "/delay/60000", &["-c", "2", "-n", "2", "--timeout", "200ms"], |r| count(r, "timeout") == 2),
    ("request-timeout", "/delay/60000", &["-c", "2", "-n", "2", "--request-timeout", "200ms"], |r| {
        count(r, "timeout") == 2 && r["ok"] == false
    }),
    ("slip-budget", "/", &["--rate", "100", "-d", "200ms", "--slip-budget", "1h"], |r| {
        r["slip"]["budget-ns"] == 3_600_000_000_000_u64 && r["slip"]["late"] == 0 && r["ok"] == true
    }),
    ("requests", "/", &["-n", "50"], |r| count(r, "answered") == 50),
    ("requests-per-connection", "/", &["-c", "1", "-n", "50", "--requests-per-connection", "5"], |r| {
        count(r, "connections-opened") == 10
    }),
    ("no-keepalive", "/", &["-c", "2", "-n", "20", "--no-keepalive"], |r| {
        count(r, "connections-opened") == 20
    }),
    ("connections-in-all", "/", &["-c", "2", "--no-keepalive", "--connections-in-all", "7"], |r| {
        count(r, "connections-opened") == 7 && count(r, "answered") == 7
    }),
    ("think", "/", &["-c", "1", "--think", "100ms", "-d", "1s"], |r| (1..=10).contains(&count(r, "sent"))),
    ("method", "/size/50000", &["-X", "HEAD", "-n", "5"], |r| {
        all_answered(r) && count(r, "bytes-received") < 5000
    }),
    ("header", "/page.html", &["-H", "Range: bytes=3-4", "-n", "5", "--expect-contains", "34"], |r| {
        count(r, "206") == 5 && count(r, "failed") == 0
    }),
    ("body", "/echo", &["--body", "hello", "-n", "5", "--expect-sha256", HELLO], all_answered),
    ("expect-sha256", "/echo", &["--body", "other", "-n", "5", "--expect-sha256", HELLO], |r| {
        count(r, "content") == 5
    }),
    ("body-size", "/echo", &["--body-size", "1000", "-n", "5", "--expect-length", "1000"], all_answered),
    ("expect-length", "/size/10", &["-n", "5", "--expect-length", "11"], |r| count(r, "length") == 5),
    ("expect-contains", "/size/10", &["-n", "5", "--expect-contains", "nowhere"], |r| {
        count(r, "content") == 5
    }),
    ("expect-status", "/status/404", &["-n", "5", "--expect-status", "404"], |r| {
        count(r, "404") == 5 && count(r, "failed") == 0
    }),
    ("expect-status", "/status/204", &["-n", "5", "--expect-status", "200"], |r| count(r, "status") == 5),
    ("max-body", "/size/1000", &["-c", "1", "-n", "3", "--max-body", "100"], |r| count(r, "too-long") == 3),
    ("pipeline", "/", &["-c", "1", "-n", "40", "--pipeline", "4"], |r| {
        all_answered(r) && count(r, "answered") == 40
    }),
    ("http2", "/", &["-c", "1", "-n", "40", "--http2", "4"], |r| {
        all_answered(r) && count(r, "connections-opened") == 1
    }),
    // To the directory, which has no index.
    ("follow", "/status/302", &["-n", "20", "-c", "2", "--follow=2", "--expect-status", "404"], |r| {
        all_answered(r) && count(r, "404") == 20 && count(r, "redirects") == 20
    }),
    ("read-rate", "/size/20000", &["-c", "1", "--read-rate", "20k", "-d", "1s"], |r| {
        (1..=3).contains(&count(r, "sent"))
    }),
    ("write-rate", "/echo", &["-c", "1", "--body-size", "20000", "--write-rate", "20k", "-d", "1s"], |r| {
        (1..=3).contains(&count(r, "sent"))
    }),
    ("half-open", "/", &["-c", "4", "--half-open", "-d", "3s"], |r| {
        r["ok"] == true && count(r, "sent") == 0 && count(r, "connections-opened") == 4
    }),
    // The first of those that go together is twenty milliseconds late: that is no lateness to be judged.
    ("slack", "/", &["--rate", "1k", "-d", "300ms", "--slack", "20ms"], |r| {
        let late = r["total"]["slip"]["max"].as_u64().unwrap() > 15_000_000;
        late && r["slip"]["budget-ns"].as_u64().unwrap() >= 21_000_000 && count(r, "sent") == 300
    }),
    ("exact", "/", &["--rate", "200", "--exact", "-d", "200ms"], all_answered),
    ("clients", "/", &["-n", "20", "--clients", "127.0.0.16/28"], all_answered),
    ("seed", "/", &["-n", "5", "--seed", "7"], |r| r["setup"]["seed"] == 7),
    ("workers", "/", &["-n", "50", "--workers", "2"], |r| r["setup"]["workers"] == 2 && all_answered(r)),
    ("idle", "/", &["-n", "50", "--idle", "spin"], all_answered),
    ("idle", "/", &["-n", "50", "--idle", "sleep"], all_answered),
    ("io", "/", &["-n", "50", "--io", "auto"], all_answered),
];

/// Over a wire in memory.
const IN_MEMORY: &[Case<'_>] = &[
    ("link", "", &["-n", "50"], |r| r["setup"]["link"] == "pair" && all_answered(r)),
    ("rss", "", &["-n", "50", "--rss", "software"], all_answered),
    ("fast-open", "", &["-c", "1", "-n", "40", "--no-keepalive", "--fast-open", "--workers", "1"], |r| {
        all_answered(r) && count(r, "syn-data") == 39
    }),
    ("http2", "/size/600", &["-n", "50", "--http2", "4"], all_answered),
    ("key", "", &["-n", "50", "--key", "microsoft"], all_answered),
    ("syn-only", "", &["--syn-only", "--rate", "100", "-d", "200ms"], |r| {
        r["ok"] == true && count(r, "answered") == 0
    }),
    (
        "aim",
        "",
        &[
            "-c",
            "8",
            "-n",
            "50",
            "--clients",
            "10.64.0.0/24",
            "--aim",
            "one:1",
            "--target-key",
            "microsoft",
            "--target-buckets",
            "2",
        ],
        |r| all_answered(r) && count(r, "connections-opened") == 8,
    ),
    (
        "target-key",
        "",
        &["-c", "8", "-n", "50", "--clients", "10.64.0.0/24", "--target-key", "microsoft"],
        all_answered,
    ),
    (
        "target-buckets",
        "",
        &[
            "-c",
            "8",
            "-n",
            "50",
            "--clients",
            "10.64.0.0/24",
            "--target-key",
            "microsoft",
            "--target-buckets",
            "4",
        ],
        all_answered,
    ),
];

/// Options whose effect is seen in other tests, and where.
const ELSEWHERE: &[(&str, &str)] = &[
    ("data", "load_http_data::rows_reach_the_server_and_the_run_ends_with_the_last"),
    ("data-order", "load_http_data::rows_reach_the_server_and_the_run_ends_with_the_last"),
    ("events", "load_http_data::streams_of_our_own_server_are_measured_over_both_versions"),
    ("log-requests", "load_http_data::each_request_is_a_line_of_a_file"),
    ("log-share", "load_http_data::each_request_is_a_line_of_a_file"),
    ("curl", "load_http_data::a_command_line_of_curl_is_a_request"),
    ("user", "load_http_aws"),
    ("aws-sigv4", "load_http_aws"),
    ("aws-session", "load_http_aws"),
    ("wait", "tutorials"),
    ("cookies", "load_http_data::cookies_come_back"),
    ("form", "load_http_data::a_form_is_curls"),
    ("grpc", "load_http_grpc::a_server_of_grpcs_own_library_is_called"),
    ("grpc-descriptors", "load_http_grpc::a_server_of_grpcs_own_library_is_called"),
    ("grpc-messages", "load_http_grpc::a_server_of_grpcs_own_library_is_called"),
    ("events-end", "load_http_data::streams_of_our_own_server_are_measured_over_both_versions"),
    ("agents", "agents::three_agents_make_one_run"),
    ("agent-loss", "agents::lost::the_others_go_on_without_a_paused_agent_if_that_is_wanted"),
    ("agent-timeout", "agents::lost::an_agent_that_is_killed_is_named_and_the_run_fails"),
    ("agent-wait", "agents::what_cannot_be_is_refused_in_one_line"),
    ("nats", "agents::three_agents_make_one_run"),
    ("nats-ca", "agents::login::certificates_and_keys_let_agents_in"),
    ("nats-cert", "agents::login::certificates_and_keys_let_agents_in"),
    ("nats-creds", "agents::what_cannot_be_is_refused_in_one_line"),
    ("nats-key", "agents::login::certificates_and_keys_let_agents_in"),
    ("nats-nkey", "agents::login::certificates_and_keys_let_agents_in"),
    ("push", "load_push::the_last_push_has_the_counts_of_the_report"),
    ("push-every", "load_push::the_last_push_has_the_counts_of_the_report"),
    ("push-header", "load_push::tokens_and_labels_go_where_they_are_meant_to"),
    ("push-label", "load_push::tokens_and_labels_go_where_they_are_meant_to"),
    ("find-rate", "load_find"),
    ("between", "load_find"),
    ("within", "load_find"),
    ("find-for", "load_find"),
    ("scenario", "load_http"),
    ("body-file", "below"),
    ("insecure", "below"),
    ("ca", "below"),
    ("connect-to", "load_http_via"),
    ("resolve", "load_http_via"),
    ("cert", "load_http_via"),
    ("cert-key", "load_http_via"),
    ("tls-min", "load_http_via"),
    ("tls-max", "load_http_via"),
    ("unix-socket", "load_http_via"),
    ("tls-resume", "load_http_h3"),
    ("early-data", "load_http_h3"),
    ("proxy", "load_http_via"),
    ("follow-anywhere", "load_http_via"),
    ("addr", "load_serve"),
    ("address-wait", "addresses::load::where_nobody_answers_a_load_says_so_in_one_line"),
    ("client-id", "addresses"),
    ("client-name", "addresses"),
    ("interface-id", "addresses::load::loads_at_addresses_that_routers_advertise"),
    ("gateway", "below"),
    ("routed", "below"),
    ("vlan", "below"),
    ("tunnel", "load_http_links"),
    ("no-pin", "here, always"),
    ("cpus", "serve"),
    ("fail", "outputs"),
    ("abort", "load_abort"),
    ("replay", "load_http_replay"),
    ("speed", "load_http_replay"),
    ("replay-format", "load_http_replay"),
    ("replay-host", "load_http_replay"),
    ("web", "web"),
    ("metrics", "load_push::fetched::figures_are_fetched_while_a_run_goes_on"),
    ("control", "load_http"),
    ("congestion", "congestion"),
    ("ecn", "congestion"),
    ("http3", "load_http_h3"),
    ("top-flows", "load_http"),
    ("ipfix", "load_serve"),
    ("flow-log", "load_serve"),
    ("capture", "load_http"),
    ("json", "outputs"),
    ("save", "outputs"),
    ("html", "outputs"),
    ("csv", "outputs"),
    ("hdr", "outputs"),
    ("junit", "outputs"),
    ("markdown", "outputs"),
    ("tui", "outputs"),
    ("lines", "outputs"),
    ("quiet", "outputs"),
    ("help", "here"),
    ("version", "the program's own"),
    ("color", "the program's own"),
];

// Long: a hundred options, each by a load and its counterpart without it.
#[test]
fn every_option_changes_what_it_should() {
    let server = Server::start("all", &[]);
    let (next, address) = (AtomicUsize::new(0), &server.address);
    let in_turn = || {
        while let Some((option, path, arguments, is_right)) = CASES.get(next.fetch_add(1, Relaxed)) {
            let path = if *path == "/" { "/size/100" } else { path };
            let (_, report) = run(&format!("http://{address}{path}"), arguments);
            assert!(is_right(&report), "--{option}: {arguments:?}: {report}");
        }
    };
    std::thread::scope(|scope| (0..4).for_each(|_| drop(scope.spawn(in_turn))));
    for (option, path, arguments, is_right) in IN_MEMORY {
        let (_, report) = run(
            &format!("http://10.0.0.1/{}", path.trim_start_matches('/')),
            &[&["--link", "pair"][..], arguments].concat(),
        );
        assert!(is_right(&report), "--{option}: {arguments:?}: {report}");
    }
    let file = server.dir.path("body");
    std::fs::write(&file, "hello").unwrap();
    let body = ["--body-file", &file, "-n", "5", "--expect-sha256", HELLO];
    let (_, report) = run(&format!("http://{}/echo", server.address), &body);
    assert!(all_answered(&report), "--body-file: {report}");
}

#[test]
fn certificates_are_believed_when_told() {
    let pem = std::env::temp_dir().join(format!("flowlane-options-{}.pem", std::process::id()));
    let pem = pem.to_str().unwrap();
    let server = Server::start("tls", &["--tls", "--write-cert", pem]);
    let url = format!("https://{}/size/100", server.address);
    for trust in [&["--ca", pem][..], &["--insecure"]] {
        let (_, report) = run(&url, &[&["-c", "2", "-n", "20"][..], trust].concat());
        assert!(all_answered(&report) && count(&report, "answered") == 20, "{trust:?}: {report}");
    }
    let (output, report) = run(&url, &["-c", "2", "-n", "4", "-d", "300ms"]);
    assert_eq!((output.status.code(), count(&report, "answered")), (Some(1), 0), "{report}");
    assert!(count(&report, "tls") > 0, "{report}");
    let _ = std::fs::remove_file(pem);
}

/// A VLAN, clients that are routed and a target behind a gateway, in namespaces.
#[test]
fn a_vlan_a_gateway_and_routed_clients() {
    if let Err(why) = flowlane_testnet::requires() {
        flowlane_testnet::skipped(why);
        return;
    }
    let make =
        |end: &str| flowlane_testnet::Namespace::new(&format!("flopt{}{end}", std::process::id())).unwrap();
    let (near, far) = (make("a"), make("b"));
    let pair = format!("link add va netns {} type veth peer name vb netns {}", near.name(), far.name());
    flowlane_testnet::ip(&pair).unwrap();
    near.ip("link set va up").unwrap();
    far.ip("link set vb up").unwrap();
    // One address is beyond the other, and the way back to clients that are nobody's neighbours is by way of ours.
    let serve = "serve http --link af-packet:vb --addr 10.11.2.1/24,10.12.0.1/32 --gateway 10.11.2.2 --vlan 7 --port 80";
    let mut command = far.command(env!("CARGO_BIN_EXE_flowlane"));
    command.args(serve.split_whitespace()).arg("--no-pin").stdin(Stdio::null());
    let _server = Program::ready(command, "http on");
    for (url, more) in [
        ("http://10.11.2.1/size/100", ""),
        ("http://10.11.2.1/size/100", "--clients 10.64.0.0/24 --routed"),
        ("http://10.12.0.1/size/100", "--gateway 10.11.2.1"),
    ] {
        let line = format!(
            "load http {url} --link af-packet:va --addr 10.11.2.2/24 --vlan 7 -n 50 --json -q --no-pin {more}"
        );
        let output = near
            .command(env!("CARGO_BIN_EXE_flowlane"))
            .args(line.split_whitespace())
            .stdin(Stdio::null())
            .output()
            .unwrap();
        let report: Value = serde_json::from_slice(&output.stdout)
            .unwrap_or_else(|e| panic!("{line}: {e}: {}", String::from_utf8_lossy(&output.stderr)));
        assert!(all_answered(&report) && count(&report, "answered") == 50, "{line}: {report}");
    }
}

/// A new option needs a test: this list is made from what `--help` says.
#[test]
fn no_option_is_without_a_test() {
    let help = program().args(["load", "http", "--help"]).output().unwrap();
    let help = String::from_utf8(help.stdout).unwrap();
    let options: BTreeSet<&str> = help
        .lines()
        .map(str::trim_start)
        .filter(|l| l.starts_with('-'))
        .filter_map(|l| l.split_whitespace().find_map(|w| w.strip_prefix("--")))
        // Without the value that some may have behind an equals sign.
        .map(|w| w.trim_end_matches(',').split('[').next().unwrap_or(w))
        .collect();
    let tried: BTreeSet<&str> =
        CASES.iter().chain(IN_MEMORY).map(|c| c.0).chain(ELSEWHERE.iter().map(|e| e.0)).collect();
    assert!(options.len() > 50, "{options:?}");
    let missing: Vec<_> = options.difference(&tried).collect();
    assert!(missing.is_empty(), "no test has {missing:?}");
}
