//! Messages of group membership, for routers and snooping switches.
//!
//! IGMP version 3 (RFC 3376) and MLD version 2 (RFC 3810), always with all sources, and their predecessors if there is a querier of that
//! version. [`membership`](super::membership) decides what is sent and when, in the lane of bucket 0 only; queries arrive in any lane and
//! are handed over. Queries and the reports that answer them are rate-limited.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use flowlane_sys::frame::Frame;

use super::membership::{Query, Report};
use super::{Inbound, Ip, LaneEvent};
use crate::packet::{Cx, IpInput, IpOutput};
use crate::stats::DropReason;
use crate::wire::igmp::{self, GroupChange, IgmpMessage};
use crate::wire::ipv6_ext::{router_alert, walk};
use crate::wire::mld::{self, MldQuery};
use crate::wire::{IpProtocol, Ipv4Header, Ipv4Options, MacAddr};

/// Groups in one report: what fits a frame of any MTU.
const GROUPS: usize = 32;
/// Where general queries go.
const ALL_HOSTS: Ipv4Addr = Ipv4Addr::new(224, 0, 0, 1);
/// Where the predecessors of version 3 and of MLD version 2 say that they leave.
const ALL_ROUTERS_V4: Ipv4Addr = Ipv4Addr::new(224, 0, 0, 2);
const ALL_ROUTERS_V6: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 2);

impl Ip {
    /// Joins a group on an interface; `false` if it was joined already or there is no such interface.
    pub(crate) fn join(&mut self, cx: &mut Cx<'_>, link: u8, group: IpAddr) -> bool {
        let Some(interface) = self.interfaces.get_mut(usize::from(link)) else { return false };
        let joined = interface.join(group);
        if joined {
            self.group_changed(cx, link, group, true);
        }
        joined
    }

    /// Leaves a group; `false` if it was not joined.
    pub(crate) fn leave(&mut self, cx: &mut Cx<'_>, link: u8, group: IpAddr) -> bool {
        let Some(interface) = self.interfaces.get_mut(usize::from(link)) else { return false };
        let left = interface.leave(group);
        if left {
            self.group_changed(cx, link, group, false);
        }
        left
    }

    fn group_changed(&mut self, cx: &mut Cx<'_>, interface: u8, group: IpAddr, joined: bool) {
        let change = LaneEvent::Group { interface, group, bucket: self.bucket, joined };
        if self.speaks {
            self.told_group(cx.now, change);
            self.groups_due(cx);
        } else {
            self.events.push_back(change);
        }
    }

    /// A lane of the host has joined or left a group.
    pub(super) fn told_group(&mut self, now: crate::time::Time, change: LaneEvent) {
        let LaneEvent::Group { interface, group, bucket, joined } = change else { return };
        if !self.speaks || usize::from(interface) >= self.interfaces.len() {
            return;
        }
        if joined {
            self.membership.enter(now, interface, group, bucket);
        } else {
            self.membership.exit(now, interface, group, bucket);
        }
    }

    /// Takes in an IGMP message.
    pub(super) fn igmp(&mut self, cx: &mut Cx<'_>, packet: IpInput) -> Inbound {
        let message = match IgmpMessage::parse(packet.frame.data()) {
            Ok((message, _)) => message,
            Err(reason) => return self.malformed(reason),
        };
        let IgmpMessage::Query { group, max_response, version, robustness, interval, .. } = message else {
            return self.drop(DropReason::GroupReport);
        };
        self.stats.icmp.group_queries += 1;
        // RFC 3376 section 9.1, and sections 4 and 6.1 of its predecessors: from the link, and to all if for all.
        let general = group.is_unspecified();
        let to_all = packet.ip.dst == IpAddr::V4(ALL_HOSTS);
        if packet.ip.hop_limit != 1 || general && !to_all || !general && !group.is_multicast() {
            return self.drop(DropReason::GroupQueryInvalid);
        }
        let query = Query { group: IpAddr::V4(group), max_response, version, robustness, interval };
        self.group_query(cx, packet, &query)
    }

    /// Takes in a message of listener discovery whose checksum is right.
    pub(super) fn mld(&mut self, cx: &mut Cx<'_>, mut packet: IpInput) -> Inbound {
        let query = match MldQuery::parse(packet.frame.data()) {
            Ok(Some(query)) => query,
            Ok(None) => return self.drop(DropReason::GroupReport),
            Err(reason) => return self.malformed(reason),
        };
        self.stats.icmp6.group_queries += 1;
        // RFC 3810 section 6.2: from the link, by a router, with a router alert; to all if for all.
        let from_link = matches!(packet.ip.src, IpAddr::V6(a) if a.is_unicast_link_local());
        let general = query.group.is_unspecified();
        let to_all = packet.ip.dst == IpAddr::V6(super::addresses::ALL_NODES);
        let possible = from_link && packet.ip.hop_limit == 1 && has_alert(&mut packet);
        if !possible || general && !to_all || !general && !query.group.is_multicast() {
            return self.drop(DropReason::GroupQueryInvalid);
        }
        let MldQuery { group, max_response, version, robustness, interval, .. } = query;
        let query = Query { group: IpAddr::V6(group), max_response, version, robustness, interval };
        self.group_query(cx, packet, &query)
    }

    fn group_query(&mut self, cx: &mut Cx<'_>, packet: IpInput, query: &Query) -> Inbound {
        if !self.limits.queries.take(cx.now) {
            return self.drop(DropReason::GroupQueryLimited);
        }
        if !self.speaks {
            return Inbound::Speaker(packet);
        }
        self.membership.query(cx.now, packet.ip.interface, query, cx.rng);
        self.groups_due(cx);
        Inbound::Done
    }

    /// Reports that are due.
    pub(super) fn groups_due(&mut self, cx: &mut Cx<'_>) {
        for report in self.membership.due(cx.now, cx.rng) {
            let Report { interface, ipv4, older, answer, groups } = report;
            let size = if older.is_some() { 1 } else { GROUPS };
            for some in groups.chunks(size) {
                if answer && !self.limits.reports.take(cx.now) {
                    self.icmp_stats(ipv4).group_reports_limited += 1;
                    continue;
                }
                self.icmp_stats(ipv4).group_reports_sent += 1;
                match (ipv4, older) {
                    (true, None) => self.report_v4(cx, interface, some),
                    (false, None) => self.report_v6(cx, interface, some),
                    (_, Some(version)) => self.report_older(cx, interface, some[0], version),
                }
            }
        }
    }

    fn report_v4(&mut self, cx: &Cx<'_>, link: u8, groups: &[(IpAddr, GroupChange)]) {
        let groups: Vec<(Ipv4Addr, GroupChange)> = groups
            .iter()
            .filter_map(|(group, change)| match group {
                IpAddr::V4(group) => Some((*group, *change)),
                IpAddr::V6(_) => None,
            })
            .collect();
        let Some(mut frame) = self.report_frame(cx) else { return };
        let Some(room) = frame.push_back(8 + 8 * groups.len()) else { return };
        igmp::emit_v3_report(&groups, room);
        self.send_igmp(link, frame, igmp::V3_ROUTERS);
    }

    fn send_igmp(&mut self, link: u8, mut frame: Frame, to: Ipv4Addr) {
        let source = self.interfaces[usize::from(link)].source_for(IpAddr::V4(to));
        let src = match source {
            Some(IpAddr::V4(a)) => a,
            _ => Ipv4Addr::UNSPECIFIED,
        };
        let header = Ipv4Header {
            src,
            dst: to,
            protocol: IpProtocol::IGMP,
            ttl: 1,
            tos: 0xc0,
            identification: 0,
            dont_fragment: true,
            more_fragments: false,
            fragment_offset: 0,
            payload_len: frame.len() as u16,
            options: Ipv4Options { router_alert: true, ..Ipv4Options::default() },
        };
        let Some(bytes) = frame.push_front(header.header_len()) else { return };
        header.emit(bytes);
        self.stats.ip.sent += 1;
        self.put_ethernet(frame, link, MacAddr::for_ipv4_multicast(to));
    }

    /// Our link-local address, or none while it is only probed (RFC 3590).
    fn mld_source(&self, link: u8) -> Ipv6Addr {
        let interface = &self.interfaces[usize::from(link)];
        match interface.is_optimistic(IpAddr::V6(interface.link_local)) {
            true => Ipv6Addr::UNSPECIFIED,
            false => interface.link_local,
        }
    }

    fn report_v6(&mut self, cx: &Cx<'_>, link: u8, groups: &[(IpAddr, GroupChange)]) {
        let groups: Vec<(Ipv6Addr, GroupChange)> = groups
            .iter()
            .filter_map(|(group, change)| match group {
                IpAddr::V6(group) => Some((*group, *change)),
                IpAddr::V4(_) => None,
            })
            .collect();
        let (src, to) = (self.mld_source(link), mld::V2_ROUTERS);
        let Some(mut frame) = self.report_frame(cx) else { return };
        let Some(room) = frame.push_back(8 + 20 * groups.len()) else { return };
        mld::emit_v2_report(src, to, &groups, room);
        self.send_mld(link, frame, src, to);
    }

    fn send_mld(&mut self, link: u8, mut frame: Frame, src: Ipv6Addr, to: Ipv6Addr) {
        let alert = router_alert(IpProtocol::ICMPV6);
        let Some(bytes) = frame.push_front(alert.len()) else { return };
        bytes[..alert.len()].copy_from_slice(&alert);
        let out = IpOutput {
            frame,
            src: IpAddr::V6(src),
            dst: IpAddr::V6(to),
            protocol: IpProtocol::HOP_BY_HOP.0,
            hop_limit: 1,
            traffic_class: 0,
            dont_fragment: true,
        };
        self.send_directly(out, link, MacAddr::for_ipv6_multicast(to));
    }

    /// One group in the format of an older querier.
    fn report_older(&mut self, cx: &Cx<'_>, link: u8, one: (IpAddr, GroupChange), version: u8) {
        let leaves = one.1 == GroupChange::Leave;
        if leaves && one.0.is_ipv4() && version < 2 {
            // Version 1 of IGMP leaves in silence.
            return;
        }
        let Some(mut frame) = self.report_frame(cx) else { return };
        match one.0 {
            IpAddr::V4(group) => {
                let Some(room) = frame.push_back(8) else { return };
                let _ = match (version, leaves) {
                    (1, _) => igmp::emit_v1_report(group, room),
                    (_, false) => IgmpMessage::Report { group }.emit(room),
                    (_, true) => IgmpMessage::Leave { group }.emit(room),
                };
                self.send_igmp(link, frame, if leaves { ALL_ROUTERS_V4 } else { group });
            }
            IpAddr::V6(group) => {
                let (src, to) = (self.mld_source(link), if leaves { ALL_ROUTERS_V6 } else { group });
                let Some(room) = frame.push_back(mld::V1_LEN) else { return };
                mld::emit_v1(src, to, group, leaves, room);
                self.send_mld(link, frame, src, to);
            }
        }
    }

    fn report_frame(&mut self, cx: &Cx<'_>) -> Option<Frame> {
        let frame = cx.frames.alloc();
        if frame.is_none() {
            self.stats.drops.count(DropReason::NoFrame);
        }
        frame
    }
}

/// Whether a packet's headers carry a router alert; its frame's data starts behind them, before and after.
fn has_alert(packet: &mut IpInput) -> bool {
    let header_len = usize::from(packet.ip.header_len);
    if packet.frame.push_front(header_len).is_none() {
        return false;
    }
    let data = packet.frame.data();
    let alert = data.get(6).is_some_and(|next| walk(data, IpProtocol(*next)).is_ok_and(|u| u.router_alert));
    packet.frame.trim_front(header_len) && alert
}
