//! The live web page: what is served, to whom, and what a browser shows of a runtime in this process. No privileges are needed.

mod browser;

use browser::Browser;
use flowlane::{
    Bucket, Host, Interface, Key, PairConfig, Rss, Runtime, TcpListener, TcpStream, UdpSocket, control,
    current, spawn,
};
use flowlane_testnet::{PATIENCE, Program, free_port};
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::net::SocketAddr;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A server and a client on two workers, joined by a pair, with traffic until the end: every lane of the client has a connection over which a
/// few bytes go back and forth, and one also sends datagrams to a port where nobody is.
struct Running {
    runtime: Runtime,
    page: Option<control::WebPage>,
    address: SocketAddr,
}

impl Running {
    fn start() -> Self {
        let rss = Arc::new(Rss::new(Key::MICROSOFT, 2));
        let on =
            |address: &str| Interface { addresses: vec![address.parse().unwrap()], ..Interface::default() };
        let mut builder = Runtime::builder().workers(2).pin(false);
        let server = builder.host(
            Host::new("server", rss.clone(), || async {
                let listener = TcpListener::on_port(80).unwrap();
                while let Ok(stream) = listener.accept().await {
                    spawn(echo(stream)).unwrap();
                }
            })
            .interface(on("10.0.0.1/24")),
        );
        let client = Host::new("client", rss, || async {
            let stream = TcpStream::connect("10.0.0.1:80".parse().unwrap()).await.unwrap();
            let stray = UdpSocket::connect("10.0.0.1:9".parse().unwrap()).unwrap();
            let first = current().unwrap().bucket.0 == 0;
            let mut bytes = [0; 100];
            loop {
                if first {
                    // The answer, that nobody is there, is an error of one send or another.
                    let _ = stray.send(b"is anybody there?").await;
                }
                if stream.write_all(&[7; 100]).await.is_err() || !all_read(&stream, &mut bytes).await {
                    return;
                }
                flowlane::sleep(Duration::from_millis(2)).await;
            }
        });
        let client = builder.host(client.interface(on("10.0.0.2/24")));
        builder.pair((server, 0), (client, 0), PairConfig::default());
        let runtime = builder.start().unwrap();
        let page = control::listen_for_web("127.0.0.1:0".parse().unwrap()).unwrap();
        let page = page.serve(runtime.handle(), "test of the page").unwrap();
        let address = page.address();
        Self { runtime, page: Some(page), address }
    }

    /// Sends this and reads all that comes back.
    fn raw(&self, request: &str) -> String {
        let mut stream = std::net::TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).unwrap();
        String::from_utf8(answer).unwrap()
    }

    /// Head and body of an answer to a request for `path` at the host of this name.
    fn get(&self, path: &str, host: &str) -> (String, String) {
        let answer = self.raw(&format!("GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n"));
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        (head.to_owned(), body.to_owned())
    }
}

async fn echo(stream: TcpStream) {
    let mut bytes = [0; 100];
    while all_read(&stream, &mut bytes).await {
        if stream.write_all(&bytes).await.is_err() {
            return;
        }
    }
}

/// Whether so many bytes came.
async fn all_read(stream: &TcpStream, bytes: &mut [u8]) -> bool {
    let mut done = 0;
    while done < bytes.len() {
        match stream.read(&mut bytes[done..]).await {
            Ok(0) | Err(_) => return false,
            Ok(n) => done += n,
        }
    }
    true
}

#[test]
fn the_page_is_for_those_who_name_it_and_changes_nothing() {
    let running = Running::start();
    let own = running.address.to_string();
    let (head, body) = running.get("/", &own);
    assert!(head.starts_with("HTTP/1.1 200") && head.contains("text/html; charset=utf-8"), "{head}");
    assert!(head.contains("default-src 'none'") && head.contains("nosniff"), "{head}");
    // Everything that the page names is there.
    let parts: Vec<&str> = body.split('"').filter(|part| part.starts_with("/page/")).collect();
    assert!(parts.len() > 2, "{body}");
    for part in parts {
        assert!(running.get(part, &own).0.starts_with("HTTP/1.1 200"), "{part}");
    }
    let (head, body) = running.get("/v1/live", &format!("localhost:{}", running.address.port()));
    assert!(head.starts_with("HTTP/1.1 200") && head.contains("no-store"), "{head}");
    let live: Value = serde_json::from_str(&body).unwrap();
    assert_eq!((&live["version"], &live["worker-count"]), (&json!(1), &json!(2)));
    assert!(!body.contains("10.0.0") && !body.contains("6d5a56da"), "neither addresses nor a key: {body}");
    // What the page itself asks for: rates since the reading that it names.
    let change = |query: &str| -> Value {
        let (head, body) = running.get(&format!("/v1/change{query}"), &own);
        assert!(head.starts_with("HTTP/1.1 200") && head.contains("no-store"), "{head}");
        assert!(
            !body.contains("10.0.0") && !body.contains("6d5a56da"),
            "neither addresses nor a key: {body}"
        );
        serde_json::from_str(&body).unwrap()
    };
    let first = change("");
    assert_eq!((&first["reading"], &first["change"]["total"]["packets-in"]), (&json!(1), &json!(0.0)));
    let (begun, mut last) = (Instant::now(), first);
    while last["change"]["total"]["packets-in"].as_f64().unwrap() == 0.0 {
        assert!(begun.elapsed() < PATIENCE, "no packet was counted");
        last = change(&format!("?since={}", last["reading"]));
    }
    let steps = &last["change"]["workers"][0]["steps"];
    assert_eq!((&steps[0][0], steps.as_array().unwrap().len()), (&json!("receive"), 7), "{steps}");
    // A page of somebody else, whose name leads here, reads nothing.
    for other in ["evil.example", "evil.example:80", "127.0.0.2", "127.0.0.1:1", "localhost"] {
        assert!(running.get("/v1/live", other).0.starts_with("HTTP/1.1 421"), "{other}");
        assert!(running.get("/v1/change", other).0.starts_with("HTTP/1.1 421"), "{other}");
    }
    let twice = format!("GET / HTTP/1.1\r\nHost: {own}\r\nHost: {own}\r\nConnection: close\r\n\r\n");
    assert!(running.raw(&twice).starts_with("HTTP/1.1 421"));
    assert!(running.get("/v1/report", &own).0.starts_with("HTTP/1.1 404"));
    assert!(running.get("/page/../style.css", &own).0.starts_with("HTTP/1.1 404"));
    let body = "{\"bucket\":0,\"worker\":1}";
    let length = format!("Content-Length: {}\r\nConnection: close", body.len());
    let post = format!("POST /v1/move HTTP/1.1\r\nHost: {own}\r\n{length}\r\n\r\n{body}");
    assert!(running.raw(&post).starts_with("HTTP/1.1 405"));
}

#[test]
fn an_address_that_cannot_be_listened_at_is_one_line() {
    let port = free_port().to_string();
    let serve = |web: &str| {
        let arguments = ["serve", "udp-echo", "--link", "kernel", "--port", &port, "--web", web];
        let output = Command::new(env!("CARGO_BIN_EXE_flowlane")).args(arguments).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        String::from_utf8(output.stderr).unwrap()
    };
    let said = serve("0.0.0.0:0");
    assert!(said.contains("that is every address of this machine; name one"), "{said}");
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let said = serve(&taken.local_addr().unwrap().to_string());
    assert!(said.contains("web page on 127.0.0.1:") && said.lines().count() == 1, "{said}");
    assert!(serve("nowhere").contains("give an address and a port"));
}

/// `load --web`: requests and latencies of the generator, over links of ours and over kernel sockets.
#[test]
fn the_page_of_a_load_has_its_requests_and_latencies() {
    for (link, target) in [("pair", "http://10.0.0.1/"), ("kernel", "")] {
        let server = (link == "kernel").then(http_server);
        let target = server.as_ref().map_or(target, |(_, url)| url);
        let mut load = Command::new(env!("CARGO_BIN_EXE_flowlane"));
        load.args([
            "load", "http", target, "--link", link, "-c", "8", "-r", "500", "-d", "60s", "--web", "0",
            "--lines",
        ]);
        let mut load = Program::start(load);
        let said = load.hear("web page http://");
        let address = said.split_once("web page http://").unwrap().1.trim_end_matches('/');
        let since = Instant::now();
        let live = loop {
            let mut stream = std::net::TcpStream::connect(address).unwrap();
            write!(stream, "GET /v1/live HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n").unwrap();
            let mut answer = String::new();
            stream.read_to_string(&mut answer).unwrap();
            let live: Value = serde_json::from_str(answer.split_once("\r\n\r\n").unwrap().1).unwrap();
            let times = &live["times"][0];
            if times["name"] == "latency" && times["counts"].as_array().unwrap().iter().any(|n| n != 0) {
                break live;
            }
            assert!(since.elapsed() < PATIENCE, "{link}: no latencies in {live}");
            // Another second of the run has passed.
            load.says();
        };
        assert_eq!(live["counts"][0]["text"], "Answers");
        assert!(live["counts"][0]["count"].as_u64().unwrap() > 0, "{live}");
        let host = live["hosts"].as_array().unwrap().iter().find(|host| host["host"] == "load").unwrap();
        assert_eq!(host["kernel"], json!(link == "kernel"));
        assert!(host["bytes-in"].as_u64().unwrap() > 0 && host["bytes-out"].as_u64().unwrap() > 0, "{host}");
    }
}

/// A web server on kernel sockets, and its address.
fn http_server() -> (Program, String) {
    let port = free_port().to_string();
    let mut server = Command::new(env!("CARGO_BIN_EXE_flowlane"));
    server.args(["serve", "http", "--addr", "127.0.0.1/32", "--port", &port, "--workers", "1", "--web", "0"]);
    let mut server = Program::start(server);
    server.hear("web page http://");
    (server, format!("http://127.0.0.1:{port}/"))
}

// Long: a browser is started, and shows figures of some seconds.
#[test]
fn a_browser_shows_what_runs() {
    let browser = match Browser::start() {
        Ok(browser) => browser,
        Err(why) => return flowlane_testnet::skipped(why),
    };
    let mut running = Running::start();
    browser.screen(1280, 1600, "light");
    browser.open(&format!("http://{}/", running.address));
    // All lanes of both hosts, packets, measured times, and the reason of what was dropped.
    let lanes = 2 * running.runtime.handle().hosts()[0].rss.buckets.len();
    browser.wait_for(&format!("document.querySelectorAll('#lanes .lane').length === {lanes}"));
    browser.wait_for("document.querySelectorAll('#lanes .worker').length === 2");
    browser.wait_for("parseFloat(document.querySelector('#tiles dd').textContent) > 0");
    browser.wait_for("document.querySelector('#times p').textContent.includes('half of them at most')");
    browser.wait_for("document.querySelector('#drops').textContent.includes('port without socket')");
    browser.wait_for("document.querySelectorAll('#queues tbody tr').length === 4");
    // Where each worker's time goes: shares of all of it.
    let shares = "[...document.querySelectorAll('#workers .steps')].map((bar) => [...bar.children].reduce((sum, part) => sum + parseFloat(part.style.width), 0))";
    browser.wait_for(&format!("{shares}.length === 2 && {shares}.every((sum) => sum > 80 && sum < 120)"));
    browser.wait_for("document.querySelector('#packets path.in').getAttribute('d').includes('L')");
    let painted = "(() => { const c = document.querySelector('canvas'); \
        return c.getContext('2d').getImageData(0, 0, c.width, c.height).data.some((n) => n > 0); })()";
    browser.wait_for(painted);

    // A lane that moves is listed, and its block is at its new worker.
    let handle = running.runtime.handle();
    let from = handle.worker_of(0, Bucket(3)).unwrap();
    handle.move_lane(0, Bucket(3), 1 - from).unwrap();
    let words = format!("lane 3 of server, from worker {from} to {}", 1 - from);
    browser.wait_for(&format!("document.querySelector('#moves').textContent.includes('{words}')"));
    let seat = "[...document.querySelectorAll('#lanes .lane')].find((l) => l.title.startsWith('lane 3 of server')).closest('.worker').textContent";
    let seat = browser.value(seat);
    assert!(seat.as_str().unwrap().starts_with(&format!("worker {}", 1 - from)), "{seat}");
    browser.value("document.querySelector('#lanes .lane').click()");
    browser.wait_for("!document.querySelector('#lane').hidden && document.querySelector('#lane').textContent.includes('of a processor')");
    browser.wait_for("document.getAnimations().length === 0");
    let picture = browser.picture("web-wide-light.png");
    assert!(std::fs::read(picture).unwrap().starts_with(b"\x89PNG"));

    // Nothing came from anywhere else, and it is small.
    let url = format!("http://{}/", running.address);
    let loaded =
        browser.value("performance.getEntriesByType('resource').map((e) => [e.name, e.transferSize])");
    let files =
        loaded.as_array().unwrap().iter().filter(|entry| !entry[0].as_str().unwrap().ends_with("/v1/live"));
    assert!(
        loaded.as_array().unwrap().iter().all(|entry| entry[0].as_str().unwrap().starts_with(&url)),
        "{loaded}"
    );
    let bytes: u64 = files.map(|entry| entry[1].as_u64().unwrap()).sum();
    assert!((1..200_000).contains(&bytes), "{bytes}");

    // A phone, in the dark: nothing is wider than the screen.
    let ground = browser.value("getComputedStyle(document.documentElement).backgroundColor");
    browser.screen(360, 3000, "dark");
    browser.wait_for("document.documentElement.scrollWidth <= innerWidth && innerWidth === 360");
    assert_ne!(browser.value("getComputedStyle(document.documentElement).backgroundColor"), ground);
    browser.picture("web-phone-dark.png");

    // Whoever pauses asks for nothing; then it goes on.
    browser.value("document.querySelector('#pause').click()");
    browser.wait_for("document.querySelector('#state').textContent === 'paused'");
    browser.value("document.querySelector('#pause').click()");
    browser.wait_for("document.querySelector('#state').textContent === 'live'");

    // A server that goes away is said to be away, and found again.
    drop(running.page.take());
    browser.wait_for("document.querySelector('#state').textContent.startsWith('no answer')");
    let complaints = browser.complaints();
    assert!(complaints.iter().all(|words| words.contains("ERR_CONNECTION_REFUSED")), "{complaints:?}");
    let again = control::listen_for_web(running.address).unwrap();
    running.page = Some(again.serve(running.runtime.handle(), "test of the page").unwrap());
    browser.wait_for("document.querySelector('#state').textContent === 'live'");
}
