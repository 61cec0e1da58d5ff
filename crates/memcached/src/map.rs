//! Which lane has a key, and which connections come to a lane: the answer to `stats lanes`, written by the server and read by clients.
//!
//! A client that knows it has a connection in each lane and sends each request on that of the key's lane: no request is handed over. Any client may do
//! without: every lane answers for all keys.
//!
//! ```
//! use flowlane_memcached::map::LaneMap;
//! # let answer = "STAT lanes 2\r\nSTAT lane_here 1\r\nSTAT key_hash siphash13\r\n\
//! #     STAT key_hash_key 000102030405060708090a0b0c0d0e0f\r\nSTAT key_hash_shift 32\r\nSTAT steering none\r\nEND\r\n";
//! // What a connection answered to "stats lanes\r\n":
//! let map: LaneMap = answer.parse().unwrap();
//! let on_this_connection = map.lane_of(b"user:17") == map.here;
//! # let _ = on_this_connection;
//! ```
//!
//! **The lane of a key** is `siphash13(key_hash_key, key) >> key_hash_shift`, modulo `lanes`. **The lane of a connection**, where `steering` is `toeplitz`, is that
//! of the Toeplitz hash of its packets to the server (`steering_key`, over the fields that `steering_fields` names) in `steering_table`. So a client
//! chooses its source port: [`LaneMap::ports`]. Where `steering` is `none` the kernel chooses: connect, and ask on each connection where it is.

use std::fmt::{self, Display, Write as _};
use std::str::FromStr;

use flowlane_rss::{
    Affine, Arrangement, Bucket, BucketMap, General, HashConfig, HomePorts, Indirection, Key, PacketKind,
    Rss, Toeplitz,
};

use crate::store::KeyHash;

/// By how many bits the hash of a key is shifted before it names a lane.
const SHIFT: u32 = 32;
/// Most lanes: they are numbered in 16 bits.
const MOST: usize = 1 << 15;

/// The lanes of a server.
#[derive(Debug, Clone)]
pub struct LaneMap {
    /// How many lanes there are, a power of two.
    pub lanes: usize,
    /// The lane of the connection that said so.
    pub here: usize,
    /// The hash of keys.
    pub hash: KeyHash,
    /// How packets are steered to lanes; `None`: by the kernel, or by a rule that this has no words for.
    pub steering: Option<Rss>,
}

impl Default for LaneMap {
    /// One lane.
    fn default() -> Self {
        Self { lanes: 1, here: 0, hash: KeyHash::default(), steering: None }
    }
}

/// Why an answer is no map.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum MapError {
    /// There is no line of this name: the server is another, as Debian's memcached, which has no lanes.
    Missing(&'static str),
    /// What stands in the line of this name cannot be.
    Bad(&'static str),
}

impl Display for MapError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing(name) => {
                write!(f, "the server says nothing of its '{name}': it is no flowlane serve memcached")
            }
            Self::Bad(name) => write!(f, "what the server says of its '{name}' cannot be"),
        }
    }
}

impl std::error::Error for MapError {}

impl LaneMap {
    /// The lane that has a key.
    #[must_use]
    #[inline]
    pub fn lane_of(&self, key: &[u8]) -> usize {
        KeyHash::lane(self.hash.of(key), self.lanes)
    }

    /// The source ports of connections, or of datagrams, that come to a lane: `ports.to(our address, the server's, protocol)`. `None`: no port is known to do that.
    ///
    /// It is the search for home ports with source and destination changed over: there answers have to come home, here the packets to the server.
    #[must_use]
    pub fn ports(&self, lane: usize) -> Option<HomePorts> {
        let rss = self.steering.as_ref()?;
        let key = rss.hasher().key()?;
        let map = |kind: PacketKind| {
            let (addresses, ports) = fields(&rss.config, kind);
            let n = if kind.is_ipv4() { 32 } else { 128 };
            let column = |bit: usize| match bit {
                _ if bit < n => key.window(bit + n),
                _ if bit < 2 * n => key.window(bit - n),
                _ if !ports => 0,
                _ if bit < 2 * n + 16 => key.window(bit + 16),
                _ => key.window(bit - 16),
            };
            (addresses || ports).then(|| Affine::new(&(0..2 * n + 32).map(column).collect::<Vec<_>>(), 0))
        };
        let hasher = General::new(Arrangement::Plain, PacketKind::ALL.map(map));
        let turned = Rss::from_parts(hasher, rss.config, rss.table.clone(), rss.buckets.clone());
        let slots = turned.slots_of_bucket(Bucket(u16::try_from(lane).ok()?));
        Some(HomePorts::new(&turned, &slots))
    }

    /// Appends the answer to `stats lanes`.
    pub(crate) fn write(&self, out: &mut Vec<u8>) {
        let mut text = String::new();
        let mut stat = |name: &str, value: &dyn Display| _ = write!(text, "STAT {name} {value}\r\n");
        stat("lanes", &self.lanes);
        stat("lane_here", &self.here);
        stat("key_hash", &"siphash13");
        stat("key_hash_key", &hex(&self.hash.key()));
        stat("key_hash_shift", &SHIFT);
        match self.steering.as_ref().and_then(|rss| Some((rss, rss.hasher().key()?))) {
            Some((rss, key)) => {
                let on = |kind: &PacketKind| {
                    let (addresses, ports) = fields(&rss.config, *kind);
                    if kind.has_ports() { ports } else { addresses }
                };
                let kinds: Vec<&str> = PacketKind::ALL.into_iter().filter(on).map(PacketKind::name).collect();
                let slots: Vec<String> = rss.table.slots().iter().map(|slot| slot.0.to_string()).collect();
                stat("steering", &"toeplitz");
                stat("steering_key", &hex(key.as_bytes()));
                stat("steering_fields", &kinds.join(","));
                stat("steering_table", &slots.join(","));
            }
            None => stat("steering", &"none"),
        }
        text.push_str("END\r\n");
        out.extend_from_slice(text.as_bytes());
    }
}

/// Whether addresses, and whether ports, are hashed of packets of a kind.
fn fields(config: &HashConfig, kind: PacketKind) -> (bool, bool) {
    let addresses = if kind.is_ipv4() { config.ipv4 } else { config.ipv6 };
    let ports = match kind {
        PacketKind::TcpIpv4 => config.tcp_ipv4,
        PacketKind::UdpIpv4 => config.udp_ipv4,
        PacketKind::TcpIpv6 => config.tcp_ipv6,
        PacketKind::UdpIpv6 => config.udp_ipv6,
        PacketKind::Ipv4 | PacketKind::Ipv6 => false,
    };
    (addresses, ports)
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(2 * bytes.len()), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

impl FromStr for LaneMap {
    type Err = MapError;

    /// From the answer to `stats lanes`.
    fn from_str(answer: &str) -> Result<Self, MapError> {
        let value = |name: &'static str| {
            let mut lines = answer.lines().filter_map(|line| line.strip_prefix("STAT ")?.split_once(' '));
            lines
                .find(|(found, _)| *found == name)
                .map(|(_, value)| value.trim_end())
                .ok_or(MapError::Missing(name))
        };
        let number = |name| value(name)?.parse::<usize>().map_err(|_| MapError::Bad(name));
        let lanes = number("lanes")?;
        // Guard: `!lanes.is_power_of_two() || lanes > MOST` as `false` fails
        // map::tests::what_cannot_be_is_refused
        if !lanes.is_power_of_two() || lanes > MOST {
            return Err(MapError::Bad("lanes"));
        }
        let here = number("lane_here")?;
        // Guard: `here >= lanes` as `false` fails map::tests::what_cannot_be_is_refused
        if here >= lanes {
            return Err(MapError::Bad("lane_here"));
        }
        if value("key_hash")? != "siphash13" {
            return Err(MapError::Bad("key_hash"));
        }
        if number("key_hash_shift")? != SHIFT as usize {
            return Err(MapError::Bad("key_hash_shift"));
        }
        let key = value("key_hash_key").ok().and_then(sixteen).ok_or(MapError::Bad("key_hash_key"))?;
        let steering = match value("steering")? {
            "none" => None,
            "toeplitz" => {
                let key = Key::from_hex(value("steering_key")?).map_err(|_| MapError::Bad("steering_key"))?;
                let config = config(value("steering_fields")?).ok_or(MapError::Bad("steering_fields"))?;
                let table = table(value("steering_table")?, lanes).ok_or(MapError::Bad("steering_table"))?;
                let buckets = BucketMap::new(lanes, lanes).map_err(|_| MapError::Bad("lanes"))?;
                Some(Rss::from_parts(Toeplitz::new(&key), config, table, buckets))
            }
            _ => return Err(MapError::Bad("steering")),
        };
        Ok(Self { lanes, here, hash: KeyHash::with_key(key), steering })
    }
}

/// Sixteen bytes of hexadecimal digits.
fn sixteen(text: &str) -> Option<[u8; 16]> {
    let digits: Vec<u8> =
        text.chars().map(|c| c.to_digit(16).map(|digit| digit as u8)).collect::<Option<_>>()?;
    let bytes: Vec<u8> =
        digits.chunks(2).map(|pair| pair.iter().fold(0, |byte, digit| byte << 4 | digit)).collect();
    if digits.len() == 32 { bytes.try_into().ok() } else { None }
}

/// Kinds of packets, by their names.
fn config(text: &str) -> Option<HashConfig> {
    let mut config = HashConfig {
        ipv4: false,
        tcp_ipv4: false,
        udp_ipv4: false,
        ipv6: false,
        tcp_ipv6: false,
        udp_ipv6: false,
    };
    for name in text.split(',').filter(|name| !name.is_empty()) {
        let kind = PacketKind::ALL.into_iter().find(|kind| kind.name() == name)?;
        *match kind {
            PacketKind::Ipv4 => &mut config.ipv4,
            PacketKind::TcpIpv4 => &mut config.tcp_ipv4,
            PacketKind::UdpIpv4 => &mut config.udp_ipv4,
            PacketKind::Ipv6 => &mut config.ipv6,
            PacketKind::TcpIpv6 => &mut config.tcp_ipv6,
            PacketKind::UdpIpv6 => &mut config.udp_ipv6,
        } = true;
    }
    Some(config)
}

/// The lane of each slot.
fn table(text: &str, lanes: usize) -> Option<Indirection> {
    // Guard: `usize::from(*slot) < lanes` as `true` fails map::tests::what_cannot_be_is_refused
    let slot = |text: &str| text.parse().ok().filter(|slot| usize::from(*slot) < lanes).map(Bucket);
    Indirection::from_slots(text.split(',').map(slot).collect::<Option<_>>()?).ok()
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use flowlane_rss::{Flow, Protocol, UdpFields};

    use super::*;

    fn written(map: &LaneMap, here: usize) -> String {
        let mut out = Vec::new();
        LaneMap { here, ..map.clone() }.write(&mut out);
        String::from_utf8(out).unwrap()
    }

    fn map(fields: UdpFields) -> LaneMap {
        let table = Indirection::new(128, 4).unwrap();
        let config = HashConfig::with_udp(fields);
        let buckets = BucketMap::new(4, 2).unwrap();
        let rss = Rss::from_parts(Toeplitz::new(&Key::MICROSOFT), config, table, buckets);
        LaneMap { lanes: 4, here: 0, hash: KeyHash::default(), steering: Some(rss) }
    }

    /// What the server writes a client reads, and both find the same lane for each key, and for each port.
    #[test]
    fn a_client_finds_lanes_as_the_server_does() {
        for fields in [UdpFields::Two, UdpFields::Four] {
            let ours = map(fields);
            let theirs: LaneMap = written(&ours, 3).parse().unwrap();
            assert_eq!((theirs.lanes, theirs.here), (4, 3));
            let mut keys = [0; 4];
            for n in 0..1000 {
                let key = format!("key:{n}");
                let lane = theirs.lane_of(key.as_bytes());
                assert_eq!(lane, ours.lane_of(key.as_bytes()));
                keys[lane] += 1;
            }
            assert!(keys.iter().all(|n| (150..350).contains(n)), "{keys:?}");
            let rss = ours.steering.as_ref().unwrap();
            for (client, server) in [("10.1.2.3:0", "10.0.0.1:11211"), ("[fd00::7]:0", "[fd00::1]:11211")] {
                let [client, server] = [client, server].map(|at| at.parse::<SocketAddr>().unwrap());
                for protocol in [Protocol::TCP, Protocol::UDP] {
                    let mut found = 0;
                    for lane in 0..4 {
                        let home = theirs.ports(lane).unwrap();
                        let ports = home.to(client.ip(), server, protocol).unwrap();
                        found += ports.len();
                        for port in (1024..9000).step_by(7) {
                            let flow = Flow::new(SocketAddr::new(client.ip(), port), server, protocol);
                            let there = usize::from(rss.steer(&flow).bucket.0) == lane;
                            assert_eq!(ports.contains(port), there, "{flow:?} to lane {lane}");
                        }
                    }
                    assert_eq!(found, 65536, "each port comes to one lane");
                }
            }
        }
    }

    #[test]
    fn without_a_rule_there_are_no_ports() {
        let ours = LaneMap { lanes: 2, steering: None, ..LaneMap::default() };
        let theirs: LaneMap = written(&ours, 1).parse().unwrap();
        assert_eq!(theirs.hash, ours.hash);
        assert!(theirs.ports(0).is_none());
    }

    #[test]
    fn what_cannot_be_is_refused() {
        let good = written(&map(UdpFields::Two), 3);
        assert!(good.parse::<LaneMap>().is_ok());
        assert_eq!("ERROR\r\n".parse::<LaneMap>().unwrap_err(), MapError::Missing("lanes"));
        for (was, is, name) in [
            ("lanes 4", "lanes 3", "lanes"),
            ("lanes 4", "lanes 65536", "lanes"),
            ("lanes 4", "lanes x", "lanes"),
            ("lane_here 3", "lane_here 4", "lane_here"),
            ("siphash13", "murmur3", "key_hash"),
            ("key_hash_key ", "key_hash_key 00", "key_hash_key"),
            ("key_hash_shift 32", "key_hash_shift 0", "key_hash_shift"),
            ("toeplitz", "jenkins", "steering"),
            ("steering_key 6d", "steering_key 6", "steering_key"),
            ("tcp-ipv4", "tcp-ipx", "steering_fields"),
            ("steering_table 0", "steering_table 4", "steering_table"),
        ] {
            assert!(good.contains(was), "{was}");
            assert_eq!(
                good.replacen(was, is, 1).parse::<LaneMap>().unwrap_err(),
                MapError::Bad(name),
                "{is}"
            );
        }
    }
}
