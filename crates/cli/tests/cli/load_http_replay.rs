//! `flowlane load http --replay`: recordings of a browser, of nginx and of tcpdump, sent again to servers that note what they got.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Command, Output, Stdio};
use std::sync::{Arc, Mutex};

use flowlane_testnet::{Program, Scratch, eventually, free_port, skipped};
use serde_json::Value;

fn load(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_flowlane"));
    command.args(["load", "http", "--no-pin", "--quiet", "--json"]).args(arguments).stdin(Stdio::null());
    command.output().unwrap()
}

fn report(arguments: &[&str]) -> Value {
    let output = load(arguments);
    let stderr = String::from_utf8_lossy(&output.stderr);
    let report: Value =
        serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{arguments:?}: {e}: {stderr}"));
    assert_eq!(flowlane_schema::faults("load-run", &report), [""; 0]);
    report
}

fn answered(report: &Value) -> u64 {
    let counts = &report["total"]["counts"];
    assert_eq!(
        (&counts["failed"], &counts["unsent"], &counts["sent"]),
        (&0.into(), &0.into(), &counts["answered"]),
        "{report}"
    );
    counts["answered"].as_u64().unwrap()
}

/// A server that answers everything with 200 and notes each request, whole.
fn server() -> (String, Arc<Mutex<Vec<String>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (address, asked) = (listener.local_addr().unwrap(), Arc::new(Mutex::new(Vec::new())));
    let all = asked.clone();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let all = all.clone();
            std::thread::spawn(move || answer(stream.unwrap(), &all));
        }
    });
    (format!("http://{address}/"), asked)
}

fn answer(mut stream: TcpStream, asked: &Mutex<Vec<String>>) {
    stream.set_nodelay(true).unwrap();
    let (mut held, mut buffer) = (Vec::new(), [0; 4096]);
    loop {
        match stream.read(&mut buffer) {
            Ok(n) if n > 0 => held.extend_from_slice(&buffer[..n]),
            _ => return,
        }
        while let Some(end) = held.windows(4).position(|bytes| bytes == b"\r\n\r\n") {
            let head = String::from_utf8_lossy(&held[..end]).to_lowercase();
            let length = head.split("content-length: ").nth(1);
            let length: usize = length.map_or(0, |rest| rest.lines().next().unwrap().parse().unwrap());
            let chunks =
                held[end..].windows(5).position(|bytes| bytes == b"0\r\n\r\n").map(|at| end + at + 5);
            let end = if head.contains("chunked") { chunks } else { Some(end + 4 + length) };
            let Some(end) = end.filter(|end| *end <= held.len()) else { break };
            let request: Vec<u8> = held.drain(..end).collect();
            let to_head = request.starts_with(b"HEAD");
            asked.lock().unwrap().push(String::from_utf8_lossy(&request).into_owned());
            let body = if to_head { "" } else { "ok" };
            let _ = write!(stream, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{body}");
        }
    }
}

/// The requests of a HAR as a browser exports it, 100 ms apart.
fn har(requests: &[(&str, &str, &str)]) -> String {
    let entry = |(n, (method, path, body)): (usize, &(&str, &str, &str))| {
        serde_json::json!({
            "startedDateTime": format!("2026-03-01T12:00:{:02}.{:03}+01:00", n / 10, n % 10 * 100),
            "time": 12.5,
            "_resourceType": "fetch",
            "request": {
                "method": method,
                "url": format!("https://shop.example{path}"),
                "httpVersion": "http/2.0",
                "headers": [
                    {"name": ":authority", "value": "shop.example"},
                    {"name": "accept", "value": "text/html, */*"},
                    {"name": "cookie", "value": format!("session={n}")},
                    {"name": "authorization", "value": "Bearer t"},
                    {"name": "connection", "value": "keep-alive"},
                    {"name": "user-agent", "value": "Mozilla/5.0"},
                ],
                "queryString": [], "cookies": [], "headersSize": -1, "bodySize": body.len(),
                "postData": if body.is_empty() { Value::Null } else { serde_json::json!({"mimeType": "application/json", "text": body}) },
            },
            "response": {"status": 200, "content": {"size": 2, "text": "never mind"}},
            "timings": {},
        })
    };
    let entries: Vec<Value> = requests.iter().enumerate().map(entry).collect();
    serde_json::json!({"log": {"version": "1.2", "creator": {"name": "test"}, "entries": entries}})
        .to_string()
}

const SHOP: &[(&str, &str, &str)] = &[
    ("GET", "/?q=1", ""),
    ("POST", "/cart", "{\"sku\": \"é\"}"),
    ("GET", "/style.css", ""),
    ("HEAD", "/img.png", ""),
    ("PUT", "/cart/1", "x"),
    ("GET", "/?q=1", ""),
];

#[test]
fn a_browsers_requests_are_sent_in_their_order_at_their_times() {
    let room = Scratch::new("replay-har");
    let (file, log) = (room.path("shop.har"), room.path("requests"));
    std::fs::write(&file, har(SHOP)).unwrap();
    let (url, asked) = server();
    for (speed, apart) in [("1", 100.0), ("2x", 50.0)] {
        asked.lock().unwrap().clear();
        let report = report(&[&url, "-c", "1", "--replay", &file, "--speed", speed, "--log-requests", &log]);
        assert_eq!(answered(&report), 6);
        assert_eq!(report["setup"]["open-loop"], true);
        assert!(report["setup"]["more"]["replay"].as_str().unwrap().contains("HAR"), "{report}");
        // The times are those that the generator was to keep; how late it was is in its own slip.
        let lines = std::fs::read_to_string(&log).unwrap();
        let mut due: Vec<f64> =
            lines.lines().map(|line| due_ms(&serde_json::from_str(line).unwrap())).collect();
        due.sort_by(f64::total_cmp);
        for (n, at) in due.iter().enumerate() {
            assert!((at - n as f64 * apart).abs() < 0.01, "{speed}: {due:?}");
        }
        let asked = asked.lock().unwrap();
        let lines: Vec<&str> = asked.iter().map(|request| request.lines().next().unwrap()).collect();
        let expected: Vec<String> =
            SHOP.iter().map(|(method, path, _)| format!("{method} {path} HTTP/1.1")).collect();
        assert_eq!(lines, expected);
        let cart = &asked[1];
        let host = url.trim_start_matches("http://").trim_end_matches('/');
        for field in [
            format!("Host: {host}\r\n").as_str(),
            "cookie: session=1\r\n",
            "authorization: Bearer t\r\n",
            "user-agent: Mozilla/5.0\r\n",
            "\r\n\r\n{\"sku\": \"é\"}",
        ] {
            assert!(cart.contains(field), "{field}: {cart}");
        }
        assert!(!cart.contains("keep-alive") && !cart.contains("authority"), "{cart}");
    }
    // Each method has its figures.
    let report = report(&[&url, "-c", "1", "--replay", &file, "--speed", "100", "-H", "Cookie: mine"]);
    let named: BTreeMap<&str, u64> = report["pools"][0]["requests"]
        .as_array()
        .unwrap()
        .iter()
        .map(|r| (r["name"].as_str().unwrap(), r["figures"]["answered"].as_u64().unwrap()))
        .collect();
    assert_eq!(named, BTreeMap::from([("GET", 3), ("HEAD", 1), ("POST", 1), ("PUT", 1)]));
    let last = asked.lock().unwrap().last().unwrap().clone();
    assert!(last.contains("Cookie: mine\r\n") && !last.contains("session"), "{last}");
}

/// When a request was due, milliseconds of the run.
fn due_ms(line: &Value) -> f64 {
    line["at-ns"].as_f64().unwrap_or_else(|| panic!("{line}")) / 1e6
}

#[test]
fn each_request_is_sent_once_whoever_sends_it() {
    let room = Scratch::new("replay-lanes");
    let file = room.path("log");
    let line = |n: usize| {
        format!("h - - [01/Mar/2026:12:00:{:02} +0000] \"GET /size/{n} HTTP/1.1\" 200 1\n", n / 200)
    };
    let log: String = (0..400).map(line).collect();
    std::fs::write(&file, log).unwrap();
    let mut expected: Vec<String> = (0..400).map(|n| format!("/size/{n}")).collect();
    expected.sort();
    let (url, asked) = server();
    for more in
        [&["--workers", "2", "-c", "7"][..], &["-c", "2", "--no-keepalive"], &["--workers", "2", "-c", "1"]]
    {
        asked.lock().unwrap().clear();
        let arguments = [&[url.as_str(), "--replay", &file, "--speed", "4"], more].concat();
        assert_eq!(answered(&report(&arguments)), 400, "{more:?}");
        let mut paths: Vec<String> =
            asked.lock().unwrap().iter().map(|r| r.split(' ').nth(1).unwrap().to_owned()).collect();
        paths.sort();
        assert_eq!(paths, expected, "{more:?}");
    }
    // A base path, and only the beginning.
    asked.lock().unwrap().clear();
    let base = format!("{url}base/");
    assert_eq!(answered(&report(&[&base, "-c", "2", "--replay", &file, "--speed", "4", "-n", "10"])), 10);
    assert!(asked.lock().unwrap().iter().all(|request| request.starts_with("GET /base/size/")));
    let cut = report(&[&url, "-c", "2", "--replay", &file, "-d", "250ms", "--warm-up", "250ms"]);
    let counts = &cut["total"];
    let of = |name: &str| counts[name]["answered"].as_u64().unwrap();
    assert_eq!((of("counts"), of("unmeasured")), (50, 50), "{cut}");
    assert!(cut["setup"]["more"]["replay"].as_str().unwrap().contains("300 requests after the end"), "{cut}");
    // Over our own TCP, in memory.
    let pair = [
        "http://10.0.0.1/",
        "--link",
        "pair",
        "--workers",
        "2",
        "-c",
        "8",
        "--replay",
        &file,
        "--speed",
        "4",
    ];
    assert_eq!(answered(&report(&pair)), 400);
}

// Long: six runs in the times of their recordings.
#[test]
fn recordings_are_replayed_over_tls_and_http2() {
    let room = Scratch::new("replay-tls");
    let file = room.path("har");
    let requests: Vec<(&str, &str, &str)> = [
        ("GET", "/size/100", ""),
        ("POST", "/echo", "hello"),
        ("HEAD", "/size/7", ""),
        ("GET", "/size/5000", ""),
    ]
    .repeat(20);
    std::fs::write(&file, har(&requests)).unwrap();
    for more in [&[][..], &["--tls"]] {
        let port = free_port();
        let mut command = Command::new(env!("CARGO_BIN_EXE_flowlane"));
        command
            .args(["serve", "http", "--addr", "127.0.0.1/8", "--no-pin", "--port", &port.to_string()])
            .args(more);
        command.stdin(Stdio::null());
        let _server = Program::ready(command, "http on 127.0.0.1");
        let scheme = if more.is_empty() { "http" } else { "https" };
        let url = format!("{scheme}://127.0.0.1:{port}/");
        for version in [&["-c", "4"][..], &["-c", "2", "--http2", "3", "--workers", "2"]] {
            let arguments = [&[url.as_str(), "-k", "--replay", &file, "--speed", "10"], version].concat();
            let report = report(&arguments);
            assert_eq!(
                (answered(&report), &report["total"]["counts"]["codes"]["200"]),
                (80, &80.into()),
                "{arguments:?}"
            );
            // Bodies arrive: the echo has five bytes, and the pages theirs.
            assert!(report["total"]["counts"]["bytes-received"].as_u64().unwrap() > 20 * 5100, "{report}");
        }
        let hello = ["--expect-contains", "hello", "--replay-host", "shop.example", "-n", "2"];
        let arguments =
            [&[url.as_str(), "-k", "--http2", "--replay", &file, "--speed", "10"][..], &hello].concat();
        let wrong = report(&arguments);
        assert_eq!(wrong["total"]["counts"]["errors"]["content"]["count"], 1, "{wrong}");
    }
}

fn nginx(room: &Scratch, port: u16, log: &str) -> Option<Program> {
    let config = format!(
        "daemon off; worker_processes 1; pid {0}/{port}.pid; error_log stderr notice;
         events {{}}
         http {{ access_log {log} combined; client_body_temp_path {0}/b; proxy_temp_path {0}/p; fastcgi_temp_path {0}/f; uwsgi_temp_path {0}/u; scgi_temp_path {0}/s;
           server {{ listen 127.0.0.1:{port}; location / {{ return 200 hello; }} location /gone {{ return 404; }} }} }}",
        room.dir().display()
    );
    let file = room.path(&format!("{port}.conf"));
    std::fs::write(&file, config).unwrap();
    let mut command = Command::new("nginx");
    command.args(["-c", &file]).stdin(Stdio::null());
    Command::new("nginx").arg("-v").stderr(Stdio::null()).status().ok()?;
    let mut program = Program::start(command);
    program.hear("start worker process ");
    Some(program)
}

#[test]
fn an_access_log_of_nginx_is_replayed_into_the_same_log() {
    let room = Scratch::new("replay-nginx");
    let (port, log) = (free_port(), room.path("access.log"));
    let Some(_server) = nginx(&room, port, &log) else { return skipped("there is no nginx") };
    let ask = |text: &str| {
        let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
        stream.write_all(text.as_bytes()).unwrap();
        let mut answer = String::new();
        let _ = stream.read_to_string(&mut answer);
    };
    for n in 0..20 {
        for (line, fields) in [
            (
                format!("GET /page?n={n}&x=%20y"),
                "User-Agent: Mozilla \"5\" \\ é\r\nReferer: http://r/?a=\"b\"\r\n",
            ),
            ("GET /gone".to_owned(), "User-Agent: curl/8\r\n"),
            ("HEAD /".to_owned(), "User-Agent: curl/8\r\n"),
            ("DELETE /x".to_owned(), "User-Agent: curl/8\r\n"),
        ] {
            ask(&format!("{line} HTTP/1.1\r\nHost: h\r\nConnection: close\r\n{fields}\r\n"));
        }
    }
    ask("rubbish\r\n\r\n");
    // A log without an agent's name has a replay with ours.
    let lines = || -> Vec<String> {
        std::fs::read_to_string(&log).unwrap_or_default().lines().map(str::to_owned).collect()
    };
    eventually("nginx writes its log", || lines().len() == 81);
    let first = lines();
    let before = room.path("before.log");
    std::fs::rename(&log, &before).unwrap();
    // nginx keeps writing to the file that it has open.
    let url = format!("http://127.0.0.1:{port}/");
    let report = report(&[&url, "-c", "1", "--replay", &before, "--speed", "4", "--expect-status", "any"]);
    assert_eq!(answered(&report), 80);
    assert!(
        report["setup"]["more"]["replay"].as_str().unwrap().contains("1 lines without a request"),
        "{report}"
    );
    let all =
        || -> Vec<String> { std::fs::read_to_string(&before).unwrap().lines().map(str::to_owned).collect() };
    eventually("nginx writes its log", || all().len() == 161);
    // All but the date, and the length of what a closed connection was told.
    let shape = |line: &String| {
        let (who, rest) = line.split_once('[').unwrap();
        format!("{who}{}", rest.split_once(']').unwrap().1)
    };
    let kept: Vec<String> = first.iter().filter(|line| !line.contains("\"rubbish\"")).map(shape).collect();
    let again: Vec<String> = all()[81..].iter().map(shape).collect();
    assert_eq!(kept, again);
}

#[test]
fn a_capture_of_curl_is_replayed() {
    let room = Scratch::new("replay-capture");
    let has =
        |name: &str| Command::new(name).arg("--version").output().is_ok_and(|output| output.status.success());
    if !has("tcpdump") || !has("curl") {
        return skipped("there is no tcpdump or no curl");
    }
    if let Err(why) = flowlane_testnet::requires() {
        return skipped(why);
    }
    let (url, asked) = server();
    let file = room.path("requests.pcap");
    let port = url.trim_end_matches('/').rsplit(':').next().unwrap().to_owned();
    let mut command = Command::new("tcpdump");
    command.args(["-i", "lo", "-U", "-w", &file, "tcp", "port", &port]).stdin(Stdio::null());
    let dump = Program::ready(command, "listening on lo");
    let large = "z".repeat(200_000);
    let body = room.path("body");
    std::fs::write(&body, &large).unwrap();
    let curl = |arguments: &[&str]| {
        let status =
            Command::new("curl").args(["-sS", "-m", "20"]).args(arguments).stdout(Stdio::null()).status();
        assert!(status.unwrap().success(), "{arguments:?}");
    };
    curl(&[&format!("{url}a?b=c"), &format!("{url}second"), "-H", "X-Mine: 1"]);
    curl(&[&format!("{url}form"), "--data", "k=v"]);
    curl(&[&format!("{url}large"), "-X", "PUT", "-H", "Expect:", "--data-binary", &format!("@{body}")]);
    curl(&[&format!("{url}chunks"), "-H", "Transfer-Encoding: chunked", "--data", "chunk"]);
    eventually("tcpdump has all packets", || {
        std::fs::read(&file).is_ok_and(|bytes| bytes.windows(7).any(|w| w == b"/chunks"))
            && asked.lock().unwrap().len() == 5
    });
    // Its last packets are written when it ends.
    dump.interrupt();
    let first: Vec<String> = asked.lock().unwrap().drain(..).collect();
    let report = report(&[&url, "-c", "1", "--replay", &file]);
    assert_eq!(answered(&report), 5, "{report}");
    let said = report["setup"]["more"]["replay"].as_str().unwrap();
    assert!(said.contains("capture") && !said.contains("not replayed"), "{said}");
    let again = asked.lock().unwrap().clone();
    for (first, again) in first.iter().zip(&again) {
        let (head, body) = first.split_once("\r\n\r\n").unwrap();
        let (new_head, new_body) = again.split_once("\r\n\r\n").unwrap();
        assert_eq!(head.lines().next(), new_head.lines().next());
        assert_eq!(if head.contains("chunked") { "chunk" } else { body }, new_body);
        let fields = |head: &str| -> std::collections::BTreeSet<String> {
            let kept =
                |line: &&str| !line.starts_with("Transfer-Encoding") && !line.starts_with("Content-Length");
            head.lines().skip(1).filter(kept).map(str::to_owned).collect()
        };
        assert_eq!(fields(head), fields(new_head));
    }
}

#[test]
fn what_cannot_be_replayed_is_refused_in_one_line() {
    let room = Scratch::new("replay-refused");
    let [log, har_file, other, far] = ["log", "har", "other", "far"].map(|name| room.path(name));
    std::fs::write(&log, "h - - [01/Mar/2026:12:00:00 +0000] \"GET / HTTP/1.1\" 200 1\n").unwrap();
    std::fs::write(&har_file, har(SHOP)).unwrap();
    std::fs::write(&other, "never\n\u{1b}[31m\u{0}\n").unwrap();
    let ages = "h [01/Jan/1980:00:00:00 +0000] \"GET / HTTP/1.1\"\nh [01/Jan/2030:00:00:00 +0000] \"GET / HTTP/1.1\"\n";
    std::fs::write(&far, ages).unwrap();
    let url = "http://127.0.0.1:1/";
    for (arguments, word) in [
        (&["--replay", &log][..], "URL"),
        (&[url, "--replay", "/nowhere"], "/nowhere"),
        (&[url, "--replay", "/dev/zero"], "device"),
        (&[url, "--replay", "/"], "directory"),
        (&[url, "--replay", &other], "access log"),
        (&[url, "--replay", &far], "18263 days"),
        (&[url, "--replay", &log, "--replay-format", "har"], "no HAR"),
        (&[url, "--replay", &log, "--replay-format", "capture"], "no capture"),
        (&[url, "--replay", &log, "--replay-format", "csv"], "har, log or capture"),
        (&[url, "--replay", &har_file, "--replay-host", "other.example"], "6 requests to other hosts"),
        (&[url, "--replay", &log, "--speed", "0"], "0.001"),
        (&[url, "--speed", "2"], "--replay"),
        (&[url, "--replay", &log, "--rate", "5"], "--rate"),
        (&[url, "--replay", &log, "--pipeline", "5"], "--pipeline"),
        (&[url, "--replay", &log, "-H", "Content-Length: 5"], "Content-Length"),
        (&[url, "--replay", &log, "--warm-up", "1h"], "--warm-up"),
        (&["http://127.0.0.1:1/?a=b", "--replay", &log], "query"),
        (&[url, "--replay", &log, "--agents", "lab"], "--replay"),
    ] {
        let output = load(arguments);
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!((output.status.code(), stderr.lines().count()), (Some(2), 1), "{arguments:?}: {stderr}");
        assert!(stderr.contains(word) && !stderr.contains('\u{1b}'), "{arguments:?}: {stderr}");
    }
}
