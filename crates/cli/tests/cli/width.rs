//! Everything that is printed for people fits a terminal of 80 columns.
//!
//! Two kinds of lines are not asked: those that begin with `flowlane: `, which say one thing in one line for people and programs (errors,
//! and what a service says when it begins) and which the terminal folds; and rows with two addresses of IPv6, which are not cut.

use flowlane_testnet::{Program, free_port};
use std::path::PathBuf;
use std::process::{Command, Stdio};

const COLUMNS: usize = 80;

fn flowlane(arguments: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_flowlane"));
    command
        .args(arguments.split_whitespace())
        .stdin(Stdio::null())
        .env("COLUMNS", "80")
        .env_remove("RUST_LOG");
    command
}

/// Columns that a line takes: tabulators go to the next multiple of eight, and every other character takes one.
fn columns(line: &str) -> usize {
    line.chars().fold(0, |at, c| if c == '\t' { (at / 8 + 1) * 8 } else { at + 1 })
}

/// Lines that are too wide.
fn wide(what: &str, text: &str) -> Vec<String> {
    let asked = text.lines().filter(|line| !line.starts_with("flowlane: "));
    let wide = asked.filter(|line| columns(line) > COLUMNS);
    wide.map(|line| format!("{what}: {} columns: {line}", columns(line))).collect()
}

/// Runs it to its end; what it printed on both ways out, which is something.
fn printed(arguments: &str) -> String {
    let output = flowlane(arguments).output().unwrap();
    let text = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
    assert!(!text.is_empty(), "{arguments}");
    text
}

fn none(wide: &[String]) {
    assert!(wide.is_empty(), "{}", wide.join("\n"));
}

/// Every page of help, and how many there are.
fn help(command: &str, wides: &mut Vec<String>) -> usize {
    let page = printed(&format!("{command} --help"));
    wides.extend(wide(&format!("{command} --help"), &page));
    wides.extend(wide(&format!("{command} -h"), &printed(&format!("{command} -h"))));
    let commands = page.lines().skip_while(|l| *l != "Commands:").skip(1).take_while(|l| l.starts_with("  "));
    let names = commands.filter(|l| !l.starts_with("   ")).filter_map(|l| l.split_whitespace().next());
    1 + names
        .filter(|name| *name != "help")
        .map(|name| help(&format!("{command} {name}"), wides))
        .sum::<usize>()
}

#[test]
fn help_fits() {
    let mut wides = Vec::new();
    let pages = help("", &mut wides);
    none(&wides);
    assert!(pages > 25, "{pages}");
}

#[test]
fn answers_fit() {
    let dir = std::env::temp_dir().join(format!("flowlane-width-{}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    let [a, b] = ["a.json", "b.json"].map(|name| dir.join(name).to_str().unwrap().to_owned());
    let six = "[3ffe:1900:4545:3:200:f8ff:fe21:67cf]:44251 [fe80:1900:4545:3:200:f8ff:fe21:67cf]:38024";
    let commands = [
        "rss hash 66.9.149.187:2794 161.142.100.80:1766",
        "rss hash 66.9.149.187:2794 161.142.100.80:1766 --udp",
        "rss hash 66.9.149.187:2794 161.142.100.80:1766 --udp --udp-4tuple --key random",
        "rss hash 66.9.149.187:2794 161.142.100.80:1766 --fragment --key symmetric",
        "rss hash 66.9.149.187 161.142.100.80",
        &format!("rss hash {six}"),
        &format!("rss hash {six} --udp --fragment"),
        "rss plan --to 10.11.2.1:8080 --from 10.11.2.2 --workers 4",
        "rss plan --to 10.11.2.1:8080 --from 10.11.2.2 --workers 4 --replies",
        "rss plan --to 10.11.2.1:8080 --from 10.11.0.0/16 --udp",
        "rss plan --to [3ffe:1900:4545:3:200:f8ff:fe21:67cf]:8080 --from 3ffe:1900:4545:3:200:f8ff:fe21:1",
        "rss key",
        "rss key --judge microsoft",
        "rss key --judge symmetric",
        "rss key --judge symmetric --buckets 128 --slots 128",
        "demo --duration 100ms --workers 1",
        "bench hash --rounds 2 --round-ms 1",
        "bench pool --rounds 2 --round-ms 1",
        "bench netisr --rounds 2 --round-ms 1",
        "bench tcp --only idle --idle 100 --rounds 2",
        "load udp 127.0.0.1:9 -r 100 -d 100ms --link kernel",
        "load tcp 127.0.0.1:1 -c 2 -d 100ms --link kernel",
        "load http http://127.0.0.1:1/ -c 2 -d 100ms",
        &format!("load http http://10.0.0.1/ --link pair -c 2 -d 300ms --save {a}"),
        &format!(
            "load http http://10.0.0.1/ --link pair -c 2 -r 100 -d 1100ms --lines --fail p99>10s --save {b}"
        ),
        &format!("load compare {a} {b}"),
        &format!("load compare {a} {a} {a} -- {a} {a} {a}"),
    ];
    let wides: Vec<String> = commands.iter().flat_map(|command| wide(command, &printed(command))).collect();
    std::fs::remove_dir_all(&dir).unwrap();
    none(&wides);
}

/// A service on loopback that is asked over its control socket.
struct Service {
    program: Program,
    control: PathBuf,
    port: u16,
}

impl Service {
    fn start(kind: &str) -> Self {
        let port = free_port();
        let control = std::env::temp_dir().join(format!("flowlane-width-{kind}-{}", std::process::id()));
        let arguments = format!(
            "serve {kind} --link kernel --port {port} --interval 200ms --control {}",
            control.display()
        );
        Self { program: Program::ready(flowlane(&arguments), " port "), control, port }
    }
}

#[test]
fn services_and_what_stat_says_of_them_fit() {
    let mut wides = Vec::new();
    for (kind, load) in [
        ("udp-echo", "load udp 127.0.0.1:PORT -r 100 -d 300ms --link kernel"),
        ("tcp-echo", "load tcp 127.0.0.1:PORT -c 2 -d 300ms --link kernel"),
        ("tcp-source", "load tcp 127.0.0.1:PORT --mode source -c 2 -d 300ms --link kernel"),
        ("http", "load http http://127.0.0.1:PORT/ -c 2 -d 300ms"),
    ] {
        let service = Service::start(kind);
        let load = load.replace("PORT", &service.port.to_string());
        wides.extend(wide(&load, &printed(&load)));
        for letters in ["", "-s", "-ss", "-Q", "-a", "-R", "-a -R", "-s -p tcp"] {
            let stat = format!("stat {letters} --control {}", service.control.display());
            let output = flowlane(&stat).output().unwrap();
            assert!(output.status.success(), "{stat}: {}", String::from_utf8_lossy(&output.stderr));
            wides.extend(wide(&format!("{kind}: {stat}"), &String::from_utf8(output.stdout).unwrap()));
        }
        let summary = service.program.interrupt();
        assert!(!summary.is_empty());
        wides.extend(wide(&format!("serve {kind}"), &summary));
    }
    none(&wides);
}
