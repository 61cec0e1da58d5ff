//! Files over a connection: whole, in part, larger than any buffer, and none from outside.

use std::fs;
use std::io::{Read, Write};
use std::path::Path;
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use flowlane::{Host, KernelStats, Key, Rss, Runtime, TcpListener};
use flowlane_http::server::{Counter, Counts, Options, Server};

use crate::kit::{Client, PATIENCE, beside, field, get, status};

#[test]
fn files_whole_in_part_and_not_at_all() {
    let dir = std::env::temp_dir().join(format!("flowlane-serve-{}", std::process::id()));
    fs::create_dir_all(&dir).unwrap();
    let large: Vec<u8> = (0..1_000_000_u32).map(|i| (i % 253) as u8).collect();
    fs::write(dir.join("large.bin"), &large).unwrap();
    fs::write(dir.join("index.html"), "<p>hello").unwrap();
    let options = Options { dir: Some(dir.clone()), ..Options::default() };
    let (_, counts) = beside(options, move || async move {
        let mut client = Client::connect().await;
        client.write(get("/")).await;
        let (head, body) = client.answer().await;
        assert_eq!(
            (field(&head, "content-type"), &body[..]),
            (Some("text/html; charset=utf-8"), &b"<p>hello"[..])
        );
        let modified = field(&head, "last-modified").unwrap().to_owned();
        client.write(get("/large.bin")).await;
        assert!(client.answer().await.1 == large, "another file");
        let asking = |field: &str| format!("GET /large.bin HTTP/1.1\r\nHost: x\r\n{field}\r\n\r\n");
        client.write(asking("Range: bytes=500000-500099")).await;
        let (head, body) = client.answer().await;
        assert_eq!(field(&head, "content-range"), Some("bytes 500000-500099/1000000"));
        assert_eq!((status(&head), &body[..]), (206, &large[500_000..500_100]));
        client.write(asking(&format!("If-Modified-Since: {modified}"))).await;
        let head = client.until("\r\n\r\n").await;
        assert_eq!(status(&head), 304);
        client.write("HEAD /large.bin HTTP/1.1\r\nHost: x\r\n\r\n").await;
        assert_eq!(field(&client.until("\r\n\r\n").await, "content-length"), Some("1000000"));
        for (target, code) in [("/none", 404), ("/../../etc/passwd", 404), ("/%2e%2e/%2e%2e/etc/passwd", 404)]
        {
            client.write(get(target)).await;
            assert_eq!(status(&client.answer().await.0), code, "{target}");
        }
        client.write(get("/size/2")).await;
        assert_eq!(client.answer().await.1, b"01", "endpoints are there as well");
    });
    assert_eq!(counts.errors(), 0, "{counts:?}");
    assert_eq!(counts.get(Counter::Requests), 9);
    fs::remove_dir_all(&dir).unwrap();
}

#[test]
fn a_file_that_becomes_shorter_meanwhile() {
    let dir = std::env::temp_dir().join(format!("flowlane-shorter-{}", std::process::id()));
    fs::create_dir_all(&dir).unwrap();
    let file = dir.join("file");
    fs::write(&file, vec![b'x'; 20_000_000]).unwrap();
    let options = Options { dir: Some(dir.clone()), ..Options::default() };
    let (received, counts) = beside(options, move || async move {
        let mut client = Client::connect().await;
        client.write(get("/file")).await;
        let head = client.until("\r\n\r\n").await;
        assert_eq!(field(&head, "content-length"), Some("20000000"));
        // More than all buffers on the way is not sent yet.
        fs::write(&file, "short").unwrap();
        client.rest().await.len()
    });
    assert!(received < 20_000_000, "{received}");
    assert_eq!((counts.get(Counter::FileFailed), counts.errors()), (1, 1));
    fs::remove_dir_all(&dir).unwrap();
}

/// A file of 20 MB, which no buffers on the way hold, and a directory for it.
fn large(name: &str) -> (std::path::PathBuf, Vec<u8>) {
    let dir = std::env::temp_dir().join(format!("flowlane-{name}-{}", std::process::id()));
    fs::create_dir_all(&dir).unwrap();
    let bytes: Vec<u8> = (0..20_000_000_u32).map(|i| (i ^ i >> 9) as u8).collect();
    fs::write(dir.join("file"), &bytes).unwrap();
    (dir, bytes)
}

/// What is done to a file while it is sent.
type Change = fn(&Path);

/// Asks for the file, changes it when the head has come, and reads what there is: how much that is of what it was; what the server
/// counted, and how many writes of files the kernel did.
fn changed_meanwhile(name: &str, change: Change, kernel: bool) -> (usize, Counts, u64) {
    let (dir, was) = large(name);
    let (path, options) = (dir.join("file"), Options { dir: Some(dir.clone()), ..Options::default() });
    let same = move |got: &[u8]| got.iter().zip(&was).take_while(|(a, b)| a == b).count();
    let (received, counts, writes) = if kernel {
        let (received, counts, kernel) = over_the_loopback(options, move |server| {
            let mut stream = std::net::TcpStream::connect(server).unwrap();
            stream.set_read_timeout(Some(PATIENCE)).unwrap();
            stream.write_all(get("/file").as_bytes()).unwrap();
            let mut got = Vec::new();
            while !got.windows(4).any(|end| end == b"\r\n\r\n") {
                let mut one = [0];
                stream.read_exact(&mut one).unwrap();
                got.push(one[0]);
            }
            change(&path);
            let (mut body, mut buffer) = (Vec::new(), vec![0; 1 << 16]);
            // Whether it ends with a reset is up to the buffers in between.
            while let Ok(n @ 1..) = stream.read(&mut buffer) {
                body.extend_from_slice(&buffer[..n]);
                if body.len() == 20_000_000 {
                    break;
                }
            }
            same(&body)
        });
        (received, counts, kernel.file_writes)
    } else {
        let (received, counts) = beside(options, move || async move {
            let mut client = Client::connect().await;
            client.write(get("/file")).await;
            client.until("\r\n\r\n").await;
            change(&path);
            while client.got.len() < 20_000_000 && client.more().await.unwrap_or(false) {}
            same(&client.got)
        });
        (received, counts, 0)
    };
    fs::remove_dir_all(&dir).unwrap();
    (received, counts, writes)
}

/// Runs a server on kernel sockets of the loopback, and `body` beside it.
pub(crate) fn over_the_loopback<R>(
    options: Options,
    body: impl FnOnce(std::net::SocketAddr) -> R,
) -> (R, Counts, KernelStats) {
    let rss = Arc::new(Rss::new(Key::MICROSOFT, 1));
    let server = Server::new(options, rss.buckets.len()).unwrap();
    let (say, said) = mpsc::channel();
    let (own, say) = (server.clone(), Mutex::new(say));
    let host = Host::kernel("server", rss, move || {
        let (server, say) = (own.clone(), say.lock().unwrap().clone());
        async move {
            let here = Some([127, 0, 0, 1].into());
            let listener = TcpListener::bind(here, 0, Server::listen_options()).unwrap();
            say.send(listener.local_addr().unwrap()).unwrap();
            let _ = server.serve(listener).await;
        }
    });
    let mut builder = Runtime::builder().workers(1).pin(false);
    builder.host(host);
    let runtime = builder.start().unwrap();
    let result = body(said.recv_timeout(PATIENCE).unwrap());
    let begin = std::time::Instant::now();
    while server.total().open() > 0 {
        assert!(begin.elapsed() < PATIENCE, "{:?}", server.total());
        std::thread::yield_now();
    }
    let kernel = runtime.stop().kernel(0).unwrap();
    (result, server.total(), kernel)
}

#[test]
fn a_file_that_is_replaced_or_grows_is_sent_as_it_was() {
    let replace: Change = |path| {
        fs::write(path.with_extension("new"), vec![b'n'; 20_000_000]).unwrap();
        fs::rename(path.with_extension("new"), path).unwrap();
    };
    let grow: Change =
        |path| fs::OpenOptions::new().append(true).open(path).unwrap().write_all(b"more").unwrap();
    for (name, change) in [("replaced", replace), ("grown", grow)] {
        for kernel in [false, true] {
            let (received, counts, writes) = changed_meanwhile(name, change, kernel);
            assert_eq!((received, counts.errors()), (20_000_000, 0), "{name}, {kernel}: {counts:?}");
            assert_eq!(writes > 10, kernel, "{writes} writes of files");
        }
    }
}

#[test]
fn a_file_that_is_changed_meanwhile_is_not_sent_to_its_end() {
    let truncate: Change = |path| fs::write(path, "short").unwrap();
    let rewrite: Change = |path| {
        let mut file = fs::OpenOptions::new().write(true).open(path).unwrap();
        file.write_all(b"another beginning, which nobody gets").unwrap();
    };
    for (name, change) in [("truncated", truncate), ("rewritten", rewrite)] {
        for kernel in [false, true] {
            let (received, counts, _) = changed_meanwhile(name, change, kernel);
            assert!(received < 20_000_000, "{name}, {kernel}");
            assert_eq!((counts.get(Counter::FileFailed), counts.errors()), (1, 1), "{name}, {kernel}");
        }
    }
}

/// Sends this, and the rest when the answer has begun, and reads to the end.
fn exchange(server: std::net::SocketAddr, request: &[u8], rest: &[u8]) -> Vec<u8> {
    let mut stream = std::net::TcpStream::connect(server).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.write_all(request).unwrap();
    let mut all = vec![0];
    stream.read_exact(&mut all).unwrap();
    stream.write_all(rest).unwrap();
    stream.read_to_end(&mut all).unwrap();
    all
}

#[test]
fn a_small_file_for_a_connection_costs_one_read_and_one_write() {
    const CONNECTIONS: u64 = 20;
    let dir = std::env::temp_dir().join(format!("flowlane-small-{}", std::process::id()));
    fs::create_dir_all(&dir).unwrap();
    fs::write(dir.join("file"), [b'x'; 600]).unwrap();
    // A file that has just changed is not kept.
    let changed = fs::metadata(dir.join("file")).unwrap().modified().unwrap();
    while changed.elapsed().is_ok_and(|ago| ago < Duration::from_millis(1100)) {
        std::thread::yield_now();
    }
    let options = Options { dir: Some(dir.clone()), ..Options::default() };
    let ((), counts, kernel) = over_the_loopback(options, |server| {
        for _ in 0..CONNECTIONS {
            let all = exchange(server, b"GET /file HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", b"");
            assert!(all.starts_with(b"HTTP/1.1 200") && all.ends_with(&[b'x'; 600]));
        }
    });
    assert_eq!((counts.errors(), counts.get(Counter::Requests)), (0, CONNECTIONS));
    assert_eq!((kernel.reads, kernel.writes, kernel.closed), (CONNECTIONS, CONNECTIONS, CONNECTIONS));
    fs::remove_dir_all(&dir).unwrap();
}

#[test]
fn a_peer_that_sends_more_than_is_answered_has_its_answer_all_the_same() {
    // The server decides to end after the first request, and the peer cannot know.
    let options = Options { requests_per_connection: 1, ..Options::default() };
    let (said, counts, kernel) = over_the_loopback(options, |server| {
        let request = get("/size/9000");
        let mut said = 0;
        for (now, later) in [(1, 0), (2, 0), (1, 400_000), (2, 400_000)] {
            let all = exchange(server, request.repeat(now).as_bytes(), &vec![b'x'; later]);
            assert!(all.starts_with(b"HTTP/1.1 200") && all.len() > 9000, "{now}, {later}: {}", all.len());
            said += now * request.len() + later;
        }
        // One that says that it ends and sends more all the same.
        let mut sent = b"GET /size/9000 HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".to_vec();
        sent.extend(request.bytes());
        assert!(exchange(server, &sent, &[b'x'; 1000]).len() > 9000);
        said + sent.len() + 1000
    });
    assert_eq!(counts.get(Counter::Requests), 5);
    // Whatever comes late is read: it would be answered with a reset, which may overtake the answer.
    assert_eq!(kernel.read_bytes, said as u64);
}
