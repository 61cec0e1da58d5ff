//! A recording is sent as it was, each request once: on connections that are kept and on those of one request, by any number of lanes, over
//! either version of HTTP.

use std::sync::Arc;

use flowlane_load::http::replay::{self, Recording, Wishes};
use flowlane_load::http::{HttpLoad, HttpOptions, Pool, Request, Version};

use super::kept::{Log, keeping, says};
use super::kit::{ms, plan, pool, rate, run_on};

const ALL: usize = 120;

/// Four requests every four milliseconds, no two alike, of three methods: of four that are due at one moment, three are taken before a
/// connection stands.
fn recording(wishes: &Wishes) -> Arc<Recording> {
    let entry = |n: usize| {
        let (method, body) = match n % 3 {
            0 => ("GET", String::new()),
            1 => ("HEAD", String::new()),
            _ => ("POST", format!(", \"postData\": {{\"text\": \"body {n}\"}}")),
        };
        format!(
            "{{\"startedDateTime\": \"2026-03-01T12:00:00.{:03}Z\", \"request\": {{\"method\": \"{method}\", \
             \"url\": \"https://a.example/{n}?q\", \"headers\": [{{\"name\": \"X-N\", \"value\": \"{n}\"}}]{body}}}}}",
            n / 4 * 4
        )
    };
    let entries: Vec<String> = (0..ALL).map(entry).collect();
    let har = format!("{{\"log\": {{\"entries\": [{}]}}}}", entries.join(","));
    replay::parse(har.as_bytes(), wishes).unwrap().into()
}

fn replaying(recording: &Arc<Recording>) -> Pool {
    let of_method =
        |method: &String| Request { method: method.clone(), path: Some("/".into()), ..Request::default() };
    Pool {
        requests: recording.methods().iter().map(of_method).collect(),
        replay: Some(recording.clone()),
        pace: rate(1000.0),
        ..pool()
    }
}

#[test]
fn each_recorded_request_is_sent_once() {
    let recording = recording(&Wishes::default());
    for (version, workers, connections, each) in [
        (Version::Http1 { pipeline: 1 }, 1, 1, None),
        (Version::Http1 { pipeline: 1 }, 2, 5, None),
        (Version::Http1 { pipeline: 1 }, 1, 4, Some(1)),
        (Version::Http1 { pipeline: 1 }, 2, 7, Some(3)),
        (Version::Http2 { streams: 3 }, 2, 3, None),
    ] {
        let log = Arc::new(Log::default());
        let pool = Pool { version, connections, requests_per_connection: each, ..replaying(&recording) };
        let http2 = matches!(version, Version::Http2 { .. });
        let ran = run_on(
            workers,
            plan(pool, ms(20_000)),
            &keeping(&log, http2, |asked| says(if asked.method == "HEAD" { "" } else { "hello" })),
        );
        let c = ran.counts();
        assert_eq!(
            (ran.outcome.failure.as_ref(), c.sent, c.answered, c.failed),
            (None, 120, 120, 0),
            "{c:?}"
        );
        let mut all = log.all();
        if workers == 1 && connections == 1 {
            assert!(
                all.iter().enumerate().all(|(n, asked)| asked.path == format!("/x/{n}?q")),
                "{:?}",
                log.paths()
            );
        }
        all.sort_by_key(|asked| asked.field("x-n").parse::<usize>().unwrap());
        for (n, asked) in all.iter().enumerate() {
            let (method, body) =
                [("GET", String::new()), ("HEAD", String::new()), ("POST", format!("body {n}"))][n % 3]
                    .clone();
            assert_eq!(
                (asked.method.as_str(), &asked.path, &asked.body),
                (method, &format!("/x/{n}?q"), &body),
                "{version:?}"
            );
        }
        // What is counted of each method.
        let answered: u64 = ran.run.pools[0].requests.iter().map(|r| r.figures.answered).sum();
        assert!(answered == 120 || ran.run.pools[0].requests.is_empty(), "{answered}");
    }
}

/// What HTTP/2 of hyper's cannot say fails alone.
#[test]
fn a_request_that_cannot_be_sent_ends_no_other() {
    let line = |path: &str| format!("h [01/Mar/2026:12:00:00 +0000] \"GET {path} HTTP/1.1\" 200\n");
    let log = ["/a", "/^<b>", "/c", "/<", "/d"].map(line).concat();
    let recording =
        Arc::new(replay::parse(log.as_bytes(), &Wishes { speed: 10.0, ..Wishes::default() }).unwrap());
    let heard = Arc::new(Log::default());
    let pool = Pool { version: Version::Http2 { streams: 1 }, ..replaying(&recording) };
    let ran = run_on(1, plan(pool, ms(20_000)), &keeping(&heard, true, |_| says("hello")));
    assert_eq!((ran.counts().answered, ran.errors("local")), (3, 2), "{:?}", ran.counts());
    assert_eq!(heard.paths(), ["/x/a", "/x/c", "/x/d"]);
}

#[test]
fn what_does_not_go_with_a_replay_is_refused() {
    let recording = recording(&Wishes::default());
    let refused = |pool: Pool| {
        let refused = HttpLoad::new(plan(pool, ms(100)), HttpOptions { lanes: 1, ..HttpOptions::default() });
        refused.map(drop).unwrap_err().to_string()
    };
    let fine = replaying(&recording);
    assert!(
        refused(Pool { version: Version::Http1 { pipeline: 2 }, ..fine.clone() })
            .contains("one request at a time")
    );
    assert!(refused(Pool { cookies: true, ..fine.clone() }).contains("cookies of the recording"));
    assert!(refused(Pool { requests: vec![Request::default()], ..fine.clone() }).contains("for each method"));
    assert!(refused(Pool { pace: flowlane_load::http::Pace::Closed, ..fine }).contains("open loop"));
}
