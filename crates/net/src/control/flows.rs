//! `/v1/flows`: the flows with most packets and bytes of all lanes. `POST` switches the watching on and off.

use flowlane_stack::wire::IpProtocol;
use serde::{Deserialize, Serialize};

use super::VERSION;
use crate::metrics::Instance;
use crate::stats::LaneTop;
use crate::{Endpoint, Handle, TopCount, TopFlow, WatchFlows};

/// Flows of each kind in a document, at most.
const MOST: usize = 10_000;

/// `POST /v1/flows`: whether flows are to be watched.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct WatchRequest {
    /// Whether.
    pub watch: bool,
    /// Flows by packets, and as many by bytes, in each lane.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub flows: Option<usize>,
}

/// `/v1/flows`: the flows of an instance with most packets and bytes.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct FlowsView {
    /// [`VERSION`].
    pub version: u32,
    /// Who answers.
    pub instance: Instance,
    /// Whether flows are watched.
    pub watched: bool,
    /// Flows that each lane keeps by packets, and by bytes, at most; 0 where nothing is kept, because kernel sockets are asked.
    pub room: usize,
    /// Lanes that did not answer, and are left out.
    pub silent_lanes: usize,
    /// Packets of UDP and TCP that were counted since flows are watched.
    pub packets: u64,
    /// Their bytes from the IP header on; of kernel sockets bytes of data.
    pub bytes: u64,
    /// A flow that is not listed has had at most so many packets.
    pub packets_elsewhere: u64,
    /// A flow that is not listed has had at most so many bytes.
    pub bytes_elsewhere: u64,
    /// The flows with most packets, and those with most bytes; each once.
    pub flows: Vec<FlowRow>,
}

/// A flow of UDP or TCP, both directions.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct FlowRow {
    /// The host.
    pub host: String,
    /// Bucket of its lane.
    pub bucket: u16,
    /// Worker of its lane.
    pub worker: usize,
    /// `udp` or `tcp`; `udp-fragments`, `tcp-fragments` or `ip-fragments` for all fragments between two addresses.
    pub protocol: String,
    /// Our address, with a port unless the flow is of fragments.
    pub local: String,
    /// The peer's address, likewise.
    pub remote: String,
    /// Packets, both directions: no less than there were.
    pub packets: u64,
    /// Too high by at most so many.
    pub packets_error: u64,
    /// Bytes from the IP header on: no less than there were. If `by-kernel`, bytes of data, without headers, and of a connection each once.
    pub bytes: u64,
    /// Too high by at most so many.
    pub bytes_error: u64,
    /// Packets that came since it is in a table.
    pub received_packets: u64,
    /// Their bytes.
    pub received_bytes: u64,
    /// Packets that went since then.
    pub sent_packets: u64,
    /// Their bytes.
    pub sent_bytes: u64,
    /// Seconds since it got into a table; not of kernel sockets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub age: Option<u64>,
    /// Seconds since its last packet; of connections on kernel sockets since data passed, and not of their sockets of datagrams.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idle: Option<u64>,
    /// Counted by a socket of the kernel, which tells no headers: all bytes are those of data.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub by_kernel: bool,
}

/// Switches the watching on or off.
pub(super) fn watch(asked: &WatchRequest, handle: &Handle) -> Result<(), String> {
    if !asked.watch && handle.hosts().iter().all(|host| host.kernel) {
        return Err(
            "flows of kernel sockets cost nothing until somebody asks: there is nothing to switch off".into(),
        );
    }
    if asked.flows.is_some_and(|flows| !(8..=1 << 20).contains(&flows)) {
        return Err("a lane keeps 8 to 1048576 flows".into());
    }
    let wanted = asked.flows.map_or_else(WatchFlows::default, |flows| WatchFlows::default().flows(flows));
    handle.watch_flows(asked.watch.then_some(wanted)).map_err(|e| e.to_string())
}

impl FlowsView {
    /// The `most` flows with most packets, and as many with most bytes.
    pub(super) fn take(handle: &Handle, instance: &Instance, most: usize) -> Self {
        let lanes = handle.top_flows();
        let all: usize = handle.hosts().iter().map(|host| host.rss.buckets.len()).sum();
        let mut view = Self {
            version: VERSION,
            instance: instance.now(),
            watched: false,
            room: 0,
            silent_lanes: all - lanes.len(),
            packets: 0,
            bytes: 0,
            packets_elsewhere: 0,
            bytes_elsewhere: 0,
            flows: Vec::new(),
        };
        for lane in &lanes {
            let Some(top) = &lane.top else { continue };
            view.watched = true;
            view.room = top.room;
            view.packets += top.counted.packets;
            view.bytes += top.counted.octets;
            view.packets_elsewhere = view.packets_elsewhere.max(top.packets_elsewhere);
            view.bytes_elsewhere = view.bytes_elsewhere.max(top.octets_elsewhere);
            let host = handle.hosts().get(lane.host).map_or("", |host| &host.name);
            view.flows.extend(top.flows.iter().map(|flow| row(host, lane, flow)));
        }
        view.keep(most.min(MOST));
        view
    }

    /// Keeps the largest by each of the two counts.
    fn keep(&mut self, most: usize) {
        if self.flows.len() <= most {
            self.flows.sort_by_key(|row| std::cmp::Reverse(row.packets));
            return;
        }
        let by = |count: fn(&FlowRow) -> u64, rows: &mut [FlowRow]| {
            rows.sort_by_key(|row| std::cmp::Reverse(count(row)));
        };
        by(|row| row.packets, &mut self.flows);
        let mut rest = self.flows.split_off(most);
        by(|row| row.bytes, &mut rest);
        // Those of the rest that are among the first of all by bytes.
        let ahead = |row: &FlowRow| self.flows.iter().filter(|kept| kept.bytes > row.bytes).count();
        let more = rest.iter().enumerate().take_while(|(i, row)| i + ahead(row) < most).count();
        let left = rest.split_off(more);
        self.flows.extend(rest);
        for row in left {
            self.packets_elsewhere = self.packets_elsewhere.max(row.packets);
            self.bytes_elsewhere = self.bytes_elsewhere.max(row.bytes);
        }
    }
}

fn row(host: &str, lane: &LaneTop, flow: &TopFlow) -> FlowRow {
    let protocol = match flow.protocol {
        IpProtocol::UDP => "udp",
        IpProtocol::TCP => "tcp",
        _ => "ip",
    };
    let end = |end: Endpoint| match flow.fragments {
        true => end.ip.to_string(),
        false => std::net::SocketAddr::from(end).to_string(),
    };
    let seconds = |since: crate::Time| lane.at.saturating_duration_since(since).as_secs();
    let TopCount { count: packets, error: packets_error } = flow.packets;
    let TopCount { count: bytes, error: bytes_error } = flow.octets;
    FlowRow {
        host: host.to_owned(),
        bucket: lane.bucket,
        worker: lane.worker,
        protocol: if flow.fragments { format!("{protocol}-fragments") } else { protocol.to_owned() },
        local: end(flow.local),
        remote: end(flow.remote),
        packets,
        packets_error,
        bytes,
        bytes_error,
        received_packets: flow.received.packets,
        received_bytes: flow.received.octets,
        sent_packets: flow.sent.packets,
        sent_bytes: flow.sent.octets,
        age: (!flow.by_kernel).then(|| seconds(flow.since)),
        idle: (!flow.by_kernel || flow.protocol == IpProtocol::TCP).then(|| seconds(flow.last)),
        by_kernel: flow.by_kernel,
    }
}

/// `n` of a query such as `n=20`; 100 without one.
pub(super) fn wanted(query: Option<&str>) -> usize {
    let n = query.unwrap_or_default().split('&').find_map(|pair| pair.strip_prefix("n="));
    n.and_then(|n| n.parse().ok()).unwrap_or(100)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn view(rows: &[(u64, u64)]) -> FlowsView {
        let row = |(packets, bytes): &(u64, u64)| FlowRow {
            host: "a".into(),
            bucket: 0,
            worker: 0,
            protocol: "udp".into(),
            local: String::new(),
            remote: String::new(),
            packets: *packets,
            packets_error: 0,
            bytes: *bytes,
            bytes_error: 0,
            received_packets: 0,
            received_bytes: 0,
            sent_packets: 0,
            sent_bytes: 0,
            age: None,
            idle: None,
            by_kernel: false,
        };
        FlowsView {
            version: VERSION,
            instance: Instance::new("test"),
            watched: true,
            room: 8,
            silent_lanes: 0,
            packets: 0,
            bytes: 0,
            packets_elsewhere: 3,
            bytes_elsewhere: 5,
            flows: rows.iter().map(row).collect(),
        }
    }

    /// The first by either count stay, and what is left out is in the bound.
    #[test]
    fn what_is_left_out_is_bounded() {
        let rows = [(10, 1000), (9, 10), (8, 5000), (1, 9000), (2, 20)];
        let kept = |most: usize| {
            let mut view = view(&rows);
            view.keep(most);
            let flows: Vec<_> = view.flows.iter().map(|row| (row.packets, row.bytes)).collect();
            (flows, view.packets_elsewhere, view.bytes_elsewhere)
        };
        assert_eq!(kept(5).0.len(), 5);
        assert_eq!(kept(2), (vec![(10, 1000), (9, 10), (1, 9000), (8, 5000)], 3, 20));
        assert_eq!(kept(0), (vec![], 10, 9000));
        assert_eq!(wanted(None), 100);
        assert_eq!(wanted(Some("by=bytes&n=7")), 7);
    }
}
