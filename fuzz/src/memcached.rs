//! A stream of memcached's requests: the same requests however it is cut, no panic of the store that answers them, and its memory below its limit. The same bytes
//! as a datagram, whose header says what it is, and as what a server says of its lanes.

use flowlane_memcached::answer::{answer, get};
use flowlane_memcached::map::LaneMap;
use flowlane_memcached::protocol::udp::{self, DATAGRAM, HEADER, Header, NoRequest};
use flowlane_memcached::protocol::{Command, ONE_GET, Parsed, one_get, parse};
use flowlane_memcached::store::{KeyHash, Limits, Store};

use crate::bytes::Bytes;

/// Small, so that items leave and pages change hands.
const MEMORY: usize = 1 << 20;
const ITEM: usize = 256 << 10;

/// A byte that says how long the filling values are, then the stream.
pub fn run(data: &[u8]) {
    let mut bytes = Bytes(data);
    let filling = usize::from(bytes.u8()) * 512;
    let stream = bytes.0;
    datagram(stream);
    lanes(stream);
    let mut store = Store::new(Limits { memory: MEMORY, item: ITEM }, 0);
    let hash = KeyHash::default();
    if filling > 0 {
        fill(&mut store, &hash, filling);
    }
    let (mut at, mut now, mut out) = (0, 10, Vec::new());
    while at < stream.len() {
        let rest = &stream[at..];
        let Parsed::Request(request, used) = parse(rest, ITEM) else {
            // With all there is, less is not a request either.
            cut(rest, None);
            break;
        };
        assert!(used > 0 && used <= rest.len(), "no progress, or bytes that are not there");
        cut(rest, Some(used));
        if let Some(key) = one_get(rest) {
            let Command::Get { keys, cas: false, touch: None } = &request.command else {
                panic!("a get read the short way alone")
            };
            assert!(keys.clone().eq([key]) && used == key.len() + ONE_GET, "a get for one key is another");
        }
        out.clear();
        match &request.command {
            Command::Get { keys, cas, touch } => {
                for key in keys.clone() {
                    get(&mut store, hash.of(key), key, *cas, *touch, &mut out);
                }
            }
            Command::Flush(delay) => store.flush(*delay),
            command => {
                let of = command.key().map_or(0, |key| hash.of(key));
                answer(&mut store, of, &request, &mut out);
                assert!(out.is_empty() || out.ends_with(b"\r\n"), "an answer without an end");
            }
        }
        let counts = store.counts();
        assert!(counts.allocated_bytes as usize <= MEMORY, "{} bytes", counts.allocated_bytes);
        assert!(
            counts.get_hits + counts.get_misses == counts.cmd_get,
            "gets that were neither found nor missed"
        );
        now += 1;
        store.tick(now);
        at = (at + used).saturating_add(request.skip);
    }
    store.flush(0);
    store.sweep(usize::MAX >> 1);
    store.sweep(usize::MAX >> 1);
    assert_eq!((store.counts().curr_items, store.counts().bytes), (0, 0), "something was lost sight of");
}

/// A datagram's header is its first eight bytes, and what is written of an answer is the answer.
fn datagram(bytes: &[u8]) {
    let header = Header::of_request(bytes);
    if bytes.len() <= HEADER {
        assert_eq!(header, Err(NoRequest::Short));
        return;
    }
    match header {
        Err(why) => assert!(why == NoRequest::Part && bytes[4..6] != [0, 1]),
        Ok(header) => {
            assert_eq!((header.bytes()[..6] == bytes[..6], header.datagrams), (true, 1));
            let mut out = Vec::new();
            udp::write(header.request, bytes, &mut out);
            let back: Vec<u8> = out.chunks(DATAGRAM).flat_map(|one| one[HEADER..].to_vec()).collect();
            assert!(back == bytes && out[..2] == bytes[..2]);
        }
    }
}

/// What a server says of its lanes is refused or is a map, in which every key has a lane.
fn lanes(bytes: &[u8]) {
    let Ok(map) =
        std::str::from_utf8(bytes).map_err(drop).and_then(|text| text.parse::<LaneMap>().map_err(drop))
    else {
        return;
    };
    assert!(map.here < map.lanes && map.lane_of(bytes) < map.lanes);
}

/// Fewer bytes than a request has are none, and what follows does not change it.
fn cut(bytes: &[u8], used: Option<usize>) {
    let whole = used.unwrap_or(bytes.len());
    for end in [whole / 2, whole.saturating_sub(1)] {
        let less = parse(&bytes[..end], ITEM);
        assert!(
            used.is_none() || end >= whole || matches!(less, Parsed::More(_)),
            "{end} of {whole} bytes are enough"
        );
        if let Parsed::More(needed) = less {
            assert!(needed > end, "{needed} bytes are needed of {end}");
        }
    }
    if let Some(used) = used {
        let Parsed::Request(_, again) = parse(&bytes[..used], ITEM) else { panic!("what follows is needed") };
        assert_eq!(again, used);
    }
}

fn fill(store: &mut Store, hash: &KeyHash, len: usize) {
    let (value, mut out) = (vec![b'v'; len], Vec::new());
    for n in 0..2 * MEMORY / len.max(64) {
        let mut bytes = format!("set fill{n} 0 0 {len}\r\n").into_bytes();
        bytes.extend_from_slice(&value);
        bytes.extend_from_slice(b"\r\n");
        if let Parsed::Request(request, _) = parse(&bytes, ITEM) {
            answer(store, hash.of(format!("fill{n}").as_bytes()), &request, &mut out);
            out.clear();
        }
    }
}

/// Conversations of every command, right and wrong.
pub(crate) fn inputs() -> Vec<Vec<u8>> {
    let streams = [
        "set a 5 0 3\r\nabc\r\nget a b\r\ngets a\r\ncas a 0 0 1 1\r\nx\r\nappend a 0 0 1\r\ny\r\nprepend a 0 0 1\r\nz\r\n",
        "add n 0 10 2\r\n10\r\nincr n 5\r\ndecr n 100\r\ntouch n 3\r\ngat 7 n\r\ngats 0 n a\r\ndelete n 0 noreply\r\n",
        "replace a 0 -1 0 noreply\r\n\r\nflush_all 2\r\nflush_all\r\nverbosity 1\r\nversion\r\nstats items\r\nquit\r\n",
        "ms k 2 T30 F7 c k Oabc\r\nhi\r\nmg k v s t f c l h k q\r\nmg v N30 R5 t\r\nmd k I T5 q\r\nme k\r\nmn\r\n",
        "ma n N0 J13 v\r\nma n MD D5 v t\r\nms Zm9v 1 b MA I C1\r\nx\r\nmg Zm9v b k v\r\nmd Zm9v b C9\r\n",
        "set a 0 0 99999999\r\nset a 0 0 -1\r\nset a x 0 1\r\nset a 0 0 2\r\nabc\r\nms a x\r\nms a 2 v v\r\nhi\r\nmg a !\r\n\r\n",
        "set fill1 0 0 10\r\n0123456789\r\nappend fill2 0 0 5\r\nvalue\r\nget fill1 fill2 fill3 fill4\r\n",
        "\x01\x02\0\0\0\x01\0\0get a b\r\n",
        "\x01\x02\0\x01\0\x02\0\0get a b\r\n",
        "STAT lanes 2\r\nSTAT lane_here 1\r\nSTAT key_hash siphash13\r\nSTAT key_hash_key 000102030405060708090a0b0c0d0e0f\r\n\
         STAT key_hash_shift 32\r\nSTAT steering toeplitz\r\nSTAT steering_key 6d5a56da255b0ec24167253d43a38fb0\r\n\
         STAT steering_fields ipv4,tcp-ipv4\r\nSTAT steering_table 0,1,0,1\r\nEND\r\n",
    ];
    let fillings = [0u8, 1, 40, 250];
    streams.iter().flat_map(|s| fillings.iter().map(move |f| [&[*f], s.as_bytes()].concat())).collect()
}
