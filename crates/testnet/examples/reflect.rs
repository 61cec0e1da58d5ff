//! Sends every packet of one queue back with its Ethernet addresses swapped, and prints the rate each second: what a
//! driver can do when nothing is done with the packets.
//!
//! ```text
//! reflect af-xdp|af-packet|tap INTERFACE [--seconds N] [--cpu N] [--batch N] [--ring N] [--budget N] [--generic]
//!         [--busy-poll N] [--no-wakeup] [--shared] [--wait]
//! ```
//!
//! `--shared` leaves AF_PACKET's copies to the kernel's stack too; `--wait` sleeps in `poll` instead of spinning.

use flowlane_sys::bpf::XdpMode;
use flowlane_sys::frame::{FrameMemory, MemoryConfig};
use flowlane_sys::packet::PacketOptions;
use flowlane_sys::queue::Queue;
use flowlane_sys::tun::TapOptions;
use flowlane_sys::xdp::XdpOptions;
use flowlane_sys::{affinity, packet, poll, tun, xdp};
use std::error::Error;
use std::net::IpAddr;
use std::time::{Duration, Instant};

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [kind, interface, ..] = &arguments[..] else { return Err("reflect KIND INTERFACE".into()) };
    let flag = |name: &str| arguments.iter().any(|a| a == name);
    let number = |name: &str, default: u64| {
        let value = arguments.iter().position(|a| a == name).and_then(|i| arguments.get(i + 1)?.parse().ok());
        value.unwrap_or(default)
    };
    let (batch, ring) = (number("--batch", 64) as usize, number("--ring", 0) as u32);
    affinity::pin_to(number("--cpu", 1) as usize)?;
    let memory = FrameMemory::new(&MemoryConfig::default())?;
    let claims = vec![(IpAddr::from([0; 4]), 0), (IpAddr::from([0; 16]), 0)];
    let mut queue: Box<dyn Queue> = match kind.as_str() {
        "af-xdp" => {
            let mut options = XdpOptions::new(interface, 1, claims);
            options.ring_size = if ring > 0 { ring } else { options.ring_size };
            options.send_budget = number("--budget", u64::from(options.send_budget)) as u32;
            options.need_wakeup = !flag("--no-wakeup");
            options.busy_poll = Some(number("--busy-poll", 0) as u32).filter(|&n| n > 0);
            if flag("--generic") {
                options.mode = XdpMode::Generic;
            }
            let queue = xdp::open(&options, &memory)?.remove(0);
            eprintln!("{:?}", queue.device().mode());
            Box::new(queue)
        }
        "af-packet" => {
            let mut options = PacketOptions::new(interface, 1, claims);
            options.ring_size = if ring > 0 { ring } else { options.ring_size };
            options.exclusive = !flag("--shared");
            Box::new(packet::open(&options)?.remove(0))
        }
        "tap" => Box::new(tun::open(&TapOptions::new(interface, 1), &memory)?.remove(0)),
        other => return Err(format!("no such link: {other}").into()),
    };
    let pool = memory.attach(0)?;
    let mut frames = Vec::with_capacity(batch);
    let (start, seconds) = (Instant::now(), number("--seconds", 5));
    let (mut total, mut mark, mut next) = (0u64, (0, 0), start + Duration::from_secs(1));
    loop {
        for _ in 0..64 {
            let n = queue.receive(&pool, &mut frames, batch);
            for frame in &mut frames {
                if let Some(addresses) = frame.data_mut().first_chunk_mut::<12>() {
                    let (a, b) = addresses.split_at_mut(6);
                    a.swap_with_slice(b);
                }
            }
            queue.transmit(&mut frames);
            let sent = queue.flush();
            total += n as u64;
            if n == 0 && sent && flag("--wait") && !queue.ready() {
                poll::wait_readable(queue.fd().as_slice(), Some(100_000_000))?;
            }
        }
        if Instant::now() >= next {
            let calls = queue.stats().system_calls;
            println!("{} packets, {} system calls", total - mark.0, calls - mark.1);
            mark = (total, calls);
            next += Duration::from_secs(1);
            if start.elapsed() >= Duration::from_secs(seconds) {
                return Ok(());
            }
        }
    }
}
