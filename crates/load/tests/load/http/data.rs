//! Rows of a file, counters and random values in requests: the server has each field where it belongs, and each row as often as it should.

use std::collections::BTreeMap;
use std::sync::Arc;

use flowlane_load::fill::{Data, Order};
use flowlane_load::http::{Body, HttpLoad, HttpOptions, Pace, Pool, Request, Version};

use super::kept::{Log, keeping, says};
use super::kit::{ms, plan, pool, rate, run, run_on, target};

fn rows(n: u64, order: Order) -> Option<Arc<Data>> {
    let rows: String = (0..n).map(|row| format!("u{row},\"p{row}, {{{{\"\"\"\n")).collect();
    Some(Data::parse(format!("name,pass word\n{rows}").as_bytes(), order).unwrap().into())
}

fn filled(version: Version) -> Pool {
    let request = Request {
        method: "POST".into(),
        path: Some("/u/{{name}}?p={{pass word}}&{{{{".into()),
        headers: vec![("X-Name".into(), "<{{name}}>".into()), ("X-N".into(), "{{counter:1000}}".into())],
        body: Body::Text("{\"p\": \"{{pass word|json}}\", \"r\": \"{{letters:6}}\"}".into()),
        ..Request::default()
    };
    Pool { version, requests: vec![request], ..pool() }
}

const VERSIONS: [Version; 2] = [Version::Http1 { pipeline: 1 }, Version::Http2 { streams: 3 }];

fn is_http2(version: Version) -> bool {
    matches!(version, Version::Http2 { .. })
}

#[test]
fn each_row_once_wherever_it_belongs() {
    for version in VERSIONS {
        for (workers, pace) in [(1, Pace::Closed), (2, Pace::Closed), (1, rate(400.0))] {
            let log = Arc::new(Log::default());
            let pool = Pool { connections: 5, data: rows(57, Order::Once), pace, ..filled(version) };
            let ran =
                run_on(workers, plan(pool, ms(20_000)), &keeping(&log, is_http2(version), |_| says("hello")));
            let c = ran.counts();
            assert_eq!(
                (ran.outcome.failure.as_ref(), c.sent, c.answered, c.failed),
                (None, 57, 57, 0),
                "{c:?}"
            );
            let mut seen = BTreeMap::new();
            for asked in log.all() {
                let row: u64 = asked.path["/u/u".len()..].split('?').next().unwrap().parse().unwrap();
                assert_eq!(asked.path, format!("/u/u{row}?p=p{row},%20%7B%7B%22&{{{{"), "{version:?}");
                assert_eq!(asked.field("x-name"), format!("<u{row}>"));
                assert_eq!(asked.field("x-n"), format!("{}", 1000 + row), "the number is that of the row");
                let begin = format!("{{\"p\": \"p{row}, {{{{\\\"\", \"r\": \"");
                assert!(
                    asked.body.starts_with(&begin) && asked.body.len() == begin.len() + 8,
                    "{}",
                    asked.body
                );
                let letters = &asked.body[begin.len()..begin.len() + 6];
                assert_eq!(seen.insert(row, letters.to_owned()), None, "row {row} twice");
            }
            let mut letters: Vec<&String> = seen.values().collect();
            letters.sort_unstable();
            letters.dedup();
            assert_eq!((seen.len(), letters.len()), (57, 57), "{version:?}");
            let sent: u64 = ran.run.total.counts.bytes_sent;
            assert!(sent > 57 * 100, "{sent}");
        }
    }
}

#[test]
fn rows_come_again_in_their_order() {
    for version in VERSIONS {
        let log = Arc::new(Log::default());
        let pool = Pool { total_requests: Some(8), data: rows(3, Order::InOrder), ..filled(version) };
        let pool =
            Pool { version: if is_http2(version) { Version::Http2 { streams: 1 } } else { version }, ..pool };
        run(plan(pool, ms(20_000)), &keeping(&log, is_http2(version), |_| says("hello")));
        let users: Vec<String> = log.all().iter().map(|asked| asked.field("x-name").to_owned()).collect();
        assert_eq!(users, ["<u0>", "<u1>", "<u2>", "<u0>", "<u1>", "<u2>", "<u0>", "<u1>"]);
    }
}

/// A connection for each request, a HEAD, a body too large for one write, and the path of the target's own URL.
#[test]
fn other_requests_are_filled_in_too() {
    let log = Arc::new(Log::default());
    let large = Request {
        method: "PUT".into(),
        headers: vec![("X-Name".into(), "{{name}}".into())],
        body: Body::Generated(200_000),
        ..Request::default()
    };
    let pool = Pool {
        targets: vec![target("/t/{{name|url}}?{{number:7-7}}")],
        requests: vec![large, Request { method: "HEAD".into(), ..Request::default() }],
        data: rows(4, Order::Random),
        requests_per_connection: Some(1),
        connections: 3,
        total_requests: Some(40),
        ..pool()
    };
    let ran = run(plan(pool, ms(20_000)), &keeping(&log, false, |_| says("hello")));
    let c = ran.counts();
    assert_eq!((c.sent, c.answered, c.failed), (40, 40, 0), "{c:?}");
    let all = log.all();
    assert!(all.iter().all(|a| a.path.starts_with("/t/u") && a.path.ends_with("?7")), "{:?}", log.paths());
    let (puts, heads): (Vec<_>, Vec<_>) = all.iter().partition(|a| a.method == "PUT");
    assert!(!puts.is_empty() && !heads.is_empty());
    assert!(puts.iter().all(|a| a.body.len() == 200_000 && a.path.contains(a.field("x-name"))));
}

#[test]
fn what_cannot_be_filled_in_is_refused_before_anything_is_sent() {
    let refused = |pool: Pool| {
        let refused = HttpLoad::new(plan(pool, ms(100)), HttpOptions::default()).unwrap_err().to_string();
        assert!(!refused.contains('\n'), "{refused}");
        refused
    };
    let one = |request: Request| Pool { requests: vec![request], data: rows(3, Order::InOrder), ..pool() };
    let path = |path: &str| Request { path: Some(path.into()), ..Request::default() };
    let unknown = refused(one(path("/{{nam}}")));
    assert!(unknown.contains("'nam'") && unknown.contains("name, pass word, counter"), "{unknown}");
    let unused = refused(one(path("/x")));
    assert!(unused.contains("no request uses a column") && unused.contains("name, pass word"), "{unused}");
    let open = refused(one(path("/{{name")));
    assert!(open.contains("no }}"), "{open}");
    let lines = Data::parse(b"name\n\"a\nb\"\n", Order::InOrder).unwrap();
    let header = Request { headers: vec![("X-N".into(), "{{name}}".into())], ..Request::default() };
    let lines = refused(Pool { data: Some(lines.into()), ..one(header) });
    assert!(lines.contains("row 1") && lines.contains("X-N"), "{lines}");
    let share = Pool { data: rows(3, Order::Share), connections: 4, ..one(path("/{{name}}")) };
    assert!(refused(share).contains("3 rows for 4 connections"));
    let pipelined = Pool { version: Version::Http1 { pipeline: 2 }, ..one(path("/{{name}}")) };
    assert!(refused(pipelined).contains("not with pipelining"));
    let fast = Pool { fast_open: true, requests_per_connection: Some(1), ..one(path("/{{name}}")) };
    assert!(refused(fast).contains("not with Fast Open"));
}
