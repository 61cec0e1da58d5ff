//! Which mode is faster here: a few frames sent in each, before the run begins.
//!
//! Zero copy is not always faster: some drivers do more for it than copying costs. What can be measured without a far end that takes part is
//! sending: frames of an EtherType for experiments (IEEE 802 annex, 0x88b5), from the card's own address to its own address, which no switch
//! forwards, as it comes from where it would go. What counts is the time until the kernel has given all frames back, the median of some rounds.
//! Receiving cannot be measured so, and is not.

use super::{CopyMode, XdpOptions, XdpQueue, loses_in_zero_copy, open};
use crate::error::Result;
use crate::frame::{Frame, FrameMemory, Pool};
use crate::netdev::Interface;
use crate::netdev::watch::{LinkState, LinkWatch};
use crate::queue::Queue;
use std::time::{Duration, Instant};

/// Frames of a round, their bytes, and rounds.
const FRAMES: usize = 256;
const BYTES: usize = 60;
const ROUNDS: usize = 5;
/// How long a round may take: 256 frames of a card that sends are gone in a millisecond.
const PATIENCE: Duration = Duration::from_millis(500);
/// How long a link may take to come back that went down for the program.
const CARRIER: Duration = Duration::from_secs(10);

/// What sending cost in one mode.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cost {
    /// Until 256 frames were sent and back, median of the rounds.
    pub time: Duration,
    /// System calls of all rounds.
    pub system_calls: u64,
}

/// What was found in both modes, or why not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trial {
    /// The kernel copies.
    pub copy: std::result::Result<Cost, String>,
    /// The card reads the frames.
    pub zero_copy: std::result::Result<Cost, String>,
}

impl Trial {
    /// Opens the interface in each mode and sends. The memory's first home must not be attached.
    ///
    /// # Errors
    /// There is no such interface; it cannot be opened in copy mode, so in none.
    pub fn run(options: &XdpOptions, memory: &FrameMemory) -> Result<Self> {
        let interface = Interface::find(&options.interface)?;
        let patience = if carries(&interface, Duration::ZERO) { CARRIER } else { Duration::ZERO };
        let attempt = |copy| {
            let cost = attempt(options, copy, memory, patience);
            // The link that went down as the program went is up when the next is opened.
            carries(&interface, patience);
            cost
        };
        let zero_copy = match loses_in_zero_copy(&interface) {
            true => Err("its driver loses packets in zero copy".to_owned()),
            false => attempt(CopyMode::ZeroCopy).unwrap_or_else(|e| Err(e.to_string())),
        };
        let copy = match &zero_copy {
            // With one mode there is nothing to choose.
            Err(_) => Err("the only one there is".to_owned()),
            Ok(_) => attempt(CopyMode::Copy)?,
        };
        Ok(Self { copy, zero_copy })
    }

    /// The mode to take. Copying has to be a tenth faster: what is spared when packets come was not measured.
    #[must_use]
    pub fn choice(&self) -> CopyMode {
        match (&self.copy, &self.zero_copy) {
            (_, Err(_)) => CopyMode::Copy,
            (Ok(copy), Ok(zero)) if copy.time * 10 < zero.time * 9 => CopyMode::Copy,
            (_, Ok(_)) => CopyMode::ZeroCopy,
        }
    }

    /// What was chosen and why, in a line.
    #[must_use]
    pub fn words(&self) -> String {
        let cost = |Cost { time, system_calls }: &Cost| {
            format!(
                "{:.1} us and {:.1} system calls",
                time.as_secs_f64() * 1e6,
                *system_calls as f64 / ROUNDS as f64
            )
        };
        match (self.choice(), &self.copy, &self.zero_copy) {
            (_, _, Err(why)) => format!("packets are copied, there is nothing to choose: {why}"),
            (choice, Ok(copy), Ok(zero)) => format!(
                "{} is chosen: to send {FRAMES} frames of {BYTES} bytes took {} by copying, {} in zero copy (receiving was not measured)",
                if choice == CopyMode::Copy { "copying" } else { "zero copy" },
                cost(copy),
                cost(zero)
            ),
            (_, Err(why), Ok(_)) => format!("zero copy is chosen: copying could not be measured: {why}"),
        }
    }
}

/// Opens in one mode and sends. `patience`: for a link that the program's attachment takes down. The outer error: it cannot be opened; the
/// inner one: it does not send.
fn attempt(
    options: &XdpOptions,
    copy: CopyMode,
    memory: &FrameMemory,
    patience: Duration,
) -> Result<std::result::Result<Cost, String>> {
    let mut queues = open(&XdpOptions { copy, ..options.clone() }, memory)?;
    let Some(queue) = queues.first_mut() else { return Ok(Err("it has no queue".to_owned())) };
    let device = queue.device().clone();
    if !carries(device.interface(), patience) {
        return Ok(Err("the link is down".to_owned()));
    }
    let mac = device.interface().mac()?;
    let Ok(pool) = memory.attach(0) else { return Ok(Err("its frames are in use".to_owned())) };
    let mut times = Vec::new();
    let before = queue.stats().system_calls;
    for _ in 0..ROUNDS {
        match round(queue, &pool, mac) {
            Some(time) => times.push(time),
            None => return Ok(Err("the card did not send within half a second".to_owned())),
        }
    }
    times.sort_unstable();
    let system_calls = queue.stats().system_calls - before;
    drop(pool);
    Ok(Ok(Cost { time: times[ROUNDS / 2], system_calls }))
}

/// Whether packets pass, or do so before patience ends.
fn carries(interface: &Interface, patience: Duration) -> bool {
    let Ok(mut watch) = LinkWatch::new(interface) else { return true };
    let end = Instant::now() + patience;
    let mut state = watch.now();
    while state != LinkState::Up {
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() || watch.wait(Some(left.as_nanos() as u64)).is_none() {
            return false;
        }
        state = watch.now();
    }
    true
}

/// Sends frames and waits until they are back; how long that took. `None` if they do not come back.
fn round(queue: &mut XdpQueue, pool: &Pool, mac: [u8; 6]) -> Option<Duration> {
    let mut frames: Vec<Frame> = Vec::new();
    for _ in 0..FRAMES {
        let mut frame = pool.alloc()?;
        let mut bytes = [0; BYTES];
        bytes[..6].copy_from_slice(&mac);
        bytes[6..12].copy_from_slice(&mac);
        bytes[12..14].copy_from_slice(&[0x88, 0xb5]);
        if !frame.extend_from_slice(&bytes) {
            return None;
        }
        frames.push(frame);
    }
    let started = Instant::now();
    loop {
        queue.transmit(&mut frames);
        queue.flush();
        let places = queue.outstanding().unwrap_or_default();
        if frames.is_empty() && places.queued + places.sending + places.sent == 0 {
            return Some(started.elapsed());
        }
        if started.elapsed() > PATIENCE {
            return None;
        }
        std::hint::spin_loop();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cost(micros: u64, system_calls: u64) -> std::result::Result<Cost, String> {
        Ok(Cost { time: Duration::from_micros(micros), system_calls })
    }

    #[test]
    fn zero_copy_is_taken_unless_copying_is_a_tenth_faster() {
        let choice = |copy, zero_copy| Trial { copy, zero_copy }.choice();
        assert_eq!(choice(cost(100, 5), cost(50, 5)), CopyMode::ZeroCopy);
        assert_eq!(choice(cost(95, 5), cost(100, 5)), CopyMode::ZeroCopy);
        assert_eq!(choice(cost(50, 40), cost(100, 5)), CopyMode::Copy);
        assert_eq!(choice(Err("x".into()), cost(100, 5)), CopyMode::ZeroCopy);
        assert_eq!(choice(Err("x".into()), Err("y".into())), CopyMode::Copy);
    }

    #[test]
    fn it_is_said_what_was_chosen_and_why() {
        let said = Trial { copy: cost(50, 40), zero_copy: cost(110, 5) }.words();
        let wanted = "copying is chosen: to send 256 frames of 60 bytes took 50.0 us and 8.0 system calls by copying, \
             110.0 us and 1.0 system calls in zero copy (receiving was not measured)";
        assert_eq!(said, wanted);
        let none =
            Trial { copy: Err(String::new()), zero_copy: Err("eth0: the driver has no zero-copy".into()) }
                .words();
        assert_eq!(none, "packets are copied, there is nothing to choose: eth0: the driver has no zero-copy");
    }
}
