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
    let output = load(&[arguments, &["-c", "2", "--json", "-q", "--no-pin"]].concat());
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
            heads.lock().unwrap().push(String::from_utf8(held.drain(..end + 4).collect()).unwrap());
            if stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello").is_err() {
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
            let kind =
                if more.contains(&"--http2") && !more.contains(&"--tls-max") { "http2" } else { "tls" };
            failed(&report, kind, "ertificate");
        }
    }
    refused(&["https://a/", "--connect-to", &to, "--cert", "/no/such/file"], "/no/such/file");
    refused(&["https://a/", "--connect-to", &to, "--cert-key", &client], "--cert");
    refused(&["https://a/", "--connect-to", &to, "--cert", &client, "--key", "./x.key"], "--key");
    refused(&["https://a/", "--tls-max", "1.1"], "1.2 or 1.3");
    refused(&["https://127.0.0.1/", "--tls-max", "1.2", "--tls-min", "1.3"], "--tls-min");
    // No output over what is read here.
    refused(&["https://127.0.0.1/", "--cert", &client, "--save", &client], "reads");
    let serve = ["serve", "http", "--client-ca", &client, "--port", "0"];
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
    for more in [&[][..], &["--no-keepalive"], &["--rate", "500"], &["--io", "io-uring"]] {
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
