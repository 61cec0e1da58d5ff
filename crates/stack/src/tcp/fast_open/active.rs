//! Fast Open when we connect (RFC 7413 §4.1.3, §4.2.2).

use super::super::connection::Connection;
use super::super::handshake::header_len;
use super::super::lane::Core;
use super::super::segment::Segment;
use super::peers::{Draft, Lesson, Path};
use super::{FastOpen, Marks};
use crate::packet::Cx;
use crate::time::Time;

/// Left free for options, those included that something on the way puts into a SYN.
const OPTIONS: u16 = 40;

impl Core {
    /// Whether a SYN on this path may carry data now.
    pub(crate) fn fast_open_ready(&self, now: Time, path: Path, how: FastOpen) -> bool {
        self.fast_peers.ask(now, path, how, self.config.fast_open_pause).data
    }

    /// Decides what the SYN of a new connection carries; how many bytes of data it may.
    pub(crate) fn fast_open_ask(&mut self, cx: &Cx<'_>, c: &mut Connection, how: FastOpen) -> usize {
        if how == FastOpen::Off {
            return 0;
        }
        let ask = self.fast_peers.ask(cx.now, Path::of(c.tuple()), how, self.config.fast_open_pause);
        self.stats.fast_open_paused += u64::from(ask.paused);
        if let Some(option) = ask.option {
            c.fast.put(Marks::ASKED, true);
            c.fast.put(Marks::EXPERIMENTAL, option.is_experimental());
            c.rare_mut().fast_open = Some(option);
        }
        if !ask.data {
            return 0;
        }
        let mss = ask.mss.map_or(c.mss.snd(), |mss| mss.min(c.mss.snd()));
        let path = cx.paths.get(c.tuple().remote).map_or(u16::MAX, |mtu| mtu - header_len(c.tuple().local));
        mss.min(path).saturating_sub(OPTIONS).into()
    }
}

impl Connection {
    /// The peer has answered our SYN: what of its data arrived, and what is to be remembered for the next time.
    pub(crate) fn fast_open_answered(&mut self, core: &mut Core, cx: &mut Cx<'_>, seg: &Segment) {
        let (asked, sent) = (self.fast.has(Marks::ASKED), self.fast.has(Marks::DATA));
        if !asked && !sent {
            return;
        }
        let acked = seg.ack.since(self.snd.una()).min(self.snd.outstanding());
        if acked > 0 {
            self.acknowledge(core, cx, seg, acked, self.snd.wnd());
        }
        let left = self.snd.outstanding() > 0;
        // A cookie that was not asked for is no use: it may be anybody's.
        let cookie = seg.options.fast_open.filter(|option| asked && !option.is_request());
        let lost = asked && self.retransmits() > 0 && cookie.is_none() && left;
        let form = if self.fast.has(Marks::EXPERIMENTAL) { Draft::Yes } else { Draft::No };
        let refused = asked && self.retransmits() == 0 && cookie.is_none() && !sent;
        let default = if self.tuple().local.is_ipv4() { 536 } else { 1220 };
        let lesson = Lesson {
            mss: seg.options.mss.unwrap_or(default),
            cookie,
            refused: refused.then_some(form),
            lost,
        };
        core.fast_peers.learn(cx.now, Path::of(self.tuple()), &lesson, core.config.fast_open_peers);
        core.stats.fast_open_cookies_received += u64::from(cookie.is_some());
        if left {
            // RFC 7413 §4.2.2: what was not taken is sent again at once.
            if let Some(tx) = self.tx.get_mut() {
                for index in 0..tx.board.len() {
                    tx.board.mark_lost(index);
                }
            }
            self.arm_rto(core, cx.now);
            core.stats.fast_open_active_refused += 1;
        } else if sent {
            self.fast.put(Marks::SYN_DATA, true);
            core.stats.fast_open_active += 1;
        }
    }

    /// The attempt has failed without any answer.
    pub(crate) fn fast_open_unanswered(&self, core: &mut Core, now: Time) {
        if self.fast.has(Marks::ASKED | Marks::DATA) {
            core.fast_peers.unanswered(now, Path::of(self.tuple()), core.config.fast_open_peers);
        }
    }
}
