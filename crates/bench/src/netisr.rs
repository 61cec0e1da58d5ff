//! `bench netisr`: frames handed from one worker to another, in bursts, through the ring that netisr uses.
//!
//! Two threads on two cores pass the same frames back and forth, so the figure is the hand-over alone, without pools. The baseline is
//! the standard library's bounded channel.

use std::sync::mpsc;
use std::time::{Duration, Instant};

use flowlane_sys::frame::{Frame, FrameMemory, MemoryConfig};
use flowlane_sys::ring::spsc::{self, Receiver, Sender};

use super::Common;
use super::table::Report;

const BURST: usize = 32;
const FRAMES: usize = 512;

pub(crate) fn run(common: &Common) -> anyhow::Result<Report> {
    let mut report = Report::new("netisr");
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for _ in 0..common.rounds {
        ours.push(ring(common.round())?);
        theirs.push(channel(common.round()));
    }
    report.row("one frame, one way, in bursts of 32", "ns", &ours, Some(("the channel", &theirs)));
    report.row("std::sync::mpsc::sync_channel", "ns", &theirs, None);
    for note in needs(report_cores(), &ours) {
        report.note(note);
    }
    Ok(report)
}

/// Notes on the conditions of the figure, and whether they were met. Other work on either core stops both threads while it runs, so a
/// round then shows how busy the machine is.
fn needs(processors: usize, rounds: &[f64]) -> Vec<String> {
    const STEADY: f64 = 1.5;
    if processors < 2 {
        return vec!["one processor only: the two threads take turns".to_owned()];
    }
    let mut notes =
        vec!["needs two processors that nobody else uses: both threads wait without sleeping".to_owned()];
    let least = rounds.iter().copied().fold(f64::INFINITY, f64::min);
    let most = rounds.iter().copied().fold(0.0, f64::max);
    if most > least * STEADY {
        notes.push(format!(
            "the rounds differ by {:.1} times, so it did not have them: the least of {least:.1} ns is nearest to the cost",
            most / least
        ));
    }
    notes
}

fn report_cores() -> usize {
    std::thread::available_parallelism().map_or(1, std::num::NonZero::get)
}

/// Forwards frames in bursts, until none has arrived for a while after `stop`.
fn pass(rx: &mut Receiver<Frame>, tx: &mut Sender<Frame>) -> usize {
    let n = rx.ready().min(BURST);
    for _ in 0..n {
        let Some(frame) = rx.pop() else { break };
        // There are fewer frames than slots.
        let _ = tx.push(frame);
    }
    if n > 0 {
        rx.release();
        tx.publish();
    }
    n
}

fn ring(time: Duration) -> anyhow::Result<f64> {
    let memory = FrameMemory::new(&MemoryConfig { frames_per_home: FRAMES, ..Default::default() })?;
    let pool = memory.attach(0)?;
    let (mut tx, mut far_rx) = spsc::ring::<Frame>(2 * FRAMES);
    let (mut far_tx, mut rx) = spsc::ring::<Frame>(2 * FRAMES);
    while let Some(frame) = pool.alloc() {
        if tx.push(frame).is_err() {
            break;
        }
    }
    tx.publish();
    let stop = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    let far_stop = stop.clone();
    let far = std::thread::spawn(move || {
        while !far_stop.load(std::sync::atomic::Ordering::Relaxed) {
            if pass(&mut far_rx, &mut far_tx) == 0 {
                std::hint::spin_loop();
            }
        }
    });
    let begin = Instant::now();
    let mut frames = 0u64;
    while begin.elapsed() < time {
        for _ in 0..64 {
            frames += pass(&mut rx, &mut tx) as u64;
        }
    }
    let elapsed = begin.elapsed();
    stop.store(true, std::sync::atomic::Ordering::Relaxed);
    let _ = far.join();
    // Each frame counted here has made a round trip.
    Ok(elapsed.as_nanos() as f64 / (2 * frames.max(1)) as f64)
}

fn channel(time: Duration) -> f64 {
    let (tx, far_rx) = mpsc::sync_channel::<u64>(2 * FRAMES);
    let (far_tx, rx) = mpsc::sync_channel::<u64>(2 * FRAMES);
    for i in 0..FRAMES as u64 {
        let _ = tx.send(i);
    }
    let far = std::thread::spawn(move || {
        while let Ok(v) = far_rx.recv() {
            if far_tx.send(v).is_err() {
                return;
            }
        }
    });
    let begin = Instant::now();
    let mut values = 0u64;
    while begin.elapsed() < time {
        for _ in 0..64 {
            if let Ok(v) = rx.recv() {
                let _ = tx.send(v);
                values += 1;
            }
        }
    }
    let elapsed = begin.elapsed();
    drop((tx, rx));
    let _ = far.join();
    elapsed.as_nanos() as f64 / (2 * values.max(1)) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_figure_says_what_it_needs_and_whether_it_had_it() {
        let quiet = needs(2, &[2.1, 2.0, 2.2]);
        assert!(quiet.len() == 1 && quiet[0].contains("nobody else uses"), "{quiet:?}");
        let shared = needs(2, &[35.0, 9155.0, 40.0]);
        assert!(shared.len() == 2 && shared[1].contains("261.6 times"), "{shared:?}");
        assert!(shared[1].contains("least of 35.0 ns"), "{shared:?}");
        assert!(needs(1, &[5.0])[0].contains("take turns"));
    }
}
