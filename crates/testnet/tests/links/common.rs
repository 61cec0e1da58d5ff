//! The exchange that every link is tested with: kernel sockets send datagrams of many flows, each queue sends every
//! packet back with addresses and ports swapped, and the sockets count what returns.

use flowlane_sys::frame::{FrameMemory, MemoryConfig, Pool};
use flowlane_sys::poll::wait_readable;
use flowlane_sys::queue::Queue;
use flowlane_testnet::{Card, MICROSOFT_KEY};
use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Says why and returns `true` when the test cannot run here.
pub(crate) fn skip() -> bool {
    match flowlane_testnet::requires() {
        Ok(()) => false,
        Err(why) => {
            flowlane_testnet::skipped(why);
            true
        }
    }
}

/// Addresses of the near side.
pub(crate) fn near_addresses() -> [IpAddr; 2] {
    [IpAddr::from([10, 11, 2, 2]), "fd00:11:2::2".parse().unwrap()]
}

pub(crate) fn claims() -> Vec<(IpAddr, u8)> {
    vec![(near_addresses()[0], 32), (near_addresses()[1], 128)]
}

pub(crate) const FRAMES: usize = 4096;

pub(crate) fn memory(homes: usize) -> FrameMemory {
    let config =
        MemoryConfig { frames_per_home: FRAMES, homes, lock: false, huge_pages: false, ..Default::default() };
    FrameMemory::new(&config).unwrap()
}

/// Bitwise, to be compared with everybody's.
pub(crate) fn toeplitz(key: &[u8], input: &[u8]) -> u32 {
    let bit = |bytes: &[u8], n: usize| bytes.get(n / 8).is_some_and(|b| b << (n % 8) & 0x80 != 0);
    let mut hash = 0;
    for i in (0..input.len() * 8).filter(|&i| bit(input, i)) {
        for j in (0..32).filter(|&j| bit(key, i + j)) {
            hash ^= 1 << (31 - j);
        }
    }
    hash
}

/// Swaps Ethernet and IP addresses and UDP ports in place; sums stay right. `false` if it is not UDP. Also the hash
/// that the packet, as it came, has.
pub(crate) fn turn_round(frame: &mut [u8]) -> Option<u32> {
    let (at, len, next) = match frame.get(12..14)? {
        [0x08, 0x00] => (26, 4, frame[23]),
        [0x86, 0xdd] => (22, 16, frame[20]),
        _ => return None,
    };
    let ports = at + 2 * len;
    if next != 17 || frame.len() < ports + 4 {
        return None;
    }
    let hash = toeplitz(&MICROSOFT_KEY, &frame[at..ports + 4]);
    let swap = |frame: &mut [u8], at: usize, len: usize| {
        let (a, b) = frame[at..at + 2 * len].split_at_mut(len);
        a.swap_with_slice(b);
    };
    swap(frame, 0, 6);
    swap(frame, at, len);
    swap(frame, ports, 2);
    Some(hash)
}

/// What one queue did.
#[derive(Debug, Default)]
pub(crate) struct Reflected {
    pub(crate) packets: u64,
    pub(crate) misplaced: u64,
}

/// Sends everything back until `stop`, sleeping in `poll` whenever there is nothing to do.
pub(crate) fn reflect(
    queue: &mut dyn Queue,
    pool: &Pool,
    number: u16,
    queues: u16,
    stop: &AtomicBool,
) -> Reflected {
    let mut done = Reflected::default();
    let (mut frames, mut out) = (Vec::new(), Vec::new());
    while !stop.load(Ordering::Relaxed) {
        queue.receive(pool, &mut frames, 64);
        for mut frame in frames.drain(..) {
            assert_eq!(frame.meta().queue, number);
            if let Some(hash) = turn_round(frame.data_mut()) {
                done.packets += 1;
                done.misplaced += u64::from((hash & 127) as u16 % queues != number);
                out.push(frame);
            }
        }
        queue.transmit(&mut out);
        let flushed = queue.flush();
        pool.flush();
        if flushed && out.is_empty() && !queue.ready() {
            wait_readable(&[queue.fd().unwrap()], Some(2_000_000)).unwrap();
        }
    }
    done
}

/// A kernel socket in the far namespace with some datagrams in flight.
fn exchange(card_far: &flowlane_testnet::Namespace, target: IpAddr, flows: usize, each: usize) -> usize {
    card_far
        .run(|| {
            let any = if target.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
            let sockets: Vec<UdpSocket> = (0..flows).map(|_| UdpSocket::bind(any).unwrap()).collect();
            let mut back = 0;
            for (i, socket) in sockets.iter().enumerate() {
                socket.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
                socket.connect(SocketAddr::new(target, 7000 + (i % 3) as u16)).unwrap();
            }
            for turn in 0..each {
                for socket in &sockets {
                    socket.send(&vec![turn as u8; 1 + turn * 37 % 1200]).unwrap();
                }
                for socket in &sockets {
                    let mut buffer = [0u8; 2048];
                    let Ok(n) = socket.recv(&mut buffer) else { continue };
                    assert_eq!(buffer[..n], vec![turn as u8; 1 + turn * 37 % 1200], "the datagram sent last");
                    back += 1;
                }
            }
            back
        })
        .unwrap()
}

/// Opens queues on `card`, sends them datagrams of both families, and checks that all came back, on the right queues,
/// and that every frame is home afterwards.
pub(crate) fn reflect_and_check<Q: Queue>(
    card: &Card,
    queues: u16,
    open: impl FnOnce(&FrameMemory) -> Vec<Q> + Send,
) {
    for address in near_addresses() {
        card.add_neighbour(address).unwrap();
    }
    let memory = memory(usize::from(queues));
    let opened = card.in_near(|| open(&memory)).unwrap();
    check(card.far(), opened, &memory);
}

/// As [`reflect_and_check`], with queues opened before.
pub(crate) fn check<Q: Queue>(far: &flowlane_testnet::Namespace, opened: Vec<Q>, memory: &FrameMemory) {
    const FLOWS: usize = 24;
    const EACH: usize = 60;
    let queues = opened.len() as u16;
    let stop = AtomicBool::new(false);
    /// Lets the queues go also when an assertion fails.
    struct Stop<'a>(&'a AtomicBool);
    impl Drop for Stop<'_> {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Relaxed);
        }
    }
    let results: HashMap<u16, Reflected> = std::thread::scope(|scope| {
        let workers: Vec<_> = opened
            .into_iter()
            .enumerate()
            .map(|(i, mut queue)| {
                let (stop, memory) = (&stop, &memory);
                scope.spawn(move || {
                    let pool = memory.attach(i).unwrap();
                    // Whatever is left to do, sending, receiving and closing, needs no privilege.
                    flowlane_sys::privilege::drop_all().unwrap();
                    let result = reflect(&mut queue, &pool, i as u16, queues, stop);
                    drop(queue);
                    pool.flush();
                    (i as u16, result)
                })
            })
            .collect();
        let stopper = Stop(&stop);
        for target in near_addresses() {
            assert_eq!(
                exchange(far, target, FLOWS, EACH),
                FLOWS * EACH,
                "every datagram to {target} came back"
            );
        }
        drop(stopper);
        workers.into_iter().map(|w| w.join().unwrap()).collect()
    });
    assert!(results.values().all(|r| r.misplaced == 0), "{results:?}");
    assert!(results.values().all(|r| r.packets > 0), "every queue had work: {results:?}");
    // Closed: every frame must be in its pool again.
    let deadline = Instant::now() + Duration::from_secs(5);
    for home in 0..memory.homes() {
        let pool = memory.attach(home).unwrap();
        while pool.free() < FRAMES && Instant::now() < deadline {
            if let Some(frame) = pool.alloc() {
                drop(frame);
            }
            std::thread::yield_now();
        }
        assert_eq!(pool.free(), FRAMES, "frames of home {home} leaked");
    }
}
