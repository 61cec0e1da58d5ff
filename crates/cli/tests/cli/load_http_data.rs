//! `flowlane load http` with rows of a file, with flows of a scenario, and with streams of events: what it refuses, and what a server sees.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Command, Output, Stdio};
use std::sync::{Arc, Mutex};

use flowlane_testnet::{Program, Scratch, free_port};
use serde_json::Value;

fn load(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_flowlane"));
    command.args(["load", "http", "--no-pin", "--quiet"]).args(arguments).stdin(Stdio::null());
    command.output().unwrap()
}

fn refused(arguments: &[&str], words: &[&str]) {
    let output = load(arguments);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{arguments:?}: {stderr}");
    assert_eq!(stderr.lines().count(), 1, "{arguments:?}: {stderr}");
    assert!(words.iter().all(|word| stderr.contains(word)), "{arguments:?}: {words:?} in {stderr}");
    assert!(output.stdout.is_empty(), "{arguments:?}");
}

fn report(arguments: &[&str]) -> Value {
    let output = load(arguments);
    let report: Value = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|e| panic!("{arguments:?}: {e}: {}", String::from_utf8_lossy(&output.stderr)));
    assert_eq!(flowlane_schema::faults("load-run", &report), [""; 0]);
    report
}

/// As `curl --data-binary @-` does.
#[test]
fn a_body_comes_from_standard_input() {
    let (port, asked) = server();
    let mut command = Command::new(env!("CARGO_BIN_EXE_flowlane"));
    let url = format!("http://127.0.0.1:{port}/");
    command.args(["load", "http", "--no-pin", "-q", "-n", "2", "-c", "1", "--body-file", "-", &url]);
    let mut run = command.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
    run.stdin.take().unwrap().write_all(b"what is said").unwrap();
    assert!(run.wait().unwrap().success());
    let asked = asked.lock().unwrap();
    assert_eq!(asked.len(), 2);
    for request in asked.iter() {
        assert!(request.starts_with("POST / ") && request.ends_with("\r\n\r\nwhat is said"), "{request}");
    }
}

/// A server that answers `/login` with a token, and everything else with `hello`; what it was asked, whole.
fn server() -> (u16, Arc<Mutex<Vec<String>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (port, asked) = (listener.local_addr().unwrap().port(), Arc::new(Mutex::new(Vec::new())));
    let all = asked.clone();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let all = all.clone();
            std::thread::spawn(move || answer(stream.unwrap(), &all));
        }
    });
    (port, asked)
}

fn answer(mut stream: TcpStream, asked: &Mutex<Vec<String>>) {
    stream.set_nodelay(true).unwrap();
    let (mut held, mut buffer) = (String::new(), [0; 4096]);
    loop {
        match stream.read(&mut buffer) {
            Ok(n) if n > 0 => held.push_str(&String::from_utf8_lossy(&buffer[..n])),
            _ => return,
        }
        while let Some(end) = held.find("\r\n\r\n") {
            let length = held[..end].split("Content-Length: ").nth(1);
            let length: usize = length.map_or(0, |rest| rest.lines().next().unwrap().parse().unwrap());
            if held.len() < end + 4 + length {
                break;
            }
            let request: String = held.drain(..end + 4 + length).collect();
            let content = if request.contains(" /login ") {
                let user = request.rsplit("user=").next().unwrap_or_default();
                format!("{{\"token\": \"t-{user}\"}}")
            } else {
                "hello".to_owned()
            };
            asked.lock().unwrap().push(request);
            let n = asked.lock().unwrap().len();
            let head =
                format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\nSet-Cookie: n={n}\r\n\r\n", content.len());
            if stream.write_all((head + &content).as_bytes()).is_err() {
                return;
            }
        }
    }
}

#[test]
fn what_is_no_data_is_refused_in_one_line() {
    let dir = Scratch::new("load-http-data");
    let file = |name: &str, text: &str| {
        let path = dir.path(name);
        std::fs::write(&path, text).unwrap();
        path
    };
    let (users, empty, odd) =
        (file("users.csv", "name,mail\na,b\n"), file("empty.csv", ""), file("odd.csv", "a,b\n1\n"));
    let url = "http://127.0.0.1:9/{{name}}";
    for (arguments, words) in [
        (&[url, "--data", "/no/such/file"][..], &["--data /no/such/file: "][..]),
        (&[url, "--data", "/"], &["--data /", "directory"]),
        (&[url, "--data", "/dev/zero"], &["/dev/zero", "larger than 256 MiB"]),
        (&[url, "--data", &empty], &["empty.csv", "it is empty", "names the columns"]),
        (&[url, "--data", &odd], &["odd.csv", "line 2", "1 fields", "2 columns"]),
        (&["http://127.0.0.1:9/{{nam}}", "--data", &users], &["'nam'", "name, mail, counter"]),
        (&["http://127.0.0.1:9/", "--data", &users], &["no request uses a column", "name, mail"]),
        (&[url], &["'name'", "--data"]),
        (&["http://127.0.0.1:9/{{uuid", "-n", "1"], &["no }}", "{{{{"]),
        (&[url, "--data", &users, "--data-order", "sorted"], &["in-order, random, once, or share"]),
        (&[url, "--data", &users, "--data-order", "share", "-c", "2"], &["1 rows for 2 connections"]),
        (&[url, "--data", &users, "--pipeline", "2"], &["not with pipelining"]),
        (&[url, "--data-order", "once"], &["--data"]),
        (&["http://127.0.0.1:9/", "--events-end", "x"], &["--events"]),
        (&["http://127.0.0.1:9/", "--events", "--events-end", ""], &["--events-end", "one line"]),
    ] {
        refused(arguments, words);
    }
    // In a scenario, with the place.
    let scenario = |name: &str, pool: &str| {
        file(
            name,
            &format!("[[pool]]\nconnections = 1\ntarget = [{{ url = \"http://127.0.0.1:9/\" }}]\n{pool}\n"),
        )
    };
    for (name, pool, words) in [
        (
            "a.toml",
            "data = 'users.csv'\nrequest = [{ path = '/{{nam}}' }]",
            &["line 1, column 1", "'nam'", "name, mail"][..],
        ),
        ("b.toml", "data = 'none.csv'\nrequest = [{ path = '/{{x}}' }]", &["line 4, column 8", "none.csv"]),
        ("c.toml", "data = { file = 'users.csv', order = 'x' }", &["line 4, column 8", "in-order"]),
        ("d.toml", "request = [{}]\nstep = [{}]", &["line 5, column 9", "requests or steps"]),
        ("e.toml", "step = [{ capture = { x = { json = 'a' } } }]", &["line 4, column 27", "RFC 6901"]),
        (
            "f.toml",
            "request = [{ capture = { x = { json = '/a' } } }]",
            &["line 1, column 1", "are for steps"],
        ),
        (
            "g.toml",
            "step = [{ path = '/{{x}}' }, { capture = { x = { json = '/a' } } }]",
            &["nothing is called 'x'"],
        ),
        ("h.toml", "request = [{ events = { end = '' } }]", &["line 4, column 23", "one line"]),
    ] {
        refused(&["--scenario", &scenario(name, pool)], words);
    }
}

#[test]
fn rows_reach_the_server_and_the_run_ends_with_the_last() {
    let dir = Scratch::new("load-http-rows");
    let rows: String = (0..25).map(|n| format!("u{n},\"a \"\"{n}\"\"\"\n")).collect();
    let users = dir.path("users.csv");
    std::fs::write(&users, format!("name,word\n{rows}")).unwrap();
    let (port, asked) = server();
    let url = format!("http://127.0.0.1:{port}/u/{{{{name}}}}?w={{{{word}}}}");
    let data = ["--data", users.as_str(), "--data-order", "once", "-c", "4", "-d", "60s", "--json"];
    let more = ["-H", "X-Word: {{word}}", "--body", "{\"w\": \"{{word|json}}\"}"];
    let report = report(&[&[url.as_str()], &data[..], &more].concat());
    assert_eq!((&report["ok"], &report["total"]["counts"]["answered"]), (&true.into(), &25.into()));
    assert_eq!(report["setup"]["more"]["rows"], "25 of name, word, once");
    let mut all = asked.lock().unwrap().clone();
    all.sort_unstable();
    all.dedup();
    assert_eq!(all.len(), 25);
    for n in 0..25 {
        let line = format!("POST /u/u{n}?w=a%20%22{n}%22 HTTP/1.1\r\n");
        let request =
            all.iter().find(|request| request.starts_with(&line)).unwrap_or_else(|| panic!("{line}"));
        assert!(request.contains(&format!("\r\nX-Word: a \"{n}\"\r\n")), "{request}");
        assert!(request.ends_with(&format!("\r\n\r\n{{\"w\": \"a \\\"{n}\\\"\"}}")), "{request}");
    }
}

#[test]
fn a_scenario_logs_in_and_goes_on() {
    let dir = Scratch::new("load-http-flow");
    std::fs::write(dir.path("users.csv"), "name\nann\nbob\ncyd\n").unwrap();
    let (port, asked) = server();
    let scenario = dir.path("shop.toml");
    let text = format!(
        "[[phase]]\nduration = \"60s\"\n[[pool]]\nconnections = 2\ndata = {{ file = \"users.csv\", order = \"once\" }}\n\
         target = [{{ url = \"http://127.0.0.1:{port}/\" }}]\n\
         [[pool.step]]\nname = \"log in\"\npath = \"/login\"\nbody = \"user={{{{name}}}}\"\nthink = \"5ms\"\n\
         capture = {{ token = {{ json = \"/token\" }} }}\n\
         [[pool.step]]\nname = \"page\"\npath = \"/{{{{name}}}}\"\nheaders = {{ Authorization = \"Bearer {{{{token}}}}\" }}\n\
         capture = {{ x = {{ regex = \"h(el+)o\" }} }}\n\
         [[pool.step]]\nname = \"end\"\npath = \"/{{{{x}}}}\"\n"
    );
    std::fs::write(&scenario, text).unwrap();
    let report = report(&["--scenario", scenario.as_str(), "--json"]);
    assert_eq!(report["ok"], true, "{report}");
    let more = &report["total"]["counts"]["more"];
    assert_eq!((&more["flows"], &more["flows-whole"]), (&3.into(), &3.into()));
    let steps = report["pools"][0]["requests"].as_array().unwrap();
    assert_eq!(
        steps.iter().map(|s| s["name"].as_str().unwrap()).collect::<Vec<_>>(),
        ["log in", "page", "end"]
    );
    assert!(steps.iter().all(|step| step["figures"]["answered"] == 3), "{steps:?}");
    let all = asked.lock().unwrap().clone();
    for name in ["ann", "bob", "cyd"] {
        let line = format!("GET /{name} HTTP/1.1\r\n");
        let page = all.iter().find(|request| request.starts_with(&line)).unwrap_or_else(|| panic!("{line}"));
        assert!(page.contains(&format!("\r\nAuthorization: Bearer t-{name}\r\n")), "{page}");
    }
    assert_eq!(all.iter().filter(|request| request.starts_with("GET /ell HTTP/1.1")).count(), 3);
}

#[test]
fn streams_of_our_own_server_are_measured_over_both_versions() {
    let port = free_port();
    let mut command = Command::new(env!("CARGO_BIN_EXE_flowlane"));
    command.args(["serve", "http", "--addr", "127.0.0.1/8", "--no-pin", "--port", &port.to_string()]);
    let _server = Program::ready(command, "http on 127.0.0.1");
    let url = format!("http://127.0.0.1:{port}/events/4/25?first=100&end=[DONE]");
    let common =
        [url.as_str(), "--events", "--events-end", "[DONE]", "-n", "10", "-r", "20", "-c", "10", "-d", "60s"];
    for more in [&["--json"][..], &["--json", "--http2"]] {
        let report = report(&[&common[..], more, &["--fail", "ttft-p50 > 5s"]].concat());
        let events = &report["total"]["events"];
        assert_eq!((&events["streams"], &events["events"]), (&10.into(), &40.into()), "{more:?} {events}");
        assert_eq!((&events["per-stream"]["min"], &events["per-stream"]["max"]), (&4.into(), &4.into()));
        let time = |name: &str, of: &str| events[name][of].as_u64().unwrap() / 1_000_000;
        assert!(time("first-event", "min") >= 99 && time("last-event", "min") >= 174, "{events}");
        assert!(time("first-event", "p50") < 150 && time("last-event", "p50") < 250, "{events}");
        assert_eq!(report["thresholds"][0]["failed"], false);
    }
    // A condition that does not hold, in the table of people.
    let output = load(&[&common[..], &["--fail", "ttft-p99 > 10ms"]].concat());
    let table = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(output.status.code(), Some(1), "{table}");
    for words in ["1st event", "event gap", "last event", "in 10 streams", "ttft-p99 > 10ms, it was"] {
        assert!(table.contains(words), "{words}: {table}");
    }
    assert!(table.lines().all(|line| line.chars().count() <= 80), "{table}");
}

#[test]
fn each_request_is_a_line_of_a_file() {
    let dir = Scratch::new("load-http-log");
    let (port, asked) = server();
    let (url, file) = (format!("http://127.0.0.1:{port}/x"), dir.path("requests.jsonl"));
    std::fs::write(&file, "what was there before\n".repeat(1000)).unwrap();
    let to = ["--log-requests", file.as_str()];
    let lines = |more: &[&str]| -> Vec<Value> {
        report(&[&[url.as_str(), "-d", "60s", "--json"], &to[..], more].concat());
        let text = std::fs::read_to_string(&file).unwrap();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    };
    for more in [&["-n", "700"][..], &["-n", "700", "-r", "5k"]] {
        let all = lines(more);
        assert_eq!((all.len(), asked.lock().unwrap().drain(..).count()), (700, 700));
        for line in &all {
            assert_eq!(
                (&line["status"], &line["pool"], &line["error"]),
                (&200.into(), &"all".into(), &Value::Null)
            );
            let of = |name: &str| line[name].as_u64().unwrap();
            // In a closed loop a request is sent when it is decided.
            assert_eq!(of("latency-ns"), of("slip-ns") + of("service-ns"), "{line}");
            assert_eq!(flowlane_schema::faults("load-request-v1", line), [""; 0]);
            assert!(of("first-byte-ns") <= of("service-ns") && of("latency-ns") < 60_000_000_000, "{line}");
        }
    }
    assert_eq!(lines(&["-n", "700", "--log-share", "10%", "--workers", "1", "-c", "1"]).len(), 70);
    // An answer that is wrong is one line, and one that never comes is, too.
    let wrong = lines(&["-n", "30", "--expect-contains", "no such text", "--fail", "errors > 100%"]);
    assert_eq!(wrong.len(), 30);
    assert!(wrong.iter().all(|line| line["error"] == "content" && line["status"] == 200), "{wrong:?}");
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/", silent.local_addr().unwrap());
    let late = ["-n", "4", "-c", "4", "--timeout", "200ms", "--fail", "errors > 100%", "-d", "60s", "--json"];
    report(&[&[url.as_str()], &to[..], &late].concat());
    let text = std::fs::read_to_string(&file).unwrap();
    assert_eq!(text.lines().filter(|line| line.contains("\"error\":\"timeout\"}")).count(), 4, "{text}");
}

#[test]
fn a_log_that_cannot_be_written_is_said() {
    let (port, _) = server();
    let url = format!("http://127.0.0.1:{port}/x");
    let output = load(&[&url, "-n", "50", "-d", "60s", "--log-requests", "/dev/full"]);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    assert!(
        stderr.contains("--log-requests /dev/full: ") && stderr.contains("goes on without it"),
        "{stderr}"
    );
    assert!(String::from_utf8_lossy(&output.stdout).contains("answered"), "the run itself is reported");
    refused(&[&url, "--log-requests", "/no/such/dir/x"], &["--log-requests /no/such/dir/x"]);
    refused(&[&url, "--log-share", "0%", "--log-requests", "/dev/null"], &["at most 100%"]);
    refused(&[&url, "--log-share", "1%"], &["--log-requests"]);
    refused(&[&url, "--log-requests", "/dev/null", "--find-rate", "p99 < 1s"], &["--find-rate"]);
}

/// The real curl and ours, with the same line: the server hears the same, but for who asks.
#[test]
fn a_command_line_of_curl_is_a_request() {
    let dir = Scratch::new("load-http-curl");
    let (file, users) = (dir.path("body.txt"), dir.path("users.csv"));
    std::fs::write(&file, "one\r\ntwo\n").unwrap();
    std::fs::write(&users, "name\nann\n").unwrap();
    let (port, asked) = server();
    let url = format!("http://127.0.0.1:{port}");
    let heard = |line: &str, more: &[&str]| -> String {
        let run = [&["--curl", line, "-n", "1", "-c", "1", "-d", "60s", "--json"], more].concat();
        assert_eq!(report(&run)["ok"], true, "{line}");
        asked.lock().unwrap().pop().unwrap()
    };
    // Lines in no order, names in lower case, and without what each says of itself.
    let essence = |request: &str| {
        let (head, body) = request.split_once("\r\n\r\n").unwrap();
        let own = |line: &String| !line.starts_with("user-agent:") && line != "accept: */*";
        let lines = head.lines().map(|line| match line.split_once(':') {
            Some((name, value)) => format!("{}: {}", name.to_lowercase(), value.trim()),
            None => line.to_owned(),
        });
        let mut lines: Vec<String> = lines.filter(own).collect();
        lines.sort();
        // Each chooses a line of its own between the parts of a form.
        let boundary = lines.iter().find_map(|line| Some(line.split_once("; boundary=")?.1.to_owned()));
        if let Some(boundary) = boundary {
            lines.retain(|line| !line.starts_with("content-length:"));
            lines.iter_mut().for_each(|line| *line = line.replace(&boundary, "B"));
            return (lines, body.replace(&boundary, "B"));
        }
        (lines, body.to_owned())
    };
    let has_curl = Command::new("curl").arg("--version").output().is_ok_and(|o| o.status.success());
    if !has_curl {
        flowlane_testnet::skipped("beside curl: there is no curl");
    }
    for line in [
        format!("curl '{url}/a?x=1&y=2' -H 'X-A: b' -H 'accept: */*' -b 'id=7; t=1'"),
        format!("curl {url}/a -d x=1 -d y=2 -u me:secret"),
        format!(
            "curl -sXPUT '{url}/a' -H 'content-type: application/json' --data-raw '{{\"a\": \"it'\\''s\"}}'"
        ),
        format!("curl {url}/a --data-binary @{file}"),
        format!("curl {url}/a -d @{file} -d z=1 -e http://b/"),
        format!("curl -G {url}/a --data-urlencode 'q=a b&c'"),
        format!("curl {url}/a --json '{{\"a\": 1}}'"),
        format!("curl {url}/a -H 'X-Empty;' -X DELETE"),
        format!(
            "curl {url}/a -F 'a \"b\"=\"1;2 \\\"x\\\"\"' -F 'f=@{file};type=text/csv' -F 'g=@{file};filename=x;type=a/b' \
             -F 'h=<{file}' -F 'j={{}};type=application/json' --form-string 'k=@l'"
        ),
    ] {
        let ours = heard(&line, &[]);
        if has_curl {
            // A shell reads it, as it does for people.
            let theirs =
                Command::new("sh").args(["-c", &format!("{line} -s -o /dev/null")]).output().unwrap();
            assert!(theirs.status.success(), "{line}: {theirs:?}");
            let theirs = asked.lock().unwrap().pop().unwrap();
            assert_eq!(essence(&ours), essence(&theirs), "{line}");
        }
    }
    let line = format!("curl {url}/u -H 'X-A: b' -d 'user={{{{name}}}}'");
    let filled = heard(&line, &["--data", &users, "-H", "X-B: c"]);
    assert!(
        filled.contains("\r\nX-A: b\r\nContent-Type: application/x-www-form-urlencoded\r\nX-B: c\r\n"),
        "{filled}"
    );
    assert!(filled.ends_with("\r\n\r\nuser=ann"), "{filled}");
    refused(&["--curl", "curl -F a=b -d x http://127.0.0.1:9/"], &["--curl: -F and -d", "one body"]);
    refused(&["--curl", "curl ftp://a/"], &["--curl", "http://"]);
    refused(&["--curl", "curl http://127.0.0.1:9/ -d @/no/such/file"], &["--curl: @/no/such/file"]);
    refused(&["http://127.0.0.1:9/", "--curl", "curl http://127.0.0.1:9/"], &["--curl"]);
    refused(&["--curl", "curl http://127.0.0.1:9/", "--follow-anywhere"], &["--follow"]);
}

#[test]
fn cookies_come_back() {
    let (port, asked) = server();
    let url = format!("http://127.0.0.1:{port}/x");
    let run = ["-n", "4", "-c", "1", "-d", "60s", "--json", "--cookies"];
    assert_eq!(report(&[&[url.as_str()], &run[..]].concat())["ok"], true);
    let heard: Vec<String> = asked.lock().unwrap().drain(..).collect();
    assert!(!heard[0].contains("Cookie:"), "{heard:?}");
    for (n, request) in heard.iter().enumerate().skip(1) {
        assert!(request.contains(&format!("\r\nCookie: n={n}\r\n\r\n")), "{n}: {request}");
    }
    refused(&[&url, "--cookies", "-H", "cookie: a=b"], &["a Cookie header of its own"]);
}

/// docs/peers-options.md: each of our lines is run, for a shorter time.
// Long: every line of the page is run.
#[test]
fn what_stands_beside_the_options_of_others_works() {
    let dir = Scratch::new("load-http-peers");
    std::fs::write(dir.path("users.csv"), "name\nann\nbob\n").unwrap();
    std::fs::write(dir.path("body.txt"), "hello\n").unwrap();
    let line = "127.0.0.1 - - [01/Mar/2026:12:00:00 +0100] \"GET /size/10 HTTP/1.1\" 200 10\n";
    std::fs::write(dir.path("access.log"), line).unwrap();
    let request = "{\"method\": \"GET\", \"url\": \"http://a.example/\"}";
    let har = format!(
        "{{\"log\": {{\"entries\": [{{\"startedDateTime\": \"2026-03-01T12:00:00Z\", \"request\": {request}}}]}}}}"
    );
    std::fs::write(dir.path("session.har"), har).unwrap();
    let port = free_port();
    let mut command = Command::new(env!("CARGO_BIN_EXE_flowlane"));
    command.args(["serve", "http", "--addr", "127.0.0.1/8", "--no-pin", "--port", &port.to_string()]);
    let _server = Program::ready(command, "http on 127.0.0.1");
    let quic = free_port();
    let mut command = Command::new(env!("CARGO_BIN_EXE_flowlane"));
    command.args(["serve", "http", "--tls", "--http3", "--no-pin", "--port", &quic.to_string()]);
    let _over_quic = Program::ready(command, &format!("UDP port {quic}"));
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/peers-options.md");
    let page = std::fs::read_to_string(page).unwrap();
    std::fs::write(dir.path("tea.json"), "{\"text\": \"tea\"}").unwrap();
    std::fs::write(dir.path("tea.bin"), "\n\x03tea").unwrap();
    let proto = "syntax = \"proto3\"; package flowlane; message Text { string text = 1; } service Echo { rpc Call(Text) returns (Text); }";
    std::fs::write(dir.path("echo.proto"), proto).unwrap();
    let compiled = Command::new("protoc")
        .args(["--descriptor_set_out=echo.pb", "echo.proto"])
        .current_dir(dir.dir())
        .status();
    let described = compiled.is_ok_and(|status| status.success());
    if !described {
        flowlane_testnet::skipped("lines with descriptors: there is no protoc (Debian: protobuf-compiler)");
    }
    let begin = "| `flowlane load http ";
    let mut tried = 0;
    for row in page.lines().filter(|row| row.contains(begin)) {
        let ours = row.split(begin).nth(1).unwrap().split('`').next().unwrap();
        if ours.contains("echo.pb") && !described {
            continue;
        }
        let (scheme, port) = if ours.contains("--http3") { ("https", quic) } else { ("http", port) };
        let mut ours = ours.replace("URL/", "URL").replace("URL", &format!("{scheme}://127.0.0.1:{port}/"));
        for (long, short) in
            [("-d 30s", "-d 60ms"), ("-d 10s", "-d 60ms"), ("--warm-up 2s", "--warm-up 30ms")]
        {
            ours = ours.replace(long, short);
        }
        // A shell reads it, as it does for people; `{{` and `?` are none of its business in quotes alone.
        let ours = ours.replace("?{{letters:8}}", "'?{{letters:8}}'");
        let line = format!("{} load http {ours} --no-pin --quiet", env!("CARGO_BIN_EXE_flowlane"));
        let output =
            Command::new("sh").args(["-c", &line]).current_dir(dir.dir()).stdin(Stdio::null()).output();
        let output = output.unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        // On a machine with other things to do the generator may be late, and says so.
        assert!(matches!(output.status.code(), Some(0 | 3)), "{line}: {stderr}");
        tried += 1;
    }
    assert!(tried > 50, "{tried}");
}

/// The option and a scenario's key make the same form, and placeholders in it are filled in.
#[test]
fn a_form_is_curls() {
    let dir = Scratch::new("load-http-form");
    let (file, users, scenario) = (dir.path("body.txt"), dir.path("users.csv"), dir.path("form.toml"));
    std::fs::write(&file, "one").unwrap();
    std::fs::write(&users, "name\nann\n").unwrap();
    let (port, asked) = server();
    let url = format!("http://127.0.0.1:{port}/a");
    let run = ["-n", "1", "-c", "1", "--json"];
    let heard = |arguments: &[&str]| -> String {
        assert_eq!(report(arguments)["ok"], true, "{arguments:?}");
        asked.lock().unwrap().pop().unwrap()
    };
    let by_option = heard(&[&[&url, "-F", "a=1", "-F", &format!("f=@{file}")], &run[..]].concat());
    let by_curl = format!("curl {url} -F a=1 -F f=@{file}");
    assert_eq!(by_option, heard(&[&["--curl", &by_curl], &run[..]].concat()));
    let pool = format!(
        "[[pool]]\nconnections = 1\nrequests = 1\ntarget = [{{ url = \"{url}\" }}]\n\
         request = [{{ form = [\"a=1\", \"f=@body.txt\"] }}]\n"
    );
    std::fs::write(&scenario, pool).unwrap();
    assert_eq!(by_option, heard(&["--scenario", &scenario, "--json"]));
    let filled = heard(&[&[&url, "-F", "n={{name}}", "--data", &users], &run[..]].concat());
    assert!(filled.contains("name=\"n\"\r\n\r\nann\r\n"), "{filled}");
    refused(&[&url, "-F", "a"], &["'a': a field of a form"]);
    refused(&[&url, "-F", "a=@/no/such"], &["/no/such"]);
    refused(&[&url, "-F", "a=1", "--body", "x"], &["--body"]);
    refused(&[&url, "-F", "a=1", "-H", "content-type: x"], &["leave out the header"]);
}
