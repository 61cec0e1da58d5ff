//! Group membership: telling routers and snooping switches which groups we listen to.
//!
//! IGMP version 3 (RFC 3376) and MLD version 2 (RFC 3810), always with "everybody" as source filter. A report is sent
//! when a group is joined or left and in answer to a query, at once: the random delay of the RFCs keeps thousands of
//! hosts from answering together, and switches that snoop do not suppress reports any more.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use flowlane_sys::frame::Frame;

use super::{Inbound, Ip};
use crate::packet::{Cx, IpInput, IpOutput};
use crate::stats::DropReason;
use crate::wire::igmp::{self, GroupChange, IgmpMessage};
use crate::wire::ipv6_ext::router_alert;
use crate::wire::mld::{self, MldQuery};
use crate::wire::{IpProtocol, Ipv4Header, Ipv4Options, MacAddr};

/// Groups in one report: what fits a frame of any MTU.
const GROUPS: usize = 32;
/// The all-hosts groups are never reported.
const ALL_HOSTS: Ipv4Addr = Ipv4Addr::new(224, 0, 0, 1);
const ALL_NODES: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);

impl Ip {
    /// Joins a group on an interface; `false` if it was joined already or there is no such interface.
    pub(crate) fn join(&mut self, cx: &mut Cx<'_>, link: u8, group: IpAddr) -> bool {
        let Some(interface) = self.interfaces.get_mut(usize::from(link)) else { return false };
        let joined = interface.join(group);
        if joined {
            self.report(cx, link, &[group], GroupChange::Join);
        }
        joined
    }

    /// Leaves a group; `false` if it was not joined.
    pub(crate) fn leave(&mut self, cx: &mut Cx<'_>, link: u8, group: IpAddr) -> bool {
        let Some(interface) = self.interfaces.get_mut(usize::from(link)) else { return false };
        let left = interface.leave(group);
        if left {
            self.report(cx, link, &[group], GroupChange::Leave);
        }
        left
    }

    pub(super) fn igmp(&mut self, cx: &mut Cx<'_>, packet: &IpInput) -> Inbound {
        let group = match IgmpMessage::parse(packet.frame.data()) {
            Ok((IgmpMessage::Query { group, .. }, _)) => group,
            Ok(_) => return self.drop(DropReason::GroupReport),
            Err(reason) => return self.malformed(reason),
        };
        self.answer_query(cx, packet.ip.interface, IpAddr::V4(group))
    }

    pub(super) fn mld(&mut self, cx: &mut Cx<'_>, packet: &IpInput) -> Inbound {
        if packet.ip.hop_limit != 1 {
            return self.drop(DropReason::NdpInvalid);
        }
        match MldQuery::parse(packet.frame.data()) {
            Ok(Some(query)) => self.answer_query(cx, packet.ip.interface, IpAddr::V6(query.group)),
            Ok(None) => self.drop(DropReason::GroupReport),
            Err(reason) => self.malformed(reason),
        }
    }

    fn answer_query(&mut self, cx: &mut Cx<'_>, link: u8, asked: IpAddr) -> Inbound {
        // Queries are rare; a flood of them is not worth a flood of answers.
        if !self.limits.errors.take(cx.now) {
            return Inbound::Done;
        }
        let groups: Vec<IpAddr> = self.interfaces[usize::from(link)]
            .groups()
            .filter(|g| g.is_ipv4() == asked.is_ipv4() && (asked.is_unspecified() || *g == asked))
            .collect();
        for some in groups.chunks(GROUPS) {
            self.report(cx, link, some, GroupChange::Listening);
        }
        Inbound::Done
    }

    fn report(&mut self, cx: &mut Cx<'_>, link: u8, groups: &[IpAddr], change: GroupChange) {
        let mut v4 = Vec::new();
        let mut v6 = Vec::new();
        for group in groups {
            match group {
                IpAddr::V4(g) if *g != ALL_HOSTS => v4.push((*g, change)),
                IpAddr::V6(g) if *g != ALL_NODES => v6.push((*g, change)),
                _ => {}
            }
        }
        if !v4.is_empty() {
            self.report_v4(cx, link, &v4);
        }
        if !v6.is_empty() {
            self.report_v6(cx, link, &v6);
        }
    }

    fn report_v4(&mut self, cx: &Cx<'_>, link: u8, groups: &[(Ipv4Addr, GroupChange)]) {
        let to = igmp::V3_ROUTERS;
        let source = self.interfaces[usize::from(link)].source_for(IpAddr::V4(to));
        let src = match source {
            Some(IpAddr::V4(a)) => a,
            _ => Ipv4Addr::UNSPECIFIED,
        };
        let Some(mut frame) = self.report_frame(cx) else { return };
        let Some(room) = frame.push_back(8 + 8 * groups.len()) else { return };
        let len = igmp::emit_v3_report(groups, room);
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
            payload_len: len as u16,
            options: Ipv4Options { router_alert: true, ..Ipv4Options::default() },
        };
        let Some(bytes) = frame.push_front(header.header_len()) else { return };
        header.emit(bytes);
        self.stats.ip.sent += 1;
        self.put_ethernet(frame, link, MacAddr::for_ipv4_multicast(to));
    }

    fn report_v6(&mut self, cx: &Cx<'_>, link: u8, groups: &[(Ipv6Addr, GroupChange)]) {
        let to = mld::V2_ROUTERS;
        let src = self.interfaces[usize::from(link)].link_local;
        let Some(mut frame) = self.report_frame(cx) else { return };
        let Some(room) = frame.push_back(8 + 20 * groups.len()) else { return };
        mld::emit_v2_report(src, to, groups, room);
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

    fn report_frame(&mut self, cx: &Cx<'_>) -> Option<Frame> {
        let frame = cx.frames.alloc();
        if frame.is_none() {
            self.stats.drops.count(DropReason::NoFrame);
        }
        frame
    }
}
