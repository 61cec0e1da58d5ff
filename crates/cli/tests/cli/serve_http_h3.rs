//! `flowlane serve http --http3` before clients that others wrote: the crates `quinn` and `h3`, and ngtcp2's from Debian. A client whose address
//! changes stays in its lane.

use std::cell::RefCell;
use std::fs;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::process::{Command, Stdio};
use std::rc::Rc;
use std::sync::Arc;

use bytes::{Buf, Bytes};
use flowlane_testnet::{Card, CardConfig, Namespace, Program, Scratch, free_port, skipped};
use http::Method;
use quinn::crypto::rustls::QuicClientConfig;
use quinn::rustls::pki_types::CertificateDer;
use quinn::rustls::pki_types::pem::PemObject;
use rustix::process::Signal;
use serde_json::Value;

fn flowlane(line: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_flowlane"));
    command.args(line.split_whitespace()).stdin(Stdio::null());
    command
}

/// A server, its certificate, and where it is.
struct Server {
    program: Program,
    scratch: Scratch,
    at: SocketAddr,
}

impl Server {
    fn start(name: &str, more: &str) -> Self {
        Self::on_loopback(name, &format!("--no-pin {more}"))
    }

    /// Where its certificate is to be.
    fn place(name: &str) -> (Scratch, String) {
        let scratch = Scratch::new(name);
        let ca = scratch.path("ca.pem");
        (scratch, ca)
    }

    fn on_loopback(name: &str, more: &str) -> Self {
        let ((scratch, ca), port) = (Self::place(name), free_port());
        let line = format!("serve http --port {port} --tls --write-cert {ca} --http3 --json {more}");
        let program = Program::ready(flowlane(&line), &format!("port {port} and UDP port {port}"));
        Self { program, scratch, at: ([127, 0, 0, 1], port).into() }
    }

    /// Ends it; what its summary says of HTTP.
    fn summary(self) -> Value {
        let said = self.program.interrupt();
        let documents = said.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        documents.into_iter().find(|document| document["kind"] == "http-summary").unwrap()
    }

    fn client(&self) -> quinn::Endpoint {
        let certificate = CertificateDer::from_pem_file(self.scratch.path("ca.pem")).unwrap();
        let mut roots = quinn::rustls::RootCertStore::empty();
        roots.add(certificate).unwrap();
        let provider = Arc::new(quinn::rustls::crypto::ring::default_provider());
        let mut tls = quinn::rustls::ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        tls.alpn_protocols = vec![b"h3".to_vec()];
        tls.enable_early_data = true;
        let mut client = quinn::Endpoint::client(any(self.at)).unwrap();
        client.set_default_client_config(quinn::ClientConfig::new(Arc::new(
            QuicClientConfig::try_from(tls).unwrap(),
        )));
        client
    }
}

/// A client's address: of the server's family, the kernel chooses it.
fn any(server: SocketAddr) -> SocketAddr {
    if server.is_ipv4() { (Ipv4Addr::UNSPECIFIED, 0).into() } else { (Ipv6Addr::UNSPECIFIED, 0).into() }
}

type Sender = h3::client::SendRequest<h3_quinn::OpenStreams, Bytes>;

/// A connection of HTTP/3, which lives as long as its endpoint.
async fn connect(client: &quinn::Endpoint, to: SocketAddr) -> Sender {
    let connection = client.connect(to, "localhost").unwrap().await.unwrap();
    let (mut driver, sender) = h3::client::new(h3_quinn::Connection::new(connection)).await.unwrap();
    tokio::spawn(async move { std::future::poll_fn(|cx| driver.poll_close(cx)).await });
    sender
}

/// Status, length as announced, and content of an answer.
async fn ask(sender: &mut Sender, method: Method, path: &str, body: &[u8]) -> (u16, Option<u64>, Vec<u8>) {
    let uri = format!("https://localhost{path}");
    let request = http::Request::builder().method(method).uri(uri).body(()).unwrap();
    let stream = sender.send_request(request).await.unwrap();
    let (mut to, mut from) = stream.split();
    let body = Bytes::copy_from_slice(body);
    let sending = async move {
        // A server may answer before it has all, and read no more.
        let _ = to.send_data(body).await;
        let _ = to.finish().await;
    };
    let reading = async move {
        let response = from.recv_response().await.unwrap();
        let length = response.headers().get("content-length").map(|v| v.to_str().unwrap().parse().unwrap());
        let mut content = Vec::new();
        while let Some(mut data) = from.recv_data().await.unwrap() {
            content.extend_from_slice(&data.copy_to_bytes(data.remaining()));
        }
        (response.status().as_u16(), length, content)
    };
    tokio::join!(sending, reading).1
}

fn run<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(future)
}

#[test]
fn every_endpoint_answers() {
    let server = Server::start("serve-h3", "--workers 2 --max-body 2Mi");
    run(async {
        let client = server.client();
        let mut sender = connect(&client, server.at).await;
        let get = Method::GET;
        assert_eq!(ask(&mut sender, get.clone(), "/size/100", b"").await.1, Some(100));
        let (status, length, content) = ask(&mut sender, get.clone(), "/size/3000000", b"").await;
        assert_eq!((status, length, content.len()), (200, Some(3_000_000), 3_000_000));
        let (status, length, content) = ask(&mut sender, get.clone(), "/line?chunked", b"").await;
        assert_eq!((status, length, content), (200, None, b"foobar\r\n".repeat(16)));
        assert_eq!(ask(&mut sender, Method::HEAD, "/size/100", b"").await, (200, Some(100), vec![]));
        assert_eq!(ask(&mut sender, get.clone(), "/status/204", b"").await, (204, None, vec![]));
        assert_eq!(ask(&mut sender, get.clone(), "/nothing", b"").await.0, 404);
        assert_eq!(ask(&mut sender, get.clone(), "/delay/20?size=7", b"").await.2.len(), 7);
        let events = ask(&mut sender, get.clone(), "/events/3/5?end=[DONE]", b"").await.2;
        assert!(events.ends_with(b"data: [DONE]\n\n"), "{}", String::from_utf8_lossy(&events));
        let body: Vec<u8> = (0..1_500_000u32).map(|i| (i % 251) as u8).collect();
        let (status, _, back) = ask(&mut sender, Method::POST, "/echo", &body).await;
        assert!(status == 200 && back == body, "{status}, {} bytes", back.len());
        assert_eq!(ask(&mut sender, Method::POST, "/size/5", &body).await.2.len(), 5);
        assert_eq!(ask(&mut sender, Method::POST, "/size/5", &vec![0; 3 << 20]).await.0, 413);
        // What was refused has ended no connection.
        assert_eq!(ask(&mut sender, get, "/size/9", b"").await.2.len(), 9);
    });
    let summary = server.summary();
    assert_eq!(
        (&summary["http3-connections"], &summary["tls-handshakes"]),
        (&1.into(), &1.into()),
        "{summary}"
    );
    assert_eq!(summary["answers-2xx"], 10, "{summary}");
    assert_eq!(summary["errors"]["body-too-long"], 1, "{summary}");
}

#[test]
fn answers_of_one_connection_share_its_window() {
    const EACH: usize = 4_000_000;
    let server = Server::start("serve-h3-shares", "--workers 1");
    let path = format!("/size/{EACH}");
    let (asked, so_far) = (3, Rc::new(RefCell::new(vec![0; 3])));
    let at_first_end = Rc::new(RefCell::new(Vec::new()));
    run(async {
        let client = server.client();
        let sender = connect(&client, server.at).await;
        let reading = (0..asked).map(|n| {
            let (mut sender, path) = (sender.clone(), path.clone());
            let (so_far, at_first_end) = (so_far.clone(), at_first_end.clone());
            async move {
                let uri = format!("https://localhost{path}");
                let mut stream =
                    sender.send_request(http::Request::get(uri).body(()).unwrap()).await.unwrap();
                stream.finish().await.unwrap();
                stream.recv_response().await.unwrap();
                while let Some(data) = stream.recv_data().await.unwrap() {
                    so_far.borrow_mut()[n] += data.remaining();
                }
                let so_far = so_far.borrow();
                assert_eq!(so_far[n], EACH);
                if at_first_end.borrow().is_empty() {
                    at_first_end.borrow_mut().clone_from(&so_far);
                }
            }
        });
        let set = tokio::task::LocalSet::new();
        let tasks: Vec<_> = reading.map(|reading| set.spawn_local(reading)).collect();
        set.run_until(async {
            for task in tasks {
                task.await.unwrap();
            }
        })
        .await;
    });
    let least = at_first_end.borrow().iter().copied().min().unwrap();
    assert!(least > EACH / 2, "when the first was whole: {:?}", at_first_end.borrow());
}

#[test]
fn a_server_that_was_killed_and_started_again_says_so() {
    let scratch = Scratch::new("serve-h3-killed");
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    fs::write(scratch.path("ca.pem"), made.cert.pem()).unwrap();
    fs::write(scratch.path("key.pem"), made.signing_key.serialize_pem()).unwrap();
    let (port, cert, key) = (free_port(), scratch.path("ca.pem"), scratch.path("key.pem"));
    let line = format!(
        "serve http --port {port} --cert {cert} --cert-key {key} --http3 --no-pin --workers 1 --json"
    );
    let start = || Program::ready(flowlane(&line), &format!("port {port} and UDP port {port}"));
    let server = Server { program: start(), scratch, at: ([127, 0, 0, 1], port).into() };
    run(async {
        let client = server.client();
        let connection = client.connect(server.at, "localhost").unwrap().await.unwrap();
        let (mut driver, mut sender) =
            h3::client::new(h3_quinn::Connection::new(connection.clone())).await.unwrap();
        tokio::spawn(async move { std::future::poll_fn(|cx| driver.poll_close(cx)).await });
        assert_eq!(ask(&mut sender, Method::GET, "/size/9", b"").await.0, 200);
        server.program.signal(Signal::KILL);
        assert!(!server.program.end().status.success());
        let _again = start();
        // What the client sends next is none of the new server's, and it says that it knows nothing of it.
        let _ = connection.open_uni().await.unwrap().write_all(&[0x21; 200]).await;
        let ended = connection.closed().await;
        assert_eq!(ended, quinn::ConnectionError::Reset);
    });
}

#[test]
fn both_ends_are_ours() {
    let server = Server::start("serve-h3-both", "--workers 2 --buckets 8");
    let load = |arguments: &str| {
        let at = format!("https://[::1]:{}", server.at.port());
        let line = format!("load http {at}{arguments} -k --no-pin --quiet --json");
        let output = flowlane(&line).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{line}: {said}");
        let report: Value = serde_json::from_slice(&output.stdout).unwrap();
        report["total"]["counts"]["answered"].clone()
    };
    assert_eq!(load("/size/10 --http3 1 -c 300 -n 900"), 900);
    // More at once than the server allows on a connection.
    assert_eq!(load("/size/10 --http3 500 -c 1 -n 2000"), 2000);
    let both = "--body-size 300000 --expect-length 300000";
    assert_eq!(load(&format!("/echo --http3 8 -c 4 -n 64 {both} --workers 2")), 64);
    assert_eq!(load(&format!("/echo --http3 8 -c 2 -n 16 {both} --workers 1")), 16);
    assert_eq!(server.summary()["http3-connections"], 307);
}

/// The counts of a run against a server that only HTTP has.
fn more(server: &Server, arguments: &str) -> Value {
    let at = format!("https://localhost:{}", server.at.port());
    let line = format!("load http {at}{arguments} -k --no-pin --quiet --json");
    let output = flowlane(&line).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{line}: {said}");
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    report["total"]["counts"]["more"].clone()
}

#[test]
fn sessions_are_taken_up_again_and_early_data_with_them() {
    let ten = "-c 1 -n 20 --requests-per-connection 2";
    let server = Server::start("serve-h3-early", "--workers 1 --early-data");
    let counts = more(&server, &format!("/size/9 --http3 {ten} --tls-resume --early-data"));
    assert_eq!((&counts["tls-full"], &counts["tls-resumed"]), (&1.into(), &9.into()), "{counts}");
    assert_eq!(
        (&counts["early-data-accepted"], &counts["sent-again"]),
        (&9.into(), &Value::Null),
        "{counts}"
    );
    // What may do something waits for the end of the handshake.
    let counts = more(&server, &format!("/echo --http3 {ten} --tls-resume --early-data --body x"));
    assert_eq!(
        (&counts["early-data-accepted"], &counts["sent-again"]),
        (&9.into(), &Value::Null),
        "{counts}"
    );
    let counts = more(&server, &format!("/size/9 --http3 {ten} --tls-resume"));
    assert_eq!(
        (&counts["tls-resumed"], &counts["early-data-accepted"]),
        (&9.into(), &Value::Null),
        "{counts}"
    );
    let counts = more(&server, &format!("/size/9 --http3 {ten}"));
    assert_eq!((&counts["tls-resumed"], &counts["tls-full"]), (&Value::Null, &Value::Null), "{counts}");
    let summary = server.summary();
    assert_eq!(summary["tls-resumed"], 27, "{summary}");
    assert!((9..=18).contains(&summary["early-data-requests"].as_u64().unwrap()), "{summary}");
    assert_eq!(summary["errors"], serde_json::json!({}));

    // A server that takes none gives sessions that allow none; over TCP they are the same.
    let server = Server::start("serve-h3-late", "--workers 1");
    let counts = more(&server, &format!("/size/9 --http3 {ten} --tls-resume --early-data"));
    assert_eq!(
        (&counts["tls-resumed"], &counts["early-data-accepted"]),
        (&9.into(), &Value::Null),
        "{counts}"
    );
    let counts = more(&server, &format!("/size/9 {ten} --tls-resume"));
    assert_eq!((&counts["tls-full"], &counts["tls-resumed"]), (&1.into(), &9.into()), "{counts}");
    let counts = more(&server, &format!("/size/9 {ten} --tls-resume --tls-max 1.2"));
    assert_eq!((&counts["tls-full"], &counts["tls-resumed"]), (&1.into(), &9.into()), "{counts}");
    assert_eq!(server.summary()["tls-resumed"], 27);
}

#[test]
fn what_may_do_something_is_not_taken_early() {
    let server = Server::start("serve-h3-unsafe", "--workers 1 --early-data");
    run(async {
        let client = server.client();
        let mut first = connect(&client, server.at).await;
        assert_eq!(ask(&mut first, Method::GET, "/size/5", b"").await.0, 200);
        let connecting = client.connect(server.at, "localhost").unwrap();
        let (connection, accepted) = connecting.into_0rtt().ok().unwrap();
        let (mut driver, mut sender) = h3::client::new(h3_quinn::Connection::new(connection)).await.unwrap();
        tokio::spawn(async move { std::future::poll_fn(|cx| driver.poll_close(cx)).await });
        let mut other = sender.clone();
        let (post, get) = tokio::join!(
            ask(&mut sender, Method::POST, "/echo", b"x"),
            ask(&mut other, Method::GET, "/size/7", b"")
        );
        assert_eq!((post.0, get.0, get.2.len()), (425, 200, 7));
        assert!(accepted.await);
        assert_eq!(ask(&mut sender, Method::POST, "/echo", b"x").await, (200, None, b"x".to_vec()));
    });
    let summary = server.summary();
    assert_eq!((&summary["early-data-requests"], &summary["too-early"]), (&2.into(), &1.into()), "{summary}");
}

/// The first datagram that a client of this server sends, and the client, which gets no answer.
async fn first_datagram(server: &Server) -> (Vec<u8>, quinn::Endpoint) {
    let sink = UdpSocket::bind("127.0.0.1:0").unwrap();
    let client = server.client();
    let connecting = client.connect(sink.local_addr().unwrap(), "localhost").unwrap();
    tokio::spawn(connecting);
    let sink = {
        sink.set_nonblocking(true).unwrap();
        tokio::net::UdpSocket::from_std(sink).unwrap()
    };
    let mut datagram = vec![0; 2048];
    let n = sink.recv(&mut datagram).await.unwrap();
    datagram.truncate(n);
    (datagram, client)
}

#[test]
fn whoever_does_not_prove_an_address_is_asked_to() {
    let server = Server::start("serve-h3-retry", "--workers 1 --retry-above 1");
    run(async {
        let mut half_open = Vec::new();
        for _ in 0..8 {
            let (datagram, client) = first_datagram(&server).await;
            let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
            socket.connect(server.at).unwrap();
            socket.send(&datagram).unwrap();
            half_open.push((socket, client));
        }
        // Those who prove it are served.
        for _ in 0..8 {
            let mut sender = connect(&server.client(), server.at).await;
            assert_eq!(ask(&mut sender, Method::GET, "/size/5", b"").await.0, 200);
        }
    });
    let summary = server.summary();
    // A worker has two lanes, and the second of each is asked.
    assert!(summary["quic-retries"].as_u64().unwrap() >= 6, "{summary}");
    assert_eq!(summary["answers-2xx"], 8, "{summary}");

    let server = Server::start("serve-h3-always", "--workers 2 --retry-above 0");
    more(&server, "/size/9 --http3 -c 20 -n 60");
    let summary = server.summary();
    assert_eq!((&summary["quic-retries"], &summary["connections"]), (&20.into(), &20.into()), "{summary}");
}

#[test]
fn little_is_sent_to_an_address_that_nobody_has_proved() {
    let scratch = Scratch::new("serve-h3-amplified");
    let names: Vec<String> =
        (0..400).map(|n| format!("host-{n}.example")).chain(["localhost".into()]).collect();
    let made = rcgen::generate_simple_self_signed(names).unwrap();
    fs::write(scratch.path("ca.pem"), made.cert.pem()).unwrap();
    fs::write(scratch.path("key.pem"), made.signing_key.serialize_pem()).unwrap();
    let (port, cert, key) = (free_port(), scratch.path("ca.pem"), scratch.path("key.pem"));
    let line = format!(
        "serve http --port {port} --cert {cert} --cert-key {key} --http3 --no-pin --workers 1 --json"
    );
    let program = Program::ready(flowlane(&line), &format!("port {port} and UDP port {port}"));
    let server = Server { program, scratch, at: ([127, 0, 0, 1], port).into() };
    let (sent, came) = run(async {
        let (datagram, _client) = first_datagram(&server).await;
        let socket = tokio::net::UdpSocket::bind("127.0.0.1:0").await.unwrap();
        socket.connect(server.at).await.unwrap();
        socket.send(&datagram).await.unwrap();
        let (mut came, mut answer) = (0, [0; 2048]);
        // Its certificate alone is longer than what it may send.
        while came < 2 * datagram.len() {
            came += socket.recv(&mut answer).await.unwrap();
        }
        (datagram.len(), came)
    });
    let summary = server.summary();
    let all = summary["bytes-out"].as_u64().unwrap();
    assert!(came <= all as usize && all <= 3 * sent as u64, "{sent} bytes, and {all} back (RFC 9000 §8.1)");
}

/// Clients whose port changes in mid-connection, as behind a NAT that forgets; and what the server's summary says then.
fn moves(server: Server, network: Option<&Namespace>) -> Value {
    const CLIENTS: usize = 12;
    let asking = || {
        run(async {
            let mut clients = Vec::new();
            for _ in 0..CLIENTS {
                let client = server.client();
                let sender = connect(&client, server.at).await;
                clients.push((client, sender));
            }
            for round in 0..3 {
                for (client, sender) in &mut clients {
                    assert_eq!(ask(sender, Method::GET, "/size/50", b"").await.0, 200, "round {round}");
                    client.rebind(UdpSocket::bind(any(server.at)).unwrap()).unwrap();
                }
            }
        });
    };
    match network {
        Some(network) => network.run(asking).unwrap(),
        None => asking(),
    }
    let summary = server.summary();
    let lanes = summary["buckets"].as_array().unwrap();
    let each = |name: &str| lanes.iter().map(|lane| lane[name].as_u64().unwrap()).collect::<Vec<_>>();
    let thrice: Vec<u64> = each("connections").iter().map(|n| n * 3).collect();
    assert_eq!(each("requests"), thrice, "each was asked in the lane of its connection: {summary}");
    assert_eq!(summary["http3-connections"], CLIENTS);
    assert!(summary["quic-migrations"].as_u64().unwrap() >= 2 * CLIENTS as u64, "{summary}");
    assert_eq!(summary["quic-no-lane"], 0, "{summary}");
    summary
}

/// The kernel finds the lane by the connection ID: nothing has to be passed on.
// Long: three servers, each with clients that change their address and finish.
#[test]
fn a_client_whose_address_changes_stays_in_its_lane() {
    let six: SocketAddr = (Ipv6Addr::LOCALHOST, 0).into();
    let four: SocketAddr = (Ipv4Addr::LOCALHOST, 0).into();
    for (name, steer, at) in
        [("serve-h3-moves", "hash", four), ("serve-h3-six", "hash", six), ("serve-h3-cpu", "cpu", four)]
    {
        // Of two workers that are bound to one processor each.
        let pin = if steer == "cpu" { "--cpus 0,1" } else { "--no-pin" };
        if steer == "cpu" && std::thread::available_parallelism().is_ok_and(|cpus| cpus.get() < 2) {
            return skipped("steering by processor is for machines of several");
        }
        let mut server = Server::on_loopback(name, &format!("{pin} --workers 2 --buckets 8 --steer {steer}"));
        server.at.set_ip(at.ip());
        let summary = moves(server, None);
        assert_eq!(summary["quic-passed"], 0, "{steer}, {at}: {summary}");
        // Of each client at least three requests, and what acknowledges the answers to them.
        assert!(summary["quic-aligned"].as_u64().unwrap() >= 12 * 3 * 2, "{steer}: {summary}");
    }
}

/// Where the kernel knows nothing of connection IDs, lanes pass on what names another.
#[test]
fn what_the_kernel_does_not_steer_is_passed_on() {
    let server = Server::start("serve-h3-passes", "--workers 2 --buckets 8 --steer none");
    let summary = moves(server, None);
    // That none of two dozen new ports belongs to another lane of eight does not happen.
    assert!(summary["quic-passed"].as_u64().unwrap() >= 10, "{summary}");
}

/// Over AF_XDP a program cannot choose another queue's socket: a datagram comes to the lane of its flow, which passes it to the lane that it names.
#[test]
fn a_client_of_a_cards_queues_stays_in_its_lane() {
    if let Err(why) = flowlane_testnet::requires() {
        return skipped(why);
    }
    let card = Card::new(&CardConfig::for_test("h3", 2)).unwrap();
    let (scratch, ca) = Server::place("serve-h3-xdp");
    let mut command = card.near().unwrap().command(env!("CARGO_BIN_EXE_flowlane"));
    let line = format!(
        "serve http --link af-xdp:near0 --addr 10.11.2.9/24 --workers 2 --buckets 8 --key microsoft --udp-4tuple --port 443 --no-pin --tls \
         --write-cert {ca} --http3 --json"
    );
    command.args(line.split_whitespace()).stdin(Stdio::null());
    let program = Program::ready(command, "port 443 and UDP port 443");
    let server = Server { program, scratch, at: ([10, 11, 2, 9], 443).into() };
    let summary = moves(server, Some(card.far()));
    assert!(summary["quic-passed"].as_u64().unwrap() >= 10, "{summary}");
}

/// Forged connection IDs lead to some lane, or to none, and to nothing worse.
#[test]
fn forged_connection_ids_choose_a_lane_and_nothing_else() {
    let server = Server::start("serve-h3-forged", "--workers 2 --buckets 4 --steer hash");
    let mut client = None;
    run(async {
        let quinn = server.client();
        let mut sender = connect(&quinn, server.at).await;
        assert_eq!(ask(&mut sender, Method::GET, "/size/50", b"").await.0, 200);
        let forger = UdpSocket::bind("127.0.0.1:0").unwrap();
        // Each lane that there is, the first that there is not, and the last; and what is too short to name any.
        for lane in [0, 1, 2, 3, 4, u16::MAX] {
            for long in [false, true] {
                let head: &[u8] = if long { &[0xe0, 0, 0, 0, 1, 8] } else { &[0x40] };
                let whole = [head, &lane.to_be_bytes(), &[7; 40]].concat();
                for end in 0..whole.len() {
                    forger.send_to(&whole[..end], server.at).unwrap();
                }
                assert_eq!(ask(&mut sender, Method::GET, "/size/50", b"").await.0, 200, "{lane}, {long}");
            }
        }
        client = Some((quinn, sender));
    });
    let summary = server.summary();
    drop(client);
    // A name of two lanes that there are not, in what is long enough: from 9 bytes on of 43, from 14 on of 48.
    assert_eq!(summary["quic-no-lane"], 2 * (34 + 34), "{summary}");
    assert_eq!((&summary["quic-passed"], &summary["requests"]), (&0.into(), &13.into()), "{summary}");
}

#[test]
fn who_comes_by_tcp_is_told() {
    let server = Server::start("serve-h3-alt", "--workers 1");
    let curl = |version: &str| {
        let url = format!("https://localhost:{}/size/5", server.at.port());
        let mut command = Command::new("curl");
        command.args([
            "-s",
            "-D-",
            "-o",
            "/dev/null",
            version,
            "--cacert",
            &server.scratch.path("ca.pem"),
            &url,
        ]);
        command.output()
    };
    let told = format!("alt-svc: h3=\":{}\"; ma=86400", server.at.port());
    for version in ["--http1.1", "--http2"] {
        let Ok(output) = curl(version) else { return skipped("there is no curl") };
        let head = String::from_utf8_lossy(&output.stdout).to_ascii_lowercase();
        assert!(head.lines().any(|line| line == told), "{version}: {head}");
    }
}

#[test]
fn ngtcp2_asks() {
    const CLIENT: &str = "/usr/bin/gtlsclient";
    if !fs::exists(CLIENT).unwrap() {
        return skipped("there is no client of ngtcp2 (Debian: ngtcp2-client)");
    }
    let server = Server::start("serve-h3-ngtcp2", "--workers 2");
    let port = server.at.port().to_string();
    fs::create_dir(server.scratch.path("got")).unwrap();
    let mut client = Command::new(CLIENT);
    let got = server.scratch.path("got");
    client.args(["-q", "--exit-on-all-streams-close", "--download", &got, "-n", "5", "127.0.0.1", &port]);
    client.args(["https://localhost/size/70000"]).stdout(Stdio::null()).stderr(Stdio::null());
    assert!(client.status().unwrap().success());
    assert_eq!(fs::read(server.scratch.path("got/70000")).unwrap().len(), 70_000);
    let summary = server.summary();
    assert_eq!((&summary["answers-2xx"], &summary["http3-connections"]), (&5.into(), &1.into()), "{summary}");
}

#[test]
fn it_is_stopped_in_order() {
    let server = Server::start("serve-h3-stop", "--workers 1 --grace 20s");
    let at = server.at;
    let ends = run(async {
        let client = server.client();
        let mut sender = connect(&client, at).await;
        assert_eq!(ask(&mut sender, Method::GET, "/size/5", b"").await.0, 200);
        let (url, mut other) = ("/delay/300?size=5", sender.clone());
        let asking = async { ask(&mut sender, Method::GET, url, b"").await };
        let stopping = async {
            // The request has come when a later one of the connection has been answered.
            assert_eq!(ask(&mut other, Method::GET, "/size/5", b"").await.0, 200);
            server.program.signal(Signal::INT);
        };
        let answer = tokio::join!(asking, stopping).0;
        // The server closes the connection once its answers are acknowledged.
        client.wait_idle().await;
        answer
    });
    assert_eq!((ends.0, ends.2.len()), (200, 5), "what has begun is answered");
    let ended = server.program.end();
    assert!(ended.status.success(), "{:?}: {:?}", ended.status, ended.said);
}

#[test]
fn what_does_not_go_is_said_in_one_line() {
    for (more, why) in [
        ("--http3 --port 8443", "--tls or --cert"),
        ("--http3 --tls --unix-socket /tmp/none.sock", "Unix socket"),
        (
            "--http3 --tls --port 8443 --listen-buckets 0 --link tap:flnone0 --addr 10.11.2.1/24",
            "chosen buckets",
        ),
    ] {
        let output = flowlane(&format!("serve http --no-pin {more}")).output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!((output.status.code(), said.lines().count()), (Some(2), 1), "{more}: {said}");
        assert!(said.contains(why), "{more}: {said}");
    }
}
