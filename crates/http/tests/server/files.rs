//! Files over a connection: whole, in part, larger than any buffer, and none from outside.

use std::fs;

use flowlane_http::server::{Counter, Options};

use crate::kit::{Client, beside, field, get, status};

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
