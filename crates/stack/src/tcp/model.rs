//! What congestion control knows beside the window in the life of a connection: what BBR's model of the path (draft-ietf-ccwg-bbr) and Prague
//! (draft-briscoe-iccrg-prague-congestion-control) are told, and what follows from it.
//!
//! Either is a piece (`connection/congestion/{bbr,prague}/`). Loss recovery goes on as ever, and marks what is lost and sends it again. With BBR
//! the window is the model's; with Prague it follows marks, beside losses. Nothing goes before its time. Connections without a model, which
//! nearly all are, have no `Rare` or none with a model in it, and pay one look at a bit that they have in their first cache line.

use crate::tcp::Seq;
use crate::tcp::config::Algorithm;
use crate::tcp::connection::accecn::AccEcn;
use crate::tcp::connection::congestion::bbr::{Acked, At, Bbr};
use crate::tcp::connection::congestion::prague::{self, Prague};
use crate::tcp::connection::congestion::{Model, without};
use crate::tcp::connection::recovery::{AckReport, Phase};
use crate::tcp::connection::{Connection, Flags, Lists};
use crate::tcp::lane::Core;
use crate::time::Time;

impl Connection {
    /// The connection stands, its socket was told of another congestion control, or the path has turned out to change marks: it gets a model, or
    /// none. Prague without accurate ECN is CUBIC.
    pub(crate) fn fit_model(&mut self, core: &mut Core, now: Time) {
        let stands = self.state().is_synchronized() && self.is_in(Lists::LINKED);
        let mut wanted = self.congestion.algorithm();
        // Guard: `!self.hears_of_marks()` as `false` fails prague::without_accurate prague::a_path
        if wanted == Algorithm::Prague && stands && !self.hears_of_marks() {
            wanted = Algorithm::Cubic;
            self.congestion.set_algorithm(wanted);
            core.stats.prague_without += 1;
        }
        if !stands || !matches!(wanted, Algorithm::Bbr | Algorithm::Prague) {
            return core.drop_model(self);
        }
        if self.model().is_some_and(|model| model.algorithm() == wanted) {
            return;
        }
        let model = if wanted == Algorithm::Bbr {
            if let Some(tx) = self.tx.get_mut() {
                // Of an earlier model, whose counts were others.
                tx.departures.reset();
            }
            let at = self.now_at(core, now);
            // The offset of its timestamps is a keyed hash of the four-tuple.
            Model::Bbr(Box::new(Bbr::new(&at, self.rtt.srtt(), self.stamps.offset())))
        } else {
            Model::Prague(Box::new(Prague::new(&self.prague_at(now))))
        };
        core.give_model(self, model);
    }

    /// Whether the peer tells how many of our packets were marked, and nothing is known to change marks on the way.
    fn hears_of_marks(&self) -> bool {
        let hears = |accecn: &AccEcn| accecn.is_agreed() && accecn.sends_ect() && !accecn.s.is_deaf();
        self.has(Flags::ECN) && self.accecn().is_some_and(hears)
    }

    /// Whether it has a model. Nearly none has.
    #[inline]
    pub(crate) fn has_model(&self) -> bool {
        self.model().is_some()
    }

    /// BBR's model.
    #[inline]
    fn bbr_mut(&mut self) -> Option<&mut Bbr> {
        self.model_mut().and_then(Model::bbr_mut)
    }

    fn prague_at(&self, now: Time) -> prague::At {
        let repairing = matches!(self.phase(), Phase::Recovery | Phase::Loss);
        let used = self.has(Flags::CWND_LIMITED) && self.phase() == Phase::Open;
        prague::At {
            now,
            una: self.snd.una(),
            nxt: self.snd.nxt(),
            smss: self.effective_mss(),
            cwnd: self.congestion.cwnd(),
            srtt_us: self.rtt.srtt(),
            min_rtt_us: if self.rtt.min() == u32::MAX { 0 } else { self.rtt.min() },
            may_grow: used && !self.congestion.in_slow_start(),
            in_loss_recovery: repairing,
        }
    }

    fn now_at(&self, core: &Core, now: Time) -> At {
        let smss = self.effective_mss();
        At {
            now,
            smss,
            cwnd: self.congestion.cwnd(),
            inflight: self.tx.get().map_or(0, |tx| tx.in_flight(self.snd.outstanding())),
            initial_cwnd: smss * u32::from(core.config.initial_window),
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
        let at = self.now_at(core, now);
        let departure = match self.model_mut() {
            Some(Model::Bbr(bbr)) => bbr.on_sent(&at, end, bytes),
            Some(Model::Prague(prague)) => return prague.on_sent(bytes),
            None => return,
        };
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
        let at = self.now_at(core, now);
        let all_repaired = self.tx.get().is_none_or(|tx| tx.board.lost() <= tx.board.retrans());
        if let Some(model) = self.bbr_mut().filter(|_| all_repaired) {
            model.has_nothing_to_send(&at);
        }
    }

    /// What an acknowledgement says to the model. Recovery has looked at it before.
    #[cold]
    pub(crate) fn model_acknowledged(&mut self, core: &mut Core, now: Time, report: &AckReport, told: u32) {
        if self.model().is_some_and(|model| model.algorithm() == Algorithm::Prague) {
            return self.answer_marks(core, now);
        }
        let delivered = &report.delivered;
        let duplicate = report.duplicate && !self.has(Flags::SACK);
        // Without SACK each duplicate stands for a segment, which is not counted again when it is acknowledged.
        let newly_acked = if duplicate { self.effective_mss() } else { delivered.bytes.saturating_sub(told) };
        if let Some(model) = self.bbr_mut() {
            model.on_delivered(now, newly_acked);
        }
        let newly_lost = self.model_lost(core, now);
        let at = self.now_at(core, now);
        let acked = Acked {
            newly_acked,
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
        if let Some(cwnd) = self.bbr_mut().map(|model| model.on_ack(&at, &acked)) {
            self.congestion.set_model_window(cwnd);
        }
    }

    /// What an acknowledgement says to Prague, which has heard what it feeds back.
    fn answer_marks(&mut self, core: &mut Core, now: Time) {
        if !self.hears_of_marks() {
            return self.fit_model(core, now);
        }
        let at = self.prague_at(now);
        let Some(prague) = self.model_mut().and_then(Model::prague_mut) else { return };
        let answer = prague.on_ack(&at);
        core.stats.prague_deep += u64::from(answer.deep);
        // Guard: no `self.congestion.grow(answer.more);` fails prague::a_queue_of_l4s
        self.congestion.grow(answer.more);
        if let Some(share) = answer.cut {
            core.stats.ecn_reductions += 1;
            self.congestion.cut(share, self.phase() == Phase::Recovery, at.smss);
        }
        if let Some(share) = answer.cut.or(answer.owed) {
            // Guard: no `self.cut_undo(share);` fails prague::a_mark_is_not_undone
            self.cut_undo(share);
        }
        let at = self.prague_at(now);
        let slow_start = self.congestion.in_slow_start();
        if let Some(prague) = self.model_mut().and_then(Model::prague_mut) {
            prague.set_pace(&at, slow_start);
        }
    }

    /// Packets were marked, for which the window is less by this share of it: so is the one before losses that may turn out to have been none.
    fn cut_undo(&mut self, share: u32) {
        let cut = |window| without(window, share);
        if let Some(tx) = self.tx.get_mut() {
            tx.recovery.cut_undo(cut);
        }
        if let Some(undo) = self.kept_undo_mut() {
            undo.cut(cut);
        }
    }

    /// Tells the model what recovery has newly deemed lost; how many bytes.
    pub(crate) fn model_lost(&mut self, core: &Core, now: Time) -> u32 {
        let Some(tx) = self.tx.get_mut() else { return 0 };
        let (bytes, last) = tx.board.take_newly_lost();
        if bytes == 0 {
            return 0;
        }
        // Prague learns of losses from recovery.
        let packet = last.and_then(|sent| tx.departures.find(sent.at, sent.end()));
        let at = self.now_at(core, now);
        if let Some(model) = self.bbr_mut() {
            model.on_lost(&at, bytes, packet);
        }
        bytes
    }

    /// The retransmission timer has fired, and everything that was out is deemed lost.
    pub(crate) fn model_timed_out(&mut self, core: &Core, now: Time) {
        self.model_lost(core, now);
        let at = self.now_at(core, now);
        if let Some(cwnd) = self.bbr_mut().map(|model| model.on_timeout(&at)) {
            self.congestion.set_model_window(cwnd);
        }
    }

    /// The last losses were none.
    pub(crate) fn model_undone(&mut self, core: &Core, now: Time) {
        let at = self.now_at(core, now);
        if let Some(prague) = self.model_mut().and_then(Model::prague_mut) {
            prague.on_undo();
        }
        if let Some(cwnd) = self.bbr_mut().map(|model| model.on_undo(&at)) {
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
        let Some(pace) = self.model_mut().map(Model::pace_mut) else { return false };
        let Some(until) = pace.held_until(now) else { return false };
        if pace.wants_wake() {
            core.paced.wait(id, until);
        }
        true
    }

    /// Its time has come.
    pub(crate) fn pace_is_over(&mut self) {
        if let Some(model) = self.model_mut() {
            model.pace_mut().woken();
        }
    }

    /// Most bytes that go at once.
    #[inline]
    pub(crate) fn burst_limit(&self) -> u32 {
        self.model().map_or(u32::MAX, |model| model.pace().quantum())
    }
}
