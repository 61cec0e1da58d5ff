//! Until when a request is to be done.
//!
//! Who asks waits for an answer so long, then says that there is none and goes. The request is still there: an instance that was stopped
//! (SIGSTOP, a debugger) finds it when it goes on, and would do what has been reported as not done. So a request that changes something says
//! until when it counts, by the clock that all processes of the machine have and nobody sets, and one that is found later is not done.

use std::time::Duration;

use hyper::Request;
use hyper::http::request::Builder;
use rustix::time::{ClockId, clock_gettime};

/// The header.
const UNTIL: &str = "flowlane-until";

/// Milliseconds of the machine's monotonic clock.
fn now() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    let (seconds, nanos) = (u64::try_from(now.tv_sec).unwrap_or(0), u64::try_from(now.tv_nsec).unwrap_or(0));
    seconds * 1000 + nanos / 1_000_000
}

/// The request counts for so long from now on.
pub(super) fn for_the_next(time: Duration, request: Builder) -> Builder {
    let until = now().saturating_add(u64::try_from(time.as_millis()).unwrap_or(u64::MAX));
    request.header(UNTIL, until.to_string())
}

/// Whether a request came too late. One that says nothing is always in time: a person with curl sends it.
pub(super) fn is_over<B>(request: &Request<B>) -> bool {
    let until = request.headers().get(UNTIL).and_then(|until| until.to_str().ok()?.parse::<u64>().ok());
    until.is_some_and(|until| until < now())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_counts_until_its_time() {
        let with = |value: &str| Request::post("/v1/move").header(UNTIL, value).body(()).unwrap();
        assert!(is_over(&with("1")));
        assert!(!is_over(&with(&u64::MAX.to_string())));
        assert!(!is_over(&with("soon")));
        assert!(!is_over(&Request::post("/v1/move").body(()).unwrap()));
        let sent = for_the_next(Duration::from_secs(60), Request::post("/v1/move")).body(()).unwrap();
        assert!(!is_over(&sent));
        let late = for_the_next(Duration::ZERO, Request::post("/v1/move")).body(()).unwrap();
        while !is_over(&late) {
            std::hint::spin_loop();
        }
    }
}
