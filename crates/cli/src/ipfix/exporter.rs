//! The thread that sends records to the collector.

use std::fmt;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs, UdpSocket};
use std::ops::RangeInclusive;
use std::str::FromStr;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use flowlane::FlowRecords;
use flowlane_stack::time::Time;

use super::message::{Message, Record, Timeouts};
use crate::address;
use crate::say::say;
use crate::units;

/// Records that wait to be exported, at most: about 2.5 MB.
const WAITING: usize = 1 << 14;
/// How often the queue is emptied.
const EVERY: Duration = Duration::from_millis(100);
/// How often the templates are sent again (RFC 7011 §8.4 leaves it open; collectors forget them after half an hour or so).
const TEMPLATES_EVERY: Duration = Duration::from_secs(30);

/// Active timeout by default.
const ACTIVE: Duration = Duration::from_secs(60);
/// The least, and the most that makes sense: a day.
const TIMES: RangeInclusive<Duration> = Duration::from_millis(100)..=Duration::from_secs(86_400);

/// Idle timeout of UDP by default.
const IDLE: Duration = Duration::from_secs(15);

/// Where a collector is, how often it hears of flows that stand, and when of UDP flows that are silent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Collector {
    address: SocketAddr,
    timeouts: Timeouts,
}

impl FromStr for Collector {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut words = text.split(',');
        let place = words.next().unwrap_or_default();
        address::port_of(place)?;
        let found = place.to_socket_addrs().map_err(|e| format!("{e} (HOST:PORT, such as 10.0.0.9:4739)"))?;
        let address = found.into_iter().next().ok_or("no address has that name")?;
        if address.port() == 0 || address.ip().is_unspecified() {
            return Err("an address and a port to send to are needed, such as 10.0.0.9:4739".into());
        }
        let mut timeouts = Timeouts { active: Some(ACTIVE), idle: IDLE };
        let time = |what, text| match units::duration(text) {
            Ok(time) if TIMES.contains(&time) => Ok(time),
            Ok(_) => Err(format!("{what}: must be from 100ms to 24h")),
            Err(e) => Err(format!("{what}: {e}")),
        };
        for word in words {
            match word.split_once('=') {
                Some(("active", "off")) => timeouts.active = None,
                Some(("active", text)) => timeouts.active = Some(time("active", text)?),
                Some(("idle", text)) => timeouts.idle = time("idle", text)?,
                _ => return Err(format!("'{word}': known are active=TIME, active=off and idle=TIME")),
            }
        }
        Ok(Self { address, timeouts })
    }
}

impl fmt::Display for Collector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.address.fmt(f)
    }
}

/// What became of records.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Exported {
    /// Records sent. UDP does not tell whether they arrived.
    pub(crate) sent: u64,
    /// Records that the system refused to send.
    pub(crate) refused: u64,
    /// Records that found no room: in a lane's ring while it ran, or in the queue when it ended.
    pub(crate) lost: u64,
}

/// An exporter that runs.
#[derive(Debug)]
pub(crate) struct Exporter {
    records: FlowRecords,
    stop: mpsc::Sender<()>,
    thread: JoinHandle<Exported>,
}

/// An exporter that is about to run: its socket is open.
#[derive(Debug)]
pub(crate) struct Opened {
    records: FlowRecords,
    socket: UdpSocket,
    to: Collector,
}

impl Opened {
    /// # Errors
    /// There is no such socket, or no route.
    pub(crate) fn new(to: &Collector) -> io::Result<Self> {
        let any: SocketAddr = match to.address {
            SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
            SocketAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
        };
        let socket = UdpSocket::bind(any)?;
        socket.connect(to.address)?;
        let records = FlowRecords::new(WAITING).idle_timeout(to.timeouts.idle);
        let records = match to.timeouts.active {
            Some(every) => records.active_timeout(every),
            None => records,
        };
        Ok(Self { records, socket, to: to.clone() })
    }

    /// Where lanes put their records.
    pub(crate) fn records(&self) -> &FlowRecords {
        &self.records
    }

    /// Starts the thread; `now`: the lanes' clock.
    ///
    /// # Errors
    /// There is no thread to be had.
    pub(crate) fn start(self, now: Time) -> io::Result<Exporter> {
        let (stop, stopped) = mpsc::channel();
        let Self { records, socket, to } = self;
        let epoch = SystemTime::now() - Duration::from_nanos(now.as_nanos());
        let mut sender = Sender {
            records: records.clone(),
            socket,
            to,
            epoch,
            sequence: 0,
            templates_due: Instant::now(),
            complained: false,
            done: Exported::default(),
        };
        let run = move || {
            while matches!(stopped.recv_timeout(EVERY), Err(RecvTimeoutError::Timeout)) {
                sender.send_all();
            }
            sender.send_all();
            sender.done
        };
        let thread = thread::Builder::new().name("flowlane-ipfix".into()).spawn(run)?;
        Ok(Exporter { records, stop, thread })
    }
}

impl Exporter {
    /// Sends what is left, after the runtime has stopped; `in_lanes`: records that the rings of the lanes had no room for.
    pub(crate) fn end(self, in_lanes: u64) -> Exported {
        let _ = self.stop.send(());
        let done = self.thread.join().unwrap_or_default();
        Exported { lost: in_lanes + self.records.lost(), ..done }
    }
}

struct Sender {
    records: FlowRecords,
    socket: UdpSocket,
    to: Collector,
    /// When the lanes' clock was zero.
    epoch: SystemTime,
    /// Data records sent so far, modulo 2^32.
    sequence: u32,
    templates_due: Instant,
    complained: bool,
    done: Exported,
}

impl Sender {
    fn send_all(&mut self) {
        let mut next = self.next();
        while next.is_some() {
            let with_templates = Instant::now() >= self.templates_due;
            let mut message = Message::new(with_templates.then_some(self.to.timeouts));
            while next.is_some_and(|record| message.push(&record)) {
                next = self.next();
            }
            self.send(message, with_templates);
        }
    }

    fn next(&self) -> Option<Record> {
        let record = self.records.try_next()?;
        let of = |time: Time| {
            let at = self.epoch + Duration::from_nanos(time.as_nanos());
            at.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64)
        };
        Some(Record::new(&record, of(record.began), of(record.ended)))
    }

    fn send(&mut self, message: Message, with_templates: bool) {
        let records = message.records();
        let seconds = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs() as u32);
        let bytes = message.finish(self.sequence, seconds);
        // An ICMP error to an earlier message is told by this call, which then sends nothing.
        let sent = match self.socket.send(&bytes) {
            Err(e) if e.kind() == io::ErrorKind::ConnectionRefused => {
                self.complain(&e);
                self.socket.send(&bytes)
            }
            other => other,
        };
        match sent {
            Ok(_) => {
                // The timeouts are a data record, too (RFC 7011 §3.1).
                self.sequence = self.sequence.wrapping_add(records + u32::from(with_templates));
                self.done.sent += u64::from(records);
                if with_templates {
                    self.templates_due = Instant::now() + TEMPLATES_EVERY;
                }
            }
            Err(e) => {
                self.complain(&e);
                self.done.refused += u64::from(records);
            }
        }
    }

    /// Says once that the collector cannot be reached.
    fn complain(&mut self, error: &io::Error) {
        if !std::mem::replace(&mut self.complained, true) {
            say!("flowlane: --ipfix {}: {error}: records may be lost", self.to);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn collectors() {
        let of = |text: &str| text.parse::<Collector>();
        let collector = |active, idle| {
            let timeouts = Timeouts { active, idle: Duration::from_secs(idle) };
            Ok(Collector { address: "10.0.0.9:4739".parse().unwrap(), timeouts })
        };
        assert_eq!(of("10.0.0.9:4739"), collector(Some(Duration::from_secs(60)), 15));
        assert_eq!(of("10.0.0.9:4739,active=5m,idle=1m"), collector(Some(Duration::from_secs(300)), 60));
        assert_eq!(of("10.0.0.9:4739,active=off"), collector(None, 15));
        for wrong in [
            "10.0.0.9",
            "10.0.0.9:0",
            "10.0.0.9:1,active=1ms",
            "10.0.0.9:1,active=25h",
            "10.0.0.9:1,idle=off",
            "10.0.0.9:1,idle=99ms",
        ] {
            assert!(of(wrong).is_err(), "{wrong}");
        }
    }

    /// Records lost in the lanes' rings are among those lost.
    #[test]
    fn what_lanes_lost_is_lost() {
        let opened = Opened::new(&"127.0.0.1:9".parse().unwrap()).unwrap();
        let exporter = opened.start(Time::ZERO).unwrap();
        assert_eq!(exporter.end(3), Exported { sent: 0, refused: 0, lost: 3 });
    }
}
