//! What has passed of a run: counts and times that snapshots have in addition, where conditions are judged while the run goes on
//! ([`crate::report::abort`]), and where its figures are pushed ([`crate::push`]). A recorder that nobody asked for it does nothing for it.

use std::sync::mpsc::{SyncSender, TrySendError};

use super::{Snapshot, Spectra};
use crate::report::counted::Counted;
use crate::report::events::Seen;
use crate::report::model::Counts;
use crate::report::tally::Tally;
use crate::report::timed::Timed;

/// Where a recorder's snapshots go, and which times they have.
#[derive(Debug, Clone)]
pub struct SnapshotsTo {
    to: SyncSender<Snapshot>,
    wanted: Option<Wanted>,
}

impl From<SyncSender<Snapshot>> for SnapshotsTo {
    fn from(to: SyncSender<Snapshot>) -> Self {
        Self { to, wanted: None }
    }
}

impl SnapshotsTo {
    /// The same, with what has passed in each snapshot.
    #[must_use]
    pub(in crate::report) fn with(self, wanted: Wanted) -> Self {
        Self { wanted: Some(wanted), ..self }
    }

    /// The same, with all counts in each snapshot.
    #[must_use]
    pub(crate) fn with_counts(self) -> Self {
        Self { wanted: Some(self.wanted.unwrap_or_default()), ..self }
    }

    /// Sends a snapshot.
    ///
    /// # Errors
    /// The receiver is slow or gone.
    pub fn try_send(&self, snapshot: Snapshot) -> Result<(), TrySendError<Snapshot>> {
        self.to.try_send(snapshot)
    }

    /// What has passed, if that is wanted.
    pub(in crate::report) fn passed(
        &self,
        (counts, unmeasured): (&Tally, &Tally),
        spectra: &Spectra,
        events: Option<&Seen>,
    ) -> Option<Box<Passed>> {
        let wanted = self.wanted.as_ref()?;
        let times = |kind: Timed, times: &Counted| {
            if wanted.has(kind) { times.clone() } else { Counted::default() }
        };
        let spectra = || Spectra {
            latency: times(Timed::Latency, &spectra.latency),
            // Times to the last byte are those of the service.
            service: match wanted.has(Timed::LastByte) {
                true => spectra.service.clone(),
                false => times(Timed::Service, &spectra.service),
            },
            connect: times(Timed::Connect, &spectra.connect),
            tls: times(Timed::Tls, &spectra.tls),
            first_byte: times(Timed::FirstByte, &spectra.first_byte),
            slip: times(Timed::Slip, &spectra.slip),
            no_last_byte: spectra.no_last_byte,
        };
        // Guard: `(!wanted.0.is_empty()).then(spectra)` as `Some(spectra())` fails report::tests::counts_alone_have_no_times
        let spectra = (!wanted.0.is_empty()).then(spectra);
        Some(Box::new(Passed {
            counts: counts.clone(),
            unmeasured: unmeasured.clone(),
            spectra,
            events: events.filter(|_| wanted.has_events()).cloned().map(Box::new),
        }))
    }
}

/// Which times conditions are about. Each of them is copied with each snapshot, so no others are sent.
#[derive(Debug, Clone, Default)]
pub(in crate::report) struct Wanted(pub(in crate::report) Vec<Timed>);

impl Wanted {
    fn has(&self, kind: Timed) -> bool {
        self.0.contains(&kind)
    }

    fn has_events(&self) -> bool {
        [Timed::FirstEvent, Timed::EventGap, Timed::LastEvent].into_iter().any(|kind| self.has(kind))
    }
}

/// What has passed in a lane and a pool: counts, and times of the measured part.
#[derive(Debug, Clone)]
pub struct Passed {
    pub(in crate::report) counts: Tally,
    pub(in crate::report) unmeasured: Tally,
    /// Those that are wanted; `None` if none is.
    pub(in crate::report) spectra: Option<Spectra>,
    pub(in crate::report) events: Option<Box<Seen>>,
}

impl Passed {
    /// The counts of all that has passed, measured or not.
    pub(crate) fn all_counts(&self) -> Counts {
        let mut counts = self.counts.counts();
        counts.add(&self.unmeasured.counts());
        counts
    }
}
