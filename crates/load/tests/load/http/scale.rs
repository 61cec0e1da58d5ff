//! Very many connections at once, from many addresses.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use flowlane_load::http::Pool;

use super::kit::{Heard, ms, plan, pool, rate, run, serve};

/// Connections that all stand at once.
const MANY: usize = 20_000;

#[test]
fn twenty_thousand_connections_stand_at_once_and_all_of_them_are_used() {
    let heard = Arc::new(Heard::default());
    let count = heard.clone();
    // A small buffer, because there are so many.
    let server = serve(move |stream| {
        let heard = count.clone();
        async move {
            let mut asked = false;
            let mut buffer = [0; 256];
            while let Ok(n) = stream.read(&mut buffer).await
                && n > 0
            {
                heard
                    .connections
                    .fetch_add(u64::from(!std::mem::replace(&mut asked, true)), Ordering::Relaxed);
                // A request is one small write, so it comes whole.
                heard.requests.fetch_add(1, Ordering::Relaxed);
                assert!(buffer[..n].ends_with(b"\r\n\r\n"));
                if stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello").await.is_err() {
                    return;
                }
            }
        }
    });
    // 2000 addresses. What is due goes to the connection that has been free longest: first to each of them once.
    let clients = vec!["10.64.0.1-10.64.7.208".parse().unwrap()];
    let total = 2 * MANY as u64;
    let pace = rate(20_000.0);
    let pool = Pool { connections: MANY, clients, pace, total_requests: Some(total), ..pool() };
    let mut plan = plan(pool, ms(300_000));
    plan.timeout = ms(60_000);
    let ran = run(plan, &server);
    let c = ran.counts();
    assert_eq!(ran.outcome.failure, None);
    assert_eq!(ran.run.total.concurrency_max, MANY as u64, "{c:?}");
    assert_eq!((c.connections_opened, c.connections_failed), (MANY as u64, 0), "{c:?}");
    assert_eq!((c.sent, c.answered, c.failed), (total, total, 0), "{c:?}");
    assert_eq!((heard.connections(), heard.requests()), (MANY as u64, total));
}
