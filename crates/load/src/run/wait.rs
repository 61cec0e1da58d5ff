//! Waiting for a moment of a schedule, and for a flow that is to be used again.

use std::time::Duration;

use flowlane::{Connect, ConnectError, SocketError, TcpStream, Time};

use super::{GRACE, NEAR, TICK, clock};

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

/// Begins a connection. If its port is chosen, that may be of a connection which was closed a moment ago: the stack opens another in its place after a second (RFC
/// 6191), for which it waits while `goes_on`.
pub(crate) async fn begin(connect: &Connect, goes_on: impl Fn() -> bool) -> Result<TcpStream, SocketError> {
    let patience = clock() + 2 * GRACE;
    loop {
        match TcpStream::begin(*connect) {
            // Guard: `connect.local_port != 0` as `false` fails load/staying::connections_with_flows
            Err(SocketError::Connect(ConnectError::InUse))
                if connect.local_port != 0 && clock() < patience && goes_on() =>
            {
                flowlane::sleep(Duration::from_nanos(TICK)).await;
            }
            begun => return begun,
        }
    }
}
