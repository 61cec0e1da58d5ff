//! `flowlane serve http` as people run it: over a TAP, with curl as the client, and what it says of it afterwards.

use flowlane_testnet::Program;
use serde_json::Value;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};

fn refused(more: &str) -> String {
    let usual = "serve http --link tap:flnone0 --addr 10.11.2.1/24 --no-pin ";
    let output = Command::new(env!("CARGO_BIN_EXE_flowlane"))
        .args((usual.to_owned() + more).split_whitespace())
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!((output.status.code(), said.lines().count()), (Some(2), 1), "{more}: {said}");
    said
}

#[test]
fn bad_arguments() {
    for (more, word) in [
        ("--stall 1s", "EVERY,FOR"),
        ("--stall 1s,2s", "less than the first"),
        ("--keepalive 0", "--keepalive"),
        ("--max-connections 0", "--max-connections"),
        ("--max-head 1", "--max-head"),
        ("--max-fields 129", "128"),
        ("--idle-timeout 0s", "--idle-timeout"),
        ("--cert /nowhere/cert.pem", "--cert-key"),
        ("--cert /nowhere/cert.pem --cert-key /nowhere/key.pem", "/nowhere/cert.pem"),
        ("--write-cert /tmp/x.pem", "--tls"),
        ("--dir /nowhere/at/all", "/nowhere/at/all"),
        ("--listen-buckets 99", "--listen-buckets"),
        ("--unix-socket /tmp/h.sock", "--unix-socket"),
    ] {
        let said = refused(more);
        assert!(said.contains(word), "{more}: {said}");
    }
}

/// At a Unix socket: curl, which is somebody else's, and our own generator; the file goes at the end.
#[test]
fn at_a_path() {
    let scratch = flowlane_testnet::Scratch::new("http-path");
    let path = scratch.path("h.sock");
    let flowlane = |line: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_flowlane"));
        command.args(line.split_whitespace()).stdin(Stdio::null());
        command
    };
    let line = format!("serve http --workers 2 --no-pin --json --unix-socket {path} --unix-mask 660");
    let service = Program::ready(flowlane(&line), &format!("http on {path}"));
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o660);
    let mut asked = 100;
    let load = format!("load http http://any.example/size/600 --unix-socket {path} -c 8 -n 100 -q --json");
    let output = flowlane(&load).output().unwrap();
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["total"]["counts"]["codes"]["200"], 100, "{report}");
    match Command::new("curl").args(["-s", "--unix-socket", &path, "http://any.example/size/5"]).output() {
        Ok(output) => {
            assert_eq!(output.stdout.len(), 5);
            asked += 1;
        }
        Err(_) => flowlane_testnet::skipped("skipped, because there is no curl"),
    }
    let second = flowlane(&line).output().unwrap();
    let said = String::from_utf8(second.stderr).unwrap();
    assert_eq!((second.status.code(), said.lines().count()), (Some(2), 1), "{said}");
    assert!(said.contains("another program is listening there"), "{said}");
    let said = service.interrupt();
    let summary = said.lines().find(|line| line.contains("http-summary")).unwrap_or_else(|| panic!("{said}"));
    let summary: Value = serde_json::from_str(summary).unwrap();
    assert_eq!(summary["requests"], asked, "{summary}");
    assert!(!std::path::Path::new(&path).exists(), "its file is left");
}

/// A service over a TAP in a namespace of its own; `ask` is given a way to run curl beside it.
fn served(tag: &str, more: &str, ask: impl Fn(&dyn Fn(&str) -> String)) -> Option<Vec<Value>> {
    if let Err(why) = flowlane_testnet::requires() {
        flowlane_testnet::skipped(why);
        return None;
    }
    if Command::new("curl").arg("--version").output().is_err() {
        flowlane_testnet::skipped("skipped, because there is no curl");
        return None;
    }
    let name = format!("flht{tag}{}", std::process::id());
    let namespace = flowlane_testnet::Namespace::new(&name).unwrap();
    let serve = format!(
        "serve http --link tap:tap0 --addr 10.11.2.1/24,fd00:11:2::1/64 --port 80 --workers 2 --no-pin --json \
         --interval 50ms {more}"
    );
    let inside = |program: &str, arguments: &str| {
        let mut command = namespace.command(program);
        command.args(arguments.split_whitespace()).stdin(Stdio::null());
        command
    };
    let service = Program::ready(inside(env!("CARGO_BIN_EXE_flowlane"), &serve), "http on 10.11.2.1");
    namespace.ip("addr add 10.11.2.2/24 dev tap0").unwrap();
    namespace.ip("addr add fd00:11:2::2/64 dev tap0 nodad").unwrap();
    namespace.ip("link set tap0 up").unwrap();
    ask(&|arguments| {
        let output = inside("curl", &format!("-sS -g -m 20 {arguments}")).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "curl {arguments}: {said}");
        String::from_utf8(output.stdout).unwrap()
    });
    let printed = service.interrupt();
    Some(printed.lines().map(|line| serde_json::from_str(line).unwrap()).collect())
}

fn last<'a>(documents: &'a [Value], kind: &str) -> &'a Value {
    documents.iter().rfind(|d| d["kind"] == kind).unwrap()
}

#[test]
fn curl_over_a_tap() {
    let dir = std::env::temp_dir().join(format!("flowlane-curl-{}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    std::fs::write(dir.join("page.html"), "<p>hello").unwrap();
    let two = Command::new("curl").arg("--version").output();
    let two = two.is_ok_and(|o| String::from_utf8_lossy(&o.stdout).contains("HTTP2"));
    let documents = served("c", &format!("--dir {}", dir.display()), |curl| {
        let show = "-o /dev/null -w %{http_code}/%{http_version}/%{size_download}";
        for host in ["10.11.2.1", "[fd00:11:2::1]"] {
            assert_eq!(curl(&format!("{show} http://{host}/size/1000000")), "200/1.1/1000000");
            assert_eq!(curl(&format!("{show} http://{host}/size/70000?chunked")), "200/1.1/70000");
        }
        assert_eq!(curl("http://10.11.2.1/page.html"), "<p>hello");
        assert_eq!(curl("-r 3-4 http://10.11.2.1/page.html"), "he");
        assert_eq!(curl("-d some=thing http://10.11.2.1/echo"), "some=thing");
        assert_eq!(curl(&format!("{show} -I http://10.11.2.1/status/404")), "404/1.1/0");
        assert_eq!(curl(&format!("{show} --http1.0 http://10.11.2.1/line")), "200/1.1/128");
        if two {
            assert_eq!(
                curl(&format!("{show} --http2-prior-knowledge http://10.11.2.1/size/99999")),
                "200/2/99999"
            );
        }
    });
    std::fs::remove_dir_all(&dir).unwrap();
    let Some(documents) = documents else { return };
    let summary = last(&documents, "http-summary");
    flowlane_schema::check("serve-v1", summary);
    flowlane_schema::check("serve-v1", last(&documents, "http-interval"));
    let requests = 9 + u64::from(two);
    assert_eq!(summary["requests"], requests, "{summary}");
    assert_eq!(summary["connections"], requests, "{summary}");
    assert_eq!(summary["answers-4xx"], 1, "{summary}");
    assert_eq!(summary["http2-connections"], u64::from(two), "{summary}");
    assert_eq!(summary["errors"], serde_json::json!({}), "{summary}");
    let lanes: u64 =
        summary["buckets"].as_array().unwrap().iter().map(|b| b["requests"].as_u64().unwrap()).sum();
    assert_eq!(lanes, requests);
}

#[test]
fn curl_over_a_tap_inside_tls() {
    let pem: PathBuf = std::env::temp_dir().join(format!("flowlane-curl-{}.pem", std::process::id()));
    let file = pem.display().to_string();
    let documents = served("s", &format!("--tls --write-cert {file}"), |curl| {
        let show = "-o /dev/null -w %{http_code}/%{http_version}/%{size_download}";
        for host in ["10.11.2.1:80", "[fd00:11:2::1]:80"] {
            let url = format!("https://{host}/size/300000");
            assert_eq!(curl(&format!("{show} --http1.1 --cacert {file} {url}")), "200/1.1/300000");
            let agreed = curl(&format!("{show} --cacert {file} {url}"));
            assert!(agreed.starts_with("200/") && agreed.ends_with("/300000"), "{agreed}");
        }
    });
    let Some(documents) = documents else { return };
    std::fs::remove_file(&pem).unwrap();
    let summary = last(&documents, "http-summary");
    assert_eq!((&summary["tls-handshakes"], &summary["requests"]), (&4.into(), &4.into()), "{summary}");
    assert_eq!(summary["errors"], serde_json::json!({}), "{summary}");
}
