//! Requests that are signed for AWS, against a server that looks at each signature when it comes, by the key that it shares with the client.

use std::sync::{Arc, Mutex};
use std::time::{SystemTime, UNIX_EPOCH};

use flowlane_load::fill::{Capture, Data, Order};
use flowlane_load::http::{Aws, Body, Pool, Request, Version};
use ring::{digest, hmac};

use super::kept::{Asked, Log, keeping, says};
use super::kit::{ms, plan, pool, rate, run, run_on};

const VERSIONS: [Version; 2] = [Version::Http1 { pipeline: 1 }, Version::Http2 { streams: 2 }];
const SECRET: &str = "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY";

fn aws(scope: &str) -> Option<Aws> {
    Some(Aws::new(scope.parse().unwrap(), Some(&format!("AKID:{SECRET}")), Some("token")).unwrap())
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn hash(bytes: &[u8]) -> String {
    hex(digest::digest(&digest::SHA256, bytes).as_ref())
}

/// What is wrong with the signature of a request, whose path and query are their own canonical forms.
fn fault(asked: &Asked, service: &str) -> Option<String> {
    let (date, authorization) = (asked.field("x-amz-date"), asked.field("authorization"));
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
    let digits = |at: usize, n: usize| date.get(at..at + n).and_then(|part| part.parse::<u64>().ok());
    let second = digits(9, 2)? * 3600 + digits(11, 2)? * 60 + digits(13, 2)?;
    let late = (now % 86_400 + 86_400 - second) % 86_400;
    if late > 10 {
        return Some(format!("signed {late} seconds ago: {date}"));
    }
    let scope = format!("{}/eu-west-1/{service}/aws4_request", &date[..8]);
    let names = authorization.split("SignedHeaders=").nth(1)?.split(',').next()?;
    let mut text = format!("{}\n{}\n", asked.method, asked.path.replacen('?', "\n", 1));
    if !asked.path.contains('?') {
        text.push('\n');
    }
    for name in names.split(';') {
        let value = if name == "host" { "10.0.0.1" } else { asked.field(name) };
        text.push_str(&format!("{name}:{value}\n"));
    }
    text.push_str(&format!("\n{names}\n{}", hash(asked.body.as_bytes())));
    let text = format!("AWS4-HMAC-SHA256\n{date}\n{scope}\n{}", hash(text.as_bytes()));
    let mut key = hmac::Key::new(hmac::HMAC_SHA256, format!("AWS4{SECRET}").as_bytes());
    for part in scope.split('/') {
        key = hmac::Key::new(hmac::HMAC_SHA256, hmac::sign(&key, part.as_bytes()).as_ref());
    }
    let signature = hex(hmac::sign(&key, text.as_bytes()).as_ref());
    let expected =
        format!("AWS4-HMAC-SHA256 Credential=AKID/{scope}, SignedHeaders={names}, Signature={signature}");
    let all = ["host", "x-amz-date", "x-amz-security-token"]
        .iter()
        .all(|name| names.split(';').any(|n| n == *name));
    let content = asked.field("x-amz-content-sha256");
    let named = if service == "s3" { hash(asked.body.as_bytes()) } else { String::new() };
    (authorization != expected || !all || content != named)
        .then(|| format!("{authorization} is not {expected}, of {text}; content {content}"))
}

/// Runs a pool against a server that checks signatures; what it was asked.
fn checked(workers: usize, pool: Pool, time: u64) -> Vec<Asked> {
    let (log, faults) = (Arc::new(Log::default()), Arc::new(Mutex::new(Vec::new())));
    let seen = faults.clone();
    let service = if format!("{:?}", pool.aws).contains("s3") { "s3" } else { "execute-api" };
    let http2 = matches!(pool.version, Version::Http2 { .. });
    let server = keeping(&log, http2, move |asked| {
        seen.lock().unwrap().extend(fault(asked, service));
        says(&format!("id={};", asked.path.len()))
    });
    let ran = run_on(workers, plan(pool, ms(time)), &server);
    let counts = ran.counts();
    assert_eq!((counts.failed, &ran.outcome.failure), (0, &None), "{counts:?}");
    let faults = faults.lock().unwrap();
    assert_eq!(faults.first(), None, "{} faults", faults.len());
    log.all()
}

/// Those that are the same share a signature for a second, and have another in the next.
// Long: more than a second passes over each version of HTTP.
#[test]
fn requests_that_are_the_same_are_signed_each_second() {
    for version in VERSIONS {
        let put = Request {
            method: "PUT".into(),
            path: Some("/bucket/key%20of%20mine?a=1&b=2".into()),
            headers: vec![("X-Amz-Meta-A".into(), "b".into()), ("Content-Type".into(), "text/plain".into())],
            body: Body::Text("content".into()),
            ..Request::default()
        };
        // hyper's server answers HEAD over HTTP/2 with a body.
        let method = if matches!(version, Version::Http2 { .. }) { "DELETE" } else { "HEAD" };
        let head = Request { method: method.into(), ..Request::default() };
        let pool = Pool {
            aws: aws("aws:amz:eu-west-1:s3"),
            requests: vec![put, head],
            version,
            connections: 4,
            pace: rate(400.0),
            requests_per_connection: matches!(version, Version::Http1 { .. }).then_some(7),
            ..pool()
        };
        let asked = checked(2, pool, 2500);
        assert!(asked.len() > 900, "{}", asked.len());
        let mut signatures: Vec<&str> = asked.iter().map(|asked| asked.field("authorization")).collect();
        signatures.sort_unstable();
        signatures.dedup();
        // Two requests in two lanes, which sign alike, three or four times each.
        assert!((6..=16).contains(&signatures.len()), "{version:?}: {}", signatures.len());
    }
}

/// Rows, counters, captures and cookies are in what is signed.
#[test]
fn requests_that_differ_are_signed_each() {
    for version in VERSIONS {
        let first = Request {
            method: "POST".into(),
            path: Some("/{{name}}/{{counter}}".into()),
            headers: vec![("X-Name".into(), "{{name}}".into())],
            body: Body::Text("a body of {{name}}".into()),
            captures: vec![Capture::new("id", None, Some("id=([0-9]+);"), None).unwrap()],
            ..Request::default()
        };
        let second = Request { path: Some("/of/{{id}}".into()), ..Request::default() };
        let third = Request { path: Some("/last".into()), ..Request::default() };
        let data = Data::parse(b"name\nann\nbob\ncarol\n", Order::Once).unwrap();
        let pool = Pool {
            aws: aws("aws:amz:eu-west-1:execute-api"),
            requests: vec![first, second, third],
            steps: true,
            data: Some(data.into()),
            version,
            connections: 2,
            ..pool()
        };
        let asked = checked(1, pool, 20_000);
        let mut paths: Vec<&str> = asked.iter().map(|asked| asked.path.as_str()).collect();
        paths.sort_unstable();
        assert_eq!(paths.len(), 9, "{paths:?}");
        assert!(paths.contains(&"/of/6") || paths.contains(&"/of/7"), "{paths:?}");
        let first = asked.iter().filter(|asked| asked.method == "POST");
        assert!(first.clone().all(|a| a.body == format!("a body of {}", a.field("x-name"))));
        assert_eq!(first.count(), 3);
    }
}

/// Without a signature nothing of it is sent.
#[test]
fn requests_that_are_not_signed_have_nothing_of_it() {
    let log = Arc::new(Log::default());
    let pool = Pool { total_requests: Some(5), ..pool() };
    run(plan(pool, ms(20_000)), &keeping(&log, false, |_| says("hello")));
    let asked = log.all();
    assert_eq!(asked.len(), 5);
    assert!(asked.iter().all(|a| a.fields.keys().all(|name| name == "host" || name == "user-agent")));
}
