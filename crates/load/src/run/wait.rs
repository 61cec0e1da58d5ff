//! Waiting for a moment of a schedule.

use flowlane::Time;

use super::{NEAR, TICK, clock};

/// Waits for a moment; `false` if `over` before, which is asked with the time now. `exact`: the worker stays awake shortly before it. `tick` is called about
/// every [`TICK`].
pub(crate) async fn until(moment: u64, exact: bool, over: impl Fn(u64) -> bool, tick: impl Fn()) -> bool {
    let near = if exact { NEAR } else { 0 };
    loop {
        let now = clock();
        if over(now) {
            return false;
        }
        if now >= moment {
            return true;
        }
        if moment > now + 2 * near {
            let then = (moment - near).min(now + TICK);
            flowlane::sleep_until(Time::from_nanos(then)).await;
            tick();
        } else {
            flowlane::yield_now().await;
        }
    }
}
