//! Flows of steps: what a step captures is in those after it, of the same client; what goes wrong ends the flow, and is counted.

use std::sync::Arc;
use std::time::Duration;

use flowlane_load::fill::{Capture, Data, Order};
use flowlane_load::http::{Body, Checks, Follow, HttpLoad, HttpOptions, Pace, Pool, Request, Think, Version};

use super::kept::{Answer, Asked, Log, keeping, says};
use super::kit::{Ran, ms, plan, pool, rate, run, run_on};

const VERSIONS: [Version; 2] = [Version::Http1 { pipeline: 1 }, Version::Http2 { streams: 2 }];

/// Logs in, reads its own page, and leaves.
fn steps(rows: u64) -> Pool {
    let names: String = (0..rows).map(|row| format!("u{row}\n")).collect();
    let capture = |name, json, regex, header| Capture::new(name, json, regex, header).unwrap();
    let login = Request {
        method: "POST".into(),
        path: Some("/login".into()),
        body: Body::Text("{\"user\": \"{{name|json}}\"}".into()),
        captures: vec![
            capture("token", Some("/auth/token"), None, None),
            capture("id", None, Some("/users/([0-9]+)"), Some("Location")),
        ],
        ..Request::default()
    };
    let page = Request {
        path: Some("/me/{{id}}/{{name}}".into()),
        headers: vec![("Authorization".into(), "Bearer {{token}}".into())],
        captures: vec![capture("csrf", None, Some("csrf=\"([a-z0-9]+)\""), None)],
        ..Request::default()
    };
    let leave = Request {
        method: "POST".into(),
        path: Some("/logout".into()),
        headers: vec![("Authorization".into(), "Bearer {{token}}".into())],
        body: Body::Text("csrf={{csrf}}".into()),
        ..Request::default()
    };
    let data = Data::parse(format!("name\n{names}").as_bytes(), Order::Once).unwrap();
    Pool {
        steps: true,
        requests: vec![login, page, leave],
        data: Some(data.into()),
        connections: 3,
        ..pool()
    }
}

/// A server that knows who is who: user N has token tN, number 7N, and c N in its page.
fn knows(asked: &Asked) -> Answer {
    let number = |text: &str| text.parse::<u64>().ok();
    let denied = || {
        let mut answer = says("who?");
        *answer.status_mut() = hyper::StatusCode::FORBIDDEN;
        answer
    };
    let token = asked.field("authorization").strip_prefix("Bearer t").and_then(number);
    if asked.path == "/login" {
        let user = asked.body.strip_prefix("{\"user\": \"u").and_then(|rest| rest.strip_suffix("\"}"));
        let Some(user) = user.and_then(number) else { return denied() };
        let mut answer = says(&format!("{{\"auth\": {{\"token\": \"t{user}\"}}}}"));
        answer.headers_mut().insert("location", format!("/users/{}", 7 * user).parse().unwrap());
        return answer;
    }
    let Some(user) = token else { return denied() };
    match asked.path.as_str() {
        "/logout" if asked.body == format!("csrf=c{user}") => says("bye"),
        path if path == format!("/me/{}/u{user}", 7 * user) => says(&format!("<i csrf=\"c{user}\">")),
        _ => denied(),
    }
}

fn more(ran: &Ran, name: &str) -> u64 {
    ran.counts().more.get(name).copied().unwrap_or(0)
}

fn of_step(ran: &Ran, step: usize) -> (u64, u64, u64) {
    let figures = &ran.run.pools[0].requests[step].figures;
    (figures.sent, figures.answered, figures.failed)
}

#[test]
fn what_a_step_captures_is_in_the_next() {
    for version in VERSIONS {
        for (workers, pace) in [(1, Pace::Closed), (2, Pace::Closed), (1, rate(200.0))] {
            let log = Arc::new(Log::default());
            let pool = Pool { version, pace, ..steps(31) };
            let http2 = matches!(version, Version::Http2 { .. });
            let ran = run_on(workers, plan(pool, ms(20_000)), &keeping(&log, http2, knows));
            let c = ran.counts();
            assert_eq!(ran.outcome.failure, None);
            assert_eq!((c.sent, c.answered, c.failed), (93, 93, 0), "{version:?} {c:?}");
            assert_eq!(log.all().len(), 93);
            for step in 0..3 {
                assert_eq!(of_step(&ran, step), (31, 31, 0), "{step}");
            }
            let flows = ["flows", "flows-whole", "flows-cut", "steps-not-asked"].map(|name| more(&ran, name));
            assert_eq!(flows, [31, 31, 0, 0], "{version:?} {c:?}");
        }
    }
}

#[test]
fn a_capture_that_finds_nothing_ends_its_flow() {
    for version in VERSIONS {
        let log = Arc::new(Log::default());
        let http2 = matches!(version, Version::Http2 { .. });
        // Every third has no token; every fifth may not see its page.
        let server = keeping(&log, http2, |asked| {
            let third = |n: u64| n.is_multiple_of(3);
            if asked.path == "/login" {
                let user: u64 = asked.body["{\"user\": \"u".len()..].trim_end_matches("\"}").parse().unwrap();
                return if third(user) { says("{\"auth\": {}}") } else { knows(asked) };
            }
            match asked.path.split('/').nth(2).and_then(|id| id.parse::<u64>().ok()) {
                Some(id) if (id / 7).is_multiple_of(5) => Answer::new("no page".into()),
                _ => knows(asked),
            }
        });
        // A header that is not there is told before content that is not.
        let mut pool = Pool { version, ..steps(30) };
        pool.requests[0].captures.truncate(2);
        let ran = run(plan(pool, ms(20_000)), &server);
        // 10 of 30 without a token, and of the other 20 those that 5 divides: 5, 10, 20, 25.
        assert_eq!(of_step(&ran, 0), (30, 30, 10), "{version:?}");
        assert_eq!(of_step(&ran, 1), (20, 20, 4), "{version:?}");
        assert_eq!(of_step(&ran, 2), (16, 16, 0), "{version:?}");
        assert_eq!(ran.errors("capture"), 14, "{:?}", ran.counts());
        let flows = ["flows", "flows-whole", "flows-cut", "steps-not-asked"].map(|name| more(&ran, name));
        assert_eq!(flows, [30, 16, 14, 10 * 2 + 4], "{version:?}");
        let example = &ran.counts().errors["capture"].example;
        assert!(example.contains("was not captured"), "{example}");
    }
}

/// The server closes after each answer: the client goes on over another connection, and is the same client.
#[test]
fn a_flow_outlives_its_connection() {
    for per_connection in [None, Some(1), Some(2)] {
        let log = Arc::new(Log::default());
        let server = keeping(&log, false, move |asked| {
            let mut answer = knows(asked);
            if per_connection.is_none() {
                answer.headers_mut().insert("connection", "close".parse().unwrap());
            }
            answer
        });
        let mut pool = Pool { requests_per_connection: per_connection, ..steps(20) };
        pool.requests[1].pause = Think::Constant(ms(3));
        let ran = run(plan(pool, ms(20_000)), &server);
        let c = ran.counts();
        assert_eq!(
            (c.sent, c.answered, c.failed, more(&ran, "flows-whole")),
            (60, 60, 0, 20),
            "{per_connection:?} {c:?}"
        );
        let connections = log.all().iter().map(|asked| asked.connection).max().unwrap();
        assert!(connections >= if per_connection == Some(2) { 30 } else { 60 }, "{connections}");
    }
}

#[test]
fn pauses_are_kept_and_are_none_of_the_latency() {
    for version in VERSIONS {
        for pace in [Pace::Closed, rate(50.0)] {
            let log = Arc::new(Log::default());
            let http2 = matches!(version, Version::Http2 { .. });
            let mut pool = Pool { version, pace, connections: 4, ..steps(4) };
            pool.requests[0].pause = Think::Constant(ms(150));
            pool.requests[1].pause = Think::Constant(ms(150));
            let ran = run(plan(pool, ms(20_000)), &keeping(&log, http2, knows));
            assert_eq!((ran.counts().answered, more(&ran, "flows-whole")), (12, 4), "{version:?}");
            assert!(ran.outcome.elapsed >= ms(300), "{:?}", ran.outcome.elapsed);
            let longest = Duration::from_nanos(ran.run.total.latency.at(0.5));
            assert!(longest < ms(150), "{longest:?}");
        }
    }
}

#[test]
fn a_step_may_be_redirected() {
    for version in VERSIONS {
        let log = Arc::new(Log::default());
        let http2 = matches!(version, Version::Http2 { .. });
        // The page is somewhere else, and needs the same token there.
        let server = keeping(&log, http2, |asked| match asked.path.strip_prefix("/moved") {
            Some(path) => knows(&Asked { path: path.to_owned(), ..asked.clone() }),
            None if asked.path.starts_with("/me/") => {
                let mut answer = says("there");
                *answer.status_mut() = hyper::StatusCode::TEMPORARY_REDIRECT;
                answer.headers_mut().insert("location", format!("/moved{}", asked.path).parse().unwrap());
                answer
            }
            None => knows(asked),
        });
        let pool = Pool { version, follow: Some(Follow::default()), ..steps(20) };
        let ran = run(plan(pool, ms(20_000)), &server);
        let c = ran.counts();
        assert_eq!(
            (c.sent, c.answered, c.failed, more(&ran, "flows-whole")),
            (60, 60, 0, 20),
            "{version:?} {c:?}"
        );
        assert_eq!((more(&ran, "redirects"), log.all().len()), (20, 80), "{version:?}");
    }
}

/// A run that ends while clients think: what was begun is counted, and nothing more is asked.
#[test]
fn the_end_of_a_run_leaves_flows_unfinished() {
    for version in VERSIONS {
        let log = Arc::new(Log::default());
        let http2 = matches!(version, Version::Http2 { .. });
        let mut pool =
            Pool { version: if http2 { Version::Http2 { streams: 1 } } else { version }, ..steps(1000) };
        pool.requests[0].pause = Think::Constant(Duration::from_secs(60));
        let mut plan = plan(pool, ms(400));
        plan.waiting = ms(1000);
        let ran = run(plan, &keeping(&log, http2, knows));
        let c = ran.counts();
        assert_eq!((c.sent, c.answered, c.failed), (3, 3, 0), "{version:?} {c:?}");
        let flows =
            ["flows", "flows-whole", "flows-unfinished", "steps-not-asked"].map(|name| more(&ran, name));
        assert_eq!(flows, [3, 0, 3, 6], "{version:?}");
    }
}

#[test]
fn a_wrong_status_ends_a_flow_and_not_its_connection() {
    let log = Arc::new(Log::default());
    let mut pool = steps(9);
    pool.requests[1].checks = Checks { contains: Some("no such text".into()), ..Checks::default() };
    let ran = run(plan(pool, ms(20_000)), &keeping(&log, false, knows));
    assert_eq!((of_step(&ran, 0), of_step(&ran, 1), of_step(&ran, 2)), ((9, 9, 0), (9, 9, 9), (0, 0, 0)));
    assert_eq!((ran.errors("content"), more(&ran, "steps-not-asked")), (9, 9));
    assert_eq!(ran.counts().connections_opened, 3);
}

#[test]
fn what_is_no_flow_is_refused() {
    let refused =
        |pool: Pool| HttpLoad::new(plan(pool, ms(100)), HttpOptions::default()).unwrap_err().to_string();
    let mut early = steps(1);
    early.requests.swap(0, 1);
    assert!(refused(early).contains("nothing is called 'id': there are name,"));
    let mut twice = steps(1);
    twice.requests[0].captures[0].name = "name".into();
    assert!(refused(twice).contains("'name' is a column of the file of rows, and is captured as well"));
    let loose = Pool { steps: false, data: None, ..steps(1) };
    assert!(refused(loose).contains("for steps"));
    assert!(refused(Pool { version: Version::Http1 { pipeline: 2 }, ..steps(1) }).contains("pipelining"));
}

/// A login whose answer redirects and sets cookies: they are asked for on the way, and by all later steps of this flow alone.
#[test]
fn a_flow_keeps_its_cookies() {
    for version in VERSIONS {
        let log = Arc::new(Log::default());
        let http2 = matches!(version, Version::Http2 { .. });
        let server = keeping(&log, http2, |asked| {
            let mut answer = says("hello");
            let user = asked.body.strip_prefix("user=").unwrap_or_default();
            let (fields, cookie) = (answer.headers_mut(), |text: String| text.parse().unwrap());
            match asked.path.as_str() {
                "/login" => {
                    assert_eq!(asked.field("cookie"), "", "of another flow");
                    fields.append("set-cookie", cookie(format!("id={user}; Path=/; HttpOnly")));
                    fields.append("set-cookie", cookie(format!("page={user}; Path=/page")));
                    fields.append("set-cookie", cookie("tls=1; Secure".to_owned()));
                    fields.append("location", cookie("/page/1".to_owned()));
                    *answer.status_mut() = hyper::StatusCode::SEE_OTHER;
                }
                "/page/1" => {
                    fields.append("set-cookie", cookie("seen=1".to_owned()));
                }
                "/logout" => {
                    fields.append("set-cookie", cookie("id=; Max-Age=0".to_owned()));
                }
                _ => {}
            }
            answer
        });
        let step = |path: &str| Request { path: Some(path.into()), ..Request::default() };
        let body = Body::Text("user={{counter:1}}".into());
        let login = Request { method: "POST".into(), body, ..step("/login") };
        let pool = Pool {
            version,
            steps: true,
            cookies: true,
            follow: Some(Follow::default()),
            requests: vec![login, step("/other"), step("/logout"), step("/page")],
            connections: 1,
            total_requests: Some(9),
            ..pool()
        };
        let ran = run(plan(pool, ms(20_000)), &server);
        let c = ran.counts();
        assert_eq!(
            (c.sent, c.answered, c.failed, more(&ran, "flows-whole")),
            (36, 36, 0, 9),
            "{version:?} {c:?}"
        );
        let all = log.all();
        assert_eq!(all.len(), 45);
        let sent = |path: &str| -> Vec<String> {
            let mut of: Vec<String> =
                all.iter().filter(|a| a.path == path).map(|a| a.field("cookie").to_owned()).collect();
            of.sort();
            of
        };
        let each = |f: fn(u64) -> String| (1..=9).map(f).collect::<Vec<_>>();
        assert_eq!(sent("/page/1"), each(|n| format!("id={n}; page={n}")), "{version:?}");
        assert_eq!(sent("/other"), each(|n| format!("id={n}; seen=1")), "{version:?}");
        assert_eq!(sent("/logout"), each(|n| format!("id={n}; seen=1")), "{version:?}");
        assert_eq!(sent("/page"), each(|n| format!("page={n}; seen=1")), "{version:?}");
    }
}
