//! Counters of the server in each lane.
//!
//! Each lane has its own cells, which only it writes, with plain loads and stores; other threads may read them at any time.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::h1::Fault;
use crate::ws;

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident, $machine:literal, $text:literal;)+) => {
        /// Counters, except those of faults of HTTP/1 and of WebSocket.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum Counter {
            $($(#[$doc])* $name,)+
        }

        impl Counter {
            /// Every counter, in order.
            pub const ALL: [Self; [$($machine),+].len()] = [$(Self::$name),+];

            /// Name for machines.
            #[must_use]
            pub fn name(self) -> &'static str {
                match self { $(Self::$name => $machine,)+ }
            }

            /// Words for people.
            #[must_use]
            pub fn text(self) -> &'static str {
                match self { $(Self::$name => $text,)+ }
            }
        }
    };
}

counters! {
    /// Connections accepted.
    Connections, "connections", "connections accepted";
    /// Connections that ended.
    Ended, "connections-ended", "connections ended";
    /// Handshakes of TLS done.
    Handshakes, "tls-handshakes", "TLS handshakes";
    /// Of these, sessions taken up again.
    Resumed, "tls-resumed", "TLS sessions resumed";
    /// Connections that spoke HTTP/2.
    Http2, "http2-connections", "connections with HTTP/2";
    /// Connections that spoke HTTP/3.
    Http3, "http3-connections", "connections with HTTP/3";
    /// Datagrams of QUIC that came to the lane that their connection ID names.
    Aligned, "quic-aligned", "datagrams of QUIC that came to the lane they name";
    /// Datagrams of QUIC that came to another lane than that of their connection, and were passed on.
    Passed, "quic-passed", "datagrams of QUIC passed on to their lane";
    /// Datagrams of QUIC that name a lane that there is not.
    NoLane, "quic-no-lane", "datagrams of QUIC that name a lane that there is not";
    /// Times that a client of QUIC came to be elsewhere.
    Migrated, "quic-migrations", "changes of address of clients of QUIC";
    /// Clients of QUIC that were asked to prove their address.
    Retries, "quic-retries", "clients of QUIC asked to prove their address (Retry)";
    /// Requests that came as early data.
    Early, "early-data-requests", "requests in early data (0-RTT)";
    /// Of these, requests that were refused, since they may do something.
    TooEarly, "too-early", "requests in early data that were refused (425)";
    /// Requests of which the head came whole.
    Requests, "requests", "requests";
    /// Answers with a status 2xx.
    Success, "answers-2xx", "answers 2xx";
    /// Answers with a status 3xx.
    Redirection, "answers-3xx", "answers 3xx";
    /// Answers with a status 4xx.
    ClientError, "answers-4xx", "answers 4xx";
    /// Answers with a status 5xx.
    ServerError, "answers-5xx", "answers 5xx";
    /// Bytes received, TLS not counted.
    BytesIn, "bytes-in", "bytes received";
    /// Bytes sent, TLS not counted.
    BytesOut, "bytes-out", "bytes sent";
    /// Connections that became a WebSocket.
    WebSockets, "websockets", "connections that became a WebSocket";
    /// Messages of text that were sent back on them.
    WsText, "ws-text", "messages of text sent back";
    /// Messages of bytes that were sent back on them.
    WsBinary, "ws-binary", "messages of bytes sent back";
    /// Of these messages, those that came compressed and went back so.
    WsDeflated, "ws-deflated", "messages of these that came compressed";
    /// Pings that were answered.
    WsPings, "ws-pings", "pings answered";
    /// Pings that were sent to peers that said nothing.
    WsAsked, "ws-pings-sent", "pings sent to silent peers";
    /// Pongs that came.
    WsPongs, "ws-pongs", "pongs received";
    /// WebSockets that the peer's close frame ended.
    WsClosed, "ws-closed", "WebSockets closed by both sides";
    /// Requests that waited for a stall to end.
    Stalled, "stalled", "requests that came in a stall";
    /// Connections closed for being idle: no fault.
    IdleTimeout, "idle-timeouts", "connections closed for being idle";
    /// Connections beyond the limit of a lane.
    TooMany, "too-many-connections", "connections beyond the limit";
    /// TLS handshakes that failed.
    HandshakeFailed, "tls-failed", "TLS handshakes failed";
    /// Heads, or handshakes, that did not come in time.
    HeadTimeout, "head-timeouts", "heads and handshakes that took too long";
    /// Bodies that stopped coming.
    BodyTimeout, "body-timeouts", "bodies that stopped coming";
    /// Peers that stopped reading.
    WriteTimeout, "write-timeouts", "peers that stopped reading";
    /// Connections that the peer or the network ended badly.
    Lost, "connections-lost", "connections lost";
    /// Requests without the one `Host` that they must have.
    NoHost, "no-host", "requests without one Host";
    /// Requests of which `Host` names no host.
    BadHost, "bad-host", "requests with a Host that is none";
    /// Bodies longer than allowed.
    BodyTooLong, "body-too-long", "bodies longer than allowed";
    /// Files that could not be read to their end, or were changed while they were sent.
    FileFailed, "file-failed", "files that could not be read to their end, or were changed while they were sent";
    /// Connections that ended by an error of HTTP/2.
    Http2Failed, "http2-failed", "connections ended by an error of HTTP/2";
    /// Connections that sent too many frames of HTTP/2 that carry nothing.
    Http2Flood, "http2-floods", "connections ended for too many frames of HTTP/2 that carry nothing";
    /// Connections that ended by an error of HTTP/3 or QUIC.
    Http3Failed, "http3-failed", "connections ended by an error of HTTP/3 or QUIC";
    /// Datagrams of QUIC for a lane that had no room for more.
    NotPassed, "quic-not-passed", "datagrams of QUIC that their lane had no room for";
    /// WebSockets that ended without a close frame of the peer.
    WsNoClose, "ws-no-close", "WebSockets that ended without a close frame";
    /// WebSockets of which the peer answered neither a ping nor a close frame.
    WsSilent, "ws-silent", "WebSockets whose peers had fallen silent";
    /// Answers given up because the lane kept too much for peers that do not read.
    NoMemory, "no-memory", "answers given up for want of memory";
}

/// Counters that are errors begin here.
const FIRST_ERROR: usize = Counter::TooMany as usize;
const COUNTERS: usize = Counter::ALL.len();
/// Those of WebSocket's faults begin here.
const WS: usize = COUNTERS + Fault::ALL.len();
const CELLS: usize = WS + ws::Fault::ALL.len();

/// A lane's cells. Alignment keeps lanes out of each other's cache lines.
#[derive(Debug)]
#[repr(align(128))]
pub(crate) struct Cells([AtomicU64; CELLS]);

impl Cells {
    pub(crate) fn new() -> Self {
        Self([const { AtomicU64::new(0) }; CELLS])
    }

    /// Only by the worker that holds the lane.
    #[inline]
    pub(crate) fn add(&self, counter: Counter, n: u64) {
        let cell = &self.0[counter as usize];
        cell.store(cell.load(Relaxed).wrapping_add(n), Relaxed);
    }

    pub(crate) fn fault(&self, fault: Fault) {
        let cell = &self.0[COUNTERS + fault.index()];
        cell.store(cell.load(Relaxed).wrapping_add(1), Relaxed);
    }

    pub(crate) fn ws_fault(&self, fault: ws::Fault) {
        let cell = &self.0[WS + fault.index()];
        cell.store(cell.load(Relaxed).wrapping_add(1), Relaxed);
    }

    /// Counts an answer by the class of its status.
    #[inline]
    pub(crate) fn answer(&self, status: u16) {
        self.add(
            match status {
                200..300 => Counter::Success,
                300..400 => Counter::Redirection,
                400..500 => Counter::ClientError,
                500.. => Counter::ServerError,
                // The only other one is 101, behind which there is no HTTP.
                0..200 => Counter::WebSockets,
            },
            1,
        );
    }

    /// Connections that are open now.
    pub(crate) fn open(&self) -> u64 {
        let read = |counter: Counter| self.0[counter as usize].load(Relaxed);
        read(Counter::Connections).saturating_sub(read(Counter::Ended))
    }

    pub(crate) fn read(&self) -> Counts {
        let mut counts = Counts::default();
        for (value, cell) in counts.0.iter_mut().zip(&self.0) {
            *value = cell.load(Relaxed);
        }
        counts
    }
}

/// What was counted, of one lane or of several.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Counts([u64; CELLS]);

impl Default for Counts {
    fn default() -> Self {
        Self([0; CELLS])
    }
}

impl Counts {
    /// One counter.
    #[must_use]
    pub fn get(&self, counter: Counter) -> u64 {
        self.0[counter as usize]
    }

    /// Requests that had this fault.
    #[must_use]
    pub fn fault(&self, fault: Fault) -> u64 {
        self.0[COUNTERS + fault.index()]
    }

    /// WebSockets that had this fault.
    #[must_use]
    pub fn ws_fault(&self, fault: ws::Fault) -> u64 {
        self.0[WS + fault.index()]
    }

    /// Connections that are open.
    #[must_use]
    pub fn open(&self) -> u64 {
        self.get(Counter::Connections).saturating_sub(self.get(Counter::Ended))
    }

    /// Answers of every status.
    #[must_use]
    pub fn answers(&self) -> u64 {
        [Counter::Success, Counter::Redirection, Counter::ClientError, Counter::ServerError]
            .iter()
            .map(|c| self.get(*c))
            .sum()
    }

    /// Errors of every kind.
    #[must_use]
    pub fn errors(&self) -> u64 {
        self.0[FIRST_ERROR..].iter().sum()
    }

    /// Each counter that is no error: name for machines, words for people, value.
    pub fn each_count(&self) -> impl Iterator<Item = (&'static str, &'static str, u64)> {
        Counter::ALL[..FIRST_ERROR].iter().map(|c| (c.name(), c.text(), self.get(*c)))
    }

    /// Each kind of error: name for machines, value.
    pub fn each_error(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let counters = Counter::ALL[FIRST_ERROR..].iter().map(|c| (c.name(), self.get(*c)));
        let faults = Fault::ALL.iter().map(|f| (f.name(), self.fault(*f)));
        counters.chain(faults).chain(ws::Fault::ALL.iter().map(|f| (f.name(), self.ws_fault(*f))))
    }

    /// The sum of both.
    #[must_use]
    pub fn plus(mut self, other: &Self) -> Self {
        self.0.iter_mut().zip(&other.0).for_each(|(a, b)| *a += b);
        self
    }

    /// The difference to `before`.
    #[must_use]
    pub fn since(mut self, before: &Self) -> Self {
        self.0.iter_mut().zip(&before.0).for_each(|(a, b)| *a = a.saturating_sub(*b));
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_added_subtracted_and_named_once() {
        let cells = Cells::new();
        cells.add(Counter::Requests, 3);
        cells.add(Counter::Connections, 2);
        cells.add(Counter::Ended, 1);
        cells.fault(Fault::BadChunkSize);
        cells.add(Counter::Lost, 4);
        cells.add(Counter::IdleTimeout, 9);
        for status in [200, 204, 302, 404, 501] {
            cells.answer(status);
        }
        let counts = cells.read();
        assert_eq!((counts.get(Counter::Requests), counts.open(), cells.open()), (3, 1, 1));
        assert_eq!((counts.answers(), counts.get(Counter::Success)), (5, 2));
        assert_eq!(counts.errors(), 5, "closing an idle connection is no error");
        assert_eq!(counts.plus(&counts).since(&counts), counts);
        let mut names: Vec<&str> =
            counts.each_count().map(|c| c.0).chain(counts.each_error().map(|e| e.0)).collect();
        assert_eq!(names.len(), CELLS);
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), CELLS);
    }
}
