//! BBR's model in the life of a connection: what it is told, and what follows from it (draft-ietf-ccwg-bbr).
//!
//! The model itself is a piece (`connection/congestion/bbr/`). Loss recovery goes on as ever, and marks what is lost and sends it again; but
//! the window is the model's, and nothing goes before its time. Connections without a model, which nearly all are, have no `Rare` or none
//! with a model in it, and pay one look at a bit that they have in their first cache line.

use crate::tcp::Seq;
use crate::tcp::config::Algorithm;
use crate::tcp::connection::congestion::bbr::{Acked, At, Bbr};
use crate::tcp::connection::recovery::{AckReport, Phase};
use crate::tcp::connection::{Connection, Flags, Lists};
use crate::tcp::lane::Core;
use crate::time::Time;

impl Connection {
    /// The connection stands, or its socket was told of another congestion control: it gets a model, or none.
    pub(crate) fn fit_model(&mut self, core: &mut Core, now: Time) {
        let bbr = self.congestion.algorithm() == Algorithm::Bbr;
        let wanted = bbr && self.state().is_synchronized() && self.is_in(Lists::LINKED);
        if wanted && self.model().is_none() {
            let at = self.now_at(core, now, 0);
            if let Some(tx) = self.tx.get_mut() {
                // Of an earlier model, whose counts were others.
                tx.departures.reset();
            }
            // The offset of its timestamps is a keyed hash of the four-tuple.
            self.set_model(Some(Bbr::new(&at, self.rtt.srtt(), self.stamps.offset())));
            core.count_model(true);
        } else if !wanted {
            core.drop_model(self);
        }
    }

    /// Whether it has a model. Nearly none has.
    #[inline]
    pub(crate) fn has_model(&self) -> bool {
        self.model().is_some()
    }

    fn now_at(&self, core: &Core, now: Time, prior_in_flight: u32) -> At {
        let smss = self.effective_mss();
        let cwnd = self.congestion.cwnd();
        At {
            now,
            smss,
            cwnd,
            inflight: self.tx.get().map_or(0, |tx| tx.in_flight(self.snd.outstanding())),
            initial_cwnd: smss * u32::from(core.config.initial_window),
            is_cwnd_limited: prior_in_flight + smss > cwnd,
            in_loss_recovery: matches!(self.phase(), Phase::Recovery | Phase::Loss),
            has_selective_acks: self.has(Flags::SACK),
        }
    }

    /// So many bytes that end at `end` were sent, for the first time or again.
    #[inline]
    pub(crate) fn departed(&mut self, core: &mut Core, now: Time, end: Seq, bytes: u32) {
        if self.has_model() {
            self.model_sent(core, now, end, bytes);
        }
    }

    fn model_sent(&mut self, core: &mut Core, now: Time, end: Seq, bytes: u32) {
        let at = self.now_at(core, now, 0);
        let Some(departure) = self.model_mut().map(|model| model.on_sent(&at, end, bytes)) else { return };
        let Some(mut tx) = self.tx.take() else { return };
        // Records that were never sent again are in order of time.
        let first =
            tx.board.front().filter(|first| !first.is(crate::tcp::connection::scoreboard::EVER_RETRANS));
        let oldest = first.map(|first| first.at);
        tx.departures.push(departure, tx.board.len(), oldest);
        core.recount(&mut tx);
        self.tx.put_back(tx);
    }

    /// The application has something to send again, after it had not (CheckIfApplicationLimited).
    pub(crate) fn was_out_of_data(&mut self, core: &Core, now: Time) {
        let at = self.now_at(core, now, 0);
        let all_repaired = self.tx.get().is_none_or(|tx| tx.board.lost() <= tx.board.retrans());
        if let Some(model) = self.model_mut().filter(|_| all_repaired) {
            model.has_nothing_to_send(&at);
        }
    }

    /// What an acknowledgement says to the model. Recovery has looked at it before.
    #[cold]
    pub(crate) fn model_acknowledged(&mut self, core: &Core, now: Time, report: &AckReport, told: u32) {
        let newly_lost = self.model_lost(core, now);
        let at = self.now_at(core, now, report.prior_in_flight);
        let delivered = &report.delivered;
        let duplicate = report.duplicate && !self.has(Flags::SACK);
        let acked = Acked {
            // Without SACK each duplicate stands for a segment, which is not counted again when it is acknowledged.
            newly_acked: if duplicate { at.smss } else { delivered.bytes.saturating_sub(told) },
            newly_lost,
            rtt_us: delivered
                .rtt_from
                .filter(|_| !delivered.retransmitted)
                .map(|sent| now.micros_since(sent)),
            newest: self
                .tx
                .get()
                .zip(delivered.newest)
                .and_then(|(tx, (sent, end))| tx.departures.find(sent, end)),
            min_rtt_us: if self.rtt.min() == u32::MAX { 0 } else { self.rtt.min() },
        };
        if let Some(cwnd) = self.model_mut().map(|model| model.on_ack(&at, &acked)) {
            self.congestion.set_model_window(cwnd);
        }
    }

    /// Tells the model what recovery has newly deemed lost; how many bytes.
    pub(crate) fn model_lost(&mut self, core: &Core, now: Time) -> u32 {
        let Some(tx) = self.tx.get_mut() else { return 0 };
        let (bytes, last) = tx.board.take_newly_lost();
        if bytes == 0 {
            return 0;
        }
        let packet = last.and_then(|sent| tx.departures.find(sent.at, sent.end()));
        let at = self.now_at(core, now, 0);
        if let Some(model) = self.model_mut() {
            model.on_lost(&at, bytes, packet);
        }
        bytes
    }

    /// The retransmission timer has fired, and everything that was out is deemed lost.
    pub(crate) fn model_timed_out(&mut self, core: &Core, now: Time) {
        self.model_lost(core, now);
        let at = self.now_at(core, now, 0);
        if let Some(cwnd) = self.model_mut().map(|model| model.on_timeout(&at)) {
            self.congestion.set_model_window(cwnd);
        }
    }

    /// The last losses were none.
    pub(crate) fn model_undone(&mut self, core: &Core, now: Time) {
        let at = self.now_at(core, now, 0);
        if let Some(cwnd) = self.model_mut().map(|model| model.on_undo(&at)) {
            self.congestion.set_model_window(cwnd);
        }
    }

    /// Whether data has to wait for its time. Then the lane looks at the connection again at that time.
    #[inline(always)]
    pub(crate) fn is_held_by_pace(&mut self, core: &mut Core, now: Time) -> bool {
        self.has_model() && self.waits_for_pace(core, now)
    }

    #[cold]
    fn waits_for_pace(&mut self, core: &mut Core, now: Time) -> bool {
        let id = self.id();
        let Some(model) = self.model_mut() else { return false };
        let Some(until) = model.held_until(now) else { return false };
        if model.wants_wake() {
            core.paced.wait(id, until);
        }
        true
    }

    /// Its time has come.
    pub(crate) fn pace_is_over(&mut self) {
        if let Some(model) = self.model_mut() {
            model.woken();
        }
    }

    /// Most bytes that go at once.
    #[inline]
    pub(crate) fn burst_limit(&self) -> u32 {
        self.model().map_or(u32::MAX, Bbr::send_quantum)
    }
}
