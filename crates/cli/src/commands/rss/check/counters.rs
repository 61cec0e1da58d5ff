//! Counters of the kernel for each processor, read before and after the check: interrupts of the card, softirqs, backlogs.

use flowlane::card::Surroundings;
use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::FileExt;

/// Counters at one moment.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Counters {
    /// By interrupt, then by processor.
    interrupts: BTreeMap<u32, BTreeMap<u32, u64>>,
    /// NET_RX by processor.
    softirqs: BTreeMap<u32, u64>,
    /// Processed, dropped, squeezed, moved here by RPS, by processor.
    softnet: BTreeMap<u32, [u64; 4]>,
    /// Packets that the interface received.
    pub(super) received: u64,
}

/// What one processor counted between two readings.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct OfCpu {
    pub(super) interrupts: u64,
    pub(super) softirqs: u64,
    pub(super) dropped: u64,
    pub(super) squeezed: u64,
    pub(super) by_rps: u64,
}

impl Counters {
    /// One interrupt that occurred so often on one processor.
    #[cfg(test)]
    pub(super) fn for_test(interrupt: u32, cpu: u32, count: u64) -> Self {
        Self { interrupts: BTreeMap::from([(interrupt, BTreeMap::from([(cpu, count)]))]), ..Self::default() }
    }

    /// Reads the counters. A file that cannot be read counts as empty.
    pub(super) fn read(interface: &str) -> Self {
        let text = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
        Self {
            interrupts: interrupts(&text("/proc/interrupts")),
            softirqs: softirqs(&text("/proc/softirqs")),
            softnet: softnet(&text("/proc/net/softnet_stat")),
            received: Received::of(interface).now().unwrap_or(0),
        }
    }

    /// What each processor counted since `before`. Only the interrupts of the card's queues are included.
    pub(super) fn since(&self, before: &Self, around: &Surroundings) -> BTreeMap<u32, OfCpu> {
        let mut cpus: BTreeMap<u32, OfCpu> = BTreeMap::new();
        for number in around.receive.iter().flat_map(|queue| &queue.interrupts).map(|i| i.number) {
            for (cpu, count) in self.fired(before, number) {
                cpus.entry(cpu).or_default().interrupts += count;
            }
        }
        for (&cpu, count) in &self.softirqs {
            let earlier = before.softirqs.get(&cpu).copied().unwrap_or(0);
            cpus.entry(cpu).or_default().softirqs = count.saturating_sub(earlier);
        }
        for (&cpu, counts) in &self.softnet {
            let earlier = before.softnet.get(&cpu).copied().unwrap_or_default();
            let [_, dropped, squeezed, by_rps] =
                std::array::from_fn(|i| counts[i].saturating_sub(earlier[i]));
            let of = cpus.entry(cpu).or_default();
            (of.dropped, of.squeezed, of.by_rps) = (dropped, squeezed, by_rps);
        }
        cpus
    }

    /// How often an interrupt occurred since `before`, by processor. Processors on which it did not are left out.
    pub(super) fn fired(&self, before: &Self, number: u32) -> BTreeMap<u32, u64> {
        let none = BTreeMap::new();
        let earlier = before.interrupts.get(&number).unwrap_or(&none);
        let now = self.interrupts.get(&number).unwrap_or(&none);
        let since = now
            .iter()
            .map(|(&cpu, &count)| (cpu, count.saturating_sub(earlier.get(&cpu).copied().unwrap_or(0))));
        since.filter(|(_, count)| *count > 0).collect()
    }
}

/// The driver's count of received packets. The file stays open, so that a reading is one system call.
#[derive(Debug)]
pub(super) struct Received(Option<File>);

impl Received {
    pub(super) fn of(interface: &str) -> Self {
        Self(File::open(format!("/sys/class/net/{interface}/statistics/rx_packets")).ok())
    }

    /// The count now; `None` if the interface does not report it, or is gone.
    pub(super) fn now(&self) -> Option<u64> {
        let mut text = [0; 32];
        let n = self.0.as_ref()?.read_at(&mut text, 0).ok()?;
        std::str::from_utf8(&text[..n]).ok()?.trim().parse().ok()
    }
}

/// The processors in the first line of a table: `CPU0 CPU2`.
fn columns(head: &str) -> Vec<u32> {
    head.split_whitespace().filter_map(|word| word.strip_prefix("CPU")?.parse().ok()).collect()
}

fn row(cpus: &[u32], rest: &str) -> BTreeMap<u32, u64> {
    let counts = rest.split_whitespace().map_while(|word| word.parse::<u64>().ok());
    cpus.iter().copied().zip(counts).collect()
}

fn interrupts(text: &str) -> BTreeMap<u32, BTreeMap<u32, u64>> {
    let mut lines = text.lines();
    let cpus = columns(lines.next().unwrap_or_default());
    let numbered = lines.filter_map(|line| {
        let (number, rest) = line.split_once(':')?;
        Some((number.trim().parse().ok()?, row(&cpus, rest)))
    });
    numbered.collect()
}

fn softirqs(text: &str) -> BTreeMap<u32, u64> {
    let mut lines = text.lines();
    let cpus = columns(lines.next().unwrap_or_default());
    let line = lines.find_map(|line| line.trim().strip_prefix("NET_RX:"));
    line.map(|rest| row(&cpus, rest)).unwrap_or_default()
}

/// One line for each processor, in hexadecimal. Newer kernels give the number of the processor in the thirteenth column.
fn softnet(text: &str) -> BTreeMap<u32, [u64; 4]> {
    let mut found = BTreeMap::new();
    for (i, line) in text.lines().enumerate() {
        let words: Vec<u64> =
            line.split_whitespace().filter_map(|word| u64::from_str_radix(word, 16).ok()).collect();
        let at = |i: usize| words.get(i).copied().unwrap_or(0);
        let cpu = words.get(12).copied().unwrap_or(i as u64);
        found.insert(cpu as u32, [at(0), at(1), at(2), at(9)]);
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_that_come_are_counted_again_and_again() {
        let received = Received::of("lo");
        let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        let mut last = received.now().unwrap();
        for _ in 0..3 {
            socket.send_to(b"one", socket.local_addr().unwrap()).unwrap();
            socket.recv(&mut [0; 8]).unwrap();
            let now = received.now().unwrap();
            assert!(now > last, "{now} after {last}");
            last = now;
        }
        assert_eq!(Received::of("nosuchinterface").now(), None);
    }

    #[test]
    fn the_kernels_tables() {
        let text = "           CPU0       CPU2\n 25:         10         20   PCI-MSI 1-edge   eth0-0\nNMI:  1 2 words\n";
        let before = Counters { interrupts: interrupts(text), ..Counters::default() };
        let later = text.replace("  20 ", "  27 ");
        let after = Counters { interrupts: interrupts(&later), ..Counters::default() };
        assert_eq!(after.fired(&before, 25), BTreeMap::from([(2, 7)]));
        assert_eq!(after.fired(&before, 26), BTreeMap::new());
        let text = "  CPU0  CPU1\n  HI: 1 2\n  NET_RX:  30  40\n";
        assert_eq!(softirqs(text), BTreeMap::from([(0, 30), (1, 40)]));
        let line = "0000000a 00000001 00000002 0 0 0 0 0 0 00000003 0 0 00000005";
        assert_eq!(softnet(line), BTreeMap::from([(5, [10, 1, 2, 3])]));
        assert_eq!(
            softnet("0000000a 0 0\n0000000b 0 0"),
            BTreeMap::from([(0, [10, 0, 0, 0]), (1, [11, 0, 0, 0])])
        );
    }
}
