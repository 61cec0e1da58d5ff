//! `flowlane load http` where connections do not go straight to the host of the URL: other names, client certificates, Unix sockets, proxies.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::UnixListener;
use std::process::{Command, Output, Stdio};
use std::sync::{Arc, Mutex};

use flowlane_testnet::{Program, Scratch, free_port};
use serde_json::Value;

fn program() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_flowlane"));
    command.stdin(Stdio::null());
    command
}

fn load(arguments: &[&str]) -> Output {
    program().args(["load", "http"]).args(arguments).output().unwrap()
}

fn run(arguments: &[&str]) -> Value {
    let output = load(&[arguments, &["--json", "-q", "--no-pin"]].concat());
    let said = String::from_utf8_lossy(&output.stderr);
    serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{arguments:?}: {e}: {said}"))
}

fn refused(arguments: &[&str], word: &str) {
    let output = load(arguments);
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!((output.status.code(), said.lines().count()), (Some(2), 1), "{arguments:?}: {said}");
    assert!(said.contains(word), "{arguments:?}: '{word}' in {said}");
}

fn answered(report: &Value, n: u64) {
    let counts = &report["total"]["counts"];
    assert_eq!((&counts["answered"], &counts["failed"]), (&n.into(), &0.into()), "{report}");
}

fn failed(report: &Value, kind: &str, word: &str) {
    let error = &report["total"]["counts"]["errors"][kind];
    assert!(error["count"].as_u64().unwrap_or(0) > 0, "{kind}: {report}");
    assert!(error["example"].to_string().contains(word), "{word}: {error}");
}

/// The value that the head of a report has for something beyond the usual.
fn more<'a>(report: &'a Value, name: &str) -> &'a str {
    let all = report["setup"]["more"].as_object().unwrap();
    all.get(name).and_then(Value::as_str).unwrap_or_else(|| panic!("no {name} in {all:?}"))
}

/// Answers every request, and keeps the heads.
fn answer(mut stream: impl Read + Write, heads: &Mutex<Vec<String>>) {
    let (mut held, mut buffer) = (Vec::new(), [0; 4096]);
    while let Ok(n @ 1..) = stream.read(&mut buffer) {
        held.extend_from_slice(&buffer[..n]);
        while let Some(end) = held.windows(4).position(|w| w == b"\r\n\r\n") {
            let head = String::from_utf8(held.drain(..end + 4).collect()).unwrap();
            let close = head.to_ascii_lowercase().contains("\r\nconnection: close\r\n");
            heads.lock().unwrap().push(head);
            if stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello").is_err() || close {
                return;
            }
        }
    }
}

/// A server on the kernel's loopback: its port, and the heads of what it was asked.
fn server() -> (u16, Arc<Mutex<Vec<String>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (port, heads) = (listener.local_addr().unwrap().port(), Arc::new(Mutex::default()));
    let all = heads.clone();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let all = all.clone();
            std::thread::spawn(move || answer(stream.unwrap(), &all));
        }
    });
    (port, heads)
}

/// `serve http` on the loopback with TLS for `a.example`, whose certificate is in a file.
struct Secure {
    _program: Program,
    port: u16,
    dir: Scratch,
}

impl Secure {
    fn start(name: &str, more: &[&str]) -> Self {
        let dir = Scratch::new(name);
        certificate(&dir, "server", "a.example");
        certificate(&dir, "client", "client.example");
        certificate(&dir, "stranger", "stranger.example");
        let (port, pem, ca) = (free_port(), dir.path("server.pem"), dir.path("client.pem"));
        let mut command = program();
        command.args(["serve", "http", "--addr", "127.0.0.1/8", "--no-pin", "--port", &port.to_string()]);
        command.args(["--cert", &pem, "--cert-key", &pem]);
        command.args(more.iter().map(|word| if *word == "CA" { &ca } else { *word }));
        Self { _program: Program::ready(command, "http on 127.0.0.1"), port, dir }
    }
}

/// A certificate and its key in one file, an authority by its own word as `openssl req -x509` makes it.
fn certificate(dir: &Scratch, tag: &str, name: &str) {
    let mut parameters = rcgen::CertificateParams::new(vec![name.to_owned()]).unwrap();
    parameters.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let key = rcgen::KeyPair::generate().unwrap();
    let certificate = parameters.self_signed(&key).unwrap();
    std::fs::write(dir.path(&format!("{tag}.pem")), certificate.pem() + &key.serialize_pem()).unwrap();
}

#[test]
fn connections_go_elsewhere_and_requests_stay_as_they_are() {
    let (port, heads) = server();
    let url = format!("http://a.example:{port}/x");
    for (way, url) in [
        (["--connect-to", &format!("a.example:9:127.0.0.1:{port}")], "http://a.example:9/x"),
        (["--connect-to", &format!("::127.0.0.1:{port}")], "http://a.example/x"),
        (["--resolve", &format!("a.example:{port}:127.0.0.1")], &url),
        (["--resolve", &format!("*:{port}:127.0.0.1")], &url),
    ] {
        let report = run(&[url, "-n", "10", way[0], way[1]]);
        answered(&report, 10);
        assert_eq!(more(&report, way[0].trim_start_matches('-')), way[1]);
        let heads = std::mem::take(&mut *heads.lock().unwrap());
        let host = format!("\r\nHost: {}\r\n", url.split('/').nth(2).unwrap());
        assert!(heads.len() == 10 && heads.iter().all(|h| h.contains(&host)), "{heads:?}");
    }
    // On our own stack, whose other end has the address.
    for way in [["--connect-to", "::10.0.0.1:80"], ["--resolve", "a.example:80:10.0.0.1"]] {
        answered(&run(&["http://a.example/", "--link", "pair", "-n", "10", way[0], way[1]]), 10);
    }
    let scenario = Scratch::new("load-http-via");
    let file = scenario.path("x.toml");
    let pool = format!(
        "[[pool]]\nrequests = 10\nconnect-to = [\"::127.0.0.1:{port}\"]\ntarget = [{{ url = \"http://a.example/\" }}]\n"
    );
    std::fs::write(&file, &pool).unwrap();
    let output = load(&["--scenario", &file, "--json", "-q", "--no-pin"]);
    answered(&serde_json::from_slice(&output.stdout).unwrap(), 10);
    std::fs::write(&file, pool.replace("::127", ":127")).unwrap();
    refused(&["--scenario", &file], "HOST1:PORT1:HOST2:PORT2");
    refused(&["http://a.example/", "--connect-to", "a.example:80"], "HOST1:PORT1:HOST2:PORT2");
    refused(&["http://a.example/", "--resolve", "a.example:10.0.0.1"], "HOST:PORT:ADDRESS");
}

/// The name that TLS asks for, and that the certificate has to have, is the URL's.
#[test]
fn a_certificate_is_of_the_urls_host_wherever_the_connection_goes() {
    let server = Secure::start("load-http-names", &[]);
    let (to, ca) = (format!("::127.0.0.1:{}", server.port), server.dir.path("server.pem"));
    for http2 in [&[][..], &["--http2"]] {
        let ask = |host: &str| {
            let url = format!("https://{host}/size/10");
            run(&[&[&url, "-n", "10", "-d", "300ms", "--connect-to", &to, "--ca", &ca], http2].concat())
        };
        answered(&ask("a.example"), 10);
        failed(&ask("b.example"), "tls", "certificate");
    }
}

// Long: twelve runs, of which half fail, and each asks until its time is over.
#[test]
fn a_server_that_demands_certificates_gets_one() {
    let server = Secure::start("load-http-mutual", &["--client-ca", "CA"]);
    let (to, ca) = (format!("::127.0.0.1:{}", server.port), server.dir.path("server.pem"));
    let (client, stranger) = (server.dir.path("client.pem"), server.dir.path("stranger.pem"));
    let usual = ["https://a.example/size/10", "-d", "300ms", "--connect-to", &to, "--ca", &ca];
    for more in [&["-n", "10"][..], &["-n", "10", "--http2"], &["-n", "10", "--tls-max", "1.2"]] {
        let ask = |own: &[&str]| run(&[&usual[..], more, own].concat());
        let report = ask(&["--cert", &client, "--cert-key", &client]);
        answered(&report, 10);
        assert_eq!(report["setup"]["more"]["client-certificate"], client.as_str());
        answered(&ask(&["--cert", &client]), 10);
        for own in [&[][..], &["--cert", &stranger]] {
            let report = ask(own);
            assert_eq!(report["total"]["counts"]["answered"], 0, "{report}");
            failed(&report, "tls", "ertificate");
        }
    }
    refused(&["https://a/", "--connect-to", &to, "--cert", "/no/such/file"], "/no/such/file");
    refused(&["https://a/", "--connect-to", &to, "--cert-key", &client], "--cert");
    refused(&["https://a/", "--connect-to", &to, "--cert", &client, "--key", "./x.key"], "--key");
    refused(&["https://a/", "--tls-max", "1.1"], "1.2 or 1.3");
    refused(&["https://127.0.0.1/", "--tls-max", "1.2", "--tls-min", "1.3"], "--tls-min");
    // No output over what is read here.
    refused(&["https://127.0.0.1/", "--cert", &client, "--save", &client], "reads");
    let serve = ["serve", "http", "--client-ca", &client];
    let output = program().args(serve).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(2) && said.contains("--client-ca: clients present"), "{said}");
}

#[test]
fn a_unix_socket_in_the_place_of_the_host() {
    let dir = Scratch::new("load-http-unix");
    let path = dir.path("a.sock");
    refused(&["http://a.example/", "--unix-socket", &path], "No such file");
    let (listener, heads) = (UnixListener::bind(&path).unwrap(), Arc::new(Mutex::default()));
    let all = heads.clone();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let all = all.clone();
            std::thread::spawn(move || answer(stream.unwrap(), &all));
        }
    });
    for more in [&[][..], &["--no-keepalive"], &["--rate", "500"], &["--io", "uring"]] {
        let report = run(&[&["http://a.example:7/x", "-n", "50", "--unix-socket", &path], more].concat());
        answered(&report, 50);
        let heads = std::mem::take(&mut *heads.lock().unwrap());
        assert!(
            heads.len() == 50 && heads.iter().all(|h| h.contains("\r\nHost: a.example:7\r\n")),
            "{heads:?}"
        );
        assert_eq!(report["setup"]["more"]["unix-socket"], path.as_str());
    }
    let file = dir.path("x.toml");
    std::fs::write(
        &file,
        "[[pool]]\nrequests = 10\nunix-socket = \"a.sock\"\ntarget = [{ url = \"http://a.example/\" }]\n",
    )
    .unwrap();
    let output = load(&["--scenario", &file, "--json", "-q", "--no-pin"]);
    answered(&serde_json::from_slice(&output.stdout).unwrap(), 10);
    let url = "http://10.0.0.1/";
    refused(&[url, "--unix-socket", &path, "--link", "pair"], "--unix-socket: pair has no Unix sockets");
    refused(&[url, "--unix-socket", &file], "this is no socket");
    refused(&[url, "--unix-socket", &path, "--clients", "127.0.0.2/32"], "no client addresses");
    refused(&[url, "--unix-socket", &path, "--fast-open", "--no-keepalive"], "straight to the target");
    // Nobody listens there any more: one line, as where a port refuses.
    let gone = dir.path("gone.sock");
    drop(UnixListener::bind(&gone).unwrap());
    let output = load(&[url, "--unix-socket", &gone, "-q", "--no-pin"]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains(&format!("nothing listens at {gone}")), "{said}");
}

/// A proxy on the loopback: its port, and what it was asked for. Every name is the loopback.
fn proxy(serve: fn(&mut TcpStream) -> Option<(String, u16)>) -> (u16, Arc<Mutex<Vec<String>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (port, asked) = (listener.local_addr().unwrap().port(), Arc::new(Mutex::new(Vec::new())));
    let all = asked.clone();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let (all, mut client) = (all.clone(), stream.unwrap());
            std::thread::spawn(move || {
                let Some((words, port)) = serve(&mut client) else { return };
                all.lock().unwrap().push(words);
                let mut server = TcpStream::connect(("127.0.0.1", port)).unwrap();
                let (mut from, mut to) = (client.try_clone().unwrap(), server.try_clone().unwrap());
                std::thread::spawn(move || {
                    // Either end may close before the other.
                    let _ = std::io::copy(&mut from, &mut to);
                    let _ = to.shutdown(std::net::Shutdown::Write);
                });
                let _ = std::io::copy(&mut server, &mut client);
                let _ = client.shutdown(std::net::Shutdown::Write);
            });
        }
    });
    (port, asked)
}

/// Takes `CONNECT` from who is u:p.
fn connecting(client: &mut TcpStream) -> Option<(String, u16)> {
    let (mut head, mut byte) = (Vec::new(), [0]);
    while !head.ends_with(b"\r\n\r\n") {
        client.read_exact(&mut byte).ok()?;
        head.push(byte[0]);
    }
    let head = String::from_utf8(head).unwrap();
    if !head.contains("\r\nProxy-Authorization: Basic dTpw\r\n") {
        client.write_all(b"HTTP/1.1 407 No\r\nContent-Length: 0\r\n\r\n").ok()?;
        return None;
    }
    client.write_all(b"HTTP/1.1 200 Connected\r\n\r\n").ok()?;
    let place = head.split(' ').nth(1)?.to_owned();
    let port = place.rsplit(':').next()?.parse().ok()?;
    Some((place, port))
}

/// SOCKS 5, with names and addresses, for who is u:p.
fn socks(client: &mut TcpStream) -> Option<(String, u16)> {
    let mut bytes = |n: usize, say: &[u8]| {
        client.write_all(say).ok()?;
        let mut bytes = vec![0; n];
        client.read_exact(&mut bytes).ok()?;
        Some(bytes)
    };
    let methods = bytes(2, b"")?[1];
    if !bytes(methods.into(), b"")?.contains(&2) {
        bytes(1, &[5, 255]);
        return None;
    }
    if bytes(5, &[5, 2])? != [1, 1, b'u', 1, b'p'] {
        bytes(1, &[1, 1]);
        return None;
    }
    let asked = bytes(4, &[1, 0])?;
    let host = match asked[3] {
        3 => {
            let len = bytes(1, b"")?[0];
            String::from_utf8(bytes(len.into(), b"")?).unwrap()
        }
        _ => {
            let ip: [u8; 4] = bytes(4, b"")?.try_into().unwrap();
            std::net::Ipv4Addr::from(ip).to_string()
        }
    };
    let port = bytes(2, b"")?;
    let port = u16::from_be_bytes([port[0], port[1]]);
    client.write_all(&[5, 0, 0, 1, 127, 0, 0, 1, 0, 9]).ok()?;
    Some((format!("{host}:{port}"), port))
}

// Long: every kind of proxy and protocol has a run.
#[test]
fn through_a_proxy() {
    // A proxy that sees requests is asked for the whole URL.
    let (port, heads) = server();
    let report = run(&["http://a.example/x", "-n", "10", "--proxy", &format!("http://u:p@127.0.0.1:{port}")]);
    answered(&report, 10);
    assert_eq!(more(&report, "proxy"), format!("http://127.0.0.1:{port}"));
    let heads = std::mem::take(&mut *heads.lock().unwrap());
    let whole = |h: &String| {
        h.starts_with("GET http://a.example/x HTTP/1.1\r\nHost: a.example\r\n")
            && h.contains("\r\nProxy-Authorization: Basic dTpw\r\n")
    };
    assert!(heads.len() == 10 && heads.iter().all(whole), "{heads:?}");

    let (plain, heads) = server();
    let secure = Secure::start("load-http-proxy", &[]);
    let ca = secure.dir.path("server.pem");
    let (plain, tls) =
        (format!("http://a.example:{plain}/"), format!("https://a.example:{}/size/9", secure.port));
    let ((http, dug), (socks, relayed)) = (proxy(connecting), proxy(socks));
    let place = |url: &str| url.split('/').nth(2).unwrap().to_owned();
    for (way, url, asked) in [
        (format!("http://u:p@127.0.0.1:{http}"), &tls, &dug),
        (format!("socks5h://u:p@127.0.0.1:{socks}"), &plain, &relayed),
        (format!("socks5h://u:p@127.0.0.1:{socks}"), &tls, &relayed),
    ] {
        for http2 in [&[][..], &["--http2"]] {
            if !http2.is_empty() && url == &plain {
                continue;
            }
            let report = run(&[&[url, "-n", "10", "-c", "3", "--ca", &ca, "--proxy", &way], http2].concat());
            answered(&report, 10);
            let asked = std::mem::take(&mut *asked.lock().unwrap());
            assert!(!asked.is_empty() && asked.iter().all(|a| *a == place(url)), "{asked:?}");
        }
    }
    assert!(
        heads.lock().unwrap().iter().all(|h| h.starts_with("GET / HTTP/1.1\r\n") && !h.contains("Proxy"))
    );
    // Names that are resolved here.
    let way = format!("socks5://u:p@127.0.0.1:{socks}");
    let named = ["--resolve", &format!("{}:127.0.0.5", place(&plain))];
    answered(&run(&[&plain, "-n", "10", "--proxy", &way, named[0], named[1]]), 10);
    assert!(relayed.lock().unwrap().iter().all(|a| a.starts_with("127.0.0.5:")));
    // Who is not let in, and what is no proxy.
    for (way, why) in [
        (format!("http://127.0.0.1:{http}"), "407"),
        (format!("socks5h://127.0.0.1:{socks}"), "wants a login"),
        (format!("socks5h://u:x@127.0.0.1:{socks}"), "this login"),
        (format!("socks5h://127.0.0.1:{port}"), ""),
    ] {
        let report = run(&[&tls, "-n", "2", "-d", "200ms", "--timeout", "500ms", "-k", "--proxy", &way]);
        assert_eq!(report["total"]["counts"]["answered"], 0);
        if !why.is_empty() {
            failed(&report, "proxy", why);
        }
    }
    refused(&["http://a/", "--proxy", "http://u:secret@a:0"], "--proxy: a proxy is");
    refused(&["http://a/", "--proxy", "https://127.0.0.1:1"], "TLS to a proxy");
    refused(
        &["http://a/", "--proxy", "127.0.0.1:1", "--resolve", "a:80:10.0.0.1"],
        "the proxy resolves names",
    );
    refused(&["http://10.0.0.1/", "--proxy", "127.0.0.1:1", "--link", "pair"], "--proxy: the other end");
    // The environment is not followed: the name is asked for, and there is none.
    let output = program()
        .args(["load", "http", "http://no-such-host.invalid/"])
        .env("http_proxy", format!("http://127.0.0.1:{port}"))
        .env("ALL_PROXY", format!("http://127.0.0.1:{port}"))
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(2) && said.contains("resolved"), "{said}");
}

/// A program that ends with the test.
struct Ended(std::process::Child);

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Proxies that others have made, where they are installed.
#[test]
fn through_proxies_of_others() {
    let dir = Scratch::new("load-http-others");
    let (http, sock, plain) = (free_port(), free_port(), free_port());
    let mut command = program();
    command.args(["serve", "http", "--addr", "127.0.0.1/8", "--no-pin", "--port", &plain.to_string()]);
    let _served = Program::ready(command, "http on 127.0.0.1");
    let secure = Secure::start("load-http-others-tls", &[]);
    let tls = format!("https://127.0.0.1:{}/size/9", secure.port);
    let plain = format!("http://127.0.0.1:{plain}/size/9");
    let file = dir.path("tinyproxy.conf");
    let conf =
        format!("Port {http}\nListen 127.0.0.1\nTimeout 60\nMaxClients 50\nBasicAuth u p\nLogLevel Error\n");
    std::fs::write(&file, conf).unwrap();
    let (http_way, sock_way) =
        (format!("http://u:p@127.0.0.1:{http}"), format!("socks5h://u:p@127.0.0.1:{sock}"));
    let mut tinyproxy = Command::new("tinyproxy");
    tinyproxy.args(["-d", "-c", &file]);
    let mut microsocks = Command::new("microsocks");
    microsocks.args(["-i", "127.0.0.1", "-p", &sock.to_string(), "-u", "u", "-P", "p"]);
    for (mut command, port, way) in [(tinyproxy, http, http_way), (microsocks, sock, sock_way)] {
        let name = command.get_program().to_string_lossy().into_owned();
        let started = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        let Ok(child) = started else {
            flowlane_testnet::skipped(format!("skipped, because there is no {name}"));
            continue;
        };
        let child = Ended(child);
        flowlane_testnet::eventually(&format!("{name} listens"), || {
            TcpStream::connect(("127.0.0.1", port)).is_ok()
        });
        let reports: Vec<Value> = [&plain, &tls]
            .iter()
            // tinyproxy closes after an answer without having said so.
            .map(|url| run(&[url, "-n", "20", "-k", "-c", "4", "--no-keepalive", "--proxy", &way]))
            .collect();
        drop(child);
        reports.iter().for_each(|report| answered(report, 20));
    }
}

/// A server that leads every request to a place: its port, and the heads of what it was asked.
fn leading_to(place: String) -> (u16, Arc<Mutex<Vec<String>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (port, heads) = (listener.local_addr().unwrap().port(), Arc::new(Mutex::default()));
    let all: Arc<Mutex<Vec<String>>> = heads.clone();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let (all, mut stream, place) = (all.clone(), stream.unwrap(), place.clone());
            std::thread::spawn(move || {
                let mut buffer = [0; 4096];
                // A head in one piece: what comes is from this machine, and small.
                while let Ok(n @ 1..) = stream.read(&mut buffer) {
                    all.lock().unwrap().push(String::from_utf8_lossy(&buffer[..n]).into_owned());
                    let answer = format!("HTTP/1.1 302 Go\r\nLocation: {place}\r\nContent-Length: 0\r\n\r\n");
                    if stream.write_all(answer.as_bytes()).is_err() {
                        return;
                    }
                }
            });
        }
    });
    (port, heads)
}

#[test]
fn redirects_are_followed_to_where_it_is_allowed() {
    let (end, heads) = server();
    let (port, asked) = leading_to(format!("http://127.0.0.1:{end}/end"));
    let url = format!("http://127.0.0.1:{port}/go");
    let usual = [&url[..], "-n", "20", "-c", "4", "-H", "Authorization: Basic eDp5", "-H", "X-A: b"];
    let report = run(&[&usual[..], &["--follow", "--expect-contains", "hello"]].concat());
    answered(&report, 20);
    assert_eq!(report["total"]["counts"]["more"]["redirects"], 20);
    assert_eq!(report["total"]["counts"]["connections-opened"], 8);
    assert!(more(&report, "redirects").contains("hosts of the targets, at most 10"));
    let (asked, heads) = (asked.lock().unwrap(), std::mem::take(&mut *heads.lock().unwrap()));
    let ours = |h: &String| h.contains("X-A: b") && h.starts_with("GET /");
    assert!(asked.iter().all(|h| ours(h) && h.contains("Authorization: ")), "{asked:?}");
    let host = format!("\r\nHost: 127.0.0.1:{end}\r\n");
    let theirs = |h: &String| ours(h) && !h.contains("Authorization") && h.contains(&host);
    assert!(heads.len() == 20 && heads.iter().all(theirs), "{heads:?}");

    // Another name, though it is the same machine, was not asked for.
    let (port, _) = leading_to(format!("http://localhost:{end}/end"));
    let url = format!("http://127.0.0.1:{port}/go");
    failed(&run(&[&url, "-n", "20", "--follow"]), "redirect-away", "localhost is no host of the targets");
    answered(&run(&[&url, "-n", "20", "--follow=1", "--follow-anywhere"]), 20);
    let (port, _) = leading_to("http://no-such-host.invalid/".to_owned());
    let report = run(&[&format!("http://127.0.0.1:{port}/"), "-n", "4", "--follow", "--follow-anywhere"]);
    failed(&report, "resolve", "no-such-host.invalid");
    let (port, asked) = leading_to("/again".to_owned());
    failed(
        &run(&[&format!("http://127.0.0.1:{port}/"), "-n", "4", "--follow=3"]),
        "redirect-limit",
        "more than 3",
    );
    assert_eq!(asked.lock().unwrap().len(), 16);

    refused(&[&url, "--follow=0"], "--follow");
    refused(&[&url, "--follow-anywhere"], "--follow");
    refused(&[&url, "--follow", "--pipeline", "4"], "--pipeline");
    refused(&[&url, "--follow", "--fast-open", "--no-keepalive"], "not with Fast Open");
}

/// From http: to https:, as most sites lead; and through a proxy.
#[test]
fn a_redirect_leads_into_tls() {
    let secure = Secure::start("load-http-into-tls", &[]);
    let ca = secure.dir.path("server.pem");
    let (port, _) = leading_to(format!("https://a.example:{}/size/9", secure.port));
    let url = format!("http://a.example:{port}/");
    let usual = [&url[..], "-n", "20", "-c", "2", "--ca", &ca, "--follow"];
    let straight = ["--connect-to", "a.example::127.0.0.1:"];
    let report = run(&[&usual[..], &straight].concat());
    answered(&report, 20);
    assert_eq!(report["total"]["counts"]["connections-opened"], 4);
    assert!(report["total"]["tls"]["max"].as_u64().unwrap() > 0, "{report}");
    let (relayed, asked) = proxy(socks);
    let way = format!("socks5h://u:p@127.0.0.1:{relayed}");
    answered(&run(&[&usual[..], &["--proxy", &way]].concat()), 20);
    assert_eq!(asked.lock().unwrap().iter().filter(|a| a.ends_with(&secure.port.to_string())).count(), 2);
}

/// nginx with `ssl_verify_client`, where it is installed: it answers 400 to who presents no certificate.
#[test]
fn nginx_gets_the_certificate_that_it_demands() {
    let dir = Scratch::new("load-http-nginx");
    certificate(&dir, "server", "a.example");
    certificate(&dir, "client", "client.example");
    let (port, server, client) = (free_port(), dir.path("server.pem"), dir.path("client.pem"));
    let file = dir.path("nginx.conf");
    let root = dir.dir().display();
    let conf = format!(
        "daemon off; master_process off; pid {root}/pid; error_log stderr;\n\
         events {{}}\n\
         http {{ access_log off; client_body_temp_path {root}; proxy_temp_path {root}; fastcgi_temp_path {root};\n\
         uwsgi_temp_path {root}; scgi_temp_path {root};\n\
         server {{ listen 127.0.0.1:{port} ssl http2; ssl_certificate {server}; ssl_certificate_key {server};\n\
         ssl_client_certificate {client}; ssl_verify_client on; location / {{ return 200 hello; }} }} }}\n"
    );
    std::fs::write(&file, conf).unwrap();
    let mut nginx = Command::new("nginx");
    nginx.args(["-c", &file, "-p", &dir.dir().display().to_string()]);
    let started = nginx.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
    let Ok(child) = started else {
        flowlane_testnet::skipped("skipped, because there is no nginx");
        return;
    };
    let _child = Ended(child);
    flowlane_testnet::eventually("nginx listens", || TcpStream::connect(("127.0.0.1", port)).is_ok());
    let to = format!("::127.0.0.1:{port}");
    let usual = ["https://a.example/", "-n", "20", "-c", "4", "--connect-to", &to, "--ca", &server];
    for more in [&[][..], &["--http2"], &["--tls-max", "1.2"]] {
        let ask = |own: &[&str]| run(&[&usual[..], more, own].concat());
        answered(&ask(&["--cert", &client, "--expect-contains", "hello"]), 20);
        let without = ask(&[]);
        assert_eq!(without["total"]["counts"]["codes"]["400"], 20, "{without}");
    }
}
