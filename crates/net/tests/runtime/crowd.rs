//! Very many connections that begin in one moment: the wire between the hosts takes a while, and nobody is lost.

use std::future::poll_fn;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::task::{Poll, Waker};

use flowlane::{
    Host, Interface, Key, ListenOptions, PairConfig, Runtime, TcpListener, TcpStream, UdpFields, current,
    spawn,
};

use crate::traffic::{CLIENT, PATIENCE, SERVER, rss};

const BUCKETS: usize = 4;
/// Connections of all lanes together.
const ALL: usize = 20_000;
/// Bytes there and back on each.
const SIZE: usize = 100;

fn on(address: &str) -> Interface {
    Interface { addresses: vec![address.parse().unwrap()], ..Interface::default() }
}

/// Where everybody waits for the last one.
#[derive(Default)]
struct Gathering {
    here: AtomicUsize,
    waiting: Mutex<Vec<Waker>>,
}

impl Gathering {
    async fn wait(&self) {
        let mut here = self.here.fetch_add(1, Ordering::SeqCst) + 1;
        poll_fn(|cx| {
            let mut waiting = self.waiting.lock().unwrap();
            here = here.max(self.here.load(Ordering::SeqCst));
            if here < ALL {
                waiting.push(cx.waker().clone());
                return Poll::Pending;
            }
            waiting.drain(..).for_each(Waker::wake);
            Poll::Ready(())
        })
        .await;
    }
}

async fn echo() {
    // Room for all handshakes at once, so that none depends on a cookie.
    let options = ListenOptions { backlog: ALL as u32, syn_backlog: ALL as u32, ..ListenOptions::default() };
    let listener = TcpListener::bind(None, 7, options).unwrap();
    while let Ok(stream) = listener.accept().await {
        spawn(async move {
            let mut buffer = [0; SIZE];
            while let Ok(n @ 1..) = stream.read(&mut buffer).await {
                if stream.write_all(&buffer[..n]).await.is_err() {
                    return;
                }
            }
        })
        .unwrap();
    }
}

/// Connects, has its bytes sent back, and stays until everybody's were.
async fn one(seed: u64, all_served: Arc<Gathering>) -> Result<(), String> {
    let stream =
        TcpStream::connect("10.0.0.1:7".parse().unwrap()).await.map_err(|e| format!("connect: {e}"))?;
    let message: [u8; SIZE] = std::array::from_fn(|at| (seed as usize * 31 + at * 7) as u8);
    stream.write_all(&message).await.map_err(|e| format!("write: {e}"))?;
    let (mut answer, mut got) = ([0; SIZE], 0);
    while got < SIZE {
        match stream.read(&mut answer[got..]).await {
            Ok(0) => return Err(format!("the end after {got} bytes")),
            Ok(n) => got += n,
            Err(e) => return Err(format!("read: {e}")),
        }
    }
    if answer != message {
        return Err("other bytes".into());
    }
    all_served.wait().await;
    Ok(())
}

// Long: twenty thousand connections by a debug build.
#[test]
fn many_connections_begin_together() {
    let mut builder = Runtime::builder().workers(2).pin(false).seed(7).frames(65_536);
    let server = Host::new("server", rss(Key::MICROSOFT, BUCKETS, 2, UdpFields::Two), echo);
    assert_eq!(builder.host(server.interface(on("10.0.0.1/24"))), SERVER);
    let (say, said) = mpsc::channel();
    let served = Arc::new(Gathering::default());
    let counted = served.clone();
    let client = Host::new("client", rss(Key::symmetric(), BUCKETS, 2, UdpFields::Two), move || {
        let (say, served) = (say.clone(), counted.clone());
        async move {
            let lane = u64::from(current().unwrap().bucket.0);
            for n in 0..(ALL / BUCKETS) as u64 {
                let (say, served) = (say.clone(), served.clone());
                spawn(async move {
                    let _ = say.send(one(lane << 32 | n, served).await);
                })
                .unwrap();
            }
        }
    });
    assert_eq!(builder.host(client.interface(on("10.0.0.2/24"))), CLIENT);
    builder.pair((CLIENT, 0), (SERVER, 0), PairConfig::default());
    let runtime = builder.start().unwrap();
    for n in 0..ALL {
        match said.recv_timeout(PATIENCE) {
            Ok(result) => assert_eq!(result, Ok(()), "after {n}"),
            Err(e) => panic!("{e} after {n}, {} served", served.here.load(Ordering::SeqCst)),
        }
    }
    let report = runtime.stop();
    let (server, client) = (report.total(SERVER).tcp, report.total(CLIENT).tcp);
    assert_eq!((server.established, client.established), (ALL as u64, ALL as u64));
    assert_eq!((server.cookies_sent, client.bad_attempts), (0, 0));
}
