//! Each request as a line of JSON, while a run lasts.
//!
//! ```text
//!   lane: Recorder ▸ batches of lines ▸ a bounded channel ▸ a thread of the command ▸ file
//! ```
//!
//! A lane never waits for the file: lines for which the channel has no room are dropped and counted (`log-lost`). With a share of the
//! requests the choice is even, not random: of 10 % each tenth of a lane.

use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use serde::Serialize;

use super::kinds::ErrorKind;

/// Lines that go together, and batches that wait to be written: three megabytes.
const BATCH: usize = 256;
const WAITING: usize = 256;

/// A request that is over. Times are nanoseconds from the start of the run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Line {
    /// The lane's bucket, the pool and the request, by their numbers.
    pub bucket: u16,
    /// The pool.
    pub pool: u16,
    /// The request of the pool.
    pub request: u16,
    /// Code of the answer; 0 without one.
    pub code: u16,
    /// Why it failed.
    pub error: Option<ErrorKind>,
    /// When it was to be sent.
    pub intended: u64,
    /// When it was sent, and when the first byte of its answer came; `None` without an answer.
    pub times: Option<(u64, u64)>,
    /// When it was over.
    pub done: u64,
}

/// Where lines go, and of which share of the requests.
#[derive(Debug, Clone)]
pub struct LogTo {
    to: SyncSender<Vec<Line>>,
    share: f64,
}

/// A log of this share of the requests, 0 to 1; the channel's other end has the lines.
#[must_use]
pub fn log(share: f64) -> (LogTo, Receiver<Vec<Line>>) {
    let (to, from) = sync_channel(WAITING);
    (LogTo { to, share }, from)
}

/// The log of one recorder.
#[derive(Debug)]
pub(super) struct Log {
    to: LogTo,
    batch: Vec<Line>,
    /// What is left of the share.
    part: f64,
    lost: u64,
}

impl Log {
    pub(super) fn new(to: LogTo) -> Self {
        Self { to, batch: Vec::with_capacity(BATCH), part: 0.0, lost: 0 }
    }

    pub(super) fn add(&mut self, line: Line) {
        self.part += self.to.share;
        // A sum of shares is a little less than it should be.
        if self.part < 1.0 - 1e-9 {
            return;
        }
        self.part -= 1.0;
        self.batch.push(line);
        if self.batch.len() == BATCH {
            self.hand_over();
        }
    }

    /// Gives away what there is; returns how many lines were lost since this was last asked.
    pub(super) fn flush(&mut self) -> u64 {
        if !self.batch.is_empty() {
            self.hand_over();
        }
        std::mem::take(&mut self.lost)
    }

    fn hand_over(&mut self) {
        let lines = std::mem::replace(&mut self.batch, Vec::with_capacity(BATCH));
        let count = lines.len() as u64;
        if self.to.to.try_send(lines).is_err() {
            self.lost += count;
        }
    }
}

impl Line {
    /// An answer with this code: when it was to be sent, was sent, began to be answered, and was over, on the clock of the lanes.
    pub(super) fn answered(
        (bucket, pool): (u16, usize),
        request: u16,
        moments: [u64; 4],
        code: u16,
        start: u64,
    ) -> Self {
        let [intended, sent, first_byte, done] = moments.map(|moment| moment.saturating_sub(start));
        Self {
            bucket,
            pool: u16::try_from(pool).unwrap_or(u16::MAX),
            request,
            code,
            error: None,
            intended,
            times: Some((sent, first_byte)),
            done,
        }
    }

    /// Writes it as a line of JSON, [`Written`]; `pools` have their names and those of their requests.
    pub fn write(&self, pools: &[(String, Vec<String>)], out: &mut String) {
        let pool = pools.get(usize::from(self.pool));
        let request = pool.and_then(|(_, requests)| requests.get(usize::from(self.request)));
        let written = Written {
            at_ns: self.intended,
            pool: pool.map_or("", |(name, _)| name),
            request: request.map_or("", |name| name),
            lane: self.bucket,
            latency_ns: self.done.saturating_sub(self.intended),
            slip_ns: self.times.map(|(sent, _)| sent.saturating_sub(self.intended)),
            first_byte_ns: self.times.map(|(sent, first)| first.saturating_sub(sent)),
            service_ns: self.times.map(|(sent, _)| self.done.saturating_sub(sent)),
            status: (self.code > 0).then_some(self.code),
            error: self.error.map(ErrorKind::name),
        };
        // Such a struct can always be written.
        out.push_str(&serde_json::to_string(&written).unwrap_or_default());
        out.push('\n');
    }
}

/// A line of the log, as JSON has it. Times are nanoseconds.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct Written<'a> {
    /// The intended moment, from the start of the run.
    at_ns: u64,
    /// The pool's name.
    pool: &'a str,
    /// Its name in the scenario, or method and path.
    request: &'a str,
    /// Bucket of the lane.
    lane: u16,
    /// From the intended moment to the end of the answer, or to when it was given up.
    latency_ns: u64,
    /// From the intended moment to that of sending; left out without an answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    slip_ns: Option<u64>,
    /// From sending to the first byte of the answer; left out without an answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    first_byte_ns: Option<u64>,
    /// From sending to the end of the answer; left out without one.
    #[serde(skip_serializing_if = "Option::is_none")]
    service_ns: Option<u64>,
    /// Status of the answer; left out without one.
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<u16>,
    /// Why it failed; left out if it did not.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<&'static str>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(n: u64) -> Line {
        Line::answered((3, 1), 0, [100 + n, 110 + n, 150 + n, 200 + n], 200, 100)
    }

    #[test]
    fn lines_are_json() {
        let pools = vec![("a".to_owned(), vec![]), ("b\"c".to_owned(), vec!["GET /".to_owned()])];
        let mut text = String::new();
        line(7).write(&pools, &mut text);
        let failed = Line { error: Some(ErrorKind::Timeout), code: 0, times: None, pool: 9, ..line(0) };
        failed.write(&pools, &mut text);
        let first = r#"{"at-ns":7,"pool":"b\"c","request":"GET /","lane":3,"latency-ns":100,"slip-ns":10,"first-byte-ns":40,"service-ns":90,"status":200}"#;
        let second = r#"{"at-ns":0,"pool":"","request":"","lane":3,"latency-ns":100,"error":"timeout"}"#;
        assert_eq!(text, format!("{first}\n{second}\n"));
        let lines: Vec<serde_json::Value> =
            text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(
            lines[0],
            serde_json::json!({"at-ns": 7, "pool": "b\"c", "request": "GET /", "lane": 3, "latency-ns": 100,
                "slip-ns": 10, "first-byte-ns": 40, "service-ns": 90, "status": 200})
        );
        assert_eq!((&lines[1]["error"], &lines[1]["latency-ns"]), (&"timeout".into(), &100.into()));
        assert!(lines[1].get("status").is_none() && lines[1].get("slip-ns").is_none());
    }

    #[test]
    fn a_share_is_even_and_what_has_no_room_is_counted() {
        let (to, from) = log(0.1);
        let mut lane = Log::new(to);
        (0..1000).for_each(|n| lane.add(line(n)));
        assert_eq!(lane.flush(), 0);
        let taken: Vec<Line> = from.try_iter().flatten().collect();
        assert_eq!((taken.len(), taken[0].intended, taken[99].intended), (100, 9, 999));
        let (to, from) = log(1.0);
        let mut lane = Log::new(to);
        let room = (BATCH * WAITING) as u64;
        (0..room + 1000).for_each(|n| lane.add(line(n)));
        assert_eq!(lane.flush(), 1000);
        assert_eq!(from.try_iter().flatten().count() as u64, room);
        lane.add(line(0));
        assert_eq!((lane.flush(), from.try_iter().flatten().count()), (0, 1));
    }
}
