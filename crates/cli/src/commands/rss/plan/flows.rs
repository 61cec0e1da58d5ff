//! The flows that a plan is about: a list for people, or a capture.
//!
//! A list has a flow in each line: source and destination as `rss hash` takes them, and `tcp` or `udp`; `#` begins a comment. A capture
//! (pcap or pcapng) has the flows of the packets that were received.

use super::super::hash::flow_of;
use crate::capture;
use crate::rss_options::{End, Which};
use anyhow::{Context, bail, ensure};
use flowlane_rss::Flow;
use std::collections::HashSet;
use std::io::Read;
use std::path::Path;

/// Most flows, and bytes of a list.
const MOST: usize = 1_000_000;
const LARGEST: u64 = 256 << 20;

/// Each flow of the file once, in the file's order.
pub(super) fn read(path: &Path) -> anyhow::Result<Vec<Flow>> {
    let flows = try_read(path).with_context(|| format!("--flows {}", path.display()))?;
    ensure!(!flows.is_empty(), "--flows {}: no flow in it", path.display());
    Ok(flows)
}

fn try_read(path: &Path) -> anyhow::Result<Vec<Flow>> {
    let mut start = [0; 4];
    let mut file = std::fs::File::open(path)?;
    flowlane::written::note_read(&file).keep();
    let n = file.read(&mut start)?;
    let mut flows = Flows::default();
    // No list begins with a byte that is no text, as every capture does.
    if start[..n].iter().any(|byte| !byte.is_ascii() || (*byte < b' ' && !byte.is_ascii_whitespace()))
        || start == [10, 13, 13, 10]
    {
        let mut full = false;
        capture::read(path, |packet| {
            if let Some(flow) = packet.flow().filter(|_| !packet.sent) {
                full |= !flows.add(flow);
            }
        })?;
        ensure!(!full, "more than {MOST} flows");
        return Ok(flows.list);
    }
    let mut text = String::from_utf8_lossy(&start[..n]).into_owned();
    file.take(LARGEST).read_to_string(&mut text).context("neither a list of flows nor a capture")?;
    ensure!((text.len() as u64) < LARGEST, "larger than {LARGEST} bytes");
    for (i, line) in text.lines().enumerate() {
        let line = line.split('#').next().unwrap_or("").trim();
        if !line.is_empty() {
            let flow = one(line).with_context(|| format!("line {}", i + 1))?;
            ensure!(flows.add(flow), "more than {MOST} flows");
        }
    }
    Ok(flows.list)
}

#[derive(Default)]
struct Flows {
    list: Vec<Flow>,
    known: HashSet<Flow>,
}

impl Flows {
    /// Whether there was room.
    fn add(&mut self, flow: Flow) -> bool {
        if !self.known.contains(&flow) {
            if self.list.len() == MOST {
                return false;
            }
            self.known.insert(flow);
            self.list.push(flow);
        }
        true
    }
}

fn one(line: &str) -> anyhow::Result<Flow> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let (ends, protocol) = match words.as_slice() {
        [src, dst] => ([*src, *dst], None),
        [src, dst, protocol] => ([*src, *dst], Some(*protocol)),
        _ => bail!("not 'SRC[:PORT] DST[:PORT] [tcp|udp]'"),
    };
    let which = match protocol {
        None => Which { udp: false, tcp: false },
        Some("tcp") => Which { udp: false, tcp: true },
        Some("udp") => Which { udp: true, tcp: false },
        Some(other) => bail!("'{other}': neither tcp nor udp"),
    };
    let end = |text: &str| text.parse::<End>().map_err(|why| anyhow::anyhow!("'{text}': {why}"));
    flow_of(end(ends[0])?, end(ends[1])?, which, false)
}

#[cfg(test)]
mod tests {
    use super::*;
    use flowlane_rss::Protocol;

    #[test]
    fn lines() {
        let flow = one("10.0.0.1:5 10.0.0.2:6 udp").unwrap();
        assert_eq!((flow.src_port, flow.dst_port, flow.protocol), (5, 6, Protocol::UDP));
        assert_eq!(one("[fd00::1]:5 [fd00::2]:6").unwrap().protocol, Protocol::TCP);
        assert_eq!(one("fd00::1 fd00::2").unwrap().protocol, Protocol(253));
        for bad in ["10.0.0.1:5", "10.0.0.1:5 10.0.0.2", "10.0.0.1:5 10.0.0.2:6 sctp", "a b", "1 2 3 4"] {
            assert!(one(bad).is_err(), "{bad}");
        }
    }
}
