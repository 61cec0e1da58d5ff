//! Drop reasons: every way to drop a packet in the stack has a name here.

use super::{Figure, Figures, Kind};
use crate::wire::Malformed;

macro_rules! reasons {
    ($($(#[doc = $doc:literal])+ $name:ident = $slug:literal, $text:literal;)+) => {
        /// Why the lane dropped a packet that could be read. Those that could not have a [`Malformed`] reason.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[repr(u8)]
        #[non_exhaustive]
        pub enum DropReason {
            $($(#[doc = $doc])+ $name,)+
        }

        impl DropReason {
            /// Every reason, in order of number.
            pub const ALL: &'static [DropReason] = &[$(DropReason::$name,)+];

            /// Name for machines.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(DropReason::$name => $slug,)+ }
            }

            /// Words for people.
            #[must_use]
            pub const fn text(self) -> &'static str {
                match self { $(DropReason::$name => $text,)+ }
            }
        }
    };
}

reasons! {
    /// Ethernet destination is neither ours, broadcast nor multicast.
    OtherHost = "other-host", "frames for another Ethernet address";
    /// VLAN tag where none is configured, none where one is, or another.
    VlanMismatch = "vlan-mismatch", "frames of another VLAN";
    /// EtherType that the stack does not speak.
    UnknownEtherType = "unknown-ethertype", "frames of an unknown EtherType";
    /// IP destination is no address of ours.
    NotOurAddress = "not-our-address", "packets for an address that is not ours";
    /// IP source that no host can have: multicast, broadcast, unspecified, loopback or our own.
    BadSource = "bad-source", "packets from an impossible source address";
    /// Multicast group that no socket has joined.
    NoGroup = "no-group", "packets for a multicast group that nobody joined";
    /// IPv4 source route, refused (RFC 7126).
    SourceRoute = "source-route", "packets with a source route";
    /// Protocol that is not supported.
    UnknownProtocol = "unknown-protocol", "packets of an unknown protocol";
    /// A fragment without payload, or of a length that only the last may have.
    FragmentInvalid = "fragment-invalid", "fragments of an impossible length";
    /// A fragment that ends beyond the longest packet.
    FragmentTooLong = "fragment-too-long", "fragments of packets longer than a packet can be";
    /// A first fragment without the whole of its headers (RFC 1858, RFC 7112).
    FragmentTiny = "fragment-tiny", "first fragments without all of their headers";
    /// A fragment within a reassembled packet.
    FragmentNested = "fragment-nested", "fragments of fragments";
    /// A fragment that is held already.
    FragmentDuplicate = "fragment-duplicate", "fragments that were there already";
    /// Fragments that overlap; all of their datagram go.
    FragmentOverlap = "fragment-overlap", "fragments that overlap, with their datagrams";
    /// A fragment of a datagram that was given up.
    FragmentGivenUp = "fragment-given-up", "fragments of datagrams given up before";
    /// A fragment beyond the end of its datagram, or with another end.
    FragmentPastEnd = "fragment-past-end", "fragments beyond the end of their datagram";
    /// A datagram in more fragments than it may have.
    FragmentTooMany = "fragment-too-many", "fragments of datagrams in too many of them";
    /// Fragments of one network beyond its share; its oldest datagram goes.
    FragmentSourceFull = "fragment-source-full", "fragments of networks that had more than their share";
    /// Fragments that made room for others.
    FragmentEvicted = "fragment-evicted", "fragments dropped to make room for others";
    /// A new datagram of a network that never finished one, while there is no room and too many such came.
    FragmentFlood = "fragment-flood", "fragments of unknown networks, too many without room";
    /// A fragment for which no room could be made.
    FragmentNoRoom = "fragment-no-room", "fragments that found no room";
    /// Fragments whose datagram did not complete in time.
    FragmentTimeout = "fragment-timeout", "fragments dropped after timeout";
    /// Fragments whose ECN fields contradict each other (RFC 3168 section 5.3).
    FragmentEcn = "fragment-ecn", "fragments whose ECN fields contradict each other";
    /// IPv6 option or header that says: drop the packet.
    Ipv6Option = "ipv6-option", "IPv6 packets with an option that forbids processing";
    /// IPv6 packet in which nothing follows its headers (RFC 8200 section 4.7).
    NoNextHeader = "no-next-header", "IPv6 packets with nothing behind their headers";
    /// ARP or NDP from an address that cannot be a neighbour's, or an answer from outside the link's prefixes.
    ArpStranger = "arp-stranger", "ARP from an address that is no neighbour's";
    /// Questions for our addresses beyond what is answered.
    ArpLimited = "arp-limited", "requests for our addresses beyond the rate limit";
    /// Echo requests beyond what is answered.
    EchoLimited = "echo-limited", "ICMP echo requests beyond the rate limit";
    /// ARP not for us.
    ArpNotForUs = "arp-not-for-us", "ARP requests for other hosts";
    /// ARP or NDP claiming an address of ours.
    AddressConflict = "address-conflict", "neighbours claiming one of our addresses";
    /// Neighbour discovery that did not come from the link (hop limit below 255) or is inconsistent.
    NdpInvalid = "ndp-invalid", "neighbour discovery messages that break RFC 4861";
    /// Advertisements and redirects of routers beyond what is believed.
    RouterLimited = "router-limited", "router advertisements and redirects beyond the rate limit";
    /// ICMP message of a kind that is not handled.
    IcmpUnhandled = "icmp-unhandled", "ICMP messages of a kind that is not handled";
    /// Wrong ICMP checksum.
    IcmpChecksum = "icmp-checksum", "ICMP messages with a bad checksum";
    /// IGMP or listener discovery from others: only queries are answered.
    GroupReport = "group-report", "group membership reports of other hosts";
    /// A query for groups that did not come from the link, or is inconsistent.
    GroupQueryInvalid = "group-query-invalid", "queries for multicast groups that break RFC 3376 or RFC 3810";
    /// Queries for groups beyond what is looked at.
    GroupQueryLimited = "group-query-limited", "queries for multicast groups beyond the rate limit";
    /// ICMP error quoting a packet that we did not send.
    IcmpUnrelated = "icmp-unrelated", "ICMP errors about no packet of ours";
    /// ICMP echo to a broadcast or multicast address.
    IcmpBroadcast = "icmp-broadcast", "ICMP requests to a broadcast or multicast address";
    /// Wrong UDP checksum.
    UdpChecksum = "udp-checksum", "UDP datagrams with a bad checksum";
    /// UDP over IPv6 without checksum (RFC 8200 section 8.1).
    UdpNoChecksum = "udp-no-checksum", "UDP over IPv6 datagrams without checksum";
    /// No socket for a datagram.
    UdpNoSocket = "udp-no-socket", "UDP datagrams for a port without socket";
    /// The socket's queue is full.
    UdpSocketFull = "udp-socket-full", "UDP datagrams for a socket whose queue is full";
    /// No frame free for an answer or a packet of our own.
    NoFrame = "no-frame", "packets not sent for want of a frame";
    /// No route to the destination.
    NoRoute = "no-route", "packets without a route";
    /// The next hop did not answer.
    NoNeighbour = "no-neighbour", "packets whose next hop did not answer";
    /// Too many packets wait for the next hop's address.
    NeighbourQueueFull = "neighbour-queue-full", "packets that found too many others waiting for a next hop";
    /// The lane's output queue is full.
    OutputFull = "output-full", "packets that found the lane's output queue full";
    /// The packet is larger than the link allows and may not be fragmented.
    TooBig = "too-big", "packets larger than the MTU";
    /// The header could not be put in front: no headroom.
    NoHeadroom = "no-headroom", "packets without room for their headers";
    /// The lane's redirect queue is full.
    RedirectFull = "redirect-full", "packets for another lane that found the redirect queue full";
    /// A tunnel's packet from another host, or with another key or network.
    TunnelUnknown = "tunnel-unknown", "packets of a tunnel that is not configured";
    /// Inside is not what the tunnel carries.
    TunnelPayload = "tunnel-payload", "tunnel packets with what the tunnel does not carry inside";
    /// A control message of Geneve.
    TunnelControl = "tunnel-control", "control messages in tunnels";
    /// In a tunnel that its own tunnel should be in, or that leads to itself.
    TunnelNested = "tunnel-nested", "packets in tunnels nested wrongly or too deep";
    /// The outer packet met congestion, and the inner one's sender could not be told (RFC 6040).
    TunnelEcn = "tunnel-ecn", "tunnel packets marked, of senders that know no marks (ECN)";
    /// A frame chain where one frame is expected.
    Chained = "chained", "packets in several frames where one is expected";
}

/// Dropped packets by reason, readable or not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Drops {
    reasons: [u64; DropReason::ALL.len()],
    malformed: [u64; Malformed::ALL.len()],
}

impl Default for Drops {
    fn default() -> Self {
        Self { reasons: [0; DropReason::ALL.len()], malformed: [0; Malformed::ALL.len()] }
    }
}

impl Drops {
    /// Counts one packet.
    #[inline]
    pub fn count(&mut self, reason: DropReason) {
        self.reasons[reason as usize] += 1;
    }

    /// Counts one packet that could not be read.
    #[inline]
    pub fn count_malformed(&mut self, reason: Malformed) {
        self.malformed[reason.index()] += 1;
    }

    /// Packets dropped for `reason`.
    #[must_use]
    pub fn get(&self, reason: DropReason) -> u64 {
        self.reasons[reason as usize]
    }

    /// Packets dropped because they could not be read.
    #[must_use]
    pub fn get_malformed(&self, reason: Malformed) -> u64 {
        self.malformed[reason.index()]
    }

    /// All packets dropped.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.reasons.iter().chain(&self.malformed).sum()
    }
}

impl Figures for Drops {
    fn each(&self, f: &mut dyn FnMut(Figure)) {
        for (reason, &value) in DropReason::ALL.iter().zip(&self.reasons) {
            f(Figure::count(reason.name(), reason.text(), value));
        }
        for (reason, &value) in Malformed::ALL.iter().zip(&self.malformed) {
            f(Figure::count(reason.name(), reason.name(), value));
        }
    }

    fn each_with(&mut self, other: &Self, f: &mut dyn FnMut(Kind, &mut u64, u64)) {
        let others = other.reasons.iter().chain(&other.malformed);
        let mine = self.reasons.iter_mut().chain(&mut self.malformed);
        mine.zip(others).for_each(|(value, other)| f(Kind::Count, value, *other));
    }
}
