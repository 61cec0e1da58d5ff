//! Configuration of a lane's IP layer.
//!
//! Limits apply to each lane, so the limit of a host is the limit times the number of lanes, since lanes share nothing while packets
//! flow. A limit of zero means never.

/// Limits and habits of the IP layer, the same in every lane of a host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IpConfig {
    /// ICMP errors a second (RFC 1122 section 3.2.2, RFC 4443 section 2.4 f); FreeBSD's `icmplim` is 200 for the whole host.
    pub icmp_errors_per_second: u32,
    /// Answers to echo requests a second.
    pub echo_replies_per_second: u32,
    /// Limit of requests for unknown neighbours, per second. Requests for routers are not limited: they are few and configured. RFC 4861
    /// leaves the number to implementations; without a limit a flood from invented neighbours would become a flood of broadcasts.
    pub neighbour_requests_per_second: u32,
    /// Answers to ARP requests and neighbour solicitations a second.
    pub neighbour_replies_per_second: u32,
    /// Reports of multicast groups a second that answer queries; what sockets join and leave is reported in any case. As many
    /// queries are looked at.
    pub group_reports_per_second: u32,
    /// How often an address is probed before it is ours for good (`DupAddrDetectTransmits`, RFC 4862 section 5.1); 0 probes
    /// none. It is used meanwhile (RFC 4429).
    pub dad_transmits: u8,
    /// Whether routers are solicited on shared links, and their advertisements and redirects used, in addition to configured routes.
    pub follow_routers: bool,
    /// Whether datagrams to the client's port of DHCP ([`Lane::dhcp_next`](crate::Lane::dhcp_next)) reach the lane of bucket 0, whichever
    /// lane they come to.
    pub dhcp: bool,
    /// Whether addresses are made of prefixes that routers advertise (RFC 4862), and how their interface identifiers are.
    pub slaac: Slaac,
}

/// Addresses from advertised prefixes (RFC 4862 section 5.5), by their interface identifiers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Slaac {
    /// No addresses are made.
    #[default]
    Off,
    /// From the Ethernet address (RFC 4291 appendix A).
    Eui64,
    /// The same for the same prefix, Ethernet address and secret, and telling nobody of either (RFC 7217).
    Stable([u64; 2]),
}

impl Default for IpConfig {
    fn default() -> Self {
        Self {
            icmp_errors_per_second: 200,
            echo_replies_per_second: 10_000,
            neighbour_requests_per_second: 1000,
            neighbour_replies_per_second: 10_000,
            group_reports_per_second: 100,
            dad_transmits: 1,
            follow_routers: true,
            dhcp: false,
            slaac: Slaac::Off,
        }
    }
}
