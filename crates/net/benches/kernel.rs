//! What a request costs on kernel sockets, beside the least that can be had: a loop around epoll that does one receive and
//! one send for each request, and nothing else. Processor time of either end, by thread, from the scheduler.
//!
//! ```text
//! cargo bench -p flowlane-net --bench kernel [-- ROUNDS]
//! ```
//!
//! Both kinds of client meet the plain server, and both kinds of server the plain client, with 100 bytes there and back, on
//! one core each. Then 9,900 connections are opened that say nothing, and the memory of the process is printed.
#![expect(clippy::unwrap_used, reason = "a measurement that cannot go on may stop")]

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use flowlane::{Host, Key, ListenOptions, Rss, Runtime, TcpListener, TcpStream, spawn};
use flowlane_sys::kernel::epoll::{Epoll, Events};
use flowlane_sys::kernel::{limits, socket};

const LOOPBACK: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
const SIZE: usize = 100;
const TIME: Duration = Duration::from_millis(1500);

/// An end of the measurement: what it did, and in which thread.
struct End {
    requests: Arc<AtomicU64>,
    thread: u32,
    stop: Arc<AtomicBool>,
    runtime: Option<Runtime>,
}

impl End {
    /// Requests and nanoseconds of processor so far.
    fn look(&self) -> (u64, u64) {
        let path = format!("/proc/self/task/{}/schedstat", self.thread);
        let text = std::fs::read_to_string(path).unwrap();
        let ns = text.split_whitespace().next().unwrap().parse().unwrap();
        (self.requests.load(Ordering::Relaxed), ns)
    }
}

impl Drop for End {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        drop(self.runtime.take());
    }
}

fn this_thread() -> u32 {
    let link = std::fs::read_link("/proc/thread-self").unwrap();
    link.file_name().unwrap().to_str().unwrap().parse().unwrap()
}

/// A thread around an epoll instance. `server`: listens and echoes; else: connects so often, and asks.
fn plain(server: Option<Arc<AtomicU64>>, at: Option<SocketAddr>, connections: usize) -> (End, SocketAddr) {
    let requests = server.unwrap_or_default();
    let stop = Arc::new(AtomicBool::new(false));
    let (say, said) = mpsc::channel();
    let (count, halt) = (requests.clone(), stop.clone());
    std::thread::spawn(move || {
        let epoll = Epoll::new().unwrap();
        let mut sockets: Vec<Option<OwnedFd>> = Vec::new();
        let listener = at.is_none().then(|| {
            let fd = socket::tcp(true).unwrap();
            socket::bind(fd.as_fd(), SocketAddr::new(LOOPBACK, 0)).unwrap();
            socket::listen(fd.as_fd(), 4096).unwrap();
            epoll.add_level(fd.as_fd(), u64::MAX).unwrap();
            fd
        });
        let here = listener.as_ref().map(|l| socket::local_address(l.as_fd()).unwrap());
        for _ in 0..if at.is_some() { connections } else { 0 } {
            let stream = std::net::TcpStream::connect(at.unwrap()).unwrap();
            stream.set_nonblocking(true).unwrap();
            let fd = OwnedFd::from(stream);
            socket::send(fd.as_fd(), &[7; SIZE]).unwrap();
            epoll.add(fd.as_fd(), sockets.len() as u64).unwrap();
            sockets.push(Some(fd));
        }
        say.send((this_thread(), here.or(at).unwrap())).unwrap();
        let (mut events, mut buffer) = (Events::new(1024), vec![0; 4096]);
        while !halt.load(Ordering::Relaxed) {
            epoll.wait(&mut events, Some(Duration::from_millis(100))).unwrap();
            for i in 0..events.len() {
                let event = events.get(i).unwrap();
                if event.token == u64::MAX {
                    while let Ok((fd, _)) = socket::accept(listener.as_ref().unwrap().as_fd()) {
                        epoll.add(fd.as_fd(), sockets.len() as u64).unwrap();
                        sockets.push(Some(fd));
                    }
                    continue;
                }
                let place = &mut sockets[event.token as usize];
                let Some(fd) = place.as_ref().filter(|_| event.readable()) else { continue };
                match socket::recv(fd.as_fd(), &mut buffer) {
                    Ok(n @ 1..) => {
                        count.fetch_add(1, Ordering::Relaxed);
                        let _ = socket::send(fd.as_fd(), &buffer[..n]);
                    }
                    Err(e) if e.kind() == std::io::ErrorKind::WouldBlock => {}
                    _ => *place = None,
                }
            }
        }
    });
    let (thread, address) = said.recv().unwrap();
    (End { requests, thread, stop, runtime: None }, address)
}

async fn serve(listener: TcpListener, requests: Arc<AtomicU64>) {
    while let Ok(stream) = listener.accept().await {
        let requests = requests.clone();
        spawn(async move {
            loop {
                // The buffer is not held while waiting: an idle connection costs its task and its socket.
                if stream.readable().await.is_err() {
                    return;
                }
                let mut buffer = [0; 1024];
                match stream.try_read(&mut buffer) {
                    Ok(Some(n @ 1..)) => {
                        requests.fetch_add(1, Ordering::Relaxed);
                        if !matches!(stream.try_write(&buffer[..n]), Ok(Some(_))) {
                            return;
                        }
                    }
                    Ok(None) => {}
                    _ => return,
                }
            }
        })
        .unwrap();
    }
}

async fn ask(stream: TcpStream, requests: Arc<AtomicU64>, stop: Arc<AtomicBool>) {
    let _ = stream.set_nodelay(true);
    while !stop.load(Ordering::Relaxed) {
        let mut buffer = [0; 1024];
        if stream.write(&[7; SIZE]).await.is_err() || !matches!(stream.read(&mut buffer).await, Ok(1..)) {
            return;
        }
        requests.fetch_add(1, Ordering::Relaxed);
    }
}

/// Ours: a runtime of one worker and one lane.
fn ours(at: Option<SocketAddr>, connections: usize) -> (End, SocketAddr) {
    let requests = Arc::new(AtomicU64::new(0));
    let stop = Arc::new(AtomicBool::new(false));
    let (say, said) = mpsc::channel();
    let (count, halt) = (requests.clone(), stop.clone());
    let main = move || {
        let (count, halt, say) = (count.clone(), halt.clone(), say.clone());
        async move {
            match at {
                None if flowlane::current().unwrap().bucket.0 > 0 => {}
                None => {
                    let listener = TcpListener::bind(Some(LOOPBACK), 0, ListenOptions::default()).unwrap();
                    say.send((this_thread(), listener.local_addr().unwrap())).unwrap();
                    serve(listener, count).await;
                }
                Some(at) => {
                    let lanes = 2;
                    for _ in 0..connections / lanes {
                        let stream = TcpStream::connect(at).await.unwrap();
                        spawn(ask(stream, count.clone(), halt.clone())).unwrap();
                    }
                    say.send((this_thread(), at)).unwrap();
                }
            }
        }
    };
    let mut builder = Runtime::builder().pin(false).frames(1024);
    builder.host(Host::kernel("bench", Arc::new(Rss::new(Key::MICROSOFT, 1)), main));
    let runtime = builder.start().unwrap();
    let (thread, address) = said.recv().unwrap();
    if at.is_some() {
        said.recv().unwrap();
    }
    (End { requests, thread, stop, runtime: Some(runtime) }, address)
}

/// Nanoseconds of processor for each request, of the end that is looked at.
fn measure(end: &End) -> f64 {
    std::thread::sleep(Duration::from_millis(300));
    let before = end.look();
    std::thread::sleep(TIME);
    let after = end.look();
    (after.1 - before.1) as f64 / (after.0 - before.0).max(1) as f64
}

fn median(mut values: Vec<f64>) -> (f64, f64, f64) {
    values.sort_by(f64::total_cmp);
    (values[values.len() / 2], values[0], values[values.len() - 1])
}

fn compare(what: &str, connections: usize, rounds: usize, run: impl Fn(bool) -> f64) {
    let (mut plain, mut ours) = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        plain.push(run(false));
        ours.push(run(true));
    }
    let ratio: Vec<f64> = ours.iter().zip(&plain).map(|(o, p)| o / p).collect();
    let (p, o, r) = (median(plain), median(ours), median(ratio));
    println!(
        "{what}, {connections:>5} connections: plain {:.0} ns [{:.0}, {:.0}], ours {:.0} ns [{:.0}, {:.0}], ratio {:.2} [{:.2}, {:.2}]",
        p.0, p.1, p.2, o.0, o.1, o.2, r.0, r.1, r.2
    );
}

fn memory() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|l| l.starts_with("VmRSS")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

/// So many connections that say nothing, both ends in this process.
fn idle(connections: usize) {
    if limits::descriptors(2 * connections as u64 + 100).unwrap() < 2 * connections as u64 + 100 {
        println!("skipped {connections} idle connections, because there are too few descriptors");
        return;
    }
    let (server, at) = ours(None, 0);
    let before = memory();
    let (say, said) = mpsc::channel();
    let mut builder = Runtime::builder().pin(false).frames(1024);
    builder.host(Host::kernel("idle", Arc::new(Rss::new(Key::MICROSOFT, 1)), move || {
        let say = say.clone();
        async move {
            let mut held = Vec::with_capacity(connections / 2);
            for i in 0..connections / 2 {
                // Twenty thousand ports of each address are enough.
                let ip = [127, 1, (i / 4096) as u8, 1 + flowlane::current().unwrap().bucket.0 as u8];
                let connect =
                    flowlane::Connect { local_ip: Some(ip.into()), ..flowlane::Connect::to(at.into()) };
                held.push(TcpStream::connect_with(connect, None).await.unwrap());
            }
            let _ = say.send(());
            std::future::pending::<()>().await;
        }
    }));
    let runtime = builder.start().unwrap();
    for _ in 0..2 {
        said.recv().unwrap();
    }
    let accepted = || {
        let report = server.runtime.as_ref().unwrap().handle().report();
        report.kernel(0).map_or(0, |k| k.accepted)
    };
    while accepted() < connections as u64 {}
    let after = memory();
    println!(
        "{connections} idle connections, both ends in this process: {after} KiB in all, {:.0} bytes for each (a task and two sockets)",
        (after - before) as f64 * 1024.0 / connections as f64
    );
    drop((server, runtime));
}

fn main() {
    let rounds = std::env::args().skip(1).find_map(|a| a.parse().ok()).unwrap_or(5);
    idle(9_900);
    for connections in [1, 100, 1000] {
        compare("client", connections.max(2), rounds, |own| {
            let (_server, at) = plain(None, None, 0);
            let (client, _) = if own {
                ours(Some(at), connections.max(2))
            } else {
                plain(None, Some(at), connections.max(2))
            };
            measure(&client)
        });
        compare("server", connections, rounds, |own| {
            let (server, at) = if own { ours(None, 0) } else { plain(None, None, 0) };
            let (_client, _) = plain(None, Some(at), connections);
            measure(&server)
        });
    }
}
