//! A host that serves, a host that generates, a wire between them, and what came of it.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use flowlane::{Host, Interface, Key, PairConfig, Rss, Runtime, TcpListener, TcpStream};
use flowlane_http::h1::{Event, Limits, RequestReader};
use flowlane_http::server::{Options, Server};
use flowlane_load::http::{HttpLoad, HttpOptions, HttpOutcome, Pace, Plan, Pool, Request, Target};
use flowlane_load::report::{About, PoolAbout, Run, join};
use flowlane_load::timeline;
use flowlane_load::{Changer, Phase};

/// What a server does with a connection.
pub(crate) type Serve = Arc<dyn Fn(TcpStream) -> Pin<Box<dyn Future<Output = ()> + Send>> + Send + Sync>;

pub(crate) fn serve<F, R>(f: F) -> Serve
where
    F: Fn(TcpStream) -> R + Send + Sync + 'static,
    R: Future<Output = ()> + Send + 'static,
{
    Arc::new(move |stream| Box::pin(f(stream)))
}

pub(crate) fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

/// A target on the server's host.
pub(crate) fn target(path: &str) -> Target {
    let url = format!("http://10.0.0.1{path}").parse().unwrap();
    Target { url, addresses: vec!["10.0.0.1:80".parse().unwrap()], weight: 1.0 }
}

pub(crate) fn pool() -> Pool {
    Pool::new("clients", target("/x"))
}

pub(crate) fn rate(per_second: f64) -> Pace {
    Pace::Rate { per_second, poisson: false }
}

/// A run of one pool.
pub(crate) fn plan(pool: Pool, duration: Duration) -> Plan {
    Plan {
        pools: vec![pool],
        phases: vec![Phase::hold(duration)],
        // Machines have moods: only tests of timeouts have short ones.
        timeout: ms(5000),
        request_timeout: None,
        waiting: ms(5000),
        max_body: 1 << 30,
        seed: 7,
    }
}

/// What a run came to.
pub(crate) struct Ran {
    pub(crate) outcome: HttpOutcome,
    pub(crate) run: Run,
    pub(crate) server: flowlane::stats::Report,
}

impl Ran {
    pub(crate) fn counts(&self) -> &flowlane_load::report::Counts {
        &self.run.total.counts
    }

    /// Errors of a kind.
    pub(crate) fn errors(&self, kind: &str) -> u64 {
        self.counts().errors.get(kind).map_or(0, |e| e.count)
    }
}

/// Runs a plan against a server, in `workers` threads.
pub(crate) fn run_on(workers: usize, plan: Plan, server: &Serve) -> Ran {
    run_until(workers, plan, server, |_| true)
}

pub(crate) fn run(plan: Plan, server: &Serve) -> Ran {
    run_on(1, plan, server)
}

/// The same, with requests that may be late.
pub(crate) fn run_with(plan: Plan, server: &Serve, slack: Duration) -> Ran {
    start(1, plan, server, slack, |_| true)
}

/// The same; `go_on` is asked twenty times a second, with the number of the question.
pub(crate) fn run_until(workers: usize, plan: Plan, server: &Serve, go_on: impl Fn(u64) -> bool) -> Ran {
    start(workers, plan, server, Duration::ZERO, go_on)
}

/// Runs a plan against what `flowlane serve http` serves.
pub(crate) fn run_on_ours(plan: Plan) -> Ran {
    let server = Server::new(Options::default(), 64).unwrap();
    let main = move || {
        let server = server.clone();
        async move {
            let listener = TcpListener::bind(None, 80, Server::listen_options()).unwrap();
            let _ = server.serve(listener).await;
        }
    };
    start_on(1, plan, main, HttpOptions::default(), |_, _| true)
}

/// The same, where a load is changed while it runs: `change` is called twenty times a second.
pub(crate) fn run_turned(workers: usize, plan: Plan, server: &Serve, change: impl Fn(&Changer)) -> Ran {
    start_on(workers, plan, listening(server), HttpOptions::default(), |_, load| {
        change(&load.changer());
        true
    })
}

/// A part of a run, as the options say; `go_on` is asked twenty times a second.
pub(crate) fn run_part(
    plan: Plan,
    server: &Serve,
    options: HttpOptions,
    go_on: impl Fn(&HttpLoad) -> bool,
) -> Ran {
    start_on(1, plan, listening(server), options, |_, load| go_on(load))
}

fn start(workers: usize, plan: Plan, server: &Serve, slack: Duration, go_on: impl Fn(u64) -> bool) -> Ran {
    let options = HttpOptions { slack, ..HttpOptions::default() };
    start_on(workers, plan, listening(server), options, |n, _| go_on(n))
}

fn listening(
    server: &Serve,
) -> impl Fn() -> Pin<Box<dyn Future<Output = ()> + Send>> + Send + Sync + 'static + use<> {
    let server = server.clone();
    move || {
        let server = server.clone();
        Box::pin(async move {
            let listener = TcpListener::on_port(80).unwrap();
            while let Ok(stream) = listener.accept().await {
                stream.set_nodelay(true).unwrap();
                flowlane::spawn(server(stream)).unwrap();
            }
        })
    }
}

fn start_on<F, R>(
    workers: usize,
    plan: Plan,
    listen: F,
    options: HttpOptions,
    go_on: impl Fn(u64, &HttpLoad) -> bool,
) -> Ran
where
    F: Fn() -> R + Send + Sync + 'static,
    R: Future<Output = ()> + Send + 'static,
{
    let rss = Arc::new(Rss::new(Key::MICROSOFT, workers));
    let claimed =
        plan.pools.iter().flat_map(|p| &p.clients).flat_map(flowlane_load::ClientRange::prefixes).collect();
    let named = |p: &Pool| PoolAbout {
        name: p.name.clone(),
        requests: p.requests.iter().map(Request::title).collect(),
        ..PoolAbout::default()
    };
    let (phases, pools) = (timeline::shown(&plan.phases), plan.pools.iter().map(named).collect());
    let load = HttpLoad::new(plan, HttpOptions { lanes: rss.buckets.len(), ..options }).unwrap();
    let on = |a: &str| Interface { addresses: vec![a.parse().unwrap()], ..Interface::default() };
    let mut builder = Runtime::builder().workers(workers).pin(false).seed(11);
    let there = builder.host(Host::new("server", rss.clone(), listen).interface(on("10.0.0.1/8")));
    let here = Host::new("load", rss, load.main());
    let here = builder.host(here.interface(Interface { claimed, ..on("10.0.0.2/8") }));
    builder.pair((there, 0), (here, 0), PairConfig::default());
    let runtime = builder.start().unwrap();
    let asked = AtomicU64::new(0);
    let mut outcome = load.wait(ms(50), || go_on(asked.fetch_add(1, Ordering::Relaxed), &load));
    let server = runtime.stop();
    let about = About {
        elapsed: outcome.elapsed,
        measured: outcome.measured,
        failure: outcome.failure.clone(),
        phases,
        pools,
        ..About::default()
    };
    let run = join(about, std::mem::take(&mut outcome.records));
    Ran { outcome, run, server }
}

/// What a good server heard, and says.
#[derive(Debug, Default)]
pub(crate) struct Heard {
    pub(crate) requests: AtomicU64,
    pub(crate) connections: AtomicU64,
    pub(crate) body: AtomicU64,
}

impl Heard {
    pub(crate) fn requests(&self) -> u64 {
        self.requests.load(Ordering::Relaxed)
    }

    pub(crate) fn connections(&self) -> u64 {
        self.connections.load(Ordering::Relaxed)
    }
}

/// A server that answers every request with what `answer` makes of it (method, target), and keeps the connection unless
/// it is asked not to.
pub(crate) fn good<F>(heard: &Arc<Heard>, answer: F) -> Serve
where
    F: Fn(&str, &str, u64) -> Vec<u8> + Send + Sync + Clone + 'static,
{
    let heard = heard.clone();
    serve(move |stream| {
        let (heard, answer) = (heard.clone(), answer.clone());
        async move {
            heard.connections.fetch_add(1, Ordering::Relaxed);
            let mut reader = RequestReader::new(Limits::default());
            let mut buffer = vec![0; 16 << 10];
            let mut asked: Option<(String, String, bool)> = None;
            let mut body = 0;
            loop {
                let Ok(n) = stream.read(&mut buffer).await else { return };
                if n == 0 {
                    return;
                }
                let (mut at, mut out, mut ends) = (0, Vec::new(), false);
                while let (used, Some(event)) = reader.next(&buffer[at..n]).unwrap() {
                    match event {
                        Event::Head(head) => {
                            asked = Some((head.method.to_owned(), head.target.to_owned(), head.keep_alive));
                            body = 0;
                        }
                        Event::Data(data) => body += data.len() as u64,
                        Event::End => {
                            heard.requests.fetch_add(1, Ordering::Relaxed);
                            heard.body.fetch_add(body, Ordering::Relaxed);
                            let (method, path, keep) = asked.take().unwrap();
                            out.extend(answer(&method, &path, body));
                            ends |= !keep;
                        }
                        Event::Interim(_) => {}
                    }
                    at += used;
                }
                if stream.write_all(&out).await.is_err() || ends {
                    return;
                }
            }
        }
    })
}

/// An answer with content.
pub(crate) fn ok(content: &[u8]) -> Vec<u8> {
    let mut answer = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", content.len()).into_bytes();
    answer.extend_from_slice(content);
    answer
}

/// A server that answers everything with "hello".
pub(crate) fn hello(heard: &Arc<Heard>) -> Serve {
    good(heard, |_, _, _| ok(b"hello"))
}

/// A server that waits for a request's first bytes and then writes these bytes; `close`: and closes, otherwise it stays.
pub(crate) fn says(bytes: &'static [u8], close: bool) -> Serve {
    serve(move |stream| async move {
        let mut buffer = [0; 4096];
        loop {
            match stream.read(&mut buffer).await {
                Ok(n) if n > 0 => {}
                _ => return,
            }
            if stream.write_all(bytes).await.is_err() || close {
                return;
            }
        }
    })
}
