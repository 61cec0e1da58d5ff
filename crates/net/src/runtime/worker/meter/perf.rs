//! What processor and kernel count for one worker's thread, read when somebody asks for a report.

use std::io;

use flowlane_sys::perf::{Counter, Event, Reading};

use crate::stats::PerfReport;

/// The counters of a worker, or why there are none.
#[derive(Debug)]
pub(super) struct Perf {
    open: Vec<(Event, Result<Counter, String>)>,
}

impl Perf {
    /// Opens all counters, on the thread that they count.
    pub(super) fn begin() -> Self {
        let all = Event::SOFTWARE.into_iter().chain(Event::HARDWARE);
        let open = |event| Counter::of_this_thread(event).map_err(|e| why_not(event, &e, paranoid()));
        Self { open: all.map(|event| (event, open(event))).collect() }
    }

    /// What was counted until now.
    pub(super) fn report(&self) -> PerfReport {
        let outside = |counter: &Result<Counter, String>| counter.as_ref().is_ok_and(|c| !c.with_kernel);
        let mut report = gathered(self.open.iter().map(|(event, counter)| {
            let read = |counter: &Counter| counter.read().map_err(|e| e.to_string());
            (*event, counter.as_ref().map_err(Clone::clone).and_then(read))
        }));
        report.without_kernel =
            self.open.iter().any(|(event, counter)| !event.is_software() && outside(counter));
        report
    }
}

/// The report of what was read: scaled, and every reason why something is missing once.
fn gathered(read: impl Iterator<Item = (Event, Result<Reading, String>)>) -> PerfReport {
    let mut report = PerfReport::default();
    for (event, reading) in read {
        let value = match reading {
            Ok(reading) => {
                report.shared |= reading.running < reading.enabled;
                reading.scaled()
            }
            Err(why) => {
                if !report.missing.contains(&why) {
                    report.missing.push(why);
                }
                None
            }
        };
        *match event {
            Event::TaskClock => &mut report.task_clock_nanos,
            Event::ContextSwitches => &mut report.context_switches,
            Event::Migrations => &mut report.migrations,
            Event::PageFaults => &mut report.page_faults,
            Event::Cycles => &mut report.cycles,
            Event::Instructions => &mut report.instructions,
            Event::Stalled => &mut report.stalled_cycles,
            Event::CacheMisses => &mut report.cache_misses,
        } = value;
    }
    report
}

/// `kernel.perf_event_paranoid`, if it can be read.
fn paranoid() -> Option<i32> {
    std::fs::read_to_string("/proc/sys/kernel/perf_event_paranoid").ok()?.trim().parse().ok()
}

/// Why an event is not counted, and what would help.
fn why_not(event: Event, error: &io::Error, paranoid: Option<i32>) -> String {
    let kind = if event.is_software() { "events of the kernel" } else { "events of the processor" };
    let name = match event {
        Event::Stalled => "stalled cycles",
        Event::CacheMisses => "last-level cache misses",
        _ => kind,
    };
    let errno = error.raw_os_error().map(rustix::io::Errno::from_raw_os_error);
    use rustix::io::Errno;
    match errno {
        Some(Errno::NOENT | Errno::NODEV | Errno::OPNOTSUPP | Errno::INVAL) => {
            format!(
                "{name}: not available here, because this machine's processor does not count them (most virtual machines have no PMU)"
            )
        }
        Some(Errno::ACCESS | Errno::PERM) => match paranoid {
            Some(level) if level > 1 => format!(
                "{kind}: not available here, because kernel.perf_event_paranoid is {level}: 'sysctl kernel.perf_event_paranoid=1' permits \
                 them"
            ),
            _ => format!(
                "{kind}: not available here, because they are not permitted, most likely by a seccomp filter"
            ),
        },
        Some(Errno::NOSYS) => {
            format!(
                "{kind}: not available here, because the kernel has no perf events, or a seccomp filter hides them"
            )
        }
        _ => format!("{kind}: not available here, because {error}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reading(value: u64, enabled: u64, running: u64) -> Result<Reading, String> {
        Ok(Reading { value, enabled, running })
    }

    /// A machine with all counters, which take turns.
    #[test]
    fn a_processor_that_counts() {
        let report = gathered(
            [
                (Event::TaskClock, reading(900, 1000, 1000)),
                (Event::Cycles, reading(3000, 1000, 1000)),
                (Event::Instructions, reading(3000, 1000, 500)),
                (Event::Stalled, reading(100, 1000, 250)),
                (Event::CacheMisses, reading(0, 1000, 0)),
            ]
            .into_iter(),
        );
        assert_eq!(
            (report.cycles, report.instructions, report.stalled_cycles),
            (Some(3000), Some(6000), Some(400))
        );
        assert_eq!((report.cache_misses, report.task_clock_nanos), (None, Some(900)));
        assert!(report.shared && report.missing.is_empty());
        let derived = report.derived(1500);
        assert_eq!((derived.instructions_per_cycle, derived.instructions_per_packet), (Some(2.0), Some(4.0)));
        assert_eq!((derived.cycles_per_packet, derived.misses_per_packet), (Some(2.0), None));
        assert_eq!(derived.stalled_share, Some(400.0 / 3000.0));
        assert_eq!(report.derived(0).instructions_per_packet, None);
    }

    #[test]
    fn what_is_missing_is_said_once() {
        let refused = |errno: i32, level| {
            let error = io::Error::from_raw_os_error(errno);
            gathered(Event::HARDWARE.into_iter().map(|event| (event, Err(why_not(event, &error, level)))))
        };
        let (noent, acces, nosys) = (2, 13, 38);
        assert!(refused(noent, Some(0)).missing[0].contains("no PMU"));
        let report = refused(acces, Some(3));
        assert_eq!(report.missing.len(), 1, "{report:?}");
        assert!(report.missing[0].contains("kernel.perf_event_paranoid is 3"));
        assert!(refused(acces, Some(1)).missing[0].contains("seccomp"));
        assert!(refused(nosys, None).missing[0].contains("no perf events"));
        assert_eq!((report.cycles, report.derived(7).instructions_per_cycle), (None, None));
    }

    /// What this machine has: the kernel's events, unless they are refused.
    #[test]
    fn this_thread() {
        let perf = Perf::begin();
        let report = perf.report();
        match report.task_clock_nanos {
            None => assert!(report.missing[0].contains("not available here"), "{report:?}"),
            Some(before) => {
                while perf.report().task_clock_nanos.is_some_and(|now| now < before + 100_000) {}
                assert!(report.page_faults.is_some() && report.context_switches.is_some());
            }
        }
    }
}
