//! Where redirects lead: origins that a lane has been led to, each resolved once, and connections to them.
//!
//! Who answers chooses where redirects lead, so their number is bounded, and no name is resolved by a lane: one thread of the run does that,
//! one name after the other, and whoever wants to go there waits for it. What was found stays for the run.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Arc, OnceLock};

use flowlane::{Connect, Endpoint};
use flowlane_http::tls::ClientTls;
use tokio::sync::{OnceCell, oneshot};

use super::plan::Pool;
use super::stream::{Opened, Unopened};
use super::url::Url;
use super::way::{Way, open};
use crate::report::ErrorKind;

/// Most origins that a pool is led to in one lane.
const MOST: usize = 256;
/// Most names that wait to be resolved, of all lanes.
const MOST_WAITING: usize = 256;

/// Scheme, host in lower case, and port.
type Key = (bool, String, u16);

/// An origin that somebody was led to. Two are the same if they are one in memory.
#[derive(Debug)]
pub(super) struct Origin {
    url: Url,
    found: OnceCell<Result<Found, String>>,
    /// The address that answered last.
    good: AtomicUsize,
}

#[derive(Debug)]
struct Found {
    addresses: Vec<SocketAddr>,
    way: Option<Arc<Way>>,
}

/// The origins of a pool in one lane.
#[derive(Debug, Default)]
pub(super) struct Origins {
    known: HashMap<Key, Arc<Origin>>,
}

impl Origins {
    /// The origin of a URL; `None` if the pool was led to too many others.
    pub(super) fn of(&mut self, url: &Url) -> Option<Arc<Origin>> {
        let key = (url.https, url.host.to_ascii_lowercase(), url.port);
        if let Some(origin) = self.known.get(&key) {
            return Some(origin.clone());
        }
        // Guard: `self.known.len() >= MOST` as `false` fails http::origins
        if self.known.len() >= MOST {
            return None;
        }
        let new = Origin { url: url.clone(), found: OnceCell::new(), good: AtomicUsize::new(0) };
        let new = Arc::new(new);
        self.known.insert(key, new.clone());
        Some(new)
    }

    /// Why there is no more of them, in words.
    pub(super) fn full() -> (ErrorKind, String) {
        (ErrorKind::RedirectAway, format!("redirects lead to more than {MOST} hosts and ports"))
    }
}

/// What all lanes of a pool need to find origins.
#[derive(Debug)]
pub(super) struct Finder {
    pool: Pool,
    tls: Option<ClientTls>,
    /// To the thread that resolves names, once there is one.
    resolver: OnceLock<Option<SyncSender<Question>>>,
}

struct Question {
    url: Url,
    answer: oneshot::Sender<Result<Found, String>>,
}

impl Finder {
    pub(super) fn new(pool: &Pool, tls: Option<ClientTls>) -> Arc<Self> {
        Arc::new(Self { pool: pool.clone(), tls, resolver: OnceLock::new() })
    }

    /// Has the thread find out where an origin is.
    async fn find(&self, url: &Url) -> Result<Found, String> {
        let gone = || "no thread resolves names".to_owned();
        let resolver = self.resolver.get_or_init(|| resolver(self.pool.clone(), self.tls.clone()));
        let (to, answer) = oneshot::channel();
        let question = Question { url: url.clone(), answer: to };
        let asked = resolver.as_ref().ok_or_else(gone)?.try_send(question);
        asked.map_err(|_| format!("more than {MOST_WAITING} names wait to be resolved"))?;
        answer.await.unwrap_or_else(|_| Err(gone()))
    }
}

/// The thread that asks the system's resolver, which blocks. It ends with the run, and with the name it is at.
fn resolver(pool: Pool, tls: Option<ClientTls>) -> Option<SyncSender<Question>> {
    let (to, questions) = sync_channel::<Question>(MOST_WAITING);
    let work = move || {
        while let Ok(Question { url, answer }) = questions.recv() {
            let found = || {
                let addresses = pool.via.addresses(&url).map_err(|e| e.to_string())?;
                let way = Way::new(&url, &pool, tls.as_ref()).map_err(|e| e.to_string())?;
                Ok(Found { addresses, way })
            };
            // Nobody waits for it any more.
            let _ = answer.send(found());
        }
    };
    std::thread::Builder::new().name("resolver".into()).spawn(work).ok().map(|_| to)
}

/// The addresses of an origin.
///
/// # Errors
/// Why it has none, in words.
pub(super) async fn addresses_of<'a>(
    origin: &'a Origin,
    finder: &Finder,
) -> Result<&'a [SocketAddr], String> {
    let found = origin.found.get_or_init(|| finder.find(&origin.url)).await;
    found.as_ref().map(|found| &found.addresses[..]).map_err(Clone::clone)
}

/// Opens a connection to an origin: to the address that answered last, and to the others if it does not. `from` are connections of both
/// families, IPv4 first, whose peer is still to be said.
pub(super) async fn open_origin(
    origin: Arc<Origin>,
    finder: Arc<Finder>,
    from: [Connect; 2],
) -> Result<Opened, Unopened> {
    let found = origin.found.get_or_init(|| finder.find(&origin.url)).await;
    let Found { addresses, way } = found.as_ref().map_err(|why| {
        let kind = ErrorKind::Resolve;
        Unopened { kind, why: why.clone(), other_address: false }
    })?;
    let first = origin.good.load(Ordering::Relaxed);
    let mut failed = None;
    for at in (0..addresses.len()).map(|n| (first + n) % addresses.len()) {
        let remote = addresses[at];
        let connect = Connect { remote: Endpoint::from(remote), ..from[usize::from(remote.is_ipv6())] };
        match open(connect, way.clone()).await {
            Ok(opened) => {
                origin.good.store(at, Ordering::Relaxed);
                return Ok(opened);
            }
            Err(unopened) => failed = Some(unopened),
        }
    }
    Err(failed.unwrap_or_else(|| Unopened {
        kind: ErrorKind::Resolve,
        why: format!("{} has no address", origin.url.name()),
        other_address: false,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn origins_are_few_and_each_is_one() {
        let mut origins = Origins::default();
        let mut of = |url: &str| origins.of(&url.parse().unwrap());
        let a = of("http://a.example/x").unwrap();
        assert!(Arc::ptr_eq(&a, &of("http://A.example:80/y").unwrap()));
        for other in ["https://a.example/", "http://a.example:81/", "http://b.example/"] {
            assert!(!Arc::ptr_eq(&a, &of(other).unwrap()), "{other}");
        }
        for n in 4..MOST {
            assert!(of(&format!("http://{n}.c.example/")).is_some(), "{n}");
        }
        assert!(of("http://one-more.example/").is_none());
        assert!(Arc::ptr_eq(&a, &of("http://a.example/").unwrap()), "those that are known stay");
    }
}
