//! Which frames are captured: those of some lanes, of one flow, or all.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;

use flowlane_stack::wire::{Flow, IpProtocol, classify, classify_ip};
use flowlane_sys::frame::Frame;

/// One end of a flow: `*` for anything.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct End {
    address: Option<IpAddr>,
    port: Option<u16>,
}

/// A flow, both directions: `udp 10.0.0.1:5 -> 10.0.0.2:7`. Protocol, ports and one end may be left out, and `*` is any address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FlowFilter {
    protocol: Option<IpProtocol>,
    ends: [End; 2],
}

/// A filter that makes no sense: one line.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("'{0}' is no flow: such as 'udp 10.0.0.1:5 -> 10.0.0.2:7', 'tcp *:80' or '10.0.0.2'")]
pub struct BadFilter(String);

impl FromStr for FlowFilter {
    type Err = BadFilter;

    fn from_str(text: &str) -> Result<Self, BadFilter> {
        let bad = || BadFilter(text.to_owned());
        let mut words: Vec<&str> = text.split_whitespace().filter(|word| *word != "->").collect();
        let protocol = match words.first() {
            Some(&"udp") => Some(IpProtocol::UDP),
            Some(&"tcp") => Some(IpProtocol::TCP),
            _ => None,
        };
        if protocol.is_some() {
            words.remove(0);
        }
        let end = |word: &&str| End::parse(word).ok_or_else(bad);
        let ends = match &words[..] {
            [] if protocol.is_some() => [End::default(); 2],
            [one] => [end(one)?, End::default()],
            [one, other] => [end(one)?, end(other)?],
            _ => return Err(bad()),
        };
        Ok(Self { protocol, ends })
    }
}

impl End {
    fn parse(word: &str) -> Option<Self> {
        if word == "*" {
            return Some(Self::default());
        }
        if let Some(port) = word.strip_prefix("*:") {
            return Some(Self { address: None, port: Some(port.parse().ok()?) });
        }
        if let Ok(both) = word.parse::<SocketAddr>() {
            return Some(Self { address: Some(both.ip()), port: Some(both.port()) });
        }
        let address = word.trim_start_matches('[').trim_end_matches(']').parse().ok()?;
        Some(Self { address: Some(address), port: None })
    }

    fn is(&self, address: IpAddr, port: Option<u16>) -> bool {
        self.address.is_none_or(|ours| ours == address) && (self.port.is_none() || self.port == port)
    }
}

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.address, self.port) {
            (Some(address), Some(port)) => SocketAddr::new(address, port).fmt(f),
            (Some(address), None) => address.fmt(f),
            (None, Some(port)) => write!(f, "*:{port}"),
            (None, None) => f.write_str("*"),
        }
    }
}

impl fmt::Display for FlowFilter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.protocol {
            Some(IpProtocol::UDP) => f.write_str("udp ")?,
            Some(_) => f.write_str("tcp ")?,
            None => {}
        }
        write!(f, "{} -> {}", self.ends[0], self.ends[1])
    }
}

impl FlowFilter {
    fn lets(&self, flow: &Flow) -> bool {
        let (src, dst) = (flow.addresses.src(), flow.addresses.dst());
        let (sport, dport) = flow.ports.unzip();
        let [a, b] = &self.ends;
        self.protocol.is_none_or(|protocol| protocol == flow.protocol)
            && (a.is(src, sport) && b.is(dst, dport) || a.is(dst, dport) && b.is(src, sport))
    }
}

/// Which frames a capture wants.
#[derive(Debug, Clone, Default)]
pub(crate) struct Filter {
    /// By lane of the runtime; empty: all.
    pub(crate) lanes: Vec<bool>,
    pub(crate) flow: Option<FlowFilter>,
    pub(crate) drops_only: bool,
}

impl Filter {
    #[inline]
    pub(crate) fn lets(&self, lane: u32, frame: &Frame, ethernet: bool) -> bool {
        if !self.lanes.is_empty() && !self.lanes.get(lane as usize).is_some_and(|wanted| *wanted) {
            return false;
        }
        let Some(filter) = &self.flow else { return true };
        let flow = if ethernet { classify(frame.data()).flow() } else { classify_ip(frame.data()) };
        flow.is_some_and(|flow| filter.lets(&flow))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flowlane_stack::wire::Addresses;

    #[test]
    fn flows_are_matched_both_ways() {
        let flow = |src: [u8; 4], sport, dst, dport| Flow {
            addresses: Addresses::V4 { src, dst },
            ports: Some((sport, dport)),
            protocol: IpProtocol::UDP,
            fragment: false,
            l3_offset: 14,
        };
        let one = flow([10, 0, 0, 1], 5, [10, 0, 0, 2], 7);
        let back = flow([10, 0, 0, 2], 7, [10, 0, 0, 1], 5);
        let other = flow([10, 0, 0, 1], 6, [10, 0, 0, 2], 7);
        for (text, shown, wanted) in [
            ("udp 10.0.0.1:5 -> 10.0.0.2:7", "udp 10.0.0.1:5 -> 10.0.0.2:7", [true, true, false]),
            ("10.0.0.2:7 10.0.0.1:5", "10.0.0.2:7 -> 10.0.0.1:5", [true, true, false]),
            ("*:7", "*:7 -> *", [true, true, true]),
            ("*:6", "*:6 -> *", [false, false, true]),
            ("udp", "udp * -> *", [true, true, true]),
            ("tcp", "tcp * -> *", [false, false, false]),
            ("10.0.0.1 -> 10.0.0.3", "10.0.0.1 -> 10.0.0.3", [false, false, false]),
            ("tcp [fd00::1]:80 -> *", "tcp [fd00::1]:80 -> *", [false, false, false]),
            ("fd00::1", "fd00::1 -> *", [false, false, false]),
        ] {
            let filter: FlowFilter = text.parse().unwrap();
            assert_eq!(filter.to_string(), shown);
            assert_eq!([one, back, other].map(|flow| filter.lets(&flow)), wanted, "{text}");
        }
        for bad in
            ["", "10.0.0.1:99999", "udp 1 2", "10.0.0.1 -> 10.0.0.2 -> 10.0.0.3", "sctp 10.0.0.1", "-> *x"]
        {
            assert!(bad.parse::<FlowFilter>().is_err(), "{bad}");
        }
    }
}
