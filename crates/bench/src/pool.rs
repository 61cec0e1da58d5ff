//! `bench pool`: frames allocated and freed, by one worker and across two.

use std::time::Instant;

use flowlane_sys::frame::{Frame, FrameMemory, MemoryConfig};
use flowlane_sys::ring::spsc;

use super::Common;
use super::table::Report;

const BURST: usize = 32;

pub(crate) fn run(common: &Common) -> anyhow::Result<Report> {
    let mut report = Report::new("pool");
    let memory = FrameMemory::new(&MemoryConfig { homes: 2, frames_per_home: 4096, ..Default::default() })?;
    let local = (0..common.rounds).map(|_| local(common, &memory)).collect::<Result<Vec<_>, _>>()?;
    report.row("taken and given back by one worker", "ns a frame", &local, None);
    let heap: Vec<f64> = (0..common.rounds).map(|_| heap(common)).collect();
    report.row("the allocator, 2 KiB", "ns a buffer", &heap, None);
    let remote = (0..common.rounds).map(|_| remote(common, &memory)).collect::<Result<Vec<_>, _>>()?;
    report.row("taken here, given back by another worker", "ns a frame", &remote, None);
    Ok(report)
}

fn local(common: &Common, memory: &FrameMemory) -> anyhow::Result<f64> {
    let pool = memory.attach(0)?;
    let mut held: Vec<Frame> = Vec::with_capacity(BURST);
    let begin = Instant::now();
    let mut frames = 0u64;
    while begin.elapsed() < common.round() {
        for _ in 0..64 {
            held.extend((0..BURST).filter_map(|_| pool.alloc()));
            frames += held.len() as u64;
            held.clear();
        }
    }
    Ok(begin.elapsed().as_nanos() as f64 / frames as f64)
}

fn heap(common: &Common) -> f64 {
    let mut held: Vec<Box<[u8; 2048]>> = Vec::with_capacity(BURST);
    let begin = Instant::now();
    let mut buffers = 0u64;
    while begin.elapsed() < common.round() {
        for _ in 0..64 {
            held.extend((0..BURST).map(|_| std::hint::black_box(Box::new([0; 2048]))));
            buffers += BURST as u64;
            held.clear();
        }
    }
    begin.elapsed().as_nanos() as f64 / buffers as f64
}

/// Both workers at full speed: frames pass through a ring to the other worker and return to their pool in batches.
fn remote(common: &Common, memory: &FrameMemory) -> anyhow::Result<f64> {
    let (mut tx, mut rx) = spsc::ring::<Frame>(1024);
    let other = memory.clone();
    let thread = std::thread::spawn(move || {
        // With a pool attached, frames of the other pool are freed as on a worker.
        let _pool = other.attach(1);
        loop {
            let n = rx.ready().min(BURST);
            for _ in 0..n {
                match rx.pop() {
                    Some(frame) if frame.is_empty() => drop(frame),
                    _ => return,
                }
            }
            rx.release();
        }
    });
    let pool = memory.attach(0)?;
    let begin = Instant::now();
    let mut frames = 0u64;
    while begin.elapsed() < common.round() {
        for _ in 0..BURST {
            let Some(frame) = pool.alloc() else { break };
            if tx.push(frame).is_err() {
                break;
            }
            frames += 1;
        }
        tx.publish();
    }
    let time = begin.elapsed();
    // A frame that is not empty tells the other side to end.
    loop {
        if let Some(mut last) = pool.alloc()
            && last.extend_from_slice(b"end")
            && tx.push(last).is_ok()
        {
            tx.publish();
            break;
        }
    }
    let _ = thread.join();
    Ok(time.as_nanos() as f64 / frames as f64)
}
