//! The fast path through IP for nearly all segments: TCP in an untagged, unfragmented IPv4 packet without options, in one frame, from or to
//! the neighbour whose Ethernet address was used last.
//!
//! As for datagrams ([`udp`](super::udp)), one check of the headers finds whether a frame is of that kind; any other takes the slow path
//! unchanged, and results and counters are the same on both.

use core::net::{IpAddr, Ipv4Addr};

use flowlane_sys::frame::{Frame, Segmentation};

use crate::interface::Destination;
use crate::ip::Ip;
use crate::packet::{IpInput, IpMeta, IpOutput};
use crate::time::Time;
use crate::wire::{IpProtocol, Ipv4Header, Ipv4Options, Sum};

const ETHERNET: usize = 14;
const IPV4: usize = 20;
const HEADERS: usize = ETHERNET + IPV4;

/// Whether a frame whose data starts at the Ethernet header may be one of the usual kind.
#[inline]
pub(crate) fn may_be_segment(frame: &Frame) -> bool {
    frame.data().get(ETHERNET + 9) == Some(&IpProtocol::TCP.0)
}

#[inline(always)]
fn be32(h: &[u8; HEADERS], at: usize) -> u32 {
    u32::from_be_bytes([h[at], h[at + 1], h[at + 2], h[at + 3]])
}

#[inline(always)]
fn be16(h: &[u8; HEADERS], at: usize) -> u16 {
    u16::from_be_bytes([h[at], h[at + 1]])
}

impl Ip {
    /// Takes the headers off a segment of the usual kind; gives any other frame back.
    #[inline]
    pub(crate) fn fast_segment(&mut self, mut frame: Frame) -> Result<IpInput, Frame> {
        let link = frame.meta().interface;
        let plain = frame.meta().vlan.is_none() && !frame.is_chained();
        let len = frame.len();
        let (Some(interface), Some(h)) =
            (self.interfaces.get(usize::from(link)), frame.data().first_chunk::<HEADERS>())
        else {
            return Err(frame);
        };
        let mut ip = [0; IPV4];
        ip.copy_from_slice(&h[ETHERNET..]);
        let total = usize::from(be16(h, ETHERNET + 2));
        let (src, dst) = (be32(h, ETHERNET + 12), be32(h, ETHERNET + 16));
        // Guard: `be16(h, ETHERNET + 6) & 0x3fff == 0` as `true` fails fastpath::tcp::tests
        // Guard: `(IPV4..=len - ETHERNET).contains(&total)` as `total >= IPV4` fails fastpath::tcp::tests
        // Guard: `interface.destination(Ipv4Addr::from(dst).into()) == Destination::Unicast` as `true` fails
        // fastpath::tcp::tests
        // Guard: `!interface.is_no_source_v4(src)` as `true` fails fastpath::tcp::tests::our_own_address
        // Guard: `Sum::EMPTY.add_header(&ip).is_intact()` as `true` fails fastpath::tcp::tests
        let usual = plain
            && interface.fast.is_some()
            && h[0..6] == interface.config.mac.0
            && h[12..15] == [0x08, 0x00, 0x45]
            && be16(h, ETHERNET + 6) & 0x3fff == 0
            && ip[9] == IpProtocol::TCP.0
            && (IPV4..=len - ETHERNET).contains(&total)
            && (1..224).contains(&(src >> 24))
            && src >> 24 != 127
            && (interface.fast == Some(dst)
                || interface.destination(Ipv4Addr::from(dst).into()) == Destination::Unicast)
            && !interface.is_no_source_v4(src)
            && Sum::EMPTY.add_header(&ip).is_intact();
        if !usual {
            return Err(frame);
        }
        let mtu = interface.config.mtu;
        self.stats.ethernet.received += 1;
        self.stats.ethernet.received_bytes += len as u64;
        self.stats.ip.received += 1;
        self.stats.ip.delivered += 1;
        // Ethernet pads short frames: what IP does not count is not there.
        frame.truncate(ETHERNET + total);
        // The headers were read from these bytes.
        let _ = frame.trim_front(HEADERS);
        let ip = IpMeta {
            src: Ipv4Addr::from(src).into(),
            dst: Ipv4Addr::from(dst).into(),
            protocol: ip[9],
            hop_limit: ip[8],
            traffic_class: ip[1],
            header_len: IPV4 as u16,
            interface: link,
            mtu,
            unicast: true,
        };
        Ok(IpInput { frame, ip })
    }

    /// Makes a frame for the next hop used last of a segment; gives it back if its way is another, or anything else is
    /// unusual. The frame does not stand in the output queue: it is to be sent now.
    #[inline(always)]
    pub(crate) fn fast_segment_output(&mut self, now: Time, out: IpOutput) -> Result<Frame, IpOutput> {
        let (Some(hop), IpAddr::V4(src), IpAddr::V4(dst)) = (&mut self.last_hop, out.src, out.dst) else {
            return Err(out);
        };
        let interface = &self.interfaces[usize::from(hop.interface)];
        let total = out.frame.len() + IPV4;
        let usual = hop.is_granted(now)
            && interface.fast.is_some()
            && !out.frame.is_chained()
            && (total <= usize::from(interface.config.mtu)
                || out.frame.meta().segmentation != Segmentation::None)
            && total <= usize::from(u16::MAX)
            && (hop.is_way_to(dst)
                || self.routes.leads_to(dst, hop.interface, hop.address)
                    && !interface.is_broadcast_v4(dst)
                    && !dst.is_multicast());
        if !usual {
            return Err(out);
        }
        hop.note_way_to(dst);
        let from = interface.config.mac;
        let IpOutput { mut frame, protocol, hop_limit, traffic_class, dont_fragment, .. } = out;
        let meta = frame.meta_mut();
        meta.interface = hop.interface;
        meta.vlan = None;
        let Some(room) = frame.push_front(HEADERS).and_then(|b| b.first_chunk_mut::<HEADERS>()) else {
            return Err(IpOutput {
                frame,
                src: out.src,
                dst: out.dst,
                protocol,
                hop_limit,
                traffic_class,
                dont_fragment,
            });
        };
        room[0..6].copy_from_slice(&hop.mac.0);
        room[6..12].copy_from_slice(&from.0);
        room[12..ETHERNET].copy_from_slice(&[0x08, 0x00]);
        let header = Ipv4Header {
            src,
            dst,
            protocol: IpProtocol(protocol),
            ttl: hop_limit,
            tos: traffic_class,
            // Never fragmented, so the identifier means nothing (RFC 6864 section 4.1).
            identification: 0,
            dont_fragment,
            more_fragments: false,
            fragment_offset: 0,
            payload_len: (total - IPV4) as u16,
            options: Ipv4Options::default(),
        };
        header.emit(&mut room[ETHERNET..]);
        self.stats.ip.sent += 1;
        self.stats.ethernet.sent += 1;
        self.stats.ethernet.sent_bytes += frame.len() as u64;
        Ok(frame)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::address::Endpoint;
    use crate::steering::steer;
    use crate::tcp::ListenOptions;
    use crate::testing::{self, frame};
    use crate::{Class, Connect, InterfaceConfig, Lane};
    use flowlane_rss::{Key, Rss};
    use flowlane_sys::frame::Pool;

    fn lane(me: u8, short: bool) -> Lane {
        let claimed = vec!["10.0.9.0/24".parse().unwrap()];
        let interface = InterfaceConfig { claimed, ..testing::interface(me) };
        let mut lane = testing::lane(interface, [1, 2, 3, me.into()]);
        if !short {
            lane.ip.interfaces[0].fast = None;
        }
        lane
    }

    fn output(lane: &mut Lane, now: Time, pool: &Pool) -> Vec<Vec<u8>> {
        std::iter::from_fn(|| lane.poll_output(now, pool)).map(|frame| frame.data().to_vec()).collect()
    }

    /// A handshake and a request, as both ends see it: what comes to each, in order, what each puts out, and the counters.
    fn conversation(pool: &Pool, short: bool) -> ([Vec<Vec<u8>>; 2], String) {
        let mut lanes = [lane(1, short), lane(2, short)];
        let rss = Rss::new(Key::MICROSOFT, 1);
        let now = Time::from_secs(1);
        lanes[1].tcp_listen(None, 80, ListenOptions::default()).unwrap();
        let to = Endpoint::new(Ipv4Addr::new(10, 0, 0, 2).into(), 80);
        let id = lanes[0].tcp_connect(now, pool, Connect::to(to)).unwrap();
        let mut came = [vec![], vec![]];
        let mut carry = |lanes: &mut [Lane; 2]| {
            for from in [0, 1, 0, 1] {
                for bytes in output(&mut lanes[from], now, pool) {
                    let mut frame = frame(pool, &bytes);
                    let _ = steer(&rss, &mut frame);
                    lanes[1 - from].input(now, pool, frame, Class::Ethernet);
                    came[1 - from].push(bytes);
                }
            }
        };
        carry(&mut lanes);
        carry(&mut lanes);
        lanes[0].with_tcp(now, pool, |tcp, cx| tcp.send(cx, id, &[7; 100])).unwrap();
        carry(&mut lanes);
        let counters = format!("{:?} {:?}", lanes[0].stats(), lanes[1].stats());
        (came, counters)
    }

    #[test]
    fn both_ways_send_the_same_and_count_the_same() {
        let pool = testing::pool(512);
        let (short, long) = (conversation(&pool, true), conversation(&pool, false));
        assert!(short.0[1].iter().any(|bytes| bytes.len() > 150), "data came");
        assert_eq!(short, long);
    }

    /// LAND (RFC 1122 section 3.2.1.3 (g), our own address as source): the fast path leaves it to the slow path, which drops it.
    #[test]
    fn our_own_address_is_nobody_elses() {
        let pool = testing::pool(512);
        let (came, _) = conversation(&pool, true);
        let mut syn = came[1].iter().find(|bytes| bytes[23] == 6 && bytes[13] == 0).unwrap().clone();
        assert!(lane(2, true).ip.fast_segment(frame(&pool, &syn)).is_ok(), "as it came");
        let address = |at: usize| [syn[at], syn[at + 1], syn[at + 2], syn[at + 3]];
        let (theirs, ours) = (address(26), address(30));
        syn[26..30].copy_from_slice(&ours);
        syn[24..26].fill(0);
        let mut ip = [0; IPV4];
        ip.copy_from_slice(&syn[ETHERNET..HEADERS]);
        let sum = Sum::EMPTY.add_header(&ip).finish();
        syn[24..26].copy_from_slice(&sum.to_be_bytes());
        let pseudo = Sum::pseudo_v4(ours.into(), ours.into(), IpProtocol::TCP, (syn.len() - HEADERS) as u16);
        crate::wire::tcp::fill_checksum(pseudo, &mut syn[HEADERS..]);
        assert_ne!(theirs, ours);
        let now = Time::from_secs(1);
        let [short, long] = [true, false].map(|short| {
            let mut lane = lane(2, short);
            lane.tcp_listen(None, 80, ListenOptions::default()).unwrap();
            lane.input(now, &pool, frame(&pool, &syn), Class::Ethernet);
            (output(&mut lane, now, &pool), lane.stats().drops.total(), format!("{:?}", lane.stats()))
        });
        assert_eq!((short.0.len(), short.1), (0, 1));
        assert_eq!(short, long);
    }

    /// Every bit of the headers of every segment wrong once, every length, and padding behind it: what the fast path does not
    /// leave to the slow path it treats alike.
    #[test]
    fn both_ways_treat_damaged_frames_alike() {
        let pool = testing::pool(512);
        let (came, _) = conversation(&pool, true);
        let segments: Vec<_> = came[1].iter().filter(|bytes| bytes[23] == 6 && bytes[13] == 0).collect();
        assert!(segments.len() >= 3);
        let mut damaged = Vec::new();
        for segment in segments {
            for bit in 0..(HEADERS + 20) * 8 {
                let mut bytes = segment.clone();
                bytes[bit / 8] ^= 1 << (bit % 8);
                // Once with an IP checksum that is right again.
                damaged.push(bytes.clone());
                bytes[24..26].fill(0);
                let mut ip = [0; IPV4];
                ip.copy_from_slice(&bytes[ETHERNET..HEADERS]);
                let sum = Sum::EMPTY.add_header(&ip).finish();
                bytes[24..26].copy_from_slice(&sum.to_be_bytes());
                damaged.push(bytes);
            }
            damaged.extend((0..segment.len()).map(|len| segment[..len].to_vec()));
            damaged.push([&segment[..], &[0; 7]].concat());
        }
        let now = Time::from_secs(1);
        let mut taken = 0;
        for bytes in damaged {
            let [short, long] = [true, false].map(|short| {
                let mut lane = lane(2, short);
                lane.tcp_listen(None, 80, ListenOptions::default()).unwrap();
                lane.input(now, &pool, frame(&pool, &bytes), Class::Ethernet);
                (output(&mut lane, now, &pool), format!("{:?}", lane.stats()))
            });
            assert_eq!(short, long, "{bytes:02x?}");
            taken += usize::from(lane(2, true).ip.fast_segment(frame(&pool, &bytes)).is_ok());
        }
        assert!(taken > 500, "the fast path was taken: {taken}");
    }
}
