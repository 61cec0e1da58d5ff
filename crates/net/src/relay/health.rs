//! Health checks: a connection to each target every so often, reset as soon as it stands. A target that expects PROXY headers gets one that
//! says that the connection is the relay's own, and then the end.
//!
//! A target is down after [`FALL`] checks in a row that failed, and up again after [`RISE`] that did not, as with HAProxy. One lane checks
//! for all. A change is told once.

use std::time::Duration;

use flowlane_stack::Connect;

use super::{Relay, events, proxy};
use crate::task::{sleep, timeout};

/// Checks that must fail in a row.
const FALL: u32 = 3;
/// Checks that must succeed in a row.
const RISE: u32 = 2;

/// What the checks of one target say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Health {
    up: bool,
    /// Checks in a row that say otherwise.
    against: u32,
}

impl Health {
    /// What a check found; `true` if that changes the verdict.
    fn judge(&mut self, good: bool) -> bool {
        if good == self.up {
            self.against = 0;
            return false;
        }
        self.against += 1;
        // Guard: `self.against < if self.up { FALL } else { RISE }` as `false` fails relay::health
        if self.against < if self.up { FALL } else { RISE } {
            return false;
        }
        *self = Self { up: good, against: 0 };
        true
    }
}

/// Checks one target for as long as the lane lives.
pub(super) async fn check(relay: Relay, at: usize, base: usize, every: Duration) {
    let mut health = Health { up: true, against: 0 };
    loop {
        sleep(every).await;
        let address = relay.0.targets[at].address;
        let hello = relay.0.config.proxy_out.map(proxy::local);
        let begun = relay.connect(Connect::to(address.into()), hello.is_some(), every).await;
        let good = match (begun, hello) {
            (Err(_), _) => false,
            // It has said what it was made for.
            (Ok(stream), None) => stream.abort().is_ok(),
            // A target that wants a header counts a connection without one as broken. The header leaves before the end.
            (Ok(stream), Some(hello)) => {
                timeout(every, stream.write_all(&hello)).await.is_ok_and(|sent| sent.is_ok())
            }
        };
        let changed = health.judge(good);
        relay.count(base + at, |t| {
            t.checks += 1;
            t.checks_failed += u64::from(!good);
            if changed {
                t.up = u64::from(good);
                *(if good { &mut t.came_up } else { &mut t.went_down }) += 1;
            }
        });
        if changed {
            relay.0.targets[at].set_up(good);
            events::relay_target(&address, good);
            if let Some(tell) = &relay.0.config.tell {
                tell(address, good);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_takes_several_checks_to_change_the_verdict() {
        let mut health = Health { up: true, against: 0 };
        let changes: Vec<bool> = [false, false, true, false, false, false, true, false, true, true]
            .map(|good| health.judge(good))
            .into();
        let down = changes.iter().position(|c| *c);
        assert_eq!((down, changes.iter().filter(|c| **c).count()), (Some(5), 2), "{changes:?}");
        assert_eq!(health, Health { up: true, against: 0 });
    }
}
