//! `--push`: what comes to a receiver is what the report says, for each kind of load; and receivers that are slow, away or against it change
//! nothing but the report's line of them.

pub(crate) mod fetched;
pub(crate) mod receiver;

use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use flowlane_testnet::{Program, Scratch, eventually, free_port};
use rustix::process::Signal;
use serde_json::Value;

use crate::metrics::{Prometheus, is_there};

use self::receiver::{AllSeries, Answer, Receiver, total};

/// `flowlane serve ...` on a port of the loopback, and its address.
fn serve(line: &str, ready: &str) -> (Program, String) {
    let port = free_port();
    let mut command = Command::new(env!("CARGO_BIN_EXE_flowlane"));
    command.arg("serve").args(line.split_whitespace()).args(["--addr", "127.0.0.1/8", "--no-pin", "--port"]);
    command.arg(port.to_string()).stdin(Stdio::null());
    (Program::ready(command, ready), format!("127.0.0.1:{port}"))
}

fn load(line: &str, more: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_flowlane"));
    command.arg("load").args(line.split_whitespace()).args(["--json", "--quiet", "--no-pin"]).args(more);
    command.stdin(Stdio::null()).env_remove("OTEL_EXPORTER_OTLP_HEADERS");
    command
}

pub(crate) fn report(output: &Output) -> Value {
    let report = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|e| panic!("{e}: {}", String::from_utf8_lossy(&output.stderr)));
    assert_eq!(flowlane_schema::faults("load-run", &report), [""; 0]);
    report
}

/// A count of a part, measured or not.
fn count(part: &Value, name: &str) -> f64 {
    part["counts"][name].as_f64().unwrap() + part["unmeasured"][name].as_f64().unwrap()
}

/// The figures of a receiver's last push are those of the report, pool by pool.
pub(crate) fn agrees(series: &AllSeries, report: &Value) {
    for pool in report["pools"].as_array().unwrap() {
        let label = format!("pool={}", pool["name"]);
        let of_pool: AllSeries =
            series.iter().filter(|(key, _)| key.contains(&label)).map(|(k, v)| (k.clone(), *v)).collect();
        for (figure, name) in [
            ("requests_sent_total", "sent"),
            ("requests_answered_total", "answered"),
            ("requests_failed_total", "failed"),
            ("errors_total", "failed"),
            ("requests_unsent_total", "unsent"),
            ("requests_held_up_total", "held-up"),
            ("sent_bytes_total", "bytes-sent"),
            ("received_bytes_total", "bytes-received"),
            ("connections_opened_total", "connections-opened"),
            ("connections_closed_total", "connections-closed"),
        ] {
            assert_eq!(
                total(&of_pool, &format!("flowlane_load_{figure}")),
                count(pool, name),
                "{figure}: {of_pool:#?}"
            );
        }
        let timeouts = |part: &Value| part["errors"]["timeout"]["count"].as_f64().unwrap_or(0.0);
        let waited = timeouts(&pool["counts"]) + timeouts(&pool["unmeasured"]);
        let times = total(&of_pool, "flowlane_load_latency_seconds_count");
        assert_eq!(times, count(pool, "answered") + waited, "{of_pool:#?}");
    }
}

/// No counter ever goes back.
fn grows(series: &[AllSeries]) {
    for pair in series.windows(2) {
        for (key, before) in pair[0].iter().filter(|(key, _)| !key.contains("concurrency")) {
            assert!(
                pair[1].get(key).is_some_and(|after| after >= before),
                "{key}: {before} {:?}",
                pair[1].get(key)
            );
        }
    }
}

#[test]
fn the_last_push_has_the_counts_of_the_report() {
    let (_server, address) = serve("http", "http on 127.0.0.1");
    let (otlp, prometheus) = (Receiver::glad(), Receiver::glad());
    let line = format!(
        "http http://{address}/size/10 -r 300 -c 4 -d 1500ms --warm-up 500ms --slip-budget 1h --push-every 100ms"
    );
    let output = load(&line, &["--push", &otlp.otlp(), "--push", &prometheus.prometheus()]).output().unwrap();
    let said = report(&output);
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(said["total"]["unmeasured"]["sent"].as_u64().unwrap() > 0, "{said}");
    for (i, receiver) in [&otlp, &prometheus].into_iter().enumerate() {
        let series = receiver.series();
        // Twenty in two seconds on a machine with time for it.
        assert!(series.len() >= 5, "{}", series.len());
        assert_eq!(total(&series[0], "flowlane_load_requests_sent_total"), 0.0);
        grows(&series);
        let last = series.last().unwrap();
        agrees(last, &said);
        assert_eq!(total(last, "flowlane_load_answers_total"), count(&said["total"], "answered"));
        // While it runs the whole seconds are known.
        let before = |series: &AllSeries| total(series, "flowlane_load_latency_seconds_count") >= 200.0;
        assert!(series[..series.len() - 1].iter().any(before), "{:#?}", series[series.len() - 2]);
        let pushed = &said["pushes"][i];
        assert_eq!((pushed["taken"].as_u64(), &pushed["failed"]), (Some(series.len() as u64), &0.into()));
        assert_eq!(pushed["complete"], true);
        let instance = pushed["instance"].as_str().unwrap();
        assert!(instance.len() == 36 && last.keys().all(|key| key.contains(instance)), "{instance}");
        assert!(last.keys().all(|key| key.contains("job=\"flowlane\"")));
    }
    let head = |receiver: &Receiver| receiver.pushes()[0].head.to_ascii_lowercase();
    assert!(head(&prometheus).contains("content-encoding: snappy"), "{}", head(&prometheus));
    assert!(head(&prometheus).contains("x-prometheus-remote-write-version: 0.1.0"));
    for (receiver, path) in [(&otlp, "/v1/metrics"), (&prometheus, "/api/v1/write")] {
        assert!(head(receiver).contains("content-type: application/x-protobuf"));
        assert_eq!(receiver.pushes()[0].path, path);
    }
}

#[test]
fn each_kind_of_load_pushes() {
    for (serve_line, ready, line) in [
        ("tcp-echo", "tcp-echo on", "tcp ADDRESS -c 4 --rate 400 --size 64"),
        ("udp-echo", "udp-echo on", "udp ADDRESS --rate 400"),
        ("memcached", "memcached on", "memcached ADDRESS -c 4 --rate 400 --keys 10 --fill"),
        ("http", "http on", "ws ws://ADDRESS/ws -c 4 --rate 400"),
    ] {
        let (_server, address) = serve(serve_line, ready);
        let receiver = Receiver::glad();
        let line = format!("{} -d 700ms --warm-up 300ms --slip-budget 1h", line.replace("ADDRESS", &address));
        let output =
            load(&line, &["--push", &receiver.prometheus(), "--push", &receiver.otlp()]).output().unwrap();
        let said = report(&output);
        assert_eq!(output.status.code(), Some(0), "{line}: {}", String::from_utf8_lossy(&output.stderr));
        let series = receiver.series();
        // The first and the last, both ways.
        assert_eq!(series.len(), 4, "{line}");
        series[2..].iter().for_each(|last| agrees(last, &said));
        assert!(total(&series[3], "flowlane_load_requests_answered_total") > 300.0, "{line}: {said}");
    }
}

#[test]
fn pools_of_a_scenario_are_told_apart() {
    let (_server, address) = serve("http", "http on 127.0.0.1");
    let scratch = Scratch::new("push-scenario");
    let file = scratch.path("two.toml");
    let pool = |name: &str, path: &str| {
        let (target, request) = (
            format!("target = [{{ url = \"http://{address}/\" }}]"),
            format!("request = [{{ path = \"{path}\" }}]"),
        );
        format!("[[pool]]\nname = \"{name}\"\nrate = \"100\"\n{target}\n{request}\n")
    };
    let phase = "[[phase]]\nduration = \"500ms\"\n";
    std::fs::write(&file, format!("{phase}{}{}", pool("good", "/"), pool("bad", "/status/404"))).unwrap();
    let receiver = Receiver::glad();
    let line = format!("http --scenario {file} --slip-budget 1h");
    let said = report(&load(&line, &["--push", &receiver.otlp()]).output().unwrap());
    let series = receiver.series();
    agrees(series.last().unwrap(), &said);
    let bad = series.last().unwrap().iter().find(|(key, _)| key.contains("code=\"404\""));
    assert!(bad.is_some_and(|(key, count)| key.contains("pool=\"bad\"") && *count >= 49.0), "{bad:?}");
}

#[test]
fn what_is_busy_is_asked_again_and_what_refuses_is_not() {
    let (_server, address) = serve("http", "http on 127.0.0.1");
    let line = format!("http http://{address}/ -r 100 -d 3s --slip-budget 1h --push-every 1h");
    let busy = |number| Answer::Status(if number == 0 { 503 } else { 200 }, "");
    let (busy_otlp, busy_prometheus) = (Receiver::start(busy), Receiver::start(busy));
    let against = Receiver::start(|_| Answer::Status(400, ""));
    let more = [busy_otlp.otlp(), busy_prometheus.prometheus(), against.otlp(), against.prometheus()];
    let more: Vec<&str> = more.iter().flat_map(|to| ["--push", to]).collect();
    let output = load(&line, &more).output().unwrap();
    let said = report(&output);
    // Whatever becomes of pushes, the run was made.
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    for (i, receiver) in [busy_otlp, busy_prometheus].iter().enumerate() {
        let pushed = &said["pushes"][i];
        assert_eq!(
            (&pushed["taken"], &pushed["failed"], &pushed["complete"]),
            (&2.into(), &1.into(), &true.into())
        );
        assert_eq!(pushed["last-error"], "answer 503: so it is");
        agrees(receiver.series().last().unwrap(), &said);
    }
    for pushed in &said["pushes"].as_array().unwrap()[2..] {
        assert_eq!(
            (&pushed["taken"], &pushed["failed"], &pushed["complete"]),
            (&0.into(), &2.into(), &false.into())
        );
        assert_eq!(pushed["last-error"], "answer 400: so it is");
    }
    assert_eq!(against.pushes().len(), 4);
}

// Long: the last push is waited for as long as it may take.
#[test]
fn receivers_that_hang_or_are_away_end_no_run_late() {
    let (_server, address) = serve("http", "http on 127.0.0.1");
    let hangs = Receiver::start(|_| Answer::Nothing);
    let later = Receiver::start(|_| Answer::Status(503, "Retry-After: 3600\r\n"));
    let away = format!("prometheus=http://127.0.0.1:{}", free_port());
    let line = format!("http http://{address}/ -r 100 -d 500ms --slip-budget 1h --push-every 100ms");
    let more = [hangs.otlp(), hangs.prometheus(), away, later.otlp()];
    let more: Vec<&str> = more.iter().flat_map(|to| ["--push", to]).collect();
    let begun = Instant::now();
    let output = load(&line, &more).output().unwrap();
    let said = report(&output);
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(begun.elapsed().as_secs() < 20, "{:?}", begun.elapsed());
    assert!(count(&said["total"], "answered") > 0.0, "{said}");
    let pushes = said["pushes"].as_array().unwrap();
    for (pushed, word) in pushes.iter().zip(["no answer within", "no answer within", "refused", "answer 503"])
    {
        assert_eq!((&pushed["taken"], &pushed["complete"]), (&0.into(), &false.into()), "{pushed}");
        assert!(pushed["last-error"].as_str().unwrap().contains(word), "{pushed}");
    }
    // One that wants to be left alone for an hour has the first and the last.
    assert!((1..=2).contains(&later.pushes().len()), "{}", later.pushes().len());
}

#[test]
fn a_run_that_is_interrupted_pushes_what_it_had() {
    let (_server, address) = serve("http", "http on 127.0.0.1");
    let receiver = Receiver::glad();
    let line = format!("http http://{address}/ -r 200 -d 60s --slip-budget 1h --push-every 100ms");
    let scratch = Scratch::new("push-interrupt");
    let file = scratch.path("run.json");
    let program = Program::start(load(&line, &["--push", &receiver.prometheus(), "--save", &file]));
    let sent = || total(receiver.series().last().unwrap(), "flowlane_load_requests_sent_total");
    eventually("it has begun", || !receiver.pushes().is_empty() && sent() > 50.0);
    // Neither the run's threads nor the one that pushes may do what others may not.
    flowlane_testnet::assert_no_privileges(program.id());
    program.signal(Signal::INT);
    assert_eq!(program.end().status.code(), Some(130));
    let said: Value = serde_json::from_str(&std::fs::read_to_string(&file).unwrap()).unwrap();
    agrees(receiver.series().last().unwrap(), &said);
    assert_eq!(said["pushes"][0]["complete"], true);
}

/// Whoever ends the run does not wait for a receiver that has said nothing in all of it.
#[test]
fn a_run_that_is_interrupted_does_not_wait_for_who_has_taken_nothing() {
    let (_server, address) = serve("http", "http on 127.0.0.1");
    let silent = Receiver::start(|_| Answer::Nothing);
    let line = format!("http http://{address}/ -r 200 -d 60s --slip-budget 1h --push-every 100ms");
    let program = Program::start(load(&line, &["--push", &silent.otlp()]));
    eventually("it pushes", || !silent.pushes().is_empty());
    let begun = Instant::now();
    program.signal(Signal::INT);
    let ended = program.end();
    assert_eq!(ended.status.code(), Some(130), "{:?}", ended.said);
    // Less than FAREWELL.
    assert!(begun.elapsed() < Duration::from_millis(4900), "{:?}", begun.elapsed());
    let said: Value = serde_json::from_str(&ended.printed).unwrap();
    assert_eq!((&said["pushes"][0]["taken"], &said["pushes"][0]["complete"]), (&0.into(), &false.into()));
}

#[test]
fn tokens_and_labels_go_where_they_are_meant_to() {
    let (_server, address) = serve("http", "http on 127.0.0.1");
    let scratch = Scratch::new("push-headers");
    let file = scratch.path("headers");
    std::fs::write(&file, "Authorization: Bearer s3cret\nX-Scope-OrgID: team\n").unwrap();
    let (otlp, prometheus) = (Receiver::glad(), Receiver::glad());
    let with_user = format!("prometheus=http://me:p%40ss@{}/write", prometheus.address);
    let line = format!("http http://{address}/ -n 20 -c 1");
    let given = ["--push", &otlp.otlp(), "--push-header", &format!("@{file}"), "--push-label", "testid=7"];
    let output = load(&line, &given).env("OTEL_EXPORTER_OTLP_HEADERS", "api-key=a%3Db").output().unwrap();
    agrees(otlp.series().last().unwrap(), &report(&output));
    let head = otlp.pushes()[0].head.to_ascii_lowercase();
    for line in ["authorization: bearer s3cret", "x-scope-orgid: team", "api-key: a=b"] {
        assert!(head.contains(line), "{line} in {head}");
    }
    assert!(otlp.series()[0].keys().all(|key| key.contains("testid=\"7\"")));
    let given = ["--push", &with_user, "--push-label", "instance=here", "--push-label", "job=nightly"];
    let output = load(&line, &given).env("OTEL_EXPORTER_OTLP_HEADERS", "api-key=a%3Db").output().unwrap();
    let said = report(&output);
    let push = &prometheus.pushes()[0];
    // The base 64 of "me:p@ss".
    assert!(push.head.contains("Basic bWU6cEBzcw==") && !push.head.contains("api-key"), "{}", push.head);
    assert_eq!((push.path.as_str(), &said["pushes"][0]["instance"]), ("/write", &"here".into()));
    assert!(!said.to_string().contains("p%40ss"), "{said}");
    assert!(prometheus.series()[0].keys().all(|key| key.contains("instance=\"here\",job=\"nightly\"")));
}

#[test]
fn what_cannot_be_meant_is_refused_before_anything_starts() {
    let receiver = Receiver::glad();
    let to = receiver.otlp();
    let scratch = Scratch::new("push-refused");
    let file = scratch.path("headers");
    std::fs::write(&file, "no header\n").unwrap();
    let at_file = format!("@{file}");
    for (given, word) in [
        (&["--push", "http://127.0.0.1:1"][..], "KIND=URL"),
        (&["--push", "otlp=127.0.0.1:1"], "scheme"),
        (&["--push", "otlp=ftp://a"], "http"),
        (&["--push", &to, "--push-header", "secret"], "NAME: VALUE"),
        (&["--push", &to, "--push-header", "Content-Type: x"], "content-type"),
        (&["--push", &to, "--push-header", "@/no/such/file"], "/no/such/file"),
        (&["--push", &to, "--push-header", &at_file], "NAME: VALUE"),
        (&["--push", &to, "--push-label", "pool=x"], "pool=x"),
        (&["--push", &to, "--push-every", "1ms"], "--push-every"),
        (&["--push-every", "1s"], "--push"),
        (&["--push", &to, "--find-rate", "p99 < 1s"], "--find-rate"),
    ] {
        let save = scratch.path("run.json");
        let output = load("http http://127.0.0.1:9/ -n 1", &[&["--save", save.as_str()], given].concat())
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{given:?}: {said}");
        assert!(said.to_lowercase().contains(&word.to_lowercase()), "{given:?}: '{word}' in {said}");
        assert!(!said.contains("secret") && !std::fs::exists(&save).unwrap(), "{given:?}: {said}");
    }
    assert!(receiver.pushes().is_empty());
}

/// A real Prometheus takes it, and has the counts of the report.
#[test]
fn prometheus_has_the_counts_of_the_report() {
    if !is_there("prometheus") {
        return;
    }
    let (_server, address) = serve("http", "http on 127.0.0.1");
    let prometheus = Prometheus::start("push-prometheus", &[]);
    // It listens before it takes anything.
    eventually("Prometheus answers", || prometheus.ask("vector(1)").is_ok_and(|series| !series.is_empty()));
    let line = format!("http http://{address}/size/10 -r 300 -c 4 -d 2s --slip-budget 1h --push-every 500ms");
    let said =
        report(&load(&line, &["--push", &format!("prometheus=http://{}", prometheus.at)]).output().unwrap());
    let pushed = &said["pushes"][0];
    assert_eq!((&pushed["failed"], &pushed["complete"]), (&0.into(), &true.into()), "{pushed}");
    let run = format!("{{job=\"flowlane\",instance={},pool=\"all\"}}", pushed["instance"]);
    let ask = |query: &str| {
        let found = prometheus.ask(&query.replace("RUN", &run)).unwrap();
        assert_eq!(found.len(), 1, "{query}: {found:?}");
        found[0]["value"][1].as_str().unwrap().parse::<f64>().unwrap()
    };
    for (query, expected) in [
        ("flowlane_load_requests_sent_totalRUN", count(&said["total"], "sent")),
        ("sum(flowlane_load_answers_totalRUN)", count(&said["total"], "answered")),
        ("flowlane_load_received_bytes_totalRUN", count(&said["total"], "bytes-received")),
        ("flowlane_load_latency_seconds_countRUN", count(&said["total"], "answered")),
    ] {
        assert_eq!(ask(query), expected, "{query}");
    }
    let p50 = ask("histogram_quantile(0.5, flowlane_load_latency_seconds_bucketRUN)");
    let ours = said["total"]["latency"]["p50"].as_f64().unwrap() / 1e9;
    assert!((ours / 1.6..ours * 1.6).contains(&p50), "{p50} {ours}");
}

/// Over TLS, to a server that sends back what comes; without its certificate among the authorities it is not trusted.
#[test]
fn receivers_over_tls_are_checked() {
    let (_server, address) = serve("http", "http on 127.0.0.1");
    let scratch = Scratch::new("push-tls");
    let file = scratch.path("cert.pem");
    let (_receiver, secure) = serve(&format!("http --tls --write-cert {file}"), "http on 127.0.0.1");
    let to = format!("prometheus=https://{}/echo", secure.replace("127.0.0.1", "localhost"));
    let run = || load(&format!("http http://{address}/ -n 20 -c 1"), &["--push", &to]);
    let said = report(&run().env("SSL_CERT_FILE", &file).output().unwrap());
    let pushed = &said["pushes"][0];
    assert_eq!((&pushed["failed"], &pushed["complete"]), (&0.into(), &true.into()), "{pushed}");
    let said = report(&run().output().unwrap());
    let pushed = &said["pushes"][0];
    assert_eq!((&pushed["taken"], &pushed["complete"]), (&0.into(), &false.into()), "{pushed}");
    assert!(pushed["last-error"].as_str().unwrap().contains("TLS handshake"), "{pushed}");
}
