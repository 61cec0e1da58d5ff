//! Sends without copies over a veth between kernel sockets: what the kernel counts, and what happens where it refuses.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use flowlane::{Host, KernelStats, Key, Rss, Runtime, SendPool, TcpStream};
use flowlane_testnet::Namespace;

use crate::common::skip;

const PATIENCE: Duration = Duration::from_secs(60);
const SIZE: usize = 40_000;
const SENDS: usize = 200;

fn byte(at: usize) -> u8 {
    (at ^ (at >> 8)) as u8
}

/// Sends from one namespace to the other, overwriting each buffer as soon as it is back; what the sender counted.
fn sends(label: &str, prepare: impl FnOnce() + Send) -> Option<KernelStats> {
    if skip() {
        return None;
    }
    let name = |end: &str| format!("fl-z{label}{end}-{}", std::process::id());
    let (near, far) = (Namespace::new(&name("n")).unwrap(), Namespace::new(&name("f")).unwrap());
    near.ip(&format!("link add v0 type veth peer name v1 netns {}", far.name())).unwrap();
    for (namespace, link, address) in [(&near, "v0", "10.9.3.1/24"), (&far, "v1", "10.9.3.2/24")] {
        namespace.ip(&format!("addr add {address} dev {link}")).unwrap();
        namespace.ip(&format!("link set {link} up")).unwrap();
    }
    let listener = far.run(|| TcpListener::bind((Ipv4Addr::new(10, 9, 3, 2), 0)).unwrap()).unwrap();
    let server: SocketAddr = listener.local_addr().unwrap();
    let reader = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut got = Vec::new();
        stream.read_to_end(&mut got).unwrap();
        assert_eq!(got.len(), SIZE * SENDS);
        let wrong = got.iter().enumerate().find(|(at, b)| **b != byte(*at));
        assert!(wrong.is_none(), "byte {wrong:?}");
        stream.write_all(b"!").unwrap();
    });
    let (say, said) = mpsc::channel();
    let say = Mutex::new(say);
    let main = move || {
        let say = say.lock().unwrap().clone();
        async move {
            if flowlane::current().unwrap().bucket.0 > 0 {
                return;
            }
            let (stream, pool) = (TcpStream::connect(server).await.unwrap(), SendPool::new(4, SIZE));
            for n in 0..SENDS {
                let mut buffer = pool.take().await;
                for (at, b) in buffer.iter_mut().enumerate() {
                    *b = byte(n * SIZE + at);
                }
                let sending = stream.queue_zc(buffer).await.unwrap();
                flowlane::spawn(async move { sending.await.unwrap().fill(0xde) }).unwrap();
            }
            stream.shutdown(Shutdown::Write).unwrap();
            assert_eq!(stream.read(&mut [0; 8]).await, Ok(1));
            say.send(()).unwrap();
        }
    };
    let runtime = near
        .run(|| {
            prepare();
            let mut builder = Runtime::builder().pin(false);
            builder.host(Host::kernel("sender", Arc::new(Rss::new(Key::MICROSOFT, 1)), main));
            builder.start().unwrap()
        })
        .unwrap();
    let done = said.recv_timeout(PATIENCE);
    let stats = runtime.stop().kernel(0).unwrap();
    done.unwrap_or_else(|e| panic!("{e}: {stats:?}"));
    reader.join().unwrap();
    Some(stats)
}

/// The other end of a veth may be anybody, so the kernel copies what passes it. It says so, and is then not asked any more.
#[test]
fn a_veth_copies_and_says_so() {
    let Some(stats) = sends("v", || {}) else { return };
    assert!(stats.zerocopy_sends > 0 && stats.zerocopy_refused == 0, "{stats:?}");
    assert_eq!(stats.zerocopy_copied, stats.zerocopy_sends, "{stats:?}");
    assert!(stats.zerocopy_skipped > 0, "{stats:?}");
}

/// Without memory for completions (`ENOBUFS`) everything is copied, and counted.
#[test]
fn without_memory_for_completions_sends_are_copied() {
    let starve = || std::fs::write("/proc/sys/net/core/optmem_max", "1").unwrap();
    let before = std::fs::read_to_string("/proc/sys/net/core/optmem_max").unwrap_or_default();
    if !skip() {
        let probe = Namespace::new(&format!("fl-zp-{}", std::process::id())).unwrap();
        if probe.run(|| std::fs::write("/proc/sys/net/core/optmem_max", before.trim())).unwrap().is_err() {
            return flowlane_testnet::skipped("optmem_max is the machine's, not the namespace's (Linux 6.8)");
        }
    }
    let Some(stats) = sends("o", starve) else { return };
    assert_eq!((stats.zerocopy_sends, stats.zerocopy_copied), (0, 0), "{stats:?}");
    assert!(stats.zerocopy_refused >= SENDS as u64, "{stats:?}");
    assert_eq!(std::fs::read_to_string("/proc/sys/net/core/optmem_max").unwrap_or_default(), before);
}
