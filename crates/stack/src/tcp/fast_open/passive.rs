//! Fast Open at a listener (RFC 7413 §4.1.2, §4.2.1, §5.1).

use super::{as_option, cookie};
use crate::tcp::config::{FastOpenKeys, FastOpenListen};
use crate::tcp::connection::Connection;
use crate::tcp::connection::fast_open::Marks;
use crate::tcp::lane::Core;
use crate::tcp::segment::Segment;
use crate::tcp::table::Tuple;
use crate::time::Time;
use crate::wire::FastOpenOption;

/// What is done about a SYN.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Welcome {
    /// The connection may be used at once.
    pub(crate) early: bool,
    /// Goes with the SYN-ACK.
    answer: Option<FastOpenOption>,
}

impl Core {
    /// Looks at a SYN for Fast Open.
    pub(crate) fn fast_open_welcome(
        &mut self,
        now: Time,
        slot: u32,
        tuple: &Tuple,
        seg: &Segment,
    ) -> Welcome {
        let no = Welcome::default();
        let asked = seg.options.fast_open;
        let Some(listener) = self.listeners.slot_mut(slot) else { return no };
        let Some(told) = listener.options().fast_open.filter(|told| told.pending > 0) else { return no };
        if asked.is_none() && seg.len == 0 {
            return no;
        }
        self.stats.fast_open_cookies_asked += u64::from(asked.is_some_and(|option| option.is_request()));
        // Guard: `!listener.early_mut().has_room(now, told.pending)` as `false` fails
        // fast_open::the_number_of_early
        if !listener.early_mut().has_room(now, told.pending) {
            // RFC 7413 §5.1: beyond the limit Fast Open is as if it were off.
            self.stats.fast_open_overflows += 1;
            return no;
        }
        if told.no_cookie {
            return Welcome { early: true, answer: None };
        }
        let Some(asked) = asked else { return no };
        let (primary, former) = self.fast_open_keys_of(&told).bytes();
        let made = |key: &[u8; 16]| cookie(key, tuple.remote, tuple.local);
        let fresh = made(&primary);
        let answer = as_option(fresh, asked.is_experimental());
        if asked.is_request() {
            return Welcome { early: false, answer };
        }
        if asked.as_slice() == fresh {
            return Welcome { early: true, answer: None };
        }
        if former.is_some_and(|former| asked.as_slice() == made(&former)) {
            self.stats.fast_open_former_keys += 1;
            return Welcome { early: true, answer };
        }
        self.stats.fast_open_passive_refused += 1;
        Welcome { early: false, answer }
    }

    /// The peer resets an early connection.
    pub(crate) fn fast_open_reset(&mut self, c: &mut Connection, now: Time) {
        if c.fast.has(Marks::PENDING) {
            self.listeners.fast_open_over(c);
            if let Some(listener) = self.listeners.of(c) {
                listener.early_mut().was_reset(now);
                self.stats.fast_open_passive_resets += 1;
            }
        }
    }

    fn fast_open_keys_of(&self, told: &FastOpenListen) -> FastOpenKeys {
        told.keys.or(self.config.fast_open_keys).unwrap_or(self.fast_open_keys)
    }

    /// Notes at a new passive connection what was decided.
    pub(crate) fn fast_open_mark(&mut self, c: &mut Connection, welcome: &Welcome) {
        if welcome.early {
            c.fast.put(Marks::EARLY | Marks::PENDING, true);
            if let Some(listener) = self.listeners.slot_mut(c.listener()) {
                listener.early_mut().begin();
            }
        }
        if let Some(option) = welcome.answer {
            c.send_fast_open(option);
        }
    }
}
