//! `flowlane rss` as people run it: the published vectors, plans that hold when hashed, verdicts on keys, and mistakes,
//! each answered in one line.

use flowlane_rss::{Flow, HashConfig, Key, Protocol, Rss, Toeplitz, UdpFields};
use serde_json::Value;
use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr};
use std::process::{Command, Output};

fn flowlane(arguments: &str) -> Output {
    Command::new(env!("CARGO_BIN_EXE_flowlane")).args(arguments.split_whitespace()).output().unwrap()
}

fn text(arguments: &str) -> String {
    let output = flowlane(arguments);
    assert!(output.status.success(), "{arguments}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn json(arguments: &str) -> Value {
    serde_json::from_str(&text(&format!("{arguments} --json"))).unwrap()
}

/// One line on standard error, nothing on standard output, and this exit code.
fn refused(arguments: &str, code: i32) -> String {
    let output = flowlane(arguments);
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(code), "{arguments}: {said}");
    assert_eq!(said.lines().count(), 1, "{arguments}: {said}");
    assert!(said.starts_with("flowlane: "), "{said}");
    said
}

/// Source, destination, hash of the addresses, hash with ports.
const VECTORS: [(&str, &str, &str, &str); 8] = [
    ("66.9.149.187:2794", "161.142.100.80:1766", "323e8fc2", "51ccc178"),
    ("199.92.111.2:14230", "65.69.140.83:4739", "d718262a", "c626b0ea"),
    ("24.19.198.95:12898", "12.22.207.184:38024", "d2d0a5de", "5c2b394a"),
    ("38.27.205.30:48228", "209.142.163.6:2217", "82989176", "afc7327f"),
    ("153.39.163.191:44251", "202.188.127.2:1303", "5d1809c5", "10e828a2"),
    ("[3ffe:2501:200:1fff::7]:2794", "[3ffe:2501:200:3::1]:1766", "2cc18cd5", "40207d3d"),
    ("[3ffe:501:8::260:97ff:fe40:efab]:14230", "[ff02::1]:4739", "0f0c461c", "dde51bbf"),
    (
        "[3ffe:1900:4545:3:200:f8ff:fe21:67cf]:44251",
        "[fe80::200:f8ff:fe21:67cf]:38024",
        "4b61e985",
        "02d1feef",
    ),
];

#[test]
fn published_vectors() {
    for (source, destination, addresses, ports) in VECTORS {
        let ip = |end: &str| end.parse::<SocketAddr>().unwrap().ip();
        let (a, b) = (ip(source), ip(destination));
        let with = |hash: &str| format!("hash    {hash}\n");
        assert!(text(&format!("rss hash {source} {destination}")).contains(&with(ports)));
        assert!(text(&format!("rss hash {source} {destination} --udp --udp-4tuple")).contains(&with(ports)));
        assert!(text(&format!("rss hash {source} {destination} --udp")).contains(&with(addresses)));
        assert!(text(&format!("rss hash {a} {b}")).contains(&with(addresses)));
        let fragment = text(&format!("rss hash {source} {destination} --fragment"));
        assert!(fragment.contains(&with(addresses)) && fragment.contains("fragments have no ports"));
        let slot = u32::from_str_radix(ports, 16).unwrap() & 127;
        let value = json(&format!("rss hash {source} {destination} --workers 4"));
        assert_eq!(value["hash-hex"], ports);
        assert!(value["key"].as_str().unwrap().starts_with("microsoft, for want of --key"), "{value}");
        assert_eq!(value["slot"], slot);
        assert_eq!(value["bucket"], slot % 8);
        assert_eq!(value["worker"], slot % 8 % 4);
        assert_eq!(value["version"], 1);
    }
}

/// A question without a key is answered for the published one, a service without one has another: it is said which.
#[test]
fn the_key_that_is_meant_is_named() {
    let key = |more: &str| {
        let said = text(&format!("rss hash 10.0.0.1:1 10.0.0.2:2 {more}"));
        assert!(said.lines().all(|line| !line.starts_with("key ") || line.len() <= 80), "{said}");
        said.lines().find_map(|line| line.strip_prefix("key     ")).unwrap().to_owned()
    };
    assert_eq!(key(""), "microsoft, for want of --key; serve and load take a fresh one then");
    assert_eq!(key("--key microsoft"), "microsoft");
    assert_eq!(key("--key random"), "a fresh one, which nobody else has");
    let long = "6d5a56da255b0ec24167253d43a38fb0d0ca2bcbae7b30b477cb2da38030f20c6a42b73bbeac01fa";
    assert_eq!(key(&format!("--key {long}")), format!("{}... (40 bytes)", &long[..48]));
}

#[test]
fn symmetric_keys_bring_both_directions_together() {
    let hash = |a, b| json(&format!("rss hash {a} {b} --key symmetric"))["hash"].clone();
    assert_eq!(hash("10.0.0.1:5", "10.0.0.2:6"), hash("10.0.0.2:6", "10.0.0.1:5"));
}

/// Every source of a plan, hashed again with the library, reaches the bucket it was listed for.
fn check_plan(arguments: &str, rss: &Rss, to: SocketAddr, replies: bool, buckets: &[u64], count: usize) {
    let plan = json(arguments);
    for bucket in buckets {
        let sources: Vec<&Value> =
            plan["sources"].as_array().unwrap().iter().filter(|s| s["bucket"] == *bucket).collect();
        assert_eq!(sources.len(), count, "{arguments}: bucket {bucket}");
        for source in sources {
            let ip: IpAddr = source["address"].as_str().unwrap().parse().unwrap();
            let port = source["port"].as_u64().unwrap_or(0) as u16;
            let flow = Flow::new(SocketAddr::new(ip, port), to, Protocol::UDP);
            let steered = rss.steer(&if replies { flow.reply() } else { flow });
            assert_eq!(u64::from(steered.bucket.0), *bucket, "{arguments}: {source}");
            assert_eq!(source["hash"], steered.hash);
        }
    }
    assert!(
        plan["sources"].as_array().unwrap().iter().all(|s| buckets.contains(&s["bucket"].as_u64().unwrap()))
    );
}

fn steering(udp: UdpFields) -> Rss {
    let usual = Rss::new(Key::MICROSOFT, 4);
    Rss::from_parts(Toeplitz::new(&Key::MICROSOFT), HashConfig::with_udp(udp), usual.table, usual.buckets)
}

#[test]
fn plans_hold() {
    let to: SocketAddr = "10.11.2.1:8080".parse().unwrap();
    let four = steering(UdpFields::Four);
    let usual = "rss plan --to 10.11.2.1:8080 --workers 4 --udp";
    check_plan(&format!("{usual} --from 10.11.2.2 --udp-4tuple --buckets 0,3"), &four, to, false, &[0, 3], 4);
    let all: Vec<u64> = (0..8).collect();
    check_plan(
        &format!("{usual} --from 10.11.2.2 --udp-4tuple --replies --count 9"),
        &four,
        to,
        true,
        &all,
        9,
    );
    let two = steering(UdpFields::Two);
    check_plan(&format!("{usual} --from 10.11.0.0/16 --buckets 1,2"), &two, to, false, &[1, 2], 4);
    check_plan(&format!("{usual} --from 10.11.3.1-10.11.9.1 --replies --buckets 5"), &two, to, true, &[5], 4);
    let v6: SocketAddr = "[fd00::1]:8080".parse().unwrap();
    let arguments =
        "rss plan --to [fd00::1]:8080 --workers 4 --udp --udp-4tuple --from fd00::2 --ports 1000-2000";
    check_plan(arguments, &four, v6, false, &all, 4);
}

#[test]
fn plans_that_cannot_be() {
    let output = flowlane("rss plan --to 10.11.2.1:8080 --from 10.11.2.5 --of 4 --udp");
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.lines().count() == 1 && said.contains("ports are not hashed"), "{said}");
    refused("rss plan --to 10.11.2.1 --from 10.11.2.5", 2);
    refused("rss plan --to 10.11.2.1:7 --from fd00::1", 2);
    refused("rss plan --to 10.11.2.1:7 --from 10.11.2.9-10.11.2.5", 2);
    refused("rss plan --to 10.11.2.1:7 --from 10.11.2.5 --buckets 9 --of 8", 2);
    refused("rss plan --to 10.11.2.1:7 --from 10.11.2.5 --ports 0-7", 2);
    refused("rss plan --to 10.11.2.1:7 --from 10.11.2.5 --of 3", 2);
}

#[test]
fn keys_are_judged() {
    assert!(text("rss key --judge microsoft").contains("useful: every field reaches every slot"));
    let symmetric = json("rss key --judge symmetric");
    assert_eq!((&symmetric["useful"], &symmetric["symmetric"]), (&true.into(), &true.into()));
    let made = text("rss key").trim().to_owned();
    assert_eq!(made.len(), 80);
    assert_ne!(made, text("rss key --make random").trim());
    assert_eq!(json(&format!("rss key --judge {made}"))["useful"], true);
    assert_eq!(text("rss key --make microsoft").trim(), Key::MICROSOFT.to_string());

    let zeros = "00".repeat(40);
    assert!(refused(&format!("rss key --judge {zeros}"), 1).contains("useless key"));
    let short = &Key::MICROSOFT.to_string()[..32];
    assert!(refused(&format!("rss key --judge {short}"), 1).contains("IPv6"));
    text(&format!("rss key --judge {short} --ipv4-only"));
    refused("rss key --judge 6d5a", 2);
    refused("rss key --judge nonsense", 2);
    refused("rss key --make best", 2);
    refused("rss key --judge microsoft --buckets 3", 2);
    refused("rss key --judge microsoft --buckets 256", 2);
}

#[test]
fn mistakes_take_one_line() {
    for arguments in [
        "rss hash 10.0.0.1",
        "rss hash 10.0.0.1:5 10.0.0.2",
        "rss hash 10.0.0.1 fd00::1",
        "rss hash 10.0.0.1:70000 10.0.0.2:1",
        "rss hash 10.0.0.1:1 10.0.0.2:1 --udp --tcp",
        "rss hash 10.0.0.1:1 10.0.0.2:1 --key abc",
        "rss hash 10.0.0.1:1 10.0.0.2:1 --key abcd",
        "rss hash 10.0.0.1:1 10.0.0.2:1 --buckets 5",
        "rss hash 10.0.0.1:1 10.0.0.2:1 --slots 1",
        "rss hash 10.0.0.1:1 10.0.0.2:1 --workers 0",
        "rss hash 10.0.0.1 10.0.0.2 --tcp",
        "rss unhash",
    ] {
        refused(arguments, 2);
    }
}

/// A card that there is not has a line, and so has one without RSS; the commands need no privileges for it.
#[test]
fn cards_are_shown_as_far_as_they_tell() {
    let page = text("rss show lo");
    assert!(page.starts_with("lo: ") && page.contains("RSS        not told by the driver"), "{page}");
    assert!(page.lines().all(|line| line.chars().count() <= 80), "{page}");
    assert!(refused("rss show no-such-if0", 2).contains("no network interface"));
    assert!(refused("rss show a-name-that-only-another-could-be", 2).contains("no network interface"));
    assert!(refused(&format!("rss show {}", "n".repeat(128)), 2).contains("no interface name"));
}

#[test]
fn what_runs_left_is_looked_for_where_it_is_said() {
    use std::os::unix::fs::{MetadataExt, PermissionsExt};
    let place = std::env::temp_dir().join(format!("flowlane-rss-restore-{}", std::process::id()));
    let at = place.display();
    assert_eq!(text(&format!("rss restore --state {at}")), format!("{at}: nothing to put back\n"));
    assert_eq!(text(&format!("rss restore lo --state {at}")), "lo: nothing to put back\n");
    assert!(
        refused(&format!("rss restore no-such-if0 --state {at}"), 2).contains("no interface has this name")
    );
    let namespace = std::fs::metadata("/proc/self/ns/net").unwrap().ino();
    std::fs::create_dir(&place).unwrap();
    std::fs::set_permissions(&place, PermissionsExt::from_mode(0o700)).unwrap();
    let file = |interface: &str, owner: &str| {
        let text = format!(
            "flowlane-card 1\ninterface {interface}\nnamespace {namespace}\nboot {}bus -\nmac -\nowner {owner}\nwas-function 1\n\
             was-transform 0\nwas-key -\nwas-table 0,1\nwas-default-table 1\nset-table 1,1\nend 1\n",
            std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap()
        );
        let path = place.join(format!("card-{namespace}-{interface}"));
        std::fs::write(&path, text).unwrap();
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o600)).unwrap();
        path
    };
    // A card that is gone is forgotten when it is said so, and what does not make sense is left as it is.
    let path = file("no-such-if0", "1 18446744073709551615");
    assert!(
        refused(&format!("rss restore --state {at}"), 1)
            .contains("no-such-if0: the interface whose RSS was changed is gone")
    );
    assert!(text(&format!("rss restore --force --state {at}")).contains("forgotten"));
    assert!(!path.exists());
    let path = file("lo", "1 18446744073709551615");
    assert!(refused(&format!("rss restore lo --state {at}"), 2).contains("lo: has no RSS to set"));
    std::fs::write(&path, "flowlane-card 1\nowner 1").unwrap();
    assert!(refused(&format!("rss restore lo --state {at}"), 2).contains("is cut off"));
    assert!(path.exists());
    std::fs::set_permissions(&place, PermissionsExt::from_mode(0o777)).unwrap();
    assert!(refused(&format!("rss restore lo --state {at}"), 2).contains("others may write there"));
    std::fs::remove_dir_all(place).unwrap();
}

/// A file of this test's own, gone with it.
struct File(std::path::PathBuf);

impl File {
    fn new(tag: &str) -> Self {
        Self(std::env::temp_dir().join(format!("flowlane-{tag}-{}.rule", std::process::id())))
    }

    fn name(&self) -> &str {
        self.0.to_str().unwrap()
    }
}

impl Drop for File {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

#[test]
fn what_is_learned_answers_in_place_of_a_key() {
    use std::os::unix::fs::PermissionsExt;
    let file = File::new("learned");
    let said = text(&format!("rss learn --emulated microsoft --seed 1 --unseen 1000 -o {}", file.name()));
    assert!(said.contains("hash      Toeplitz under one key\n"), "{said}");
    assert!(said.contains("compared  1000 other packets: 0 wrong\n"), "{said}");
    assert_eq!(std::fs::metadata(&file.0).unwrap().permissions().mode() & 0o777, 0o600);
    for (source, destination, addresses, ports) in VECTORS {
        let tcp = json(&format!("rss hash {source} {destination} --rss {}", file.name()));
        assert_eq!(tcp["hash-hex"], ports);
        assert_eq!(tcp["bucket"], tcp["slot"].as_u64().unwrap() % 4, "a bucket is a queue");
        let udp = json(&format!("rss hash {source} {destination} --udp --rss {}", file.name()));
        assert_eq!(udp["hash-hex"], addresses);
    }
}

/// A plan by a rule without key, made of queues alone, holds when its sources are hashed by the rule made of hashes.
#[test]
fn a_plan_by_a_learned_rule_holds() {
    let (hashes, queues) = (File::new("hashes"), File::new("queues"));
    let learn = "rss learn --emulated sorted-pair --seed 4 --unseen 1000 --udp-4tuple -o";
    text(&format!("{learn} {}", hashes.name()));
    text(&format!("{learn} {} --no-hashes", queues.name()));
    for replies in ["", " --replies"] {
        let plan = json(&format!(
            "rss plan --to 10.0.0.1:7 --from 10.0.0.2 --count 3 --rss {}{replies}",
            queues.name()
        ));
        let sources = plan["sources"].as_array().unwrap();
        assert_eq!(sources.len(), 4 * 3);
        for source in sources {
            let from = format!("10.0.0.2:{}", source["port"]);
            let ends =
                if replies.is_empty() { format!("{from} 10.0.0.1:7") } else { format!("10.0.0.1:7 {from}") };
            let hashed = json(&format!("rss hash {ends} --rss {}", hashes.name()));
            assert_eq!(hashed["bucket"], source["bucket"]);
        }
    }
}

#[test]
fn cards_that_cannot_be_learned_and_files_that_are_none() {
    let said = refused("rss learn --emulated jhash --seed 1", 1);
    assert!(said.starts_with("flowlane: jhash: not affine: after "), "{said}");
    assert!(refused("rss learn --emulated forgets", 1).contains("RSS is off"));
    assert!(
        refused("rss learn --emulated e1000", 2).contains("no emulated card 'e1000': there are microsoft,")
    );
    assert!(refused("rss learn --emulated random --slots 1", 2).contains("must be 2 to 2048"));
    assert!(refused("rss learn --emulated random --kinds tcp", 2).contains("of ipv4, tcp-ipv4,"));
    assert!(refused("rss learn --emulated random --probes 100", 1).contains("100 probes are not enough"));
    assert!(refused("rss learn --emulated all -o x", 2).contains("one card's rule"));

    let file = File::new("bad");
    let hash = format!("rss hash 10.0.0.1:1 10.0.0.2:2 --rss {}", file.name());
    assert!(refused(&hash, 2).contains("No such file"));
    text(&format!("rss learn --emulated crc32c --seed 1 --unseen 10 --kinds tcp-ipv4 -o {}", file.name()));
    let good = std::fs::read_to_string(&file.0).unwrap();
    text(&hash);
    assert!(refused(&format!("{hash} --udp"), 2).contains("says nothing of udp-ipv4 packets"));
    assert!(refused(&format!("{hash} --buckets 4"), 2).contains("--buckets"));
    let breaks = [
        (good.clone(), "{}".to_owned(), "no version"),
        ("\"version\": 1".to_owned(), "\"version\": 2".to_owned(), "version 2: this program reads version 1"),
        ("\"arrangement\": \"plain\"".to_owned(), "\"arrangement\": \"odd\"".to_owned(), "arrangement 'odd'"),
        ("\"columns\": \"".to_owned(), "\"columns\": \"0".to_owned(), "eight hexadecimal digits"),
        ("\"columns\": \"".to_owned(), "\"columns\": \"00000000".to_owned(), "97 columns, not 96"),
        ("\"queues\": [".to_owned(), "\"queues\": [70000,".to_owned(), "70000"),
        ("\"queues\": [".to_owned(), "\"queues\": [2000,".to_owned(), "queue 2000"),
        ("\"hashes\": true".to_owned(), "\"hashes\": true, \"speed\": 9".to_owned(), "unknown field `speed`"),
    ];
    for (from, to, said) in breaks {
        std::fs::write(&file.0, good.replace(&from, &to)).unwrap();
        let line = refused(&hash, 2);
        assert!(line.contains(said), "{line}");
    }
    std::fs::write(&file.0, vec![b' '; 3_000_000]).unwrap();
    refused(&hash, 2);
}

/// One flow on loopback, which has no card: what is not known is said, and mistakes are one line.
#[test]
fn why_without_a_card() {
    let page = text("rss why 10.0.0.1:5 10.0.0.2:6 lo");
    assert!(page.contains("packet     10.0.0.1:5 -> 10.0.0.2:6, tcp"), "{page}");
    assert!(page.contains("hash       not known: the driver tells nothing of RSS"), "{page}");
    let document = json("rss why fd00::1 fd00::2 lo");
    assert_eq!((&document["queue"], &document["protocol"]), (&Value::Null, &Value::from(253)));
    assert!(refused("rss why 10.0.0.1:5 10.0.0.2:6 no-such-if0", 2).contains("no-such-if0"));
    assert!(refused("rss why 10.0.0.1 fd00::2 lo", 2).contains("two families"));
    assert!(refused("rss why 10.0.0.1:5 10.0.0.2 lo", 2).contains("a port on both sides"));
    assert!(refused("rss why 10.0.0.1:5 10.0.0.2:6 lo --rss /dev/null", 2).contains("--rss /dev/null"));
    // By a learned rule, hash and queue are those that 'rss hash' says.
    let file = std::env::temp_dir().join(format!("flowlane-why-rule-{}", std::process::id()));
    let file = file.to_str().unwrap();
    text(&format!("rss learn --emulated random --seed 7 --unseen 10 -o {file}"));
    let flow = "10.0.0.1:5 10.0.0.2:6";
    let (why, hash) =
        (json(&format!("rss why {flow} lo --rss {file}")), json(&format!("rss hash {flow} --rss {file}")));
    assert_eq!((&why["hashed"]["hash"], &why["queue"]), (&hash["hash"], &hash["bucket"]));
    std::fs::remove_file(file).unwrap();
}

/// An interface whose queues nobody counts has a line that says what to do instead; mistakes have one, too.
#[test]
fn queues_that_nobody_counts_are_said() {
    let said = refused("rss show lo --watch", 2);
    assert!(
        said.contains("counts the packets of single queues") && said.contains("ip -s link show lo"),
        "{said}"
    );
    assert!(refused("rss show no-such-if0 --watch", 2).contains("no network interface"));
    assert!(refused("rss show lo --watch=1ms", 2).contains("at least 10ms"));
    assert!(refused("rss export lo", 2).contains("--listen"));
    assert!(refused("rss export no-such-if0 --once", 2).contains("no network interface"));
    assert!(refused("rss export lo --listen 0.0.0.0:0", 2).contains("every address"));
}

/// What is exported once is what is served, until ^C.
#[test]
fn cards_are_exported_for_prometheus() {
    let once = text("rss export lo --once");
    assert!(once.contains("# TYPE flowlane_card_info gauge\n"), "{once}");
    assert!(once.contains("flowlane_card_info{driver=\"\",interface=\"lo\"} 1\n"), "{once}");
    let mut command = Command::new(env!("CARGO_BIN_EXE_flowlane"));
    command.args(["rss", "export", "lo", "--listen", "0"]);
    let mut program = flowlane_testnet::Program::start(command);
    let said = program.prints();
    let at = said.trim().strip_prefix("metrics http://").and_then(|at| at.strip_suffix("/metrics")).unwrap();
    let mut stream = std::net::TcpStream::connect(at).unwrap();
    stream.set_read_timeout(Some(flowlane_testnet::PATIENCE)).unwrap();
    write!(stream, "GET /metrics HTTP/1.1\r\nHost: {at}\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.split_once("\r\n\r\n").unwrap().1 == once, "{answer}");
    program.interrupt();
}
