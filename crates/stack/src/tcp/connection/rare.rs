//! What few connections ever need.

use crate::tcp::Seq;
use crate::tcp::config::SocketOptions;
use crate::tcp::connection::accecn::AccEcn;
use crate::tcp::connection::congestion::Model;
use crate::tcp::connection::deadlines::NEVER;
use crate::tcp::connection::fast_open::Marks;
use crate::tcp::connection::recovery::{Reordering, Undo};
use crate::tcp::connection::{Connection, Lists};
use crate::time::Time;
use crate::wire::FastOpenOption;
use core::task::Waker;

/// What few connections ever need.
#[derive(Debug, Default)]
pub(super) struct Rare {
    /// If they are not the lane's.
    options: Option<SocketOptions>,
    closed_waker: Option<Waker>,
    /// RCV.UP: where the peer's urgent data ends, until the application has read so far.
    urgent: Option<Seq>,
    /// Who waits for urgent data.
    urgent_waker: Option<Waker>,
    /// Who waits for memory before it can write: data on its way has room for this itself.
    write_waker: Option<Waker>,
    /// Goes with our SYN or SYN-ACK.
    fast_open: Option<FastOpenOption>,
    /// When the segment size was lowered for the path.
    mss_lowered_secs: u32,
    /// What is known of the path's reordering, once there was any.
    reordering: Reordering,
    /// Everything has arrived, and until then the last reduction may still turn out to have been needless.
    undo: Option<(Undo, Time)>,
    /// What congestion control knows beside the window, with BBR and Prague.
    model: Option<Model>,
    /// Accurate ECN, asked for or agreed on.
    accecn: Option<Box<AccEcn>>,
}

/// Bytes of it, with accurate ECN. The model of the path counts where it is made.
pub(crate) const PER_RARE: usize = size_of::<Rare>() + size_of::<AccEcn>();

impl Rare {
    /// Who waits for memory before it can write, to be woken.
    #[inline]
    pub(super) fn take_writer(&mut self) -> Option<Waker> {
        self.write_waker.take()
    }

    /// Where the waker stands of who waits for memory before it can write.
    pub(super) fn writer_mut(&mut self) -> &mut Option<Waker> {
        &mut self.write_waker
    }

    /// Who waits for the end or for urgent data, to be woken.
    pub(super) fn take_watchers(&mut self) -> [Option<Waker>; 2] {
        [self.closed_waker.take(), self.urgent_waker.take()]
    }

    fn is_empty(&self) -> bool {
        let Rare {
            options,
            closed_waker,
            urgent,
            urgent_waker,
            write_waker,
            fast_open,
            mss_lowered_secs,
            reordering,
            undo,
            model,
            accecn,
        } = self;
        let waits = closed_waker.is_some() || write_waker.is_some() || undo.is_some() || model.is_some();
        let waits = waits || urgent.is_some() || urgent_waker.is_some() || accecn.is_some();
        let known = *mss_lowered_secs != 0 || *reordering != Reordering::default();
        options.is_none() && fast_open.is_none() && !waits && !known
    }
}

impl Connection {
    /// What few connections have, if this one does.
    #[inline]
    fn rare(&self) -> Option<&Rare> {
        if self.is_in(Lists::RARE) { self.rare.as_deref() } else { None }
    }

    #[inline]
    pub(super) fn rare_if_any(&mut self) -> Option<&mut Rare> {
        if self.is_in(Lists::RARE) { self.rare.as_deref_mut() } else { None }
    }

    /// Makes room for it.
    pub(super) fn rare_mut(&mut self) -> &mut Rare {
        if !self.has_rare() {
            self.put_in(Lists::RARE);
            self.rare_changed();
        }
        self.rare.get_or_insert_default()
    }

    /// It came, or went. What comes and goes at once has not changed.
    fn rare_changed(&mut self) {
        self.fast.put(Marks::RARE_CHANGED, !self.fast.has(Marks::RARE_CHANGED));
    }

    fn drop_empty_rare(&mut self) {
        if self.rare().is_some_and(Rare::is_empty) {
            self.rare = None;
            self.take_out(Lists::RARE);
            self.rare_changed();
        }
    }

    /// Whether the connection has any of it, which takes [`PER_RARE`] bytes.
    #[inline]
    pub(crate) fn has_rare(&self) -> bool {
        self.is_in(Lists::RARE)
    }

    // What the socket was told.

    /// What the socket was told beyond the ordinary.
    #[inline]
    pub(crate) fn options(&self) -> Option<&SocketOptions> {
        self.rare()?.options.as_ref()
    }

    /// The socket was told this, or nothing beyond the ordinary.
    pub(super) fn keep_options(&mut self, options: Option<SocketOptions>) {
        if options.is_some() {
            self.rare_mut().options = options;
        } else if let Some(rare) = self.rare_if_any() {
            rare.options = None;
        }
    }

    // The option of a SYN.

    /// Fast Open's option, which goes with our SYN or SYN-ACK.
    pub(crate) fn fast_open_option(&self) -> Option<FastOpenOption> {
        self.rare().and_then(|rare| rare.fast_open)
    }

    /// Our SYN or SYN-ACK has this option.
    pub(crate) fn send_fast_open(&mut self, option: FastOpenOption) {
        self.rare_mut().fast_open = Some(option);
    }

    /// The option of a SYN is not needed any more: its data has been sent, or never will be.
    pub(crate) fn fast_open_is_sent(&mut self) {
        let Some(rare) = self.rare_if_any() else { return };
        rare.fast_open = None;
        self.drop_empty_rare();
    }

    // Urgent data.

    /// RCV.UP: where the peer's urgent data ends, until the application has read so far.
    #[inline]
    pub(crate) fn urgent_end(&self) -> Option<Seq> {
        self.rare()?.urgent
    }

    /// The peer's urgent data ends there: who waits for that is woken.
    pub(crate) fn urgent_until(&mut self, end: Seq) {
        let rare = self.rare_mut();
        rare.urgent = Some(end);
        if let Some(waker) = rare.urgent_waker.take() {
            waker.wake();
        }
    }

    /// The application has read beyond the urgent data.
    pub(crate) fn forget_urgent(&mut self) {
        if let Some(rare) = self.rare_if_any() {
            rare.urgent = None;
        }
        self.drop_empty_rare();
    }

    // Who waits.

    /// Where the waker stands of who waits for urgent data.
    pub(crate) fn urgent_waker_mut(&mut self) -> &mut Option<Waker> {
        &mut self.rare_mut().urgent_waker
    }

    /// Where the waker stands of who waits for the end.
    pub(crate) fn closed_waker_mut(&mut self) -> &mut Option<Waker> {
        &mut self.rare_mut().closed_waker
    }

    /// No task waits for memory or for the end any more.
    pub(crate) fn forget_watchers(&mut self) {
        if let Some(rare) = self.rare_if_any() {
            (rare.write_waker, rare.closed_waker) = (None, None);
        }
    }

    // What congestion control knows beside the window.

    /// BBR's or Prague's, if the connection has one.
    #[inline]
    pub(crate) fn model_mut(&mut self) -> Option<&mut Model> {
        self.rare_if_any()?.model.as_mut()
    }

    /// The same to look at.
    #[inline]
    pub(crate) fn model(&self) -> Option<&Model> {
        self.rare()?.model.as_ref()
    }

    /// The connection has this model from now on, or none.
    pub(crate) fn set_model(&mut self, model: Option<Model>) {
        if model.is_some() {
            self.rare_mut().model = model;
        } else if let Some(rare) = self.rare_if_any() {
            rare.model = None;
            self.drop_empty_rare();
        }
    }

    // Accurate ECN.

    /// What is known of accurate ECN, if the connection has asked for it or agreed on it.
    #[inline]
    pub(crate) fn accecn(&self) -> Option<&AccEcn> {
        self.rare()?.accecn.as_deref()
    }

    /// The same, to be changed.
    #[inline]
    pub(crate) fn accecn_mut(&mut self) -> Option<&mut AccEcn> {
        self.rare_if_any()?.accecn.as_deref_mut()
    }

    /// The connection asks for accurate ECN or has agreed on it, or not any more.
    pub(crate) fn set_accecn(&mut self, accecn: Option<AccEcn>) {
        if let Some(accecn) = accecn {
            self.rare_mut().accecn = Some(Box::new(accecn));
        } else if let Some(rare) = self.rare_if_any() {
            rare.accecn = None;
            self.drop_empty_rare();
        }
    }

    // The path.

    /// When the segment size was lowered for the path, seconds.
    pub(crate) fn mss_lowered_secs(&self) -> u32 {
        self.rare().map_or(0, |rare| rare.mss_lowered_secs)
    }

    /// The segment size is lowered for the path, at that second.
    pub(crate) fn mss_lowered_at(&mut self, secs: u32) {
        self.rare_mut().mss_lowered_secs = secs;
    }

    /// What is known of the path's reordering.
    #[inline]
    pub(crate) fn reordering(&self) -> Reordering {
        self.rare().map_or_else(Reordering::default, |rare| rare.reordering)
    }

    /// Something is learnt of the path's reordering.
    pub(crate) fn learn_reordering(&mut self, learn: impl FnOnce(&mut Reordering)) {
        learn(&mut self.rare_mut().reordering);
    }

    /// A recovery is over, which matters where reordering was learnt of.
    pub(crate) fn end_recovery_of_reordering(&mut self) {
        if let Some(rare) = self.rare_if_any() {
            rare.reordering.end_recovery();
        }
    }

    // The last reduction of the window, after everything has arrived.

    /// The last reduction may still turn out to have been needless, until then.
    pub(crate) fn keep_undo_until(&mut self, undo: Undo, until: Time) {
        self.rare_mut().undo = Some((undo, until));
    }

    /// What was kept of it.
    pub(crate) fn kept_undo_mut(&mut self) -> Option<&mut Undo> {
        self.rare_if_any()?.undo.as_mut().map(|(undo, _)| undo)
    }

    /// The last reduction stands, whatever is reported from now on.
    pub(crate) fn forget_undo(&mut self) {
        let Some(rare) = self.rare_if_any() else { return };
        if rare.undo.take().is_some() {
            self.drop_empty_rare();
        }
    }

    /// What was kept of the last reduction, if it may still turn out to have been needless.
    pub(crate) fn take_kept_undo(&mut self) -> Option<Undo> {
        self.rare_if_any()?.undo.take().map(|(undo, _)| undo)
    }

    /// Until when a report is awaited that undoes the last reduction; [`NEVER`] if none is.
    #[inline]
    pub(crate) fn undo_until(&self) -> Time {
        self.rare().and_then(|rare| rare.undo).map_or(NEVER, |(_, until)| until)
    }
}
