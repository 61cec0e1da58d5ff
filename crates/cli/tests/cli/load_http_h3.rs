//! `flowlane load http --http3` against servers that others wrote: the crates `quinn` and `h3`, and ngtcp2's from Debian; and what it refuses.

use std::collections::HashMap;
use std::fs;
use std::net::{SocketAddr, UdpSocket};
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
    heads: Heads,
    connections: Arc<AtomicUsize>,
}

/// The heads of requests, whole.
type Heads = Arc<Mutex<Vec<http::Request<()>>>>;

/// How it serves.
#[derive(Debug, Clone, Copy, Default)]
struct Manner {
    /// Requests on a connection, behind which it says GOAWAY.
    most: Option<usize>,
    /// Windows of a stream and of a connection, bytes.
    windows: Option<(u32, u32)>,
    early: Early,
}

/// What a server makes of early data.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Early {
    #[default]
    Never,
    /// After the first connection its sessions are taken up, and early data is refused.
    OnceOffered,
    /// It is taken, and the first request of every connection but the first is answered 425.
    Answered425,
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
        let later = QuicServerConfig::try_from(tls.clone()).unwrap();
        if manner.early != Early::Never {
            tls.max_early_data_size = u32::MAX;
        }
        let mut config = quinn::ServerConfig::with_crypto(Arc::new(QuicServerConfig::try_from(tls).unwrap()));
        if let Some((stream, connection)) = manner.windows {
            let mut transport = quinn::TransportConfig::default();
            transport.stream_receive_window(stream.into()).receive_window(connection.into());
            config.transport_config(Arc::new(transport));
        }
        let (asked, connections) = (Arc::<Mutex<Vec<Asked>>>::default(), Arc::<AtomicUsize>::default());
        let (told, at) = mpsc::channel();
        let heads = Heads::default();
        let (seen, count) = ((asked.clone(), heads.clone()), connections.clone());
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async move {
                let endpoint = quinn::Endpoint::server(config, "127.0.0.1:0".parse().unwrap()).unwrap();
                told.send(endpoint.local_addr().unwrap()).unwrap();
                let mut later = Some(later).filter(|_| manner.early == Early::OnceOffered);
                while let Some(incoming) = endpoint.accept().await {
                    if let Some(later) = later.take() {
                        endpoint.set_server_config(Some(quinn::ServerConfig::with_crypto(Arc::new(later))));
                    }
                    let (seen, count) = (seen.clone(), count.clone());
                    tokio::spawn(async move {
                        let connecting = incoming.accept().unwrap();
                        let connection = match connecting.into_0rtt() {
                            Ok((connection, _)) if manner.early == Early::Answered425 => connection,
                            Ok((connection, accepted)) => {
                                accepted.await;
                                connection
                            }
                            Err(_) => return,
                        };
                        let number = count.fetch_add(1, Ordering::Relaxed);
                        serve(connection, manner, number, seen).await;
                    });
                }
            });
        });
        Self { at: at.recv().unwrap(), scratch, asked, heads, connections }
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

async fn serve(
    connection: quinn::Connection,
    manner: Manner,
    number: usize,
    (seen, heads): (Arc<Mutex<Vec<Asked>>>, Heads),
) {
    let builder = h3::server::builder();
    let quic = h3_quinn::Connection::new(connection);
    let Ok(mut h3) = builder.build::<_, Bytes>(quic).await else { return };
    let mut taken = 0;
    while let Ok(Some(resolver)) = h3.accept().await {
        taken += 1;
        if manner.most == Some(taken) {
            let _ = h3.shutdown(0).await;
        }
        let (seen, heads) = (seen.clone(), heads.clone());
        let too_early = manner.early == Early::Answered425 && number > 0 && taken == 1;
        tokio::spawn(async move {
            let Ok((request, mut stream)) = resolver.resolve_request().await else { return };
            if request.uri().path() == "/unread" {
                return std::future::pending().await;
            }
            let mut body = Vec::new();
            while let Ok(Some(mut data)) = stream.recv_data().await {
                body.extend_from_slice(&data.copy_to_bytes(data.remaining()));
            }
            let of = |name: &str| request.headers().get(name).map_or("", |v| v.to_str().unwrap()).to_owned();
            let path = request.uri().path().to_owned();
            heads.lock().unwrap().push(request.clone());
            let is_new = {
                let mut seen = seen.lock().unwrap();
                let is_new = seen.iter().all(|before| before.3[..] != body);
                let head = format!("{} {} {}", of("x-own"), of("user-agent"), of("content-length"));
                seen.push(Asked(request.method().to_string(), path.clone(), head, body.clone().into()));
                is_new
            };
            if path == "/reject-some" && is_new && body.ends_with(b"7") {
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
            let location = match path.as_str() {
                "/same" => Some("/a".to_owned()),
                "/loop" => Some("/loop".to_owned()),
                "/plain" => Some("http://localhost/".to_owned()),
                path => path.strip_prefix("/port/").map(|port| format!("https://localhost:{port}/a")),
            };
            let status = match path.as_str() {
                "/missing" => 404,
                _ if location.is_some() => 307,
                _ if too_early => 425,
                _ => 200,
            };
            let content = match path.as_str() {
                "/large" => Bytes::from(vec![b'x'; 3_000_000]),
                "/login" => Bytes::from_static(b"token=t-17;"),
                _ => Bytes::from(body),
            };
            let mut response = http::Response::builder().status(status);
            if let Some(location) = location {
                response = response.header("location", location);
            }
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

/// What lies between a client and a server, which has their datagrams pass or not: the number of the client's port, and how many it has sent.
fn path(to: SocketAddr, passes: fn(usize, usize) -> bool) -> SocketAddr {
    let near = UdpSocket::bind("127.0.0.1:0").unwrap();
    let at = near.local_addr().unwrap();
    std::thread::spawn(move || {
        let mut clients: HashMap<SocketAddr, (usize, usize, UdpSocket)> = HashMap::new();
        let mut datagram = [0; 2048];
        while let Ok((n, from)) = near.recv_from(&mut datagram) {
            let number = clients.len();
            let (number, sent, far) = clients.entry(from).or_insert_with(|| {
                let far = UdpSocket::bind("127.0.0.1:0").unwrap();
                far.connect(to).unwrap();
                let (back, near) = (far.try_clone().unwrap(), near.try_clone().unwrap());
                std::thread::spawn(move || {
                    let (mut answer, mut sent) = ([0; 2048], 0);
                    while let Ok(n) = back.recv(&mut answer) {
                        sent += 1;
                        if passes(number, sent) {
                            let _ = near.send_to(&answer[..n], from);
                        }
                    }
                });
                (number, 0, far)
            });
            *sent += 1;
            if passes(*number, *sent) {
                let _ = far.send(&datagram[..n]);
            }
        }
    });
    at
}

#[test]
fn a_path_that_loses_datagrams_is_crossed() {
    let server = Server::start("h3-lossy", Manner::default());
    // Each seventh is lost, but for what the handshake needs.
    let lossy = path(server.at, |_, sent| sent < 8 || sent % 7 != 0);
    let url = format!("https://localhost:{}/echo", lossy.port());
    let ca = server.scratch.path("ca.pem");
    let lost = ["--fail", "quic-packets-lost < 20", "--fail", "tls-resumed > 0"];
    let arguments =
        [&["--json", "--ca", &ca, &url, "--http3", "3", "-c", "2", "-n", "40"], &lost[..]].concat();
    let (code, run) =
        report(&[&arguments[..], &["--body-size", "20000", "--expect-length", "20000"]].concat());
    assert_eq!(code, Some(0));
    all_answered(&run, 40);
    assert!(server.asked().iter().all(|asked| asked.3.len() == 20_000));
}

#[test]
fn a_path_that_forgets_a_connection_costs_no_more_than_that() {
    let server = Server::start("h3-forgets", Manner::default());
    let forgetful = path(server.at, |_, sent| sent < 30);
    let url = format!("https://localhost:{}/a", forgetful.port());
    let ca = server.scratch.path("ca.pem");
    let arguments = ["--json", "--ca", &ca, &url, "--http3", "-c", "1", "-n", "60", "--timeout", "400ms"];
    let (code, run) = report(&arguments);
    assert_eq!(code, Some(1));
    let counts = counts(&run);
    let errors = counts["errors"].as_object().unwrap();
    // One connection after the other is forgotten, with a request or two on its way, and each is given up for it.
    assert!(errors.len() == 1 && errors.contains_key("timeout"), "{counts}");
    assert!(counts["answered"].as_u64().unwrap() >= 40, "{counts}");
    assert!(server.connections.load(Ordering::Relaxed) >= 3, "{counts}");
}

#[test]
fn windows_of_a_few_bytes_let_everything_through() {
    let server = Server::start("h3-windows", Manner { windows: Some((300, 1000)), ..Manner::default() });
    let arguments = ["--http3", "8", "-c", "2", "-n", "32", "--body-size", "9000", "--expect-length", "9000"];
    let (code, run) = server.report("/echo", &arguments);
    assert_eq!(code, Some(0));
    all_answered(&run, 32);
    assert!(server.asked().iter().all(|asked| asked.3.len() == 9000));
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
    let unread = ["--request-timeout", "50ms", "--body-size", "3000000"];
    assert_eq!(errors("/unread", &unread), is("timeout"));
    assert_eq!(errors("/large", &["--max-body", "1Mi"]), is("too-long"));
    assert_eq!(errors("/a", &["--expect-contains", "x"]), is("content"));
}

#[test]
fn what_was_not_processed_is_sent_again() {
    let server = Server::start("h3-again", Manner::default());
    let (_, run) = server.report("/reject-some", &["--http3", "3", "-n", "100", "--body", "{{counter}}"]);
    all_answered(&run, 100);
    assert_eq!(counts(&run)["more"]["sent-again"], 10);
    assert_eq!(server.asked().len(), 110);

    // A server that ends its connections has others opened.
    let server = Server::start("h3-goaway", Manner { most: Some(10), ..Manner::default() });
    let (_, run) = server.report("/a", &["--http3", "4", "-n", "100"]);
    all_answered(&run, 100);
    assert!(server.connections.load(Ordering::Relaxed) >= 8);
    assert_eq!(server.asked().len(), 100, "none was processed twice");
}

#[test]
fn redirects_are_followed() {
    let (server, other) =
        (Server::start("h3-redirects", Manner::default()), Server::start("h3-redirected", Manner::default()));
    let arguments = ["--http3", "3", "-c", "2", "-n", "20", "--follow", "--body", "b"];
    let (code, run) = server.report("/same", &arguments);
    assert_eq!(code, Some(0));
    all_answered(&run, 20);
    assert_eq!(counts(&run)["more"]["redirects"], 20);
    assert_eq!(counts(&run)["codes"]["200"], 20, "{}", counts(&run));
    let asked = server.asked();
    let at = |path: &str| asked.iter().filter(|a| a.0 == "POST" && a.1 == path && &a.3[..] == b"b").count();
    assert_eq!((at("/same"), at("/a"), server.connections.load(Ordering::Relaxed)), (20, 20, 2));

    // Another origin, and back: each on a connection of its own.
    let away = format!("/port/{}", other.at.port());
    let arguments =
        ["--http3", "2", "-c", "1", "-n", "6", "--follow", "--expect-length", "0", "-k", "--json"];
    let (code, run) = report(&[&[&*server.url(&away)], &arguments[..]].concat());
    assert_eq!(code, Some(0), "{}", counts(&run));
    all_answered(&run, 6);
    assert_eq!(counts(&run)["more"]["redirects"], 6);
    assert_eq!(other.asked().len(), 6);
    assert_eq!(other.connections.load(Ordering::Relaxed), 6);

    let errors = |path: &str, arguments: &[&str]| {
        let (_, run) = server.report(path, &[&["--http3", "-n", "4"], arguments].concat());
        counts(&run)["errors"].as_object().unwrap().keys().cloned().collect::<Vec<_>>()
    };
    assert_eq!(errors("/loop", &["--follow=3"]), ["redirect-limit"]);
    assert_eq!(errors("/plain", &["--follow"]), ["redirect-away"]);
    assert_eq!(errors(&away, &["--follow", "--request-timeout", "5s"]), ["tls"], "another certificate");
    let nowhere = format!("/port/{}", free_port());
    assert_eq!(errors(&nowhere, &["--follow"]), ["refused"]);
    assert_eq!(errors("/same", &[]), [""; 0], "an answer as others are");
}

#[test]
fn early_data_that_is_refused_is_sent_again() {
    let arguments = ["--http3", "-c", "1", "-n", "20", "--requests-per-connection", "4"];
    let early = [&arguments[..], &["--tls-resume", "--early-data"]].concat();
    let server = Server::start("h3-early-refused", Manner { early: Early::OnceOffered, ..Manner::default() });
    let (code, run) = server.report("/a", &early);
    assert_eq!(code, Some(0), "{}", counts(&run));
    all_answered(&run, 20);
    let more = &counts(&run)["more"];
    // Those of the first connection allow it; that of the second, in turn, does not.
    assert!(more["early-data-rejected"].as_u64().unwrap() >= 1, "{more}");
    assert!(more["sent-again"].as_u64().unwrap() >= 1, "{more}");
    assert!(more["tls-full"] == 1 && more["tls-resumed"].as_u64().unwrap() >= 4, "{more}");
    assert_eq!(server.asked().len(), 20, "none was processed twice");

    let server = Server::start("h3-too-early", Manner { early: Early::Answered425, ..Manner::default() });
    let (code, run) = server.report("/a", &early);
    assert_eq!(code, Some(0), "{}", counts(&run));
    all_answered(&run, 20);
    let more = &counts(&run)["more"];
    assert!(more["early-data-accepted"].as_u64().unwrap() >= 4, "{more}");
    let again = more["sent-again"].as_u64().unwrap();
    assert!(again >= 4, "{more}");
    assert_eq!(counts(&run)["codes"]["200"], 20);
    assert_eq!(server.asked().len() as u64, 20 + again);
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
        (&[&url, "--http3", "--early-data"], 2, "--tls-resume"),
        (&[&url, "--http2", "--tls-resume", "--early-data"], 2, "early data is sent over HTTP/3"),
        (&["http://127.0.0.1:9/", "--tls-resume"], 2, "for https: URLs"),
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

/// Each request is signed as botocore signs it, whether it is as the one before or not.
#[test]
fn signatures_are_botocores() {
    let server = Server::start("h3-aws", Manner::default());
    let login = ["--aws-sigv4", "aws:amz:eu-west-1:s3", "--user", "AKID:secret", "--aws-session", "token"];
    for (path, more) in [
        (
            "/key%20a?b=1&a=2",
            &["-n", "50", "-c", "2", "-H", "X-Own: x", "--body", "content", "-X", "PUT"][..],
        ),
        ("/of/{{counter}}", &["-n", "20", "-c", "2"]),
    ] {
        let (code, report) = server.report(path, &[&login[..], &["--http3", "4"], more].concat());
        assert_eq!(code, Some(0), "{report}");
    }
    let (heads, asked) = (server.heads.lock().unwrap(), server.asked());
    let requests: Vec<Value> = heads
        .iter()
        .zip(&asked)
        .map(|(head, asked)| {
            let fields = head.headers().iter().map(|(name, value)| (name.as_str(), value.to_str().unwrap()));
            let host = head.uri().authority().unwrap().as_str();
            let fields: Vec<_> = fields.chain([("host", host)]).collect();
            let path = head.uri().path_and_query().unwrap().as_str();
            let body = std::str::from_utf8(&asked.3).unwrap();
            serde_json::json!({"method": head.method().as_str(), "path": path, "fields": fields, "body": body})
        })
        .collect();
    assert_eq!(requests.len(), 70);
    super::load_http_aws::signed_as_botocore_does(&requests);
}
