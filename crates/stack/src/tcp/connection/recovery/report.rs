//! What one acknowledgement said.

use crate::tcp::Seq;
use crate::tcp::connection::scoreboard::Delivered;

/// What an acknowledgement said, for recovery and congestion control.
#[derive(Debug)]
pub(crate) struct AckReport {
    pub(crate) delivered: Delivered,
    /// Sequence numbers cumulatively acknowledged.
    pub(crate) acked: u32,
    /// Bytes in flight before it.
    pub(crate) prior_in_flight: u32,
    /// It is a duplicate in the sense of RFC 5681 §2.
    pub(crate) duplicate: bool,
    /// It reported something received twice.
    pub(crate) dsack: bool,
    /// What that was.
    pub(crate) twice: Option<(Seq, Seq)>,
    /// The timestamp it echoes.
    pub(crate) echo: Option<u32>,
    /// It carries ECE.
    pub(crate) ece: bool,
}
