//! A segment for a listener: RFC 9293 §3.10.7.2, with backlogs.
//!
//! A listener is found by address and port, an exact address before the wildcard. It limits handshakes in progress (`syn_backlog`) and
//! connections waiting to be accepted (`backlog`). When the former is full, SYN cookies are used (`syn_cookies`); when the latter is
//! full, the last segment of the handshake is ignored, and the peer retransmits it.

use crate::packet::Cx;
use crate::stats::tcp::DropReason;
use crate::tcp::config::SynCookies;
use crate::tcp::connection::{Connection, State};
use crate::tcp::lane::Core;
use crate::tcp::lane::replies::ReplyMeta;
use crate::tcp::segment::Segment;
use crate::tcp::table::{Slab, Tuple};
use crate::tcp::{Seq, ecn, handshake};
use crate::wire::TcpFlags;

impl Core {
    /// A segment for no connection, but perhaps for a listener. `after`: the initial sequence number must be beyond this
    /// one (RFC 6191). Returns the slot of a connection to be put into the table.
    pub(crate) fn listen_input(
        &mut self,
        cx: &mut Cx<'_>,
        (tuple, hash): (&Tuple, u32),
        seg: &Segment,
        after: Option<Seq>,
        connections: &mut Slab<Connection>,
    ) -> Option<u32> {
        let meta = ReplyMeta { hash: seg.hash, hash_type: seg.hash_type, tos: 0 };
        let listening =
            if self.takes_connections() { self.listeners.find(tuple.local, tuple.local_port) } else { None };
        let Some(slot) = listening else {
            if seg.is(TcpFlags::RST) {
                self.stats.drop(DropReason::ResetForNobody);
            } else {
                // RFC 9293 §3.10.7.1.
                self.stats.drop(DropReason::NoConnection);
                self.refuse_stranger(cx, tuple, seg, meta);
            }
            return None;
        };
        // First: RST is ignored.
        if seg.is(TcpFlags::RST) {
            self.stats.drop(DropReason::ResetForNobody);
            return None;
        }
        // Second: ACK. No handshake of this peer is known, so it is a cookie or a mistake.
        if seg.is(TcpFlags::ACK) {
            if !seg.is(TcpFlags::SYN) {
                if let Some(slot) = self.cookie_input(cx, slot, (tuple, hash), seg, connections) {
                    return Some(slot);
                }
                // The acknowledgement of a cookie may have been lost or overtaken by what came after it. A reset now
                // would end a connection that the peer's next retransmission of its first segment can still make.
                if self.listeners.slot_mut(slot).is_some_and(|listener| listener.honours_cookies(cx.now)) {
                    self.stats.drop(DropReason::BadCookie);
                    return None;
                }
            }
            self.stats.drop(DropReason::NotSyn);
            self.refuse_stranger(cx, tuple, seg, meta);
            return None;
        }
        // Third: SYN.
        if !seg.is(TcpFlags::SYN) {
            self.stats.drop(DropReason::NotSyn);
            return None;
        }
        // Guard: `seg.is(TcpFlags::FIN)` as `false` fails listen::a_syn_with_a_fin
        if seg.is(TcpFlags::FIN) {
            self.stats.drop(DropReason::BadFlags);
            return None;
        }
        self.syn_input(cx, slot, (tuple, hash), seg, after, connections)
    }

    fn syn_input(
        &mut self,
        cx: &mut Cx<'_>,
        slot: u32,
        (tuple, hash): (&Tuple, u32),
        seg: &Segment,
        after: Option<Seq>,
        connections: &mut Slab<Connection>,
    ) -> Option<u32> {
        let listener = self.listeners.slot_mut(slot)?;
        // Guard: `listener.is_full()` as `false` fails tcp::tests::listen
        if listener.is_full() {
            self.stats.listen_overflows += 1;
            self.stats.drop(DropReason::BacklogFull);
            return None;
        }
        // Guard: `listener.is_syn_backlog_full()` as `false` fails cookies::a_flood
        // Guard: `connections.len() >= self.config.max_connections` as `false` fails listen::connections_of_a_lane
        let full = listener.is_syn_backlog_full() || connections.len() >= self.config.max_connections;
        let cookie = match self.config.syn_cookies {
            SynCookies::Off => false,
            // Guard: `full` as `false` fails cookies::a_flood listen::connections_of_a_lane
            SynCookies::WhenFull => full,
            SynCookies::Always => true,
        };
        if cookie {
            self.send_cookie(cx, slot, tuple, seg);
            return None;
        }
        if full {
            let many = connections.len() >= self.config.max_connections;
            self.stats.drop(if many { DropReason::TooManyConnections } else { DropReason::SynBacklogFull });
            return None;
        }
        let options = listener.options().socket;
        // Guard: `!self.may_connect()` as `false` fails bounds/receive::syns bounds/receive::connections_that
        if !self.may_connect() {
            self.stats.drop(DropReason::LaneMemory);
            return None;
        }
        let welcome = self.fast_open_welcome(cx.now, slot, tuple, seg);
        if let (false, Some(listener)) = (welcome.early, self.listeners.slot_mut(slot)) {
            listener.begin_handshake();
        }
        self.stats.syncache_added += 1;
        let secrets = self.secrets(tuple);
        let iss = match after {
            // RFC 6191 §2 by way of RFC 1122 §4.2.2.13: beyond anything the old connection used.
            // Guard: `old + 64_000 + 1` as `secrets.isn(cx.now)` fails
            // time_wait::a_new_connection_begins_beyond
            Some(old) => old + 64_000 + 1,
            None => secrets.isn(cx.now),
        };
        let c = handshake::connection(
            self,
            connections,
            (*tuple, hash),
            State::SynReceived,
            (iss, secrets.ts_offset),
            seg.mtu,
            &options,
        );
        c.came_from(slot);
        c.set_in_syn_backlog(!welcome.early);
        self.fast_open_mark(c, &welcome);
        c.take_peer_syn(self, cx, seg);
        c.set_flow_hash(seg.hash, seg.hash_type);
        c.agree_on_ecn(&self.config, ecn::mode(ecn::told(&self.config, options.congestion), seg), seg);
        c.snd.first_window(u32::from(seg.window), seg.seq, iss);
        Some(c.id().slot)
    }
}
