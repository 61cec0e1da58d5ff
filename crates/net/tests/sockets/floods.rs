//! A peer that sends as fast as it can keeps no timer and no other task of its lane waiting.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use flowlane::{TcpStream, sleep};

use crate::kit::{LANES, Over, finish, start};
use crate::streams::echo;

/// A listener on which a thread writes to each connection for as long as somebody reads.
fn flood(ip: std::net::IpAddr) -> SocketAddr {
    let listener = std::net::TcpListener::bind((ip, 0)).unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming().take(LANES).flatten() {
            std::thread::spawn(move || {
                use std::io::Write;
                while (&stream).write_all(&[7; 1 << 16]).is_ok() {}
            });
        }
    });
    address
}

/// It is read a byte at a time, so that there is always more. Without a budget the reading task never ends its turn, and the clock of its lane
/// stands still.
#[test]
fn timers_run_while_a_peer_sends_for_ever() {
    for over in Over::kernels() {
        let server = over.server();
        let target = flood(server.ip());
        let client = move || async move {
            let over = Arc::new(AtomicBool::new(false));
            let seen = over.clone();
            let stream = TcpStream::connect(target).await.map_err(|e| e.to_string())?;
            let reader = flowlane::spawn(async move {
                let mut byte = [0];
                let mut read = 0_u64;
                while !seen.load(Ordering::Relaxed) {
                    read += stream.read(&mut byte).await.map_err(|e| e.to_string())? as u64;
                }
                Ok::<_, String>(read)
            });
            sleep(Duration::from_millis(20)).await;
            over.store(true, Ordering::Relaxed);
            let read = reader.map_err(|e| e.to_string())?.await.map_err(|e| e.to_string())??;
            if read == 0 { Err("nothing was read".to_owned()) } else { Ok(1) }
        };
        let (runtime, said) = start(over, 1, move || echo(server), client);
        finish(&runtime, &said, 1);
        drop(runtime.stop());
    }
}
