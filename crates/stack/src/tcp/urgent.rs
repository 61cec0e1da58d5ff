//! The urgent mark (RFC 9293 §3.8.5, RFC 6093): how far the peer's urgent data reaches.
//!
//! Urgent data stays in the stream. The application is notified when a mark arrives while none is pending and when the mark advances
//! (MUST-32), and can query how much is to be read before it (MUST-33). The mark is RFC 9293's: the number behind the last urgent byte,
//! wherever urgent data began (MUST-31). It is cleared when the application has read beyond it.
//!
//! Sending urgent data is not supported.

use crate::tcp::connection::{Connection, Flags, State};
use crate::tcp::error::StaleError;
use crate::tcp::segment::Segment;
use crate::tcp::table::ConnId;
use crate::tcp::{Seq, Tcp};

impl Tcp {
    /// Number of bytes to read before the urgent mark: 0 if the next byte is the first behind urgent data, `None` if there is no unread
    /// urgent data.
    ///
    /// # Errors
    /// If there is no such connection.
    pub fn urgent_mark(&self, id: ConnId) -> Result<Option<u32>, StaleError> {
        let c = self.connections.get(id).filter(|c| !c.has(Flags::DETACHED)).ok_or(StaleError)?;
        Ok(c.urgent_mark())
    }
}

impl Connection {
    /// RFC 9293 §3.10.7.4, sixth step: `RCV.UP <- max(RCV.UP, SEG.UP)`, and the user is told if it is ahead of what was read.
    #[cold]
    pub(super) fn note_urgent(&mut self, seg: &Segment) {
        if !matches!(self.state(), State::Established | State::FinWait1 | State::FinWait2) {
            return;
        }
        // Guard: `u32::from(seg.urgent)` as `1` fails data::urgent_data
        let mark = seg.seq + u32::from(seg.urgent);
        let known = self.urgent_end();
        // Guard: `known.is_some_and(|known| mark <= known)` as `false` fails data::urgent_data
        if mark <= self.read_seq() || known.is_some_and(|known| mark <= known) {
            return;
        }
        self.urgent_until(mark);
    }

    /// The next number that the application will read.
    fn read_seq(&self) -> Seq {
        self.rcv.nxt() - u32::from(self.has(Flags::FIN_RECEIVED)) - self.readable()
    }

    pub(super) fn urgent_mark(&self) -> Option<u32> {
        let mark = self.urgent_end()?;
        let next = self.read_seq();
        (mark >= next).then(|| mark.since(next))
    }

    /// The application has read: is the mark behind it?
    #[inline]
    pub(super) fn pass_urgent_mark(&mut self) {
        if self.urgent_end().is_some() && self.urgent_mark().is_none() {
            self.forget_urgent();
        }
    }
}
