//! What a sender has waited for: the times of `TCP_INFO` that the kernel measures and a lane does not.

use std::time::Duration;

use flowlane_stack::tcp::TcpInfo;
use flowlane_stack::time::Time;

/// What holds a sender back, the later the stronger.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Limit {
    /// There is nothing to send.
    #[default]
    Idle,
    /// Nothing, or congestion control.
    Busy,
    /// The peer's window.
    Window,
    /// The send buffer: the application has more.
    Buffer,
}

impl Limit {
    /// What holds a connection back now. `wanting`: a writer waits for room.
    pub(crate) fn of(info: &TcpInfo, wanting: bool) -> Self {
        let mss = u32::from(info.effective_mss);
        if info.unacknowledged == 0 {
            Self::Idle
        } else if wanting && info.unsent == 0 {
            Self::Buffer
        } else if info.unsent > 0 && info.in_flight < info.cwnd {
            let usable = info.snd_wnd.saturating_sub(info.outstanding);
            if usable < info.unsent.min(mss) { Self::Window } else { Self::Busy }
        } else {
            Self::Busy
        }
    }
}

/// Times of one connection.
#[derive(Debug, Default)]
pub(crate) struct Chrono {
    limit: Limit,
    since: Option<Time>,
    spent: [Duration; 4],
    /// When data last came, and when data was last sent.
    pub(crate) received_at: Option<Time>,
    pub(crate) sent_at: Option<Time>,
}

impl Chrono {
    /// From now on it is this that holds the sender back.
    pub(crate) fn turn(&mut self, limit: Limit, now: Time) {
        if let Some(since) = self.since {
            self.spent[self.limit as usize] += now.saturating_duration_since(since);
        }
        (self.limit, self.since) = (limit, Some(now));
    }

    /// Time spent, microseconds: with something to send; of it, held back by the window; by the buffer.
    pub(crate) fn spent(&self) -> [u64; 3] {
        let [_, busy, window, buffer] = self.spent;
        [busy + window + buffer, window, buffer].map(|time| time.as_micros() as u64)
    }
}
