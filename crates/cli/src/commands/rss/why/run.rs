//! A running instance on the interface: bucket, lane and worker of the flow, asked over its control socket.

use flowlane::control::{self, ReportView};
use flowlane_rss::{Bucket, BucketMap, Flow, HashConfig, Indirection, Key, Rss, Toeplitz, UdpFields};

/// The place of the flow in one host of a running instance.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Run {
    /// The program: `serve udp-echo`.
    pub(super) name: String,
    pub(super) pid: u32,
    pub(super) host: String,
    /// Hash and bucket, or why they are not known.
    pub(super) steered: Result<(u32, u16), String>,
    /// The worker that has the bucket's lane now.
    pub(super) worker: Option<usize>,
    /// The processor that the worker is bound to.
    pub(super) cpu: Option<u32>,
}

/// The running instances of this user with this interface as a link.
pub(super) fn on(interface: &str, flow: &Flow) -> Vec<Run> {
    let mut found = Vec::new();
    for path in control::instances() {
        // One that ends meanwhile is left out.
        let Ok(report) = control::get::<ReportView>(&path, "/v1/report") else { continue };
        found.extend(of(&report, interface, flow));
    }
    found
}

/// Whether a host's link, as `af-xdp:eth0 (native, copied)`, is this interface.
pub(in super::super) fn is_on(link: &str, interface: &str) -> bool {
    let what = link.split([' ', ',']).next().unwrap_or(link);
    what.split(':').nth(1) == Some(interface)
}

fn of(report: &ReportView, interface: &str, flow: &Flow) -> Vec<Run> {
    let on_it = report.rss.hosts.iter().filter(|host| host.links.iter().any(|link| is_on(link, interface)));
    on_it
        .map(|host| {
            let steered = steer(&host.key, host.udp_4tuple, &host.table, flow);
            let bucket = steered.as_ref().ok().map(|(_, bucket)| usize::from(*bucket));
            let worker = bucket.and_then(|bucket| host.workers.get(bucket).copied().flatten());
            let stream = report.netisr.workstreams.iter().find(|stream| Some(stream.workstream) == worker);
            Run {
                name: report.instance.name.clone(),
                pid: report.instance.pid,
                host: host.host.clone(),
                steered,
                worker,
                cpu: stream.and_then(|stream| stream.cpu),
            }
        })
        .collect()
}

fn steer(key: &str, udp_4tuple: bool, table: &[u16], flow: &Flow) -> Result<(u32, u16), String> {
    if key.is_empty() {
        return Err("it hashes by a rule of its own (--rss FILE)".to_owned());
    }
    let key: Key = key.parse().map_err(|e| format!("its key: {e}"))?;
    let slots = table.iter().map(|bucket| Bucket(*bucket)).collect();
    let table = Indirection::from_slots(slots).map_err(|e| format!("its table: {e}"))?;
    let most = table.slots().iter().map(|bucket| bucket.0).max().unwrap_or(0);
    let map =
        BucketMap::new((usize::from(most) + 1).next_power_of_two().max(2), 1).map_err(|e| e.to_string())?;
    let config = HashConfig::with_udp(if udp_4tuple { UdpFields::Four } else { UdpFields::Two });
    let steered = Rss::from_parts(Toeplitz::new(&key), config, table, map).steer(flow);
    Ok((steered.hash, steered.bucket.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_by_their_names() {
        assert!(is_on("af-xdp:eth0 (native, copied)", "eth0"));
        assert!(is_on("tap:eth0", "eth0") && is_on("af-packet:eth0, 4 queues", "eth0"));
        assert!(!is_on("af-xdp:eth01 (native)", "eth0") && !is_on("pair", "pair"));
    }

    #[test]
    fn a_flow_is_where_its_rss_says() {
        let rss = Rss::new(Key::MICROSOFT, 4);
        let table: Vec<u16> = rss.table.slots().iter().map(|bucket| bucket.0).collect();
        let flow = Flow::new(
            "66.9.149.187:2794".parse().unwrap(),
            "161.142.100.80:1766".parse().unwrap(),
            flowlane_rss::Protocol::TCP,
        );
        let steered = rss.steer(&flow);
        let found = steer(&Key::MICROSOFT.to_string(), false, &table, &flow);
        assert_eq!(found, Ok((0x51cc_c178, steered.bucket.0)));
        assert!(steer("", false, &table, &flow).is_err() && steer("zz", false, &table, &flow).is_err());
    }
}
