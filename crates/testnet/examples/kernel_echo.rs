//! The peer of every UDP figure: an echo on the kernel's sockets, in batches of 32 with `recvmmsg` and `sendmmsg`.
//!
//! `kernel_echo ADDRESS:PORT SECONDS` echoes until the time is over and prints how many datagrams it sent back.

use std::net::UdpSocket;
use std::time::{Duration, Instant};

use flowlane_sys::mmsg::Batch;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let (Some(address), Some(seconds)) = (args.next(), args.next()) else {
        return Err("usage: kernel_echo ADDRESS:PORT SECONDS".into());
    };
    let socket = UdpSocket::bind(&address)?;
    socket.set_read_timeout(Some(Duration::from_millis(100)))?;
    let end = Instant::now() + Duration::from_secs_f64(seconds.parse()?);
    let mut batch = Batch::new(32, 2048);
    let mut echoed = 0;
    while Instant::now() < end {
        if batch.receive(&socket).is_ok() {
            echoed += batch.send(&socket)?;
        }
    }
    println!("{echoed}");
    Ok(())
}
