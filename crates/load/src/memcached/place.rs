//! Which of a server's lanes a connection comes to, as the server says, and keys of that lane alone.
//!
//! A request whose key another lane has is handed over inside the server. `stats lanes` of `flowlane serve memcached` tells which lane has a key, and to which a
//! connection came. A connection that came to another lane than it is meant for is opened anew, from another port, until it comes to that one.

use std::future::poll_fn;

use flowlane::TcpStream;
use flowlane_memcached::map::{LaneMap, MapError};

use super::outcome::{Fault, Trouble};

/// Longest answer, bytes: a table of 2048 slots has 12 KiB.
const LONGEST: usize = 64 << 10;
/// Times that a connection is opened for each lane of the server, before it stays where it came to: one of e^32 does.
pub(super) const TRIES: usize = 32;
/// Keys that are drawn for each lane of the server, before one of another lane is asked for: some lane may have none of few keys.
const DRAWS: usize = 64;

/// Asks on a connection that was just opened.
pub(super) async fn ask(stream: &TcpStream) -> Result<LaneMap, Trouble> {
    stream.write_all(b"stats lanes\r\n").await?;
    let (mut answer, mut piece) = (Vec::new(), [0; 4096]);
    loop {
        let n = poll_fn(|cx| stream.poll_read(cx, &mut piece)).await?;
        if n == 0 {
            return Err(Trouble::Closed);
        }
        answer.extend_from_slice(&piece[..n]);
        if [&b"END\r\n"[..], b"ERROR\r\n", b"RESET\r\n"].iter().any(|end| answer.ends_with(end)) {
            let text = std::str::from_utf8(&answer).unwrap_or_default();
            return text.parse().map_err(|why| Fault::NoLanes(why).into());
        }
        if answer.len() > LONGEST {
            return Err(Fault::NoLanes(MapError::Bad("lanes")).into());
        }
    }
}

/// To which of the server's lanes a connection is to come: they take turns over all lanes of ours. `before`: connections of the lanes before this one.
pub(super) fn destination(before: u64, nth: usize, lanes: usize) -> usize {
    (before as usize).wrapping_add(nth) & (lanes - 1)
}

/// The first that `draw` gives whose key the lane has.
#[inline]
pub(super) fn of_lane<T>(
    map: &LaneMap,
    lane: usize,
    mut draw: impl FnMut() -> T,
    is_there: impl Fn(&T) -> usize,
) -> T {
    let mut drawn = draw();
    for _ in 0..DRAWS * map.lanes {
        // Guard: `is_there(&drawn) == lane` as `true` fails
        // memcached::place::tests::keys_of_a_lane_are_drawn_until_there_are_none
        if is_there(&drawn) == lane {
            break;
        }
        drawn = draw();
    }
    drawn
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_of_a_lane_are_drawn_until_there_are_none() {
        let map = LaneMap { lanes: 4, ..LaneMap::default() };
        let mut n = 0;
        let draw = || {
            n += 1;
            n
        };
        assert_eq!(of_lane(&map, 3, draw, |n| n % 4), 3);
        // A lane that has no key is given up.
        let mut draws = 0;
        assert_eq!(of_lane(&map, 3, || draws += 1, |()| 0), ());
        assert_eq!(draws, DRAWS * 4 + 1);
    }
}
