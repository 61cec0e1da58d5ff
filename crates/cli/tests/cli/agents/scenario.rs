//! Scenarios that agents make.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::Command;
use std::sync::atomic::Ordering;
use std::time::Duration;

use flowlane_testnet::Scratch;
use serde_json::{Value, json};

use super::kit::{Nats, refused, report, server};

/// Two pools, of which one takes steps, and a phase in which the rate grows.
fn scenario(url: &str, agents: &str) -> String {
    format!(
        "name = 'two kinds'
         rate = '300'
         phase = [{{ name = 'grow', duration = '1s', from = 0.0, to = 1.0, measured = true }}, {{ name = 'hold', duration = '1s' }}]
         {agents}
         [[pool]]
         name = 'pages'
         share = 2
         poisson = true
         connections = 7
         target = [{{ url = '{url}' }}]
         request = [{{ name = 'front', path = '/', weight = 3 }}, {{ name = 'search', path = '/search/{{{{counter}}}}' }}]
         [[pool]]
         name = 'shop'
         share = 1
         connections = 5
         target = [{{ url = '{url}' }}]
         step = [{{ name = 'in', path = '/in' }}, {{ name = 'out', path = '/out' }}]
         "
    )
}

fn counts(report: &Value, of: &str) -> Vec<(String, u64)> {
    let parts = report[of].as_array().unwrap();
    let count = |part: &Value| part["counts"]["sent"].as_u64().or(part["figures"]["sent"].as_u64()).unwrap();
    parts.iter().map(|part| (part["name"].as_str().unwrap_or_default().to_owned(), count(part))).collect()
}

/// A scenario names its agents, and these together send what one generator with as many lanes does: pool by pool and request by request.
// Long: every kind of scenario is run twice, by agents and by one generator.
#[test]
fn a_scenario_is_made_by_the_agents_that_it_names() {
    let Some(nats) = Nats::start(&[]) else { return };
    let scratch = Scratch::new("agents-scenario");
    let (address, heard) = server();
    let url = format!("http://{address}/");
    let [alone, together] = ["alone.toml", "together.toml"].map(|file| scratch.path(file));
    fs::write(&alone, scenario(&url, "")).unwrap();
    let table = format!("agents = {{ group = 'lab', number = 2, nats = '{}' }}", nats.url());
    fs::write(&together, scenario(&url, &table)).unwrap();
    let _agents = ["a", "b"].map(|name| nats.agent(name, &["--", "--workers", "1"]));
    let run = |file: &str, more: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_flowlane"));
        command.args(["load", "http", "--scenario", file, "--json", "--seed", "3"]).args(more);
        report(&command.output().unwrap())
    };
    let one = run(&alone, &["--workers", "2", "--no-pin"]);
    let before = heard.swap(0, Ordering::Relaxed);
    // The figures of the command line replace the scenario's at agents as well.
    for (more, times) in [(&[][..], 1), (&["-r", "600"], 2)] {
        heard.store(0, Ordering::Relaxed);
        let two = run(&together, more);
        assert_eq!(two["setup"]["name"], "two kinds");
        assert_eq!(two["agents"].as_array().unwrap().len(), 2);
        let answered = two["total"]["counts"]["answered"].as_u64().unwrap();
        assert_eq!(heard.load(Ordering::Relaxed), answered);
        if times == 1 {
            assert_eq!(answered, before, "as one generator");
            for of in ["pools", "phases"] {
                assert_eq!(two[of].as_array().unwrap().len(), 2, "{of}");
            }
            assert_eq!(counts(&two, "pools"), counts(&one, "pools"));
        } else {
            assert!(answered.abs_diff(2 * before) < before / 2, "{answered} of {before}");
        }
    }
    // Agents named on the command line come before the scenario's.
    refused(
        nats.load(&["--scenario", &together, "--agents", "nobody", "--agent-wait", "100ms"]),
        2,
        "no agent answers",
    );
}

#[test]
fn what_a_scenario_cannot_ask_of_agents_is_refused_in_one_line() {
    let Some(nats) = Nats::start(&[]) else { return };
    let scratch = Scratch::new("agents-scenario-no");
    let file = scratch.path("s.toml");
    let with = |agents: &str, pool: &str| {
        fs::write(
            &file,
            format!("{agents}\n[[pool]]\ntarget = [{{ url = 'http://127.0.0.1:9/' }}]\n{pool}\n"),
        )
        .unwrap();
    };
    with("", "request = [{ body-file = '/dev/null' }]");
    refused(
        nats.load(&["--scenario", &file, "--agents", "lab"]),
        2,
        "s.toml: line 4, column 26: body-file: not with agents",
    );
    with("agents = { group = 'lab', loss = 'stop' }", "");
    refused(nats.load(&["--scenario", &file]), 2, "s.toml: [agents]: loss = \"stop\": fail, go-on or share");
    with("agents = { group = '*' }", "");
    refused(nats.load(&["--scenario", &file]), 2, "[agents]");
    with("agents = { number = 2 }", "");
    refused(nats.load(&["--scenario", &file]), 2, "line 1");
    with("agents = { group = 'lab' }", "");
    refused(nats.load(&["--scenario", &file]), 2, "no agent answers");
    refused(nats.load(&["--scenario", &file, "--link", "tap:x"]), 2, "--link: not with --agents");
    with("", &format!("# {}", "x".repeat(300 << 10)));
    let _agent = nats.agent("a", &["--", "--workers", "1"]);
    refused(nats.load(&["--scenario", &file, "--agents", "lab:1"]), 2, "256 KiB");
}

/// Somebody who speaks to an agent over the bus without this program, and the number of the last question.
struct Stranger(BufReader<TcpStream>, u64);

impl Stranger {
    fn at(nats: &Nats) -> Self {
        let mut stream = TcpStream::connect(("127.0.0.1", nats.port)).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(1))).unwrap();
        stream.write_all(b"CONNECT {\"verbose\":false}\r\nSUB inbox.* 1\r\n").unwrap();
        Self(BufReader::new(stream), 0)
    }

    /// What is answered to this. It is asked again until then, since the bus drops what nobody has subscribed to yet.
    fn asks(&mut self, subject: &str, ask: &Value) -> Value {
        self.1 += 1;
        let (inbox, text) = (format!("inbox.{}", self.1), ask.to_string());
        let question = format!("PUB {subject} {inbox} {}\r\n{text}\r\n", text.len());
        let stream = self.0.get_mut();
        stream.write_all(question.as_bytes()).unwrap();
        let mut line = String::new();
        loop {
            match self.0.read_line(&mut line) {
                Ok(n) => assert!(n > 0, "the server has closed"),
                Err(e) if e.kind() == std::io::ErrorKind::WouldBlock => {
                    self.0.get_mut().write_all(question.as_bytes()).unwrap();
                    continue;
                }
                Err(e) => panic!("{e}"),
            }
            let words = std::mem::take(&mut line);
            let words: Vec<&str> = words.split_whitespace().collect();
            let ["MSG", to, .., len] = words[..] else { continue };
            let mut answer = vec![0; len.parse().unwrap()];
            self.0.read_exact(&mut answer).unwrap();
            // Others are further answers to what was asked twice.
            if to == inbox {
                let first = answer.split(|b| *b == b'\n').next().unwrap();
                return serde_json::from_slice(first).unwrap();
            }
        }
    }
}

/// An agent looks at a scenario by itself, whoever sent it: no file of its machine is opened, and --only holds.
#[test]
fn a_strangers_scenario_reads_no_file() {
    let Some(nats) = Nats::start(&[]) else { return };
    let (address, heard) = server();
    let mut agent = nats.agent("a", &["--only", "10.0.0.0/8", "--", "--workers", "1"]);
    let mut stranger = Stranger::at(&nats);
    let here = stranger.asks("flowlane.lab.call", &json!({ "ask": "who" }));
    let subject = format!("flowlane.lab.agent.{}", here["id"].as_str().unwrap());
    let to = format!("[[pool]]\ntarget = [{{ url = 'http://{address}/' }}]\n");
    for (i, (scenario, options, word)) in [
        (
            format!("{to}request = [{{ body-file = '/etc/hostname' }}]"),
            json!([]),
            "body-file: not with agents",
        ),
        (
            format!("{to}data = '/etc/passwd'\nrequest = [{{ path = '/{{{{name}}}}' }}]"),
            json!([]),
            "data: not with agents",
        ),
        (format!("{to}unix-socket = '/run/x'"), json!([]), "unix-socket: not with agents"),
        (to.clone(), json!(["--scenario=/etc/passwd"]), "--scenario"),
        (to.clone(), json!([]), "sends to 127.0.0.1 for nobody (its --only)"),
        ("nonsense".into(), json!([]), "line 1"),
    ]
    .into_iter()
    .enumerate()
    {
        let run = format!("r{i}");
        let work = json!({
            "program": here["program"], "protocol": here["protocol"], "load": "http", "options": options,
            "scenario": scenario, "patience-ms": 5000,
        });
        let answer = stranger.asks(&subject, &json!({ "ask": "prepare", "run": run, "work": work }));
        assert_eq!(answer["answer"], "done", "{answer}");
        let said = agent.hear("the run has failed");
        assert!(said.contains(word), "'{word}' in {said}");
        stranger.asks(&subject, &json!({ "ask": "done", "run": run }));
    }
    assert_eq!(heard.load(Ordering::Relaxed), 0);
}
