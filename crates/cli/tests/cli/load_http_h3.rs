//! `flowlane load http --http3` against servers that others wrote: the crates `quinn` and `h3`, and ngtcp2's from Debian; and what it refuses.

use std::fs;
use std::net::SocketAddr;
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};

use bytes::{Buf, Bytes};
use flowlane_testnet::{Scratch, eventually, free_port, skipped};
use quinn::crypto::rustls::QuicServerConfig;
use serde_json::Value;

/// H3_REQUEST_REJECTED (RFC 9114 §8.1).
const REJECTED: u64 = 0x10b;

/// What was asked: method, path, what of the head is of interest, and the body.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Asked(String, String, String, Bytes);

/// A server of quinn's and h3's, which lives as long as the test.
struct Server {
    at: SocketAddr,
    scratch: Scratch,
    asked: Arc<Mutex<Vec<Asked>>>,
    connections: Arc<AtomicUsize>,
}

/// How it serves.
#[derive(Debug, Clone, Copy, Default)]
struct Manner {
    /// Requests on a connection, behind which it says GOAWAY.
    most: Option<usize>,
}

impl Server {
    fn start(name: &str, manner: Manner) -> Self {
        let scratch = Scratch::new(name);
        let made =
            rcgen::generate_simple_self_signed(["localhost".to_owned(), "127.0.0.1".to_owned()]).unwrap();
        fs::write(scratch.path("ca.pem"), made.cert.pem()).unwrap();
        fs::write(scratch.path("key.pem"), made.signing_key.serialize_pem()).unwrap();
        let key = quinn::rustls::pki_types::PrivatePkcs8KeyDer::from(made.signing_key.serialize_der());
        let provider = Arc::new(quinn::rustls::crypto::ring::default_provider());
        let mut tls = quinn::rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![made.cert.der().clone()], key.into())
            .unwrap();
        tls.alpn_protocols = vec![b"h3".to_vec()];
        let config = quinn::ServerConfig::with_crypto(Arc::new(QuicServerConfig::try_from(tls).unwrap()));
        let (asked, connections) = (Arc::<Mutex<Vec<Asked>>>::default(), Arc::<AtomicUsize>::default());
        let (told, at) = mpsc::channel();
        let (seen, count) = (asked.clone(), connections.clone());
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async move {
                let endpoint = quinn::Endpoint::server(config, "127.0.0.1:0".parse().unwrap()).unwrap();
                told.send(endpoint.local_addr().unwrap()).unwrap();
                while let Some(incoming) = endpoint.accept().await {
                    let (seen, count) = (seen.clone(), count.clone());
                    tokio::spawn(async move {
                        let Ok(connection) = incoming.await else { return };
                        count.fetch_add(1, Ordering::Relaxed);
                        serve(connection, manner, seen).await;
                    });
                }
            });
        });
        Self { at: at.recv().unwrap(), scratch, asked, connections }
    }

    fn url(&self, path: &str) -> String {
        format!("https://localhost:{}{path}", self.at.port())
    }

    /// The report of a run that asks it, and its exit code.
    fn report(&self, path: &str, arguments: &[&str]) -> (Option<i32>, Value) {
        let (url, ca) = (self.url(path), self.scratch.path("ca.pem"));
        report(&[&["--json", "--ca", &ca, &url], arguments].concat())
    }

    fn asked(&self) -> Vec<Asked> {
        self.asked.lock().unwrap().clone()
    }
}

async fn serve(connection: quinn::Connection, manner: Manner, seen: Arc<Mutex<Vec<Asked>>>) {
    let builder = h3::server::builder();
    let quic = h3_quinn::Connection::new(connection);
    let Ok(mut h3) = builder.build::<_, Bytes>(quic).await else { return };
    let mut taken = 0;
    while let Ok(Some(resolver)) = h3.accept().await {
        taken += 1;
        if manner.most == Some(taken) {
            let _ = h3.shutdown(0).await;
        }
        let seen = seen.clone();
        tokio::spawn(async move {
            let Ok((request, mut stream)) = resolver.resolve_request().await else { return };
            let mut body = Vec::new();
            while let Ok(Some(mut data)) = stream.recv_data().await {
                body.extend_from_slice(&data.copy_to_bytes(data.remaining()));
            }
            let of = |name: &str| request.headers().get(name).map_or("", |v| v.to_str().unwrap()).to_owned();
            let path = request.uri().path().to_owned();
            let number = {
                let mut seen = seen.lock().unwrap();
                let head = format!("{} {} {}", of("x-own"), of("user-agent"), of("content-length"));
                seen.push(Asked(request.method().to_string(), path.clone(), head, body.clone().into()));
                seen.len()
            };
            if path == "/reject-some" && number % 4 == 0 {
                stream.stop_stream(h3::error::Code::H3_REQUEST_REJECTED);
                assert_eq!(h3::error::Code::H3_REQUEST_REJECTED.value(), REJECTED);
                return;
            }
            if path == "/reset" {
                return stream.stop_stream(h3::error::Code::H3_INTERNAL_ERROR);
            }
            if path == "/silent" {
                return std::future::pending().await;
            }
            let status = if path == "/missing" { 404 } else { 200 };
            let content = match path.as_str() {
                "/large" => Bytes::from(vec![b'x'; 3_000_000]),
                "/login" => Bytes::from_static(b"token=t-17;"),
                _ => Bytes::from(body),
            };
            let mut response = http::Response::builder().status(status);
            if path != "/large" {
                response =
                    response.header("content-length", if path == "/short" { 9 } else { content.len() });
            }
            let _ = stream.send_response(response.body(()).unwrap()).await;
            if !content.is_empty() {
                let _ = stream.send_data(content).await;
            }
            let _ = stream.finish().await;
        });
    }
}

fn load(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_flowlane"));
    command.args(["load", "http", "--no-pin", "--quiet"]).args(arguments).stdin(Stdio::null());
    command.output().unwrap()
}

fn report(arguments: &[&str]) -> (Option<i32>, Value) {
    let output = load(arguments);
    let report: Value = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|e| panic!("{arguments:?}: {e}: {}", String::from_utf8_lossy(&output.stderr)));
    assert_eq!(flowlane_schema::faults("load-run", &report), [""; 0]);
    (output.status.code(), report)
}

fn counts(report: &Value) -> &Value {
    &report["total"]["counts"]
}

fn all_answered(report: &Value, n: u64) {
    let counts = counts(report);
    assert_eq!((&counts["answered"], &counts["failed"]), (&n.into(), &0.into()), "{counts}");
}

#[test]
fn requests_arrive_whole_and_answers_are_read() {
    let server = Server::start("h3-requests", Manner::default());
    let (code, run) = server.report("/a", &["--http3", "8", "-c", "3", "-n", "300", "-H", "X-Own: 1"]);
    assert_eq!(code, Some(0));
    all_answered(&run, 300);
    assert_eq!(server.connections.load(Ordering::Relaxed), 3);
    let get = Asked("GET".into(), "/a".into(), "1 flowlane ".into(), Bytes::new());
    assert_eq!(server.asked(), vec![get; 300]);
    let more = &counts(&run)["more"];
    assert!(more["quic-packets-sent"].as_u64().unwrap() >= 40, "{more}");
    assert!(more["quic-datagrams-received"].as_u64().unwrap() >= 40, "{more}");

    // A body that is larger than any window, which comes back and is checked.
    server.asked.lock().unwrap().clear();
    let arguments = ["--http3", "-n", "4", "--body-size", "2000000", "--expect-length", "2000000"];
    all_answered(&server.report("/echo", &arguments).1, 4);
    assert!(server.asked().iter().all(|asked| asked.0 == "POST" && asked.2 == " flowlane 2000000"));
    assert!(server.asked().iter().all(|asked| asked.3.len() == 2_000_000));
    all_answered(&server.report("/large", &["--http3", "2", "-n", "6", "--expect-length", "3000000"]).1, 6);

    // An open loop, with values in the place of placeholders.
    server.asked.lock().unwrap().clear();
    let arguments = ["--http3", "4", "--rate", "400", "-d", "500ms", "-c", "2", "--body", "n={{counter}}"];
    let (code, run) = server.report("/rows", &arguments);
    assert_eq!((code, counts(&run)["failed"].as_u64()), (Some(0), Some(0)));
    let mut bodies: Vec<_> = server.asked().into_iter().map(|asked| asked.3).collect();
    let n = bodies.len();
    bodies.sort();
    bodies.dedup();
    assert!(bodies.len() == n && n as u64 == counts(&run)["answered"].as_u64().unwrap() && n >= 190, "{n}");
}

#[test]
fn failures_have_their_kinds() {
    let server = Server::start("h3-failures", Manner::default());
    let errors = |path: &str, arguments: &[&str]| {
        let (code, run) = server.report(path, &[&["--http3", "2", "-n", "8"], arguments].concat());
        assert!(code.is_some());
        counts(&run)["errors"]
            .as_object()
            .unwrap()
            .iter()
            .map(|(k, v)| (k.clone(), v["count"].as_u64().unwrap()))
            .collect::<Vec<_>>()
    };
    let is = |kind: &str| vec![(kind.to_owned(), 8)];
    assert_eq!(errors("/missing", &[]), is("status"));
    assert_eq!(errors("/reset", &[]), is("http3"));
    assert_eq!(errors("/short", &[]), is("closed"));
    assert_eq!(errors("/silent", &["--request-timeout", "50ms"]), is("timeout"));
    assert_eq!(errors("/large", &["--max-body", "1Mi"]), is("too-long"));
    assert_eq!(errors("/a", &["--expect-contains", "x"]), is("content"));
}

#[test]
fn what_was_not_processed_is_sent_again() {
    let server = Server::start("h3-again", Manner::default());
    let (_, run) = server.report("/reject-some", &["--http3", "3", "-n", "100"]);
    all_answered(&run, 100);
    let again = counts(&run)["more"]["sent-again"].as_u64().unwrap();
    assert_eq!(server.asked().len() as u64, 100 + again);
    assert!(again >= 25, "{again}");

    // A server that ends its connections has others opened.
    let server = Server::start("h3-goaway", Manner { most: Some(10) });
    let (_, run) = server.report("/a", &["--http3", "4", "-n", "100"]);
    all_answered(&run, 100);
    assert!(server.connections.load(Ordering::Relaxed) >= 8);
    assert_eq!(server.asked().len(), 100, "none was processed twice");
}

#[test]
fn a_flow_takes_its_steps_over_http3() {
    let server = Server::start("h3-flow", Manner::default());
    let scenario = format!(
        "[[pool]]\nname = \"a\"\ntarget = [{{ url = \"{}\" }}]\nhttp3 = 2\nconnections = 2\nrequests = 10\nca = \"{}\"\n\
         [[pool.step]]\npath = \"/login\"\ncapture = {{ t = {{ regex = \"token=([^;]+)\" }} }}\n\
         [[pool.step]]\nmethod = \"PUT\"\npath = \"/item/{{{{t}}}}\"\nbody = \"b\"\n\
         [[phase]]\nduration = \"20s\"\n",
        server.url("/"),
        server.scratch.path("ca.pem"),
    );
    fs::write(server.scratch.path("flow.toml"), scenario).unwrap();
    let (code, run) = report(&["--json", "--scenario", &server.scratch.path("flow.toml")]);
    assert_eq!(code, Some(0));
    all_answered(&run, 20);
    assert_eq!(counts(&run)["more"]["flows-whole"], 10);
    let puts: Vec<_> = server.asked().into_iter().filter(|asked| asked.0 == "PUT").collect();
    assert_eq!(puts, vec![Asked("PUT".into(), "/item/t-17".into(), " flowlane 1".into(), "b".into()); 10]);
}

#[test]
fn ngtcp2_answers() {
    const SERVER: &str = "/usr/sbin/gtlsserver";
    if !fs::exists(SERVER).unwrap() {
        return skipped("there is no server of ngtcp2 (Debian: ngtcp2-server)");
    }
    let (ours, port) = (Server::start("h3-ngtcp2", Manner::default()), free_port().to_string());
    let (key, ca) = (ours.scratch.path("key.pem"), ours.scratch.path("ca.pem"));
    fs::create_dir(ours.scratch.path("files")).unwrap();
    fs::write(ours.scratch.path("files/a"), [b'a'; 5000]).unwrap();
    let mut command = Command::new(SERVER);
    command.args(["-d", &ours.scratch.path("files"), "127.0.0.1", &port, &key, &ca]);
    command.stdout(Stdio::null()).stderr(Stdio::null());
    let mut ngtcp2 = command.spawn().unwrap();
    let url = format!("https://localhost:{port}/a");
    // Until it listens nobody does, which ends a run at once.
    let mut ran = Value::Null;
    eventually("ngtcp2's server answers", || {
        let asks =
            ["--json", "--ca", &ca, "--http3", "4", "-c", "2", "-n", "400", "--expect-length", "5000", &url];
        ran = serde_json::from_slice(&load(&asks).stdout).unwrap_or_default();
        counts(&ran)["answered"].as_u64().is_some_and(|answered| answered > 0)
    });
    ngtcp2.kill().unwrap();
    ngtcp2.wait().unwrap();
    all_answered(&ran, 400);
}

#[test]
fn what_does_not_go_is_said_in_one_line() {
    let server = Server::start("h3-refused", Manner::default());
    let (url, ca) = (server.url("/"), server.scratch.path("ca.pem"));
    let nowhere = format!("https://127.0.0.1:{}/", free_port());
    for (arguments, code, why) in [
        (&["http://127.0.0.1:9/", "--http3"][..], 2, "always encrypted"),
        (&[&url, "--http3", "--proxy", "http://127.0.0.1:9"], 2, "not through a proxy"),
        (&[&url, "--http3", "--unix-socket", "/tmp/none"], 2, "Unix socket"),
        (&[&url, "--http3", "--follow"], 2, "no redirects"),
        (&[&url, "--http3", "--no-keepalive"], 2, "keeps its connections"),
        (&[&url, "--http3", "--http2"], 2, "--http2"),
        (&[&url, "--http3", "--grpc"], 2, "--grpc"),
        (&[&url, "--http3", "-H", "Upgrade: x"], 2, "'upgrade: x'"),
        (&[&url, "--http3", "-k", "--tls-max", "1.2"], 2, "TLS 1.3"),
        (&["https://10.0.0.2/", "--http3", "--link", "pair"], 2, "--link pair"),
        (&[&url, "--http3", "-n", "1"], 1, "not believed (-k believes any"),
        (&[&nowhere, "--http3", "-n", "1", "-k"], 1, "nothing listens"),
        (&["https://127.0.0.2:1/", "--http3", "-n", "1", "--ca", &ca], 1, "nothing listens"),
    ] {
        let output = load(arguments);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        let lines = said.lines().filter(|line| line.starts_with("flowlane: ") || line.starts_with("error: "));
        assert_eq!((output.status.code(), lines.count()), (Some(code), 1), "{arguments:?}: {said}");
        assert!(said.contains(why), "{arguments:?}: {said}");
    }
    // A certificate that is refused reaches no request.
    assert_eq!(server.asked(), []);
}
