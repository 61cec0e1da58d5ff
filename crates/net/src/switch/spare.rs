//! Frames that AF_XDP ports have waiting for packets.
//!
//! Frame memory is registered with the kernel as a whole and cannot grow while the switch runs. A queue of AF_XDP keeps frames in the kernel's hands
//! for as long as it is open, so ports that are added could leave the workers none. What they may keep is set aside at the start, and a
//! port that is added gets at most half of what is left, so that there is some for the next. What a port had is there again when it is removed.

use flowlane_switch::PortId;

/// Frames that wait for packets on a queue, unless there are fewer.
pub(super) const USUAL: usize = 2048;
/// With fewer on a queue, what comes while its worker does something else finds none.
const LEAST: usize = 64;

/// What is left at each worker, frames.
#[derive(Debug)]
pub(super) struct Spare {
    workers: usize,
    left: usize,
    taken: Vec<(PortId, usize)>,
}

impl Spare {
    /// Set aside for so many queues of each worker.
    pub(super) fn new(workers: usize, queues: usize) -> Spare {
        Spare { workers, left: queues * USUAL, taken: Vec::new() }
    }

    /// A port of so many queues is there from the start, with frames of its own.
    pub(super) fn bring(&mut self, port: PortId, queues: usize) {
        self.taken.push((port, queues.div_ceil(self.workers) * USUAL));
    }

    /// Frames of each worker for one more port of so many queues.
    ///
    /// # Errors
    /// Too few are left: a line.
    pub(super) fn offer(&self, queues: usize) -> Result<usize, String> {
        let queues = queues.div_ceil(self.workers).max(1);
        // Guard: `self.left / 2 / queues` as `self.left / queues` fails switch::spare::tests::ports_get_half
        let each = (self.left / 2 / queues).min(USUAL);
        // Guard: `each < LEAST` as `false` fails switch::spare::tests::ports_get_half
        // switch::spare::tests::queues_share
        if each < LEAST {
            return Err("too few frames are left for an af-xdp port: remove one, give 'af-packet', or start the switch with more \
                        --spare-queues"
                .to_owned());
        }
        Ok(each * queues)
    }

    /// A port has so many.
    pub(super) fn take(&mut self, port: PortId, frames: usize) {
        self.left -= frames;
        self.taken.push((port, frames));
    }

    /// A port is no more.
    pub(super) fn give_back(&mut self, port: PortId) {
        for (_, frames) in self.taken.extract_if(.., |(of, _)| *of == port) {
            // Guard: no `self.left += frames;` fails switch::spare::tests::ports_get_half
            self.left += frames;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_get_half_of_what_is_left_and_give_it_back() {
        let port = |n| PortId::new(n).unwrap();
        let mut spare = Spare::new(1, 2);
        // Frames of its own are not taken from what was set aside.
        spare.bring(port(0), 1);
        let mut given = Vec::new();
        while let Ok(frames) = spare.offer(1) {
            given.push(frames);
            spare.take(port(given.len()), frames);
        }
        assert_eq!(given, [2048, 1024, 512, 256, 128, 64]);
        assert!(spare.offer(1).unwrap_err().starts_with("too few frames are left"));
        spare.give_back(port(2));
        assert_eq!(spare.offer(1), Ok(544));
        spare.give_back(port(0));
        assert_eq!(spare.offer(1), Ok(1568));
        // Nothing twice.
        spare.give_back(port(0));
        assert_eq!(spare.offer(1), Ok(1568));
    }

    #[test]
    fn queues_share_what_their_worker_has() {
        // More queues than workers, and fewer.
        assert_eq!(Spare::new(1, 2).offer(8), Ok(2048));
        assert_eq!(Spare::new(4, 2).offer(8), Ok(2048));
        assert_eq!(Spare::new(4, 2).offer(1), Ok(2048));
        assert_eq!(Spare::new(4, 8).offer(8), Ok(4096));
        assert!(Spare::new(1, 2).offer(64).is_err());
        assert!(Spare::new(1, 0).offer(1).is_err());
    }
}
