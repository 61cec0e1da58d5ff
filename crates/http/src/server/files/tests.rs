//! Files beneath a directory, and nothing outside it.

use super::*;
use std::collections::HashMap;
use std::fs;

/// A directory of its own, removed at the end.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("flowlane-files-{}-{name}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(path.join("www/sub")).unwrap();
        fs::write(path.join("www/a.txt"), "0123456789").unwrap();
        fs::write(path.join("www/sub/index.html"), "<p>hello").unwrap();
        fs::write(path.join("www/empty"), "").unwrap();
        fs::write(path.join("secret"), "secret").unwrap();
        Self(path)
    }

    fn dir(&self) -> Dir {
        Dir::open(&self.0.join("www")).unwrap()
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn ask(dir: &Dir, path: &str, fields: &[(&'static str, &str)]) -> Reply {
    let fields: HashMap<&str, &[u8]> = fields.iter().map(|(n, v)| (*n, v.as_bytes())).collect();
    answer(
        dir,
        path,
        &RequestView { method: "GET", target: path, field: |name: &'static str| fields.get(name).copied() },
    )
}

fn part(reply: &Reply) -> (u16, u64, u64) {
    match &reply.body {
        Body::File(part) => (reply.status, part.at, part.len),
        Body::Kept(bytes) => panic!("{} bytes were kept at once", bytes.len()),
        _ => (reply.status, 0, 0),
    }
}

#[test]
fn files_and_indexes() {
    let scratch = Scratch::new("plain");
    let dir = scratch.dir();
    let file = ask(&dir, "/a.txt", &[]);
    assert_eq!((part(&file), file.kind), ((200, 0, 10), "text/plain; charset=utf-8"));
    let index = ask(&dir, "/sub/", &[]);
    assert_eq!((part(&index), index.kind), ((200, 0, 8), "text/html; charset=utf-8"));
    assert_eq!(part(&ask(&dir, "/%61.t%78t", &[])).0, 200);
    assert_eq!(part(&ask(&dir, "//./sub/./index.html", &[])).0, 200);
    assert_eq!(part(&ask(&dir, "/empty", &[])), (200, 0, 0));
    for nothing in ["/", "/b", "/a.txt/", "/a.txt/x", "/%", "/%zz", "/%ff", "/a.txt%00", "/sub/../a.txt"] {
        assert_eq!(ask(&dir, nothing, &[]).status, 404, "{nothing}");
    }
    let asked = RequestView { method: "PUT", target: "/a.txt", field: |_: &'static str| None };
    assert_eq!(answer(&dir, "/a.txt", &asked).status, 405);
}

/// A page's links are relative to its directory, so its name has to end with a slash. Where it leads never has two slashes in front, behind
/// which a browser expects the name of a host.
#[test]
fn a_directory_is_named_with_a_slash() {
    let scratch = Scratch::new("slash");
    let dir = scratch.dir();
    for (path, target, location) in [
        ("/sub", "/sub", "/sub/"),
        ("/sub", "/sub?a=b", "/sub/?a=b"),
        ("//sub", "//sub", "/sub/"),
        ("/%73ub", "/%73ub", "/%73ub/"),
    ] {
        let reply = answer(&dir, path, &RequestView { method: "GET", target, field: |_: &'static str| None });
        assert_eq!((reply.status, reply.fields), (301, vec![("Location", location.to_owned())]), "{target}");
    }
}

#[test]
fn nothing_outside_the_directory() {
    let scratch = Scratch::new("escape");
    let www = scratch.0.join("www");
    std::os::unix::fs::symlink("../secret", www.join("up")).unwrap();
    std::os::unix::fs::symlink(scratch.0.join("secret"), www.join("absolute")).unwrap();
    std::os::unix::fs::symlink("..", www.join("parent")).unwrap();
    std::os::unix::fs::symlink("a.txt", www.join("inside")).unwrap();
    std::os::unix::fs::symlink("loop", www.join("loop")).unwrap();
    rustix::fs::mknodat(
        rustix::fs::CWD,
        www.join("pipe"),
        rustix::fs::FileType::Fifo,
        Mode::from_raw_mode(0o600),
        0,
    )
    .unwrap();
    let dir = scratch.dir();
    assert_eq!(ask(&dir, "/inside", &[]).status, 200);
    for outside in [
        "/up",
        "/absolute",
        "/parent/secret",
        "/../secret",
        "/%2e%2e/secret",
        "/..%2fsecret",
        "/sub/..%2f../secret",
        "/loop",
        "/pipe",
    ] {
        assert_eq!(ask(&dir, outside, &[]).status, 404, "{outside}");
    }
    assert!(Dir::open(&scratch.0.join("secret")).is_err(), "a file is no directory");
    assert!(Dir::open(&scratch.0.join("nowhere")).is_err());
}

#[test]
fn ranges() {
    for (value, range_of_ten) in [
        ("bytes=0-3", Range::Part(0, 4)),
        ("bytes=4-", Range::Part(4, 6)),
        ("bytes=4-99", Range::Part(4, 6)),
        ("bytes=-3", Range::Part(7, 3)),
        ("bytes=-99", Range::Part(0, 10)),
        ("bytes=-99999999999999999999", Range::Part(0, 10)),
        ("bytes=9-9", Range::Part(9, 1)),
        ("bytes=10-", Range::Outside),
        ("bytes=-0", Range::Outside),
        ("bytes=3-2", Range::Whole),
        ("bytes=0-1,3-4", Range::Whole),
        ("bytes=a-b", Range::Whole),
        ("lines=1-2", Range::Whole),
        ("bytes=-", Range::Whole),
    ] {
        assert_eq!(range(value.as_bytes(), 10), range_of_ten, "{value}");
    }
    assert_eq!(range(b"bytes=0-", 0), Range::Outside);
    let scratch = Scratch::new("ranges");
    let dir = scratch.dir();
    let reply = ask(&dir, "/a.txt", &[("range", "bytes=2-5")]);
    assert_eq!(part(&reply), (206, 2, 4));
    assert!(reply.fields.contains(&("Content-Range", "bytes 2-5/10".to_owned())));
    let reply = ask(&dir, "/a.txt", &[("range", "bytes=10-")]);
    assert_eq!((reply.status, reply.fields[0].1.as_str()), (416, "bytes */10"));
    let reply = ask(&dir, "/a.txt", &[("range", "bytes=2-5"), ("if-range", "\"other\"")]);
    assert_eq!(part(&reply), (200, 0, 10));
}

#[test]
fn what_the_peer_has_already_is_not_sent() {
    let scratch = Scratch::new("conditions");
    let dir = scratch.dir();
    let value =
        |reply: &Reply, name| reply.fields.iter().find(|(n, _)| *n == name).map(|(_, v)| v.clone()).unwrap();
    let first = ask(&dir, "/a.txt", &[]);
    let (date, tag) = (value(&first, "Last-Modified"), value(&first, "ETag"));
    let status = |fields: &[(&'static str, &str)]| ask(&dir, "/a.txt", fields).status;
    assert_eq!(status(&[("if-modified-since", &date)]), 304);
    assert_eq!(status(&[("if-modified-since", "Thu, 01 Jan 1970 00:00:00 GMT")]), 200);
    assert_eq!(status(&[("if-modified-since", "yesterday")]), 200);
    assert_eq!(status(&[("if-none-match", &format!("\"x\", W/{tag}"))]), 304);
    assert_eq!(status(&[("if-none-match", "*")]), 304);
    assert_eq!(status(&[("if-none-match", "\"x\""), ("if-modified-since", &date)]), 200);
    assert_eq!(status(&[("range", "bytes=0-1"), ("if-range", &tag)]), 206);
    assert_eq!(status(&[("range", "bytes=0-1"), ("if-range", &date)]), 206);
}

/// RFC 9110 §13.1.1, §13.1.4, §13.2.2: another version than was asked for is not sent.
#[test]
fn another_version_than_was_asked_for_is_not_sent() {
    let scratch = Scratch::new("preconditions");
    let dir = scratch.dir();
    let value =
        |reply: &Reply, name| reply.fields.iter().find(|(n, _)| *n == name).map(|(_, v)| v.clone()).unwrap();
    let first = ask(&dir, "/a.txt", &[]);
    let (date, tag) = (value(&first, "Last-Modified"), value(&first, "ETag"));
    let old = "Thu, 01 Jan 1970 00:00:00 GMT";
    let status = |fields: &[(&'static str, &str)]| ask(&dir, "/a.txt", fields).status;
    assert_eq!(status(&[("if-match", &format!("\"x\", {tag}"))]), 200);
    assert_eq!(status(&[("if-match", "*")]), 200);
    assert_eq!(status(&[("if-match", "\"x\"")]), 412);
    assert_eq!(status(&[("if-match", &format!("W/{tag}"))]), 412);
    assert_eq!(status(&[("if-unmodified-since", &date)]), 200);
    assert_eq!(status(&[("if-unmodified-since", old)]), 412);
    assert_eq!(status(&[("if-unmodified-since", "yesterday")]), 200);
    assert_eq!(status(&[("if-match", &tag), ("if-unmodified-since", old)]), 200, "the tag decides alone");
    assert_eq!(status(&[("if-match", "\"x\""), ("if-none-match", &tag)]), 412, "before what the peer has");
    assert_eq!(status(&[("if-match", "\"x\""), ("range", "bytes=0-1")]), 412);
}
