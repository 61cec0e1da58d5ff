//! The peers that we use Fast Open with (RFC 7413 §4.1.3): cookie, segment size, and whether the path passes data in SYNs.
//!
//! A server derives its cookie from the client's address, so a cookie for one of our addresses is invalid for another. Entries are
//! therefore kept by the pair of our address and the peer's, without ports.

use crate::tcp::config::FastOpen;
use crate::tcp::table::Tuple;
use crate::time::Time;
use crate::wire::FastOpenOption;
use core::net::IpAddr;
use core::time::Duration;
use foldhash::fast::FixedState;
use hashbrown::HashMap;
use std::collections::VecDeque;

/// Losses after which Fast Open is left out for a while.
const LOSSES: u8 = 2;
/// The pause doubles this often at most.
const DOUBLINGS: u8 = 6;

/// Our address and the peer's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Path {
    pub(crate) local: IpAddr,
    pub(crate) remote: IpAddr,
}

impl Path {
    pub(crate) fn of(tuple: &Tuple) -> Self {
        // Guard: `tuple.local` as `tuple.remote` fails fast_open_active::each_of_our
        Self { local: tuple.local, remote: tuple.remote }
    }
}

/// One peer, as one of our addresses knows it.
#[derive(Debug, Clone, Copy, Default)]
struct Peer {
    /// Segment size of its last SYN-ACK; 0: not known.
    mss: u16,
    cookie: Option<FastOpenOption>,
    /// 1: it did not know the standard's option, so the draft's is tried; 2: it does not know that either.
    draft: u8,
    /// SYNs with the option that were lost, in a row, though a plain one was answered.
    losses: u8,
    lost_at: Time,
}

/// What to put into a SYN.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Ask {
    pub(crate) option: Option<FastOpenOption>,
    /// Data may go with it.
    pub(crate) data: bool,
    /// Segment size of the peer, if known.
    pub(crate) mss: Option<u16>,
    /// It is left out because SYNs with it were lost.
    pub(crate) paused: bool,
}

/// What an answered SYN taught.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Lesson {
    pub(crate) mss: u16,
    pub(crate) cookie: Option<FastOpenOption>,
    /// We asked for a cookie and got none; in this form.
    pub(crate) refused: Option<Draft>,
    /// The SYN with the option was lost.
    pub(crate) lost: bool,
}

/// Which form of the option was used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Draft {
    No,
    Yes,
}

/// All of them; when there are too many, the first known is forgotten.
#[derive(Debug)]
pub(crate) struct Peers {
    known: HashMap<Path, Peer, FixedState>,
    order: VecDeque<Path>,
}

impl Peers {
    pub(crate) fn new(seed: u64) -> Self {
        Self { known: HashMap::with_hasher(FixedState::with_seed(seed)), order: VecDeque::new() }
    }

    /// What to send on this path. `pause`: how long the option is left out after losses; zero for never.
    pub(crate) fn ask(&self, now: Time, path: Path, how: FastOpen, pause: Duration) -> Ask {
        let peer = self.known.get(&path).copied().unwrap_or_default();
        let mss = (peer.mss > 0).then_some(peer.mss);
        // Guard: `peer.losses >= LOSSES` as `false` fails fast_open_active::losses_pause
        if peer.losses >= LOSSES {
            let long = pause * (1 << (peer.losses - LOSSES).min(DOUBLINGS));
            if now < peer.lost_at + long {
                return Ask { paused: true, mss, ..Ask::default() };
            }
        }
        match (how, peer.cookie) {
            (FastOpen::Off, _) => Ask::default(),
            (FastOpen::NoCookie, _) => Ask { data: true, mss, ..Ask::default() },
            // Guard: `true` as `false` fails fast_open_active::data_goes
            (FastOpen::Cookie, Some(cookie)) => Ask { option: Some(cookie), data: true, mss, paused: false },
            (FastOpen::Cookie, None) => {
                Ask { option: Some(FastOpenOption::request(peer.draft == 1)), mss, ..Ask::default() }
            }
        }
    }

    /// A SYN has been answered.
    pub(crate) fn learn(&mut self, now: Time, path: Path, lesson: &Lesson, most: usize) {
        let Some(peer) = self.entry(path, most) else { return };
        peer.mss = lesson.mss;
        if lesson.cookie.is_some() {
            peer.cookie = lesson.cookie;
        } else if let (Some(form), None) = (lesson.refused, peer.cookie) {
            peer.draft = peer.draft.max(if form == Draft::Yes { 2 } else { 1 });
        }
        if lesson.lost {
            peer.losses = peer.losses.saturating_add(1);
            peer.lost_at = now;
        } else {
            peer.losses = 0;
        }
    }

    /// No SYN was ever answered: perhaps somebody on the way has taken offence (RFC 7413 §4.1.3.1).
    pub(crate) fn unanswered(&mut self, now: Time, path: Path, most: usize) {
        let Some(peer) = self.entry(path, most) else { return };
        // Guard: `peer.losses.saturating_add(1).max(LOSSES)` as `peer.losses.saturating_add(1)` fails
        // fast_open_active::an_unanswered
        peer.losses = peer.losses.saturating_add(1).max(LOSSES);
        peer.lost_at = now;
    }

    /// Forgets everything.
    pub(crate) fn clear(&mut self) {
        self.known.clear();
        self.order.clear();
    }

    pub(crate) fn len(&self) -> usize {
        self.known.len()
    }

    fn entry(&mut self, path: Path, most: usize) -> Option<&mut Peer> {
        if most == 0 {
            return None;
        }
        if !self.known.contains_key(&path) {
            // Guard: `self.known.len() >= most` as `false` fails fast_open_active:: lane::peers
            while self.known.len() >= most {
                let first = self.order.pop_front()?;
                self.known.remove(&first);
            }
            self.order.push_back(path);
        }
        Some(self.known.entry(path).or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::net::Ipv4Addr;

    const PAUSE: Duration = Duration::from_secs(10);

    /// From address `local` of ours to peer `remote`.
    fn path(local: u8, remote: u8) -> Path {
        let ip = |net, n| IpAddr::from(Ipv4Addr::new(10, 0, net, n));
        Path { local: ip(1, local), remote: ip(0, remote) }
    }

    fn plain() -> Lesson {
        Lesson { mss: 1000, cookie: None, refused: None, lost: false }
    }

    #[test]
    fn the_draft_is_tried_once() {
        let mut peers = Peers::new(1);
        let asked =
            |peers: &Peers| peers.ask(Time::ZERO, path(1, 1), FastOpen::Cookie, PAUSE).option.unwrap();
        assert_eq!(asked(&peers), FastOpenOption::request(false));
        peers.learn(Time::ZERO, path(1, 1), &Lesson { refused: Some(Draft::No), ..plain() }, 10);
        assert_eq!(asked(&peers), FastOpenOption::request(true));
        peers.learn(Time::ZERO, path(1, 1), &Lesson { refused: Some(Draft::Yes), ..plain() }, 10);
        assert_eq!(asked(&peers), FastOpenOption::request(false));
        peers.learn(Time::ZERO, path(1, 1), &Lesson { refused: Some(Draft::No), ..plain() }, 10);
        assert_eq!(asked(&peers), FastOpenOption::request(false));
    }

    #[test]
    fn losses_pause_it_longer_and_longer() {
        let mut peers = Peers::new(1);
        let paused = |peers: &Peers, secs| {
            peers.ask(Time::from_secs(secs), path(1, 1), FastOpen::NoCookie, PAUSE).paused
        };
        let lost = Lesson { lost: true, ..plain() };
        peers.learn(Time::from_secs(100), path(1, 1), &lost, 10);
        assert!(!paused(&peers, 100), "once may be chance");
        peers.learn(Time::from_secs(200), path(1, 1), &lost, 10);
        assert!(paused(&peers, 209) && !paused(&peers, 210));
        peers.learn(Time::from_secs(300), path(1, 1), &lost, 10);
        assert!(paused(&peers, 319) && !paused(&peers, 320));
        peers.learn(Time::from_secs(400), path(1, 1), &plain(), 10);
        assert!(!paused(&peers, 400));
        peers.unanswered(Time::from_secs(500), path(1, 1), 10);
        assert!(paused(&peers, 509) && !paused(&peers, 510));
        assert!(!peers.ask(Time::from_secs(505), path(1, 1), FastOpen::Cookie, Duration::ZERO).paused);
    }

    /// §4.1.3: a cookie is kept for the pair of addresses, and so is what else was learnt.
    #[test]
    fn each_of_our_addresses_has_its_own() {
        let mut peers = Peers::new(1);
        let cookie = |n: u8| FastOpenOption::cookie(&[n; 8], false);
        let sent = |peers: &Peers, path| {
            let ask = peers.ask(Time::ZERO, path, FastOpen::Cookie, PAUSE);
            (ask.option, ask.data, ask.paused)
        };
        let request = (Some(FastOpenOption::request(false)), false, false);
        peers.learn(Time::ZERO, path(1, 7), &Lesson { cookie: cookie(17), ..plain() }, 10);
        assert_eq!((sent(&peers, path(2, 7)), sent(&peers, path(1, 8))), (request, request));
        peers.learn(Time::ZERO, path(2, 7), &Lesson { cookie: cookie(27), ..plain() }, 10);
        assert_eq!(sent(&peers, path(1, 7)), (cookie(17), true, false));
        assert_eq!(sent(&peers, path(2, 7)), (cookie(27), true, false));
        // Not the same pair the other way round.
        let back = Path { local: path(1, 7).remote, remote: path(1, 7).local };
        assert_eq!(sent(&peers, back), request);
        peers.unanswered(Time::ZERO, path(1, 7), 10);
        assert_eq!((sent(&peers, path(1, 7)).2, sent(&peers, path(2, 7)).2), (true, false));
        assert_eq!(peers.len(), 2);
    }

    #[test]
    fn the_number_of_peers_is_bounded() {
        // The table is 7/16 full at least, with a byte of its own for each place, and the order half full.
        let most = (size_of::<(Path, Peer)>() + 1) * 16 / 7 + 2 * size_of::<Path>();
        assert!(most <= 240, "{most}: TcpConfig::fast_open_peers says less");
        let mut peers = Peers::new(1);
        for n in 0..200 {
            peers.learn(Time::ZERO, path(1, n), &plain(), 16);
        }
        assert_eq!((peers.len(), peers.order.len()), (16, 16));
        assert_eq!(peers.ask(Time::ZERO, path(1, 199), FastOpen::NoCookie, PAUSE).mss, Some(1000));
        assert_eq!(peers.ask(Time::ZERO, path(1, 1), FastOpen::NoCookie, PAUSE).mss, None);
        peers.learn(Time::ZERO, path(1, 1), &plain(), 0);
        assert_eq!(peers.len(), 16);
        // Our own addresses count as well.
        for n in 0..200 {
            peers.learn(Time::ZERO, path(n, 199), &plain(), 16);
        }
        assert_eq!((peers.len(), peers.order.len()), (16, 16));
        assert_eq!(peers.ask(Time::ZERO, path(184, 199), FastOpen::NoCookie, PAUSE).mss, Some(1000));
        assert_eq!(peers.ask(Time::ZERO, path(183, 199), FastOpen::NoCookie, PAUSE).mss, None);
        peers.clear();
        assert_eq!(peers.len(), 0);
    }
}
