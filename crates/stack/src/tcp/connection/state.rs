//! The states of a connection, and the one function that changes them.

use crate::tcp::connection::Connection;

/// The states of RFC 9293 §3.3.2. LISTEN is a listener's, not a connection's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum State {
    /// Over, but the application still holds it.
    Closed,
    /// Our SYN is out.
    SynSent,
    /// SYN received and answered.
    SynReceived,
    /// Data both ways.
    Established,
    /// We have closed, the peer has not even acknowledged that.
    FinWait1,
    /// We have closed and the peer knows.
    FinWait2,
    /// The peer has closed.
    CloseWait,
    /// Both closed at once.
    Closing,
    /// Both closed, our FIN not yet acknowledged.
    LastAck,
    /// Over; old duplicates may still be around.
    TimeWait,
}

impl State {
    /// Both sides know each other's sequence numbers.
    #[inline]
    pub(crate) const fn is_synchronized(self) -> bool {
        !matches!(self, State::Closed | State::SynSent | State::SynReceived)
    }

    /// The application may still send.
    #[inline]
    pub(crate) const fn may_send(self) -> bool {
        matches!(self, State::SynSent | State::SynReceived | State::Established | State::CloseWait)
    }

    /// The peer may still send.
    #[inline]
    pub(crate) const fn may_receive(self) -> bool {
        matches!(
            self,
            State::SynSent | State::SynReceived | State::Established | State::FinWait1 | State::FinWait2
        )
    }
}

impl State {
    /// States there are.
    pub const COUNT: usize = 10;

    /// A number from 0 for each.
    #[must_use]
    pub const fn index(self) -> usize {
        self as usize
    }

    /// The name that `netstat` has for it.
    #[must_use]
    pub const fn netstat(self) -> &'static str {
        match self {
            State::Closed => "CLOSED",
            State::SynSent => "SYN_SENT",
            State::SynReceived => "SYN_RCVD",
            State::Established => "ESTABLISHED",
            State::FinWait1 => "FIN_WAIT_1",
            State::FinWait2 => "FIN_WAIT_2",
            State::CloseWait => "CLOSE_WAIT",
            State::Closing => "CLOSING",
            State::LastAck => "LAST_ACK",
            State::TimeWait => "TIME_WAIT",
        }
    }

    /// All of them, by number.
    pub const ALL: [State; State::COUNT] = [
        State::Closed,
        State::SynSent,
        State::SynReceived,
        State::Established,
        State::FinWait1,
        State::FinWait2,
        State::CloseWait,
        State::Closing,
        State::LastAck,
        State::TimeWait,
    ];
}

impl Connection {
    /// Where RFC 9293 §3.3.2 has it.
    #[inline]
    pub(crate) const fn state(&self) -> State {
        self.state
    }

    /// Every change of state goes through this function, so that observers miss none. The lane counts its connections by state.
    #[inline]
    pub(crate) fn enter(&mut self, counts: &mut StateCounts, state: State) {
        counts.moved(self.state, state);
        self.state = state;
    }
}

/// How many connections of a lane are in each state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct StateCounts([u32; State::COUNT]);

impl StateCounts {
    /// Connections in this state.
    #[must_use]
    pub const fn of(&self, state: State) -> u32 {
        self.0[state.index()]
    }

    /// Each state with its number of connections, in the order of [`State`].
    pub fn iter(&self) -> impl Iterator<Item = (State, u32)> + '_ {
        State::ALL.into_iter().zip(self.0)
    }

    #[inline]
    pub(crate) fn begun(&mut self, state: State) {
        self.0[state.index()] += 1;
    }

    #[inline]
    pub(crate) fn over(&mut self, state: State) {
        self.0[state.index()] -= 1;
    }

    #[inline]
    fn moved(&mut self, from: State, to: State) {
        self.over(from);
        self.begun(to);
    }
}
