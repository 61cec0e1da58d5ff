//! Servers of memcached's protocol on the other end of a wire in memory: our own, and ones that do wrong.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use flowlane::stats::Report;
use flowlane::{
    Endpoint, Host, Interface, Key, ListenOptions, PairConfig, Rss, Runtime, TcpListener, TcpStream, spawn,
};
use flowlane_load::memcached::{
    Items, MemcachedCounts, MemcachedLoad, MemcachedLoadConfig, Mix, Popularity, Protocol, REQUESTS,
};
use flowlane_load::report::{About, Part, PoolAbout, Run};
use flowlane_load::{ClientRange, Phase, Sources};
use flowlane_memcached::answer::{answer, get};
use flowlane_memcached::protocol::{Command, Parsed, parse};
use flowlane_memcached::server::{Options, Server};
use flowlane_memcached::store::{KeyHash, Limits, Store};

/// What a server does.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Far {
    /// Ours.
    Good,
    /// A byte of every hundredth value is another.
    Corrupts,
    /// Every hundredth value comes under its key without its last byte, of that length.
    Cuts,
    /// Every hundredth answer to a get is that to the get before.
    Mixes,
    /// Accepts and says nothing.
    Silent,
    /// Answers what it reads so many milliseconds later.
    Slow(u64),
    /// Closes after so many answers.
    Closes(u64),
    /// Says half of the first answer, and closes.
    Half,
    /// Says half of an answer, and then nothing.
    HalfAndSilent,
    /// Speaks another protocol.
    Garbage,
    /// Answers everything with a value of a key that nobody asked for.
    Stranger,
    /// Says each value twice.
    Stutters,
    /// Takes nothing: every set gets an error.
    Full,
    /// Says that there are too many connections, and closes.
    Crowded,
}

/// What a wrong server did.
#[derive(Debug, Default)]
pub(super) struct Did {
    pub(super) gets: AtomicU64,
    pub(super) sets: AtomicU64,
    pub(super) wrong: AtomicU64,
}

const WIRE: &str = "10.0.0.1:11211";

/// What a connection to a wrong server has: items, and the last answer to a get.
struct Kept {
    store: Store,
    hash: KeyHash,
    last: Vec<u8>,
}

/// Answers what has come so far as `far` does; `false` at the end of the connection.
fn answer_as(far: Far, bytes: &mut Vec<u8>, kept: &mut Kept, did: &Did, out: &mut Vec<u8>) -> bool {
    let Kept { store, hash, last } = kept;
    let mut used = 0;
    while let Parsed::Request(request, n) = parse(&bytes[used..], 1 << 20) {
        used += n;
        let before = out.len();
        match &request.command {
            Command::Get { keys, cas, touch } => {
                let nth = did.gets.fetch_add(1, Relaxed);
                for key in keys.clone() {
                    get(store, hash.of(key), key, *cas, *touch, out);
                }
                let values = out.len() - before;
                if far == Far::Stutters {
                    out.extend_from_within(before..);
                }
                out.extend_from_slice(b"END\r\n");
                if nth % 100 == 99 && values > 0 {
                    did.wrong.fetch_add(1, Relaxed);
                    match far {
                        // The last byte of the last value.
                        Far::Corrupts => out[before + values - 3] ^= 1,
                        Far::Cuts => cut(out, before),
                        Far::Mixes => {
                            out.truncate(before);
                            out.extend_from_slice(last);
                        }
                        _ => {}
                    }
                }
                if values > 0 {
                    *last = out[before..].to_vec();
                }
            }
            command => {
                did.sets.fetch_add(1, Relaxed);
                let of = command.key().map_or(0, |key| hash.of(key));
                answer(store, of, &request, out);
                if far == Far::Full {
                    out.truncate(before);
                    out.extend_from_slice(b"SERVER_ERROR out of memory storing object\r\n");
                }
            }
        }
        match far {
            Far::Closes(after) if did.gets.load(Relaxed) + did.sets.load(Relaxed) >= after => {
                did.gets.store(0, Relaxed);
                did.sets.store(0, Relaxed);
                return false;
            }
            Far::Half | Far::HalfAndSilent => {
                out.truncate(before + (out.len() - before) / 2);
                return far == Far::HalfAndSilent;
            }
            Far::Stranger => {
                out.truncate(before);
                out.extend_from_slice(b"VALUE nobodys 0 2\r\nxx\r\nEND\r\n");
            }
            _ => {}
        }
    }
    bytes.drain(..used);
    true
}

/// The value that begins at `from` loses its last byte, and its line says so.
fn cut(out: &mut Vec<u8>, from: usize) {
    let text = out.split_off(from);
    let end = text.windows(2).position(|w| w == b"\r\n").unwrap();
    let line = String::from_utf8_lossy(&text[..end]).into_owned();
    let (head, len) = line.rsplit_once(' ').unwrap();
    let len: usize = len.parse().unwrap();
    out.extend_from_slice(format!("{head} {}\r\n", len - 1).as_bytes());
    out.extend_from_slice(&text[end + 2..end + 1 + len]);
    out.extend_from_slice(&text[end + 2 + len..]);
}

async fn serve(stream: TcpStream, far: Far, did: Arc<Did>) {
    match far {
        Far::Silent => std::future::pending().await,
        Far::Crowded => {
            let _ = stream.write_all(b"ERROR Too many open connections\r\n").await;
            return;
        }
        _ => {}
    }
    let mut store = Store::new(Limits { memory: 8 << 20, item: 1 << 20 }, 0);
    store.tick(100);
    let mut kept = Kept { store, hash: KeyHash::default(), last: Vec::new() };
    let (mut bytes, mut buffer) = (Vec::new(), vec![0; 1 << 16]);
    while let Ok(n @ 1..) = stream.read(&mut buffer).await {
        if far == Far::Garbage {
            let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").await;
            continue;
        }
        if let Far::Slow(ms) = far {
            flowlane::sleep(Duration::from_millis(ms)).await;
        }
        bytes.extend_from_slice(&buffer[..n]);
        let mut out = Vec::new();
        let goes_on = answer_as(far, &mut bytes, &mut kept, &did, &mut out);
        if stream.write_all(&out).await.is_err() || !goes_on {
            return;
        }
        if far == Far::HalfAndSilent {
            std::future::pending::<()>().await;
        }
    }
}

fn rss() -> Arc<Rss> {
    Arc::new(Rss::new(Key::MICROSOFT, 1))
}

/// A hundred milliseconds of gets and sets of a thousand filled items, on four connections.
pub(in super::super) fn config(keys: u64) -> MemcachedLoadConfig {
    let items = Items::new(keys, "", "20..40".parse().unwrap(), "1..900".parse().unwrap()).unwrap();
    let clients: ClientRange = "10.0.1.0/24".parse().unwrap();
    MemcachedLoadConfig {
        target: Endpoint::from(WIRE.parse::<std::net::SocketAddr>().unwrap()),
        sources: Sources::Addresses { clients: vec![clients], lanes: rss().buckets.len() },
        connections: 4,
        depth: 1,
        rate: None,
        poisson: false,
        mix: Mix {
            items: Arc::new(items),
            popularity: Popularity::Zipf(0.99),
            update: 0.1,
            multiget: 1,
            protocol: Protocol::Text,
            verify: true,
        },
        by_lane: false,
        fill: true,
        phases: vec![Phase::hold(Duration::from_millis(200))],
        timeout: Duration::from_secs(5),
        exact: true,
        seed: 5,
        snapshots: None,
    }
}

/// A run and what came of it.
pub(super) struct Ran {
    counts: MemcachedCounts,
    /// Why it ended early.
    pub(super) failure: Option<String>,
    pub(super) report: Run,
    /// What our server counted.
    pub(super) server: Report,
    pub(super) did: Arc<Did>,
}

impl Ran {
    pub(super) fn counts(&self) -> MemcachedCounts {
        self.counts
    }

    /// Errors of a kind, in all of the run.
    pub(super) fn errors(&self, kind: &str) -> u64 {
        let of = |c: &flowlane_load::report::Counts| c.errors.get(kind).map_or(0, |e| e.count);
        of(&self.report.total.counts) + of(&self.report.total.unmeasured)
    }

    /// The text of the first.
    pub(super) fn example(&self, kind: &str) -> String {
        let of = |c: &flowlane_load::report::Counts| c.errors.get(kind).map(|e| e.example.clone());
        of(&self.report.total.counts).or_else(|| of(&self.report.total.unmeasured)).unwrap_or_default()
    }

    /// A figure of our server.
    pub(super) fn figure(&self, name: &str) -> u64 {
        let services = self.server.services(0);
        let mut figures = services.iter().flat_map(|service| &service.figures);
        figures.find(|figure| figure.name == name).unwrap_or_else(|| panic!("no figure {name}")).value
    }
}

/// Runs a load against a server.
pub(super) fn run(far: Far, config: MemcachedLoadConfig) -> Ran {
    let load = MemcachedLoad::new(config).unwrap();
    let on = |a: &str| Interface { addresses: vec![a.parse().unwrap()], ..Interface::default() };
    let mut builder = Runtime::builder().pin(false).seed(7);
    let did = Arc::new(Did::default());
    let theirs = did.clone();
    let lanes = rss().buckets.len();
    let good = Server::new(Options { memory: 64 << 20, ..Options::default() }, lanes).unwrap();
    let server = Host::new("server", rss(), move || {
        let (good, did) = (good.clone(), theirs.clone());
        async move {
            if far == Far::Good {
                let lane = good.begin().unwrap();
                let listener = TcpListener::bind(None, 11211, Server::listen_options()).unwrap();
                let _ = lane.serve(listener, |_| {}).await;
                return;
            }
            let listener = TcpListener::bind(None, 11211, ListenOptions::default()).unwrap();
            while let Ok(stream) = listener.accept().await {
                drop(spawn(serve(stream, far, did.clone())));
            }
        }
    });
    let server = builder.host(server.interface(on("10.0.0.1/16")));
    let claimed = "10.0.1.0/24".parse::<ClientRange>().unwrap().prefixes();
    let interface = Interface { claimed, ..on("10.0.0.2/16") };
    let client = builder.host(Host::new("client", rss(), load.main()).interface(interface));
    builder.pair((server, 0), (client, 0), PairConfig::default());
    let runtime = builder.start().unwrap();
    let outcome = load.wait(Duration::from_secs(1), |_| true);
    let (c, failure) = (outcome.counts, outcome.failure.clone());
    let server = runtime.stop();
    let requests = REQUESTS.map(str::to_owned).to_vec();
    let pools = vec![PoolAbout { name: "all".into(), requests, ..PoolAbout::default() }];
    let report = outcome.run(About { pools, failures_count: true, ..About::default() });
    assert_eq!(
        c.requests,
        c.answered + c.timed_out + c.lost + c.unfinished,
        "every request ends once: {c:?}"
    );
    assert_eq!(c.requests, c.gets + c.sets, "{c:?}");
    assert_eq!(c.keys, c.hits + c.misses, "{c:?}");
    assert_agree(&c, &report.total);
    Ran { counts: c, failure, report, server, did }
}

/// The report says what was counted.
fn assert_agree(c: &MemcachedCounts, total: &Part) {
    let sum = |f: fn(&flowlane_load::report::Counts) -> u64| f(&total.counts) + f(&total.unmeasured);
    assert_eq!((sum(|t| t.sent), sum(|t| t.answered)), (c.requests, c.answered), "{c:?}");
    assert_eq!((sum(|t| t.bytes_sent), sum(|t| t.bytes_received)), (c.bytes_written, c.bytes_read));
    assert_eq!(
        (sum(|t| t.connections_opened), sum(|t| t.connections_failed)),
        (c.connected, c.not_connected)
    );
    assert_eq!((sum(|t| t.unsent), sum(|t| t.held_up)), (c.unsent, c.held_up));
    assert!(sum(|t| t.failed) >= c.failed() + c.not_connected, "{c:?}: {total:?}");
    let more = |name: &str| {
        let of = |c: &flowlane_load::report::Counts| c.more.get(name).copied().unwrap_or(0);
        of(&total.counts) + of(&total.unmeasured)
    };
    for (name, count) in [
        ("gets", c.gets),
        ("sets", c.sets),
        ("keys", c.keys),
        ("hits", c.hits),
        ("misses", c.misses),
        ("stored", c.stored),
        ("late", c.late),
        ("filled", c.filled),
        ("broken", c.broken),
    ] {
        assert_eq!(more(name), count, "{name}: {c:?}");
    }
}
