//! A task that waits in a system call, as no task should: its worker stands still, and the watchdog says where.
//!
//! ```text
//! cargo run --release --example stalled
//! ```

use std::error::Error;
use std::io::{PipeReader, Read, Write};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use flowlane::watchdog::Watchdog;
use flowlane::{Bucket, Host, Key, Rss, Runtime, block_on};

/// Waits for a byte with the whole worker: a file of tokio's, or a thread, would wait alone.
#[inline(never)]
fn answer(pipe: &mut PipeReader) -> std::io::Result<u8> {
    let mut byte = [0];
    pipe.read_exact(&mut byte)?;
    Ok(byte[0])
}

/// Runs the example.
///
/// # Errors
/// Whatever goes wrong.
pub(crate) fn main() -> Result<(), Box<dyn Error>> {
    let mut builder = Runtime::builder().workers(2).pin(false);
    let server = builder.host(Host::kernel("server", Arc::new(Rss::new(Key::MICROSOFT, 2)), || async {}));
    let runtime = builder.start()?;
    let (tell, told) = mpsc::channel();
    let dog = Watchdog::new(Duration::from_millis(200)).on_stall(move |stall| {
        let _ = tell.send(stall.clone());
    });
    let watching = dog.start(runtime.handle())?;
    let (mut pipe, mut end) = std::io::pipe()?;
    let task = runtime.handle().spawn_on(server, Bucket(1), async move { answer(&mut pipe) })?;
    let stall = told.recv_timeout(Duration::from_secs(60))?;
    println!("{stall}");
    stall.trace.iter().for_each(|name| println!("    in {name}"));
    // Then it goes on.
    end.write_all(b"7")?;
    assert_eq!(block_on(task)??, b'7');
    drop((watching, runtime));
    Ok(())
}
