//! Fast Open when we connect (RFC 7413 §4.1.3, §4.2.2).

use crate::packet::Cx;
use crate::tcp::config::FastOpen;
use crate::tcp::connection::Connection;
use crate::tcp::connection::fast_open::Marks;
use crate::tcp::connection::sizes::header_len;
use crate::tcp::lane::Core;
use crate::tcp::lane::peers::Path;
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
        let ask = self.fast_peers.ask(cx.now, Path::of(&c.tuple()), how, self.config.fast_open_pause);
        self.stats.fast_open_paused += u64::from(ask.paused);
        if let Some(option) = ask.option {
            c.fast.put(Marks::ASKED, true);
            c.fast.put(Marks::EXPERIMENTAL, option.is_experimental());
            c.send_fast_open(option);
        }
        if !ask.data {
            return 0;
        }
        let mss = ask.mss.map_or(c.mss.snd(), |mss| mss.min(c.mss.snd()));
        let path = cx.paths.get(c.remote()).map_or(u16::MAX, |mtu| mtu - header_len(c.local()));
        mss.min(path).saturating_sub(OPTIONS).into()
    }
}

impl Connection {
    /// The attempt has failed without any answer.
    pub(crate) fn fast_open_unanswered(&self, core: &mut Core, now: Time) {
        if self.fast.has(Marks::ASKED | Marks::DATA) {
            core.fast_peers.unanswered(now, Path::of(&self.tuple()), core.config.fast_open_peers);
        }
    }
}
