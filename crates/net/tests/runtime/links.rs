//! Links that take what they are given late, or never: nothing is forgotten, nobody else waits, no core is burnt.

use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use flowlane::link::{LinkInfo, Queue, QueueStats};
use flowlane::wire::MacAddr;
use flowlane::{Bind, Host, Interface, Key, OpenLink, Rss, Runtime, UdpFields, UdpSocket};
use flowlane_sys::frame::{Frame, Pool};
use flowlane_testnet::eventually_or;

use crate::streams::{echo, there_and_back};
use crate::traffic::{PATIENCE, rss};

/// A link that takes `capacity` frames into a ring, hands so many over, then none until it was asked again after a while.
struct Late {
    capacity: usize,
    ring: Vec<Frame>,
    /// Frames to be handed over before it stands still.
    before: usize,
    /// How long it stands still; `None`: for ever.
    still: Option<Duration>,
    since: Option<Instant>,
    handed: Arc<AtomicU64>,
    /// Told when `enough` frames were handed over.
    enough: u64,
    done: Option<mpsc::Sender<()>>,
}

impl Late {
    fn is_still(&mut self) -> bool {
        if self.handed.load(SeqCst) < self.before as u64 {
            return false;
        }
        let since = *self.since.get_or_insert_with(Instant::now);
        self.still.is_none_or(|still| since.elapsed() < still)
    }
}

impl Queue for Late {
    fn receive(&mut self, _: &Pool, _: &mut Vec<Frame>, _: usize) -> usize {
        0
    }

    fn room(&mut self) -> usize {
        self.capacity - self.ring.len()
    }

    fn transmit(&mut self, frames: &mut Vec<Frame>) -> usize {
        let n = self.room().min(frames.len());
        self.ring.extend(frames.drain(..n));
        n
    }

    fn flush(&mut self) -> bool {
        while !self.ring.is_empty() && !self.is_still() {
            self.ring.remove(0);
            if self.handed.fetch_add(1, SeqCst) + 1 == self.enough
                && let Some(done) = self.done.take()
            {
                let _ = done.send(());
            }
        }
        self.ring.is_empty()
    }

    fn ready(&mut self) -> bool {
        false
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn stats(&self) -> QueueStats {
        QueueStats { tx_frames: self.handed.load(SeqCst), ..QueueStats::default() }
    }
}

/// Takes 100 frames and hands none over, ever.
fn dead(handed: &Arc<AtomicU64>) -> Late {
    Late {
        capacity: 100,
        ring: Vec::new(),
        before: 0,
        still: None,
        since: None,
        handed: handed.clone(),
        enough: u64::MAX,
        done: None,
    }
}

fn info() -> LinkInfo {
    LinkInfo::new("late", MacAddr([2, 0, 0, 0, 0, 9]), 1500, 1)
}

fn open(late: Late) -> OpenLink {
    Box::new(move |_, _| Ok((info(), vec![Box::new(late) as Box<dyn Queue>])))
}

fn one() -> Arc<Rss> {
    rss(Key::MICROSOFT, 1, 1, UdpFields::Two)
}

fn interface(address: &str) -> Interface {
    Interface { addresses: vec![address.parse().unwrap()], ..Interface::default() }
}

/// To everybody, so that nobody's Ethernet address need be known.
async fn flood(to: &'static str, datagrams: usize) {
    let socket = UdpSocket::bind(Bind::port(9)).unwrap();
    let to = to.parse().unwrap();
    for _ in 0..datagrams {
        socket.send_to(b"to all", to).await.unwrap();
    }
}

/// A burst of which a part has not left when the worker has nothing else to do: it leaves, though nothing ever comes in.
#[test]
fn what_a_link_hands_over_late_is_not_forgotten() {
    const BURST: usize = 3840;
    // In the ring when it stands still: all of it; all but what finds no room.
    for capacity in [8192, 512] {
        let (done, all) = mpsc::channel();
        let handed = Arc::new(AtomicU64::new(0));
        let late = Late {
            capacity,
            ring: Vec::new(),
            before: BURST - 600,
            still: Some(Duration::from_millis(30)),
            since: None,
            handed: handed.clone(),
            enough: BURST as u64,
            done: Some(done),
        };
        let mut builder = Runtime::builder().pin(false).seed(1).frames(8192);
        let host = Host::new("a", one(), || flood("10.0.0.255:9", BURST)).interface(interface("10.0.0.1/24"));
        let host = builder.host(host);
        builder.link(host, 0, open(late));
        let runtime = builder.start().unwrap();
        let came = all.recv_timeout(PATIENCE);
        let report = runtime.stop();
        assert!(came.is_ok(), "capacity {capacity}: {} of {BURST} left", handed.load(SeqCst));
        let worker = &report.workers[0];
        assert!(worker.turns.sleeps > 0, "it waits without sleep");
        assert_eq!(report.total(0).udp.sent, BURST as u64);
    }
}

/// One of two links is full for ever. The other's traffic goes on, the worker sleeps, and who sent on the dead link is let go.
#[test]
fn a_link_that_is_down_stops_nobody() {
    let handed = Arc::new(AtomicU64::new(0));
    const FLOOD: usize = 5000;
    let (say, said) = mpsc::channel();
    let mut builder = Runtime::builder().pin(false).seed(1).frames(16_384);
    let main = move || {
        let say = say.clone();
        async move {
            let told = say.clone();
            let flood = flowlane::spawn(async move {
                flood("10.0.0.255:9", FLOOD).await;
                told.send(Ok(0)).unwrap();
            });
            drop(flood.unwrap());
            // The dead link is full, and its queue, before anything else is said.
            flowlane::yield_now().await;
            let server = "10.0.1.2:7".parse().unwrap();
            say.send(there_and_back(server, 2_000_000).await).unwrap();
        }
    };
    let a = builder.host(
        Host::new("a", one(), main).interface(interface("10.0.0.1/24")).interface(interface("10.0.1.1/24")),
    );
    let server = Host::new("b", one(), || echo("10.0.1.2:7".parse().unwrap()));
    let b = builder.host(server.interface(interface("10.0.1.2/24")));
    builder.link(a, 0, open(dead(&handed)));
    builder.pair((a, 1), (b, 0), Default::default());
    let runtime = builder.start().unwrap();
    let next = || said.recv_timeout(PATIENCE).expect("stopped by the dead link");
    let both = [next(), next()];
    assert!(both.contains(&Ok(2_000_000)) && both.contains(&Ok(0)), "{both:?}");
    let handle = runtime.handle();
    let before = handle.report();
    // Nothing to do but to ask the dead link now and then, and nobody says more.
    assert!(said.recv_timeout(Duration::from_millis(300)).is_err());
    let after = handle.report();
    let turns = after.workers[0].turns.all - before.workers[0].turns.all;
    assert!(turns < 50_000, "{turns} turns in 0.3 s for a link that is down");
    assert!(after.workers[0].turns.sleeps > before.workers[0].turns.sleeps);
    let report = runtime.stop();
    let failed: u64 = report.queues(a).map(|q| q.stats.tx_failed).sum();
    assert_eq!(failed + 100, FLOOD as u64, "each is in the ring, or counted");
    assert_eq!(handed.load(SeqCst), 0);
}

/// A dead link with one queue, and a lane of a worker that has none floods it: both workers sleep, and each frame is counted.
#[test]
fn a_link_that_is_down_keeps_no_other_worker_awake() {
    let handed = Arc::new(AtomicU64::new(0));
    const FLOOD: usize = 5000;
    let (say, said) = mpsc::channel();
    let mut builder = Runtime::builder().workers(2).pin(false).seed(1).frames(16_384);
    let main = move || {
        let say = say.clone();
        async move {
            // The lane of bucket 1 is at the worker without a queue.
            if flowlane::current().unwrap().bucket.0 == 1 {
                flood("10.0.0.255:9", FLOOD).await;
                say.send(()).unwrap();
            }
        }
    };
    let steering = rss(Key::MICROSOFT, 2, 2, UdpFields::Two);
    let a = builder.host(Host::new("a", steering, main).interface(interface("10.0.0.1/24")));
    builder.link(a, 0, open(dead(&handed)));
    let runtime = builder.start().unwrap();
    said.recv_timeout(PATIENCE).expect("stopped by the dead link");
    let handle = runtime.handle();
    let failed = |report: &flowlane::stats::Report| report.queues(a).map(|q| q.stats.tx_failed).sum::<u64>();
    // Some lie in the ring of the link, and in the one between the workers until the link is known to be dead.
    let now = || format!("{:#?}", handle.report());
    eventually_or(now, || failed(&handle.counters()) + 100 >= FLOOD as u64);
    // Both in the second before the link is known to be dead, and after.
    assert!(said.recv_timeout(Duration::from_millis(300)).is_err());
    for worker in handle.counters().workers {
        assert!(worker.turns.all < 50_000, "worker {}: {} turns", worker.worker, worker.turns.all);
    }
    assert_eq!((failed(&runtime.stop()) + 100, handed.load(SeqCst)), (FLOOD as u64, 0));
}

/// What came on it would be nobody's.
#[test]
fn a_link_that_no_interface_is_on_is_refused() {
    let handed = Arc::new(AtomicU64::new(0));
    let mut builder = Runtime::builder().pin(false);
    let a = builder.host(Host::new("a", one(), || async {}).interface(interface("10.0.0.1/24")));
    builder.link(a, 0, open(dead(&handed)));
    builder.open(open(dead(&handed)));
    let error = builder.start().err().map(|e| e.to_string());
    assert_eq!(error.as_deref(), Some("late: no interface is on it"));
}
