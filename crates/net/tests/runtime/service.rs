//! The kit for servers: connections that wait are told of the end, those that take too long are reset, and nobody is taken any more.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream as KernelStream};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use flowlane::service::{InLane, Service};
use flowlane::{Host, Key, Rss, Runtime, SocketError, TcpListener, TcpStream};

use crate::traffic::PATIENCE;

/// Answers each byte; says goodbye when it is told. A peer that sends `s` is served for ever.
async fn echo(stream: TcpStream, at: InLane) {
    let mut byte = [0];
    loop {
        tokio::select! {
            read = stream.read(&mut byte) => match read {
                Ok(1..) if byte[0] == b's' => {
                    let _ = stream.write_all(b"s").await;
                    std::future::pending::<()>().await;
                }
                Ok(1..) => {
                    let _ = stream.write_all(&byte).await;
                }
                _ => return,
            },
            () = at.stopping() => {
                let _ = stream.write_all(b"bye").await;
                return;
            }
        }
    }
}

fn start() -> (Runtime, Service, SocketAddr) {
    let rss = Arc::new(Rss::new(Key::MICROSOFT, 1));
    let service = Service::new(rss.buckets.len());
    let (say, said) = mpsc::channel();
    let serving = service.clone();
    let host = Host::kernel("server", rss, move || {
        let (service, say) = (serving.clone(), say.clone());
        async move {
            if flowlane::current()?.bucket.0 != 0 {
                return Ok(());
            }
            let listener = TcpListener::bind(Some([127, 0, 0, 1].into()), 0, Default::default())?;
            let _ = say.send(listener.local_addr()?);
            service.serve(listener, echo).await?;
            Ok::<_, Box<dyn std::error::Error + Send + Sync>>(())
        }
    });
    let mut builder = Runtime::builder().pin(false);
    builder.host(host);
    let runtime = builder.start().unwrap();
    let at = said.recv_timeout(PATIENCE).unwrap();
    (runtime, service, at)
}

/// A connection that has been answered.
fn connect(at: SocketAddr, byte: u8) -> KernelStream {
    let mut stream = KernelStream::connect(at).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.write_all(&[byte]).unwrap();
    let mut answer = [0];
    stream.read_exact(&mut answer).unwrap();
    assert_eq!(answer, [byte]);
    stream
}

#[test]
fn who_waits_is_told_and_nobody_else_is_taken() {
    let (runtime, service, at) = start();
    let mut waiting: Vec<_> = (0..10).map(|_| connect(at, b'x')).collect();
    assert_eq!(service.stop_within(PATIENCE), 0);
    for stream in &mut waiting {
        let mut last = Vec::new();
        stream.read_to_end(&mut last).unwrap();
        assert_eq!(last, b"bye");
    }
    assert!(KernelStream::connect(at).is_err(), "the listener is closed");
    runtime.join().unwrap();
}

#[test]
fn who_takes_too_long_is_reset() {
    let (runtime, service, at) = start();
    let (mut slow, mut quick) = (connect(at, b's'), connect(at, b'x'));
    assert_eq!(service.stop_within(Duration::from_millis(50)), 1, "the one that does not end");
    let mut last = Vec::new();
    quick.read_to_end(&mut last).unwrap();
    assert_eq!(last, b"bye");
    // It ends, in order or by a reset.
    assert!(matches!(slow.read(&mut [0; 8]), Ok(0) | Err(_)));
    runtime.join().unwrap();
}

/// The service stops between a connection's acceptance and the first poll of its task.
#[test]
fn who_was_accepted_last_is_waited_for() {
    let rss = Arc::new(Rss::new(Key::MICROSOFT, 1));
    let service = Service::new(rss.buckets.len());
    let (say, said) = mpsc::channel();
    let (accepted, was_accepted) = mpsc::channel();
    let [ended, stopped] = [(); 2].map(|()| Arc::new(AtomicBool::new(false)));
    let (serving, served, is_stopped) = (service.clone(), ended.clone(), stopped.clone());
    let host = Host::kernel("server", rss, move || {
        let (service, say, accepted, ended, stopped) =
            (serving.clone(), say.clone(), accepted.clone(), served.clone(), is_stopped.clone());
        async move {
            if flowlane::current()?.bucket.0 != 0 {
                return Ok(());
            }
            let listener = TcpListener::bind(Some([127, 0, 0, 1].into()), 0, Default::default())?;
            let _ = say.send(listener.local_addr()?);
            let serve = move |stream: TcpStream, at: InLane| {
                let _ = accepted.send(());
                let begun = std::time::Instant::now();
                while !at.is_stopping() && begun.elapsed() < PATIENCE {
                    std::thread::yield_now();
                }
                let ended = ended.clone();
                async move {
                    // What serving takes.
                    flowlane::sleep(Duration::from_millis(100)).await;
                    ended.store(true, SeqCst);
                    drop(stream);
                }
            };
            service.serve(listener, serve).await?;
            // The task has been polled by now. Else whoever waits has all this time to find nobody left.
            let begun = std::time::Instant::now();
            while !stopped.load(SeqCst) && begun.elapsed() < Duration::from_millis(500) {
                std::thread::yield_now();
            }
            Ok::<_, Box<dyn std::error::Error + Send + Sync>>(())
        }
    });
    let mut builder = Runtime::builder().pin(false);
    builder.host(host);
    let runtime = builder.start().unwrap();
    let _client = KernelStream::connect(said.recv_timeout(PATIENCE).unwrap()).unwrap();
    was_accepted.recv_timeout(PATIENCE).unwrap();
    assert_eq!(service.stop_within(PATIENCE), 0);
    stopped.store(true, SeqCst);
    assert!(ended.load(SeqCst));
    runtime.join().unwrap();
}

#[test]
fn outside_a_lane_there_is_no_service() {
    assert!(matches!(Service::new(1).here(), Err(SocketError::WrongLane)));
}
