//! `rss learn` from captures and from an interface, and what `rss plan` answers for flows: each answer is held against the card that
//! made the packets, or against `rss hash`.

use flowlane_rss::emulated::{Card, CardOptions};
use flowlane_rss::{Flow, Key, Protocol, UdpFields};
use flowlane_testnet::{CardConfig, MICROSOFT_KEY};
use serde_json::Value;
use std::net::{SocketAddr, UdpSocket};
use std::path::PathBuf;
use std::process::{Command, Output};

fn flowlane(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_flowlane")).args(arguments).output().unwrap()
}

/// What a command prints, in 80 columns.
fn text(arguments: &[&str]) -> String {
    let output = flowlane(arguments);
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    text
}

fn json(schema: &str, arguments: &[&str]) -> Value {
    let value = serde_json::from_str(&text_of_json(arguments)).unwrap();
    assert_eq!(flowlane_schema::faults(schema, &value), Vec::<String>::new(), "{value}");
    value
}

fn text_of_json(arguments: &[&str]) -> String {
    let output = flowlane(&[arguments, &["--json"]].concat());
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// One line on standard error, and this exit code.
fn refused(arguments: &[&str], code: i32) -> String {
    let output = flowlane(arguments);
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!((output.status.code(), said.lines().count()), (Some(code), 1), "{arguments:?}: {said}");
    said
}

/// A file of this test's own, gone with it.
struct File(PathBuf);

impl File {
    fn new(name: &str) -> Self {
        Self(std::env::temp_dir().join(format!("flowlane-{}-{name}", std::process::id())))
    }

    fn with(name: &str, bytes: &[u8]) -> Self {
        let file = Self::new(name);
        std::fs::write(&file.0, bytes).unwrap();
        file
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

/// Clients of a few networks and one service, some packets of each flow.
fn traffic(i: u32) -> Flow {
    let n = i.wrapping_mul(0x9e37_79b9) ^ (i << 7);
    let from = SocketAddr::from((
        [81, (n >> 28) as u8, (n >> 8) as u8, n as u8],
        32_768 + (n >> 17) as u16 % 28_000,
    ));
    let protocol = if i.is_multiple_of(4) { Protocol::UDP } else { Protocol::TCP };
    Flow::new(from, SocketAddr::from(([192, 0, 2, 9], 443)), protocol)
}

/// An Ethernet frame of a flow: as many bytes as say which it is.
fn frame(flow: &Flow) -> Vec<u8> {
    let (std::net::IpAddr::V4(src), std::net::IpAddr::V4(dst)) = (flow.src, flow.dst) else { panic!() };
    let mut frame =
        [&[2_u8; 12][..], &[8, 0, 0x45, 0, 0, 40, 0, 0, 0, 0, 64, flow.protocol.0, 0, 0]].concat();
    frame.extend([src.octets(), dst.octets()].concat());
    frame.extend([flow.src_port.to_be_bytes(), flow.dst_port.to_be_bytes()].concat());
    match flow.protocol {
        Protocol::UDP => frame.extend([0, 20, 0, 0]),
        _ => frame.extend([0, 0, 0, 1, 0, 0, 0, 1, 0x50, 0x10, 0, 1, 0, 0, 0, 0]),
    }
    frame.resize(54, 0);
    frame
}

/// A packet of a capture: its frame, queue, four bytes of hash, and flags.
type Packet = (Vec<u8>, Option<u32>, Option<[u8; 4]>, u32);

/// A pcapng file, little-endian.
fn pcapng(packets: &[Packet]) -> Vec<u8> {
    let word = u32::to_le_bytes;
    let block = |kind: u32, mut body: Vec<u8>| {
        body.resize(body.len().next_multiple_of(4), 0);
        let len = word(12 + body.len() as u32);
        [&word(kind)[..], &len, &body, &len].concat()
    };
    let mut file = block(0x0a0d_0d0a, [&word(0x1a2b_3c4d)[..], &[1, 0, 0, 0], &[0xff; 8]].concat());
    file.extend(block(1, [1, 0, 0, 0, 0, 0, 4, 0].to_vec()));
    for (bytes, queue, hash, flags) in packets {
        let len = word(bytes.len() as u32);
        let mut body = [&word(0)[..], &[0; 8], &len, &len, bytes].concat();
        body.resize(body.len().next_multiple_of(4), 0);
        if let Some(queue) = queue {
            body.extend([&[6, 0, 4, 0][..], &word(*queue)].concat());
        }
        if let Some(hash) = hash {
            body.extend([&[3, 0, 5, 0, 5][..], hash, &[0; 3]].concat());
        }
        body.extend([&[2, 0, 4, 0][..], &word(*flags), &[0; 4]].concat());
        file.extend(block(6, body));
    }
    file
}

/// What a card makes of the traffic, with hashes in some order of bytes.
fn captured(card: &mut Card, n: u32, hash: impl Fn(u32) -> Option<[u8; 4]>) -> Vec<Packet> {
    let of = |i| {
        let flow = traffic(i);
        let got = card.receive(&flow);
        (frame(&flow), Some(u32::from(got.queue)), hash(got.hash), 1)
    };
    (0..n).map(of).collect()
}

fn card(name: &str) -> Card {
    Card::new(name, &CardOptions { seed: 5, slots: 64, queues: 4, udp: UdpFields::Two }).unwrap()
}

/// How many of these flows the rule in a file names the card's queue of, and how many it says that it does not know.
fn held_against(card: &mut Card, file: &File, flows: impl Iterator<Item = u32>) -> (usize, usize) {
    let (mut right, mut unknown) = (0, 0);
    for i in flows {
        let flow = traffic(i);
        let [src, dst] = [(flow.src, flow.src_port), (flow.dst, flow.dst_port)]
            .map(|end| SocketAddr::from(end).to_string());
        let udp = if flow.protocol == Protocol::UDP { "--udp" } else { "--tcp" };
        let output = flowlane(&["rss", "hash", &src, &dst, udp, "--rss", file.name(), "--json"]);
        match output.status.code() {
            Some(0) => {
                let value: Value = serde_json::from_slice(&output.stdout).unwrap();
                assert_eq!(value["bucket"], card.receive(&flow).queue, "{flow:?}");
                right += 1;
            }
            _ => {
                let said = String::from_utf8_lossy(&output.stderr);
                assert!(said.contains("the file does not tell"), "{said}");
                unknown += 1;
            }
        }
    }
    (right, unknown)
}

/// Hashes as on the wire, in the order of a processor (as DPDK writes them), none; packets that were sent are left out. What is not
/// known is said when it is asked for.
#[test]
fn captures_with_queues_and_hashes() {
    type Order = fn(u32) -> Option<[u8; 4]>;
    let orders: [(&str, &str, Order); 4] = [
        ("random", "Toeplitz", |hash| Some(hash.to_be_bytes())),
        ("random", "Toeplitz", |hash| Some(hash.to_le_bytes())),
        ("crc32c", "affine", |hash| Some(hash.to_be_bytes())),
        ("microsoft", "not reported", |_| None),
    ];
    for (i, (name, hash, order)) in orders.into_iter().enumerate() {
        let mut emulated = card(name);
        let mut packets = captured(&mut emulated, 1500, order);
        // Of what was sent, nothing is to be learned.
        let sent =
            packets.iter().map(|(bytes, ..)| (bytes.clone(), Some(3), Some([9; 4]), 2)).collect::<Vec<_>>();
        packets.extend(sent);
        let capture = File::with(&format!("learn-{i}.pcapng"), &pcapng(&packets));
        let rule = File::new(&format!("learn-{i}.rule"));
        let said = text(&["rss", "learn", "--capture", capture.name(), "-o", rule.name()]);
        assert!(said.contains(&format!("hash      {hash}")), "{name}: {said}");
        assert!(
            said.contains("tcp-ipv4  ") && said.contains("not seen  ipv4, ipv6, tcp-ipv6, udp-ipv6"),
            "{said}"
        );
        let (right, _) = held_against(&mut emulated, &rule, 5000..5030);
        assert!(right >= 10, "{name}: {right} of 30\n{said}");
        let document: Value = serde_json::from_slice(&std::fs::read(&rule.0).unwrap()).unwrap();
        assert_eq!(flowlane_schema::faults("rss-rule-v1", &document), Vec::<String>::new());
        let value = json("rss-v1", &["rss", "learn", "--capture", capture.name()]);
        assert_eq!(value["kinds"][0]["kind"], "tcp-ipv4", "{value}");
    }
}

/// A server's address that no flow varied: flows to another one are none of those that are known.
#[test]
fn what_a_capture_does_not_tell_is_not_made_up() {
    let capture =
        File::with("part.pcapng", &pcapng(&captured(&mut card("crc32c"), 1500, |h| Some(h.to_be_bytes()))));
    let rule = File::new("part.rule");
    let said = text(&["rss", "learn", "--capture", capture.name(), "-o", rule.name()]);
    assert!(said.contains("dimensions determined"), "{said}");
    let to =
        |server: &str| ["rss", "hash", "81.3.4.5:40000", server, "--rss", rule.name()].map(str::to_owned);
    let ask = |server| to(server).iter().map(String::as_str).map(str::to_owned).collect::<Vec<String>>();
    let strings = |list: Vec<String>| -> Output {
        Command::new(env!("CARGO_BIN_EXE_flowlane")).args(list).output().unwrap()
    };
    assert_eq!(strings(ask("192.0.2.9:443")).status.code(), Some(0));
    let other = strings(ask("192.0.2.10:443"));
    assert_eq!(other.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&other.stderr).contains("does not tell this flow"));
}

/// Files of one queue each, as a capture of each queue by itself makes them.
#[test]
fn a_file_for_each_queue() {
    let mut emulated = card("microsoft");
    let mut files = vec![Vec::new(); 4];
    for (bytes, queue, ..) in captured(&mut emulated, 1500, |_| None) {
        files[queue.unwrap() as usize].push((bytes, None, None, 0));
    }
    let files: Vec<File> = files
        .iter()
        .enumerate()
        .map(|(i, packets)| File::with(&format!("queue-{i}.pcapng"), &pcapng(packets)))
        .collect();
    let rule = File::new("queues.rule");
    let named: Vec<String> =
        files.iter().enumerate().map(|(i, file)| format!("{}={i}", file.name())).collect();
    let mut arguments = vec!["rss", "learn", "-o", rule.name()];
    named.iter().for_each(|name| arguments.extend(["--capture", name]));
    let said = text(&arguments);
    assert!(said.contains("table     ") && said.contains("4 queues"), "{said}");
    assert_eq!(held_against(&mut emulated, &rule, 7000..7010).0, 10);
    // Without queues there is nothing to learn, and a hash alone makes no file.
    assert!(refused(&["rss", "learn", "--capture", files[0].name()], 2).contains("none of"));
    let hashes: Vec<Packet> = captured(&mut emulated, 500, |hash| Some(hash.to_be_bytes()))
        .into_iter()
        .map(|(b, _, h, f)| (b, None, h, f))
        .collect();
    let hashes = File::with("hashes.pcapng", &pcapng(&hashes));
    assert!(text(&["rss", "learn", "--capture", hashes.name()]).contains("table     not known"));
    assert!(
        refused(&["rss", "learn", "--capture", hashes.name(), "-o", rule.name()], 1)
            .contains("nothing written")
    );
}

#[test]
fn captures_that_tell_nothing() {
    let few = File::with("few.pcapng", &pcapng(&captured(&mut card("random"), 6, |h| Some(h.to_be_bytes()))));
    assert!(refused(&["rss", "learn", "--capture", few.name()], 1).contains("6 flows are too few"));
    let keyed =
        File::with("keyed.pcapng", &pcapng(&captured(&mut card("jhash"), 1500, |h| Some(h.to_be_bytes()))));
    assert!(refused(&["rss", "learn", "--capture", keyed.name()], 1).contains("not affine"));
    let text_file = File::with("text.pcapng", b"no capture at all");
    assert!(refused(&["rss", "learn", "--capture", text_file.name()], 2).contains("not a capture file"));
    assert!(refused(&["rss", "learn", "--capture", "/nowhere.pcapng"], 2).contains("/nowhere.pcapng"));
    assert!(refused(&["rss", "learn", "--capture", "a=x"], 2).contains("not a queue"));
    assert!(refused(&["rss", "learn"], 2).contains("--capture"));
    refused(&["rss", "learn", "lo", "--emulated", "random"], 2);
    refused(&["rss", "learn", "--emulated", "random", "--probe-from", "lo"], 2);
    assert!(refused(&["rss", "learn", "no-such-if0"], 2).contains("no-such-if0"));
}

/// Whether steered cards can be made here.
fn can_run() -> bool {
    let why = flowlane_testnet::requires().err();
    if let Some(why) = &why {
        flowlane_testnet::skipped(format!("skipped, because {why}"));
    }
    why.is_none()
}

fn in_near(card: &flowlane_testnet::Card, arguments: &[&str]) -> Output {
    let mut command = Command::new("ip");
    command.args(["netns", "exec", card.near().unwrap().name(), env!("CARGO_BIN_EXE_flowlane")]);
    command.args(arguments).output().unwrap()
}

/// Probes by the far end, through the kernel's steering: key, fields and table are found, from hashes and from queues alone.
#[test]
fn a_live_link_by_probes() {
    if !can_run() {
        return;
    }
    let mut config = CardConfig::for_test("lrn", 4);
    config.rules.key =
        Key::from_hex(&"2b91c4570d66e13a88f2a9355cd07b4e".repeat(3)[..80]).unwrap().as_bytes().to_vec();
    config.rules.table = (0..128).map(|slot| [0, 3, 1, 1, 2, 0, 3, 2, 2, 1][slot % 10]).collect();
    config.rules.udp_ports = true;
    let card = flowlane_testnet::Card::new(&config).unwrap();
    let from = format!("far0@{}", card.far().name());
    let rules = [File::new("live-hashes.rule"), File::new("live-queues.rule")];
    for (rule, more) in rules.iter().zip([&[][..], &["--no-hashes"]]) {
        let arguments = ["rss", "learn", "near0", "--probe-from", &from, "--seed", "7", "-o", rule.name()];
        let output = in_near(&card, &[&arguments[..], more].concat());
        let (said, wrong) =
            (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert_eq!(output.status.code(), Some(0), "{said}{wrong}");
        assert!(more.len() == 1 || said.contains("hash      Toeplitz under one key\n"), "{said}");
    }
    let hashed = |rule: &File, flow: &Flow| {
        let [src, dst] = [(flow.src, flow.src_port), (flow.dst, flow.dst_port)]
            .map(|end| SocketAddr::from(end).to_string());
        let value = json("rss-v1", &["rss", "hash", &src, &dst, "--udp", "--rss", rule.name()]);
        (value["hash"].as_u64().unwrap() as u32, value["bucket"].as_u64().unwrap() as u16)
    };
    let key = Key::new(&config.rules.key).unwrap();
    let toeplitz = flowlane_rss::Toeplitz::new(&key);
    for i in 0..12 {
        let flow = Flow { protocol: Protocol::UDP, ..traffic(i) };
        let (std::net::IpAddr::V4(src), std::net::IpAddr::V4(dst)) = (flow.src, flow.dst) else { panic!() };
        let hash = toeplitz.hash_v4_ports(src, dst, flow.src_port, flow.dst_port);
        let queue = config.rules.table[hash as usize % 128];
        assert_eq!(hashed(&rules[0], &flow), (hash, queue));
        assert_eq!(hashed(&rules[1], &flow).1, queue);
    }
    // An interface that is not at the other end, and one that there is not.
    card.near().unwrap().ip("link set lo up").unwrap();
    let output = in_near(&card, &["rss", "learn", "near0", "--probe-from", "lo", "--probes", "300"]);
    assert_eq!(output.status.code(), Some(2), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(String::from_utf8_lossy(&output.stderr).contains("the other end of the cable"));
    let output = in_near(&card, &["rss", "learn", "near0", "--probe-from", "far0@no-such-namespace"]);
    assert_eq!(output.status.code(), Some(2));
}

/// Probes of another machine: one command there, one here, and a seed that both are given.
#[test]
fn probes_of_another_machine() {
    if !can_run() {
        return;
    }
    let mut config = CardConfig::for_test("lrf", 4);
    config.rules.key =
        Key::from_hex(&"9d1c4570d66e13a88f2a9355cd07b4e7".repeat(3)[..80]).unwrap().as_bytes().to_vec();
    config.rules.table = (0..128).map(|slot| [0, 3, 1, 1, 2, 0, 3, 2, 2, 1][slot % 10]).collect();
    config.rules.udp_ports = true;
    let card = flowlane_testnet::Card::new(&config).unwrap();
    let mut command = Command::new("ip");
    command.args([
        "netns",
        "exec",
        card.far().name(),
        env!("CARGO_BIN_EXE_flowlane"),
        "rss",
        "probes",
        "far0",
    ]);
    let mut far = command
        .args(["--seed", "42", "--for", "10m", "--rate", "5000"])
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let rule = File::new("far.rule");
    let learned = in_near(
        &card,
        &["rss", "learn", "near0", "--far-probes", "42", "--for", "60s", "--slots", "128", "-o", rule.name()],
    );
    // Those of another seed are not taken for them.
    let others = in_near(&card, &["rss", "learn", "near0", "--far-probes", "43", "--for", "300ms"]);
    rustix::process::kill_process(rustix::process::Pid::from_child(&far), rustix::process::Signal::INT)
        .unwrap();
    let mut sent = String::new();
    std::io::Read::read_to_string(far.stdout.as_mut().unwrap(), &mut sent).unwrap();
    assert!(
        far.wait().unwrap().success() && sent.contains("probes sent on far0: the set of seed 42"),
        "{sent}"
    );
    let (said, wrong) = (String::from_utf8_lossy(&learned.stdout), String::from_utf8_lossy(&learned.stderr));
    assert_eq!(learned.status.code(), Some(0), "{said}{wrong}");
    assert!(said.contains("2880 of 2880 probes of seed 42"), "{said}");
    assert!(said.contains("hash      Toeplitz under one key\n"), "{said}");
    let wrong = String::from_utf8_lossy(&others.stderr);
    assert_eq!((others.status.code(), wrong.lines().count()), (Some(1), 1), "{wrong}");
    let toeplitz = flowlane_rss::Toeplitz::new(&Key::new(&config.rules.key).unwrap());
    for i in 0..12 {
        let flow = Flow { protocol: Protocol::UDP, ..traffic(i) };
        let (std::net::IpAddr::V4(src), std::net::IpAddr::V4(dst)) = (flow.src, flow.dst) else { panic!() };
        let hash = toeplitz.hash_v4_ports(src, dst, flow.src_port, flow.dst_port);
        let ends = [(flow.src, flow.src_port), (flow.dst, flow.dst_port)]
            .map(|end| SocketAddr::from(end).to_string());
        let value = json("rss-v1", &["rss", "hash", &ends[0], &ends[1], "--udp", "--rss", rule.name()]);
        let queue = config.rules.table[hash as usize % 128];
        assert_eq!(
            (value["hash"].as_u64(), value["bucket"].as_u64()),
            (Some(hash.into()), Some(queue.into()))
        );
    }
}

/// What comes by itself: datagrams of many ports between two hosts tell their kind of flows, and no other.
#[test]
fn a_live_link_by_looking() {
    if !can_run() {
        return;
    }
    let mut config = CardConfig::for_test("lok", 4);
    config.rules.key = MICROSOFT_KEY.to_vec();
    let card = flowlane_testnet::Card::new(&config).unwrap();
    let near = card.near().unwrap();
    near.ip("addr add 10.11.2.2/24 dev near0").unwrap();
    card.add_neighbour("10.11.2.2".parse().unwrap()).unwrap();
    let (stop, stopped) = std::sync::mpsc::channel::<()>();
    let (begun, begin) = std::sync::mpsc::channel();
    let output = std::thread::scope(|scope| {
        let far = card.far();
        scope.spawn(move || {
            far.run(move || {
                let sockets: Vec<UdpSocket> =
                    (0..400).map(|_| UdpSocket::bind("0.0.0.0:0").unwrap()).collect();
                loop {
                    for (i, socket) in sockets.iter().enumerate() {
                        // Ports that nobody listens on are answered with an error.
                        let _ = socket.send_to(&[7; 18], ("10.11.2.2", 1000 + i as u16 * 7));
                    }
                    let _ = begun.send(());
                    let more = std::sync::mpsc::RecvTimeoutError::Timeout;
                    if stopped.recv_timeout(std::time::Duration::from_millis(20)) != Err(more) {
                        return;
                    }
                }
            })
            .unwrap();
        });
        begin.recv().unwrap();
        let output = in_near(&card, &["rss", "learn", "near0", "--for", "4s", "--json"]);
        let _ = stop.send(());
        output
    });
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{said}");
    let value: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(
        (&value["learned"], &value["kinds"][0]["kind"]),
        (&true.into(), &"udp-ipv4".into()),
        "{value}"
    );
    assert!(
        value["kinds"]
            .as_array()
            .unwrap()
            .iter()
            .any(|k| k["determined"].as_u64() < k["dimensions"].as_u64())
    );
}

/// So many streams, as many on each queue; too few ports are said.
#[test]
fn even_streams() {
    let plan = ["rss", "plan", "--to", "10.0.0.1:7", "--from", "10.0.0.2", "--of", "4", "--streams"];
    let value = json("rss-v1", &[&plan[..], &["10"]].concat());
    let sources = value["sources"].as_array().unwrap();
    let of = |bucket: u64| sources.iter().filter(|source| source["bucket"] == bucket).count();
    assert_eq!([of(0), of(1), of(2), of(3)], [3, 3, 2, 2]);
    for source in sources {
        let from = format!("10.0.0.2:{}", source["port"]);
        let hashed = json("rss-v1", &["rss", "hash", &from, "10.0.0.1:7", "--buckets", "4"]);
        assert_eq!(hashed["bucket"], source["bucket"]);
    }
    let few = [&plan[..], &["4000", "--ports", "5000-5099"]].concat();
    let said = flowlane(&few);
    assert_eq!(said.status.code(), Some(1));
    assert!(
        String::from_utf8_lossy(&said.stderr)
            .contains("too few of the addresses and ports given reach bucket 0")
    );
    refused(&[&plan[..], &["0"]].concat(), 2);
    refused(&[&plan[..], &["4", "--count", "2"]].concat(), 2);
    assert!(
        refused(&["rss", "plan", "--to", "10.0.0.1:7", "--from", "10.0.0.2", "--card", "lo"], 2)
            .contains("--card lo")
    );
}

/// Sixty flows that one key puts on few queues, as a list: the key that is found is better, and does with them what was said.
#[test]
fn a_key_that_spreads_flows() {
    let flows: Vec<Flow> = (0..60).map(traffic).collect();
    let line = |flow: &Flow| {
        let [src, dst] = [(flow.src, flow.src_port), (flow.dst, flow.dst_port)]
            .map(|end| SocketAddr::from(end).to_string());
        format!("{src} {dst} {}\n", if flow.protocol == Protocol::UDP { "udp" } else { "tcp" })
    };
    let list = File::with(
        "flows.txt",
        format!("# flows\n{}", flows.iter().map(line).collect::<String>()).as_bytes(),
    );
    let capture = File::with(
        "flows.pcapng",
        &pcapng(&flows.iter().map(|f| (frame(f), None, None, 1)).collect::<Vec<_>>()),
    );
    let usual = ["rss", "plan", "--find-key", "--of", "4", "--udp-4tuple", "--seed", "1", "--flows"];
    let value = json("rss-v1", &[&usual[..], &[list.name()]].concat());
    assert_eq!(
        json("rss-v1", &[&usual[..], &[capture.name()]].concat()),
        value,
        "a list and a capture of the same flows"
    );
    let loads: Vec<u64> =
        value["load"].as_array().unwrap().iter().map(|row| row["flows"].as_u64().unwrap()).collect();
    assert_eq!((loads.iter().sum::<u64>(), loads.len()), (60, 4));
    assert!(loads.iter().all(|n| (12..=18).contains(n)), "{loads:?}");
    let key: Key = Key::from_hex(value["key"].as_str().unwrap()).unwrap();
    assert_eq!(value["hkey"].as_str().unwrap().replace(':', ""), key.to_string());
    let mut counted = [0; 4];
    for flow in &flows {
        let [src, dst] = [(flow.src, flow.src_port), (flow.dst, flow.dst_port)]
            .map(|end| SocketAddr::from(end).to_string());
        let udp = if flow.protocol == Protocol::UDP { "--udp" } else { "--tcp" };
        let arguments = [
            "rss",
            "hash",
            &src,
            &dst,
            udp,
            "--udp-4tuple",
            "--buckets",
            "4",
            "--key",
            value["key"].as_str().unwrap(),
        ];
        counted[json("rss-v1", &arguments)["bucket"].as_u64().unwrap() as usize] += 1;
    }
    assert_eq!(counted.to_vec(), loads);
    let page = text(&[&usual[..], &[list.name(), "--tries", "10"]].concat());
    // The lines are one word to a shell.
    let (_, command) = page.split_once("hkey \\\n").unwrap();
    assert_eq!(command.replace("\\\n", "").trim().split(':').count(), 40, "{page}");
    assert!(refused(&["rss", "plan", "--find-key"], 2).contains("--flows"));
    assert!(refused(&["rss", "plan", "--find-key", "--flows", "/nowhere"], 2).contains("/nowhere"));
    let bad = File::with("bad.txt", b"10.0.0.1:1 10.0.0.2:2\n10.0.0.1:1\n");
    assert!(refused(&[&usual[..], &[bad.name()]].concat(), 2).contains("line 2"));
    let empty = File::with("empty.txt", b"# nothing\n");
    assert!(refused(&[&usual[..], &[empty.name()]].concat(), 2).contains("no flow in it"));
}

/// From four queues in turn to three: three quarters of the slots that are not the same, and the flows of these.
#[test]
fn what_another_table_moves() {
    let flows: Vec<Flow> = (0..60).filter(|i| i % 4 != 0).map(traffic).collect();
    let capture = File::with(
        "moved.pcapng",
        &pcapng(&flows.iter().map(|f| (frame(f), None, None, 1)).collect::<Vec<_>>()),
    );
    let usual = ["rss", "plan", "--of", "4", "--flows", capture.name(), "--change-to"];
    let value = json("rss-v1", &[&usual[..], &["equal 3"]].concat());
    let wanted = (0..128).filter(|slot| slot % 4 != slot % 3).count();
    assert_eq!(value["moved-slots"].as_array().unwrap().len(), wanted);
    let mut moving = 0;
    for flow in &flows {
        let [src, dst] = [(flow.src, flow.src_port), (flow.dst, flow.dst_port)]
            .map(|end| SocketAddr::from(end).to_string());
        let slot = json("rss-v1", &["rss", "hash", &src, &dst])["slot"].as_u64().unwrap();
        moving += usize::from(slot % 4 != slot % 3);
    }
    assert_eq!(value["moved-flows"], moving);
    let page = text(&[&usual[..], &["weight 1 2 1 4"]].concat());
    assert!(page.contains("flows moved  "), "{page}");
    assert_eq!(
        json("rss-v1", &["rss", "plan", "--of", "4", "--change-to", "equal 4"])["moved-slots"],
        Value::Array(vec![])
    );
    assert!(refused(&[&usual[..], &["equal 0"]].concat(), 2).contains("equal 0"));
    assert!(refused(&[&usual[..], &["0,1"]].concat(), 2).contains("2 slots, and the table has 128"));
    refused(&["rss", "plan", "--change-to", "equal 4", "--to", "10.0.0.1:7"], 2);
}
