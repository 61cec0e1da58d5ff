//! Events that the processor and the kernel count for one thread (`perf_event_open(2)`).
//!
//! A counter is opened by the thread it counts, runs from then on, and is read with one system call. A processor has few counters: if more are
//! open than there are, the kernel lets them take turns, and says for how long each has run ([`Reading::scaled`]).

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// What is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// Nanoseconds for which the thread had a processor.
    TaskClock,
    /// Times it gave its processor up or lost it.
    ContextSwitches,
    /// Times it was given another processor.
    Migrations,
    /// Page faults.
    PageFaults,
    /// Cycles of the processor.
    Cycles,
    /// Instructions.
    Instructions,
    /// Cycles in which nothing could be issued because something was waited for, such as memory.
    Stalled,
    /// Accesses that missed the last-level cache.
    CacheMisses,
}

impl Event {
    /// Those of the kernel, which every machine has.
    pub const SOFTWARE: [Self; 4] =
        [Self::TaskClock, Self::ContextSwitches, Self::Migrations, Self::PageFaults];
    /// Those of the processor.
    pub const HARDWARE: [Self; 4] = [Self::Cycles, Self::Instructions, Self::Stalled, Self::CacheMisses];

    /// Type and number, as `linux/perf_event.h` has them.
    fn numbers(self) -> (u32, u64) {
        match self {
            Self::Cycles => (0, 0),
            Self::Instructions => (0, 1),
            Self::CacheMisses => (0, 3),
            Self::Stalled => (0, 8),
            Self::TaskClock => (1, 1),
            Self::PageFaults => (1, 2),
            Self::ContextSwitches => (1, 3),
            Self::Migrations => (1, 4),
        }
    }

    /// Whether it happens in the kernel alone: counted outside of it, there would be none.
    fn is_kernels(self) -> bool {
        matches!(self, Self::ContextSwitches | Self::Migrations)
    }

    /// Whether the kernel counts it.
    #[must_use]
    pub fn is_software(self) -> bool {
        self.numbers().0 == 1
    }
}

/// The kernel's description of an event, in its first published form.
#[repr(C)]
#[derive(Default)]
struct Attributes {
    kind: u32,
    size: u32,
    config: u64,
    sample_period: u64,
    sample_type: u64,
    read_format: u64,
    flags: u64,
    wakeup_events: u32,
    bp_type: u32,
    config1: u64,
}

/// `PERF_FORMAT_TOTAL_TIME_ENABLED | PERF_FORMAT_TOTAL_TIME_RUNNING`.
const TIMES: u64 = 1 | 2;
const EXCLUDE_KERNEL: u64 = 1 << 5;
const EXCLUDE_HYPERVISOR: u64 = 1 << 6;
/// `PERF_FLAG_FD_CLOEXEC`.
const CLOSE_ON_EXEC: u64 = 8;

/// A counter of one thread.
#[derive(Debug)]
pub struct Counter {
    fd: OwnedFd,
    /// It counts what the kernel does for the thread, too.
    pub with_kernel: bool,
}

/// What was read.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Reading {
    /// The counter.
    pub value: u64,
    /// Nanoseconds for which it was wanted.
    pub enabled: u64,
    /// Of them, those for which it ran.
    pub running: u64,
}

impl Reading {
    /// The count for the whole time, as far as it can be told from the time for which the counter ran; `None` if it never ran.
    #[must_use]
    pub fn scaled(&self) -> Option<u64> {
        if self.running >= self.enabled {
            return Some(self.value);
        }
        let scaled = u128::from(self.value) * u128::from(self.enabled);
        u64::try_from(scaled.checked_div(u128::from(self.running))?).ok()
    }
}

impl Counter {
    /// Opens a counter for the calling thread. An event that may not be counted in the kernel is counted outside it alone, but for switches and
    /// migrations.
    ///
    /// # Errors
    /// `ENOENT`, `ENODEV`, `EOPNOTSUPP`: this machine does not count it. `EACCES`, `EPERM`: it is not permitted. `ENOSYS`: the kernel has no
    /// such call. Others as in `perf_event_open(2)`.
    pub fn of_this_thread(event: Event) -> io::Result<Self> {
        match open(event, EXCLUDE_HYPERVISOR) {
            Err(e) if matches!(e.raw_os_error(), Some(libc::EACCES | libc::EPERM)) && !event.is_kernels() => {
                let fd = open(event, EXCLUDE_HYPERVISOR | EXCLUDE_KERNEL)?;
                Ok(Self { fd, with_kernel: false })
            }
            opened => Ok(Self { fd: opened?, with_kernel: true }),
        }
    }

    /// Reads it.
    ///
    /// # Errors
    /// The kernel refuses, which it does not do for an open counter of a thread that lives.
    pub fn read(&self) -> io::Result<Reading> {
        let mut values = [0u64; 3];
        // SAFETY: at most the size of `values` is written to it.
        let n = unsafe { libc::read(self.fd.as_raw_fd(), values.as_mut_ptr().cast(), size_of::<[u64; 3]>()) };
        match usize::try_from(n) {
            Ok(n) if n == size_of::<[u64; 3]>() => {
                Ok(Reading { value: values[0], enabled: values[1], running: values[2] })
            }
            Ok(_) => Err(io::ErrorKind::UnexpectedEof.into()),
            Err(_) => Err(io::Error::last_os_error()),
        }
    }
}

fn open(event: Event, flags: u64) -> io::Result<OwnedFd> {
    let (kind, config) = event.numbers();
    let size = size_of::<Attributes>() as u32;
    let attributes = Attributes { kind, size, config, read_format: TIMES, flags, ..Attributes::default() };
    // SAFETY: the kernel reads `size` bytes of the attributes; a non-negative result is a descriptor that is ours alone.
    unsafe {
        let fd = libc::syscall(libc::SYS_perf_event_open, &raw const attributes, 0, -1, -1, CLOSE_ON_EXEC);
        match i32::try_from(fd) {
            Ok(fd) if fd >= 0 => Ok(OwnedFd::from_raw_fd(fd)),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

#[cfg(all(test, not(miri)))]
mod tests {
    use super::*;

    #[test]
    fn counts_are_scaled_by_the_time_they_ran() {
        let reading = |value, enabled, running| Reading { value, enabled, running }.scaled();
        assert_eq!(reading(500, 1000, 1000), Some(500));
        assert_eq!(reading(500, 1000, 250), Some(2000));
        assert_eq!(reading(0, 1000, 0), None);
        assert_eq!(reading(0, 0, 0), Some(0));
        assert_eq!(reading(u64::MAX, 10, 1), None, "more than any counter has");
        assert_eq!(size_of::<Attributes>(), 64);
    }

    #[test]
    fn the_kernel_counts_for_this_thread_alone() {
        let counter = match Counter::of_this_thread(Event::TaskClock) {
            Ok(counter) => counter,
            Err(e) => {
                return crate::skipped(format_args!("skipped, because perf events are refused here: {e}"));
            }
        };
        let first = counter.read().unwrap();
        std::thread::spawn(|| (0..1000u64).fold(0u64, |a, b| std::hint::black_box(a ^ b))).join().unwrap();
        let mut now = first;
        while now.value < first.value + 1_000_000 {
            now = counter.read().unwrap();
        }
        assert_eq!(now.scaled(), Some(now.value));
        for event in Event::HARDWARE {
            match Counter::of_this_thread(event) {
                Ok(counter) => assert!(counter.read().is_ok()),
                Err(e) => crate::skipped(format_args!("skipped, because {event:?} is not counted here: {e}")),
            }
        }
    }
}
