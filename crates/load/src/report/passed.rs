//! What has passed of a run: counts and times that snapshots have in addition, where conditions are judged while the run goes on
//! ([`super::abort`]). A recorder that nobody asked for it does nothing for it.

use std::sync::mpsc::{SyncSender, TrySendError};

use super::counted::Counted;
use super::events::Seen;
use super::recorder::{Snapshot, Spectra};
use super::tally::Tally;
use super::threshold::Kind;

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
    pub(super) fn with(self, wanted: Wanted) -> Self {
        Self { wanted: Some(wanted), ..self }
    }

    /// Sends a snapshot.
    ///
    /// # Errors
    /// The receiver is slow or gone.
    pub fn try_send(&self, snapshot: Snapshot) -> Result<(), TrySendError<Snapshot>> {
        self.to.try_send(snapshot)
    }

    /// What has passed, if that is wanted.
    pub(super) fn passed(
        &self,
        counts: &Tally,
        spectra: &Spectra,
        events: Option<&Seen>,
    ) -> Option<Box<Passed>> {
        let wanted = self.wanted.as_ref()?;
        let times = |kind: Kind, times: &Counted| {
            if wanted.has(kind) { times.clone() } else { Counted::default() }
        };
        Some(Box::new(Passed {
            counts: counts.clone(),
            spectra: Spectra {
                latency: times(Kind::Latency, &spectra.latency),
                // Times to the last byte are those of the service.
                service: match wanted.has(Kind::LastByte) {
                    true => spectra.service.clone(),
                    false => times(Kind::Service, &spectra.service),
                },
                connect: times(Kind::Connect, &spectra.connect),
                tls: times(Kind::Tls, &spectra.tls),
                first_byte: times(Kind::FirstByte, &spectra.first_byte),
                slip: times(Kind::Slip, &spectra.slip),
                no_last_byte: spectra.no_last_byte,
            },
            events: events.filter(|_| wanted.has_events()).cloned().map(Box::new),
        }))
    }
}

/// Which times conditions are about. Each of them is copied with each snapshot, so no others are sent.
#[derive(Debug, Clone, Default)]
pub(super) struct Wanted(pub(super) Vec<Kind>);

impl Wanted {
    fn has(&self, kind: Kind) -> bool {
        self.0.contains(&kind)
    }

    fn has_events(&self) -> bool {
        [Kind::FirstEvent, Kind::EventGap, Kind::LastEvent].into_iter().any(|kind| self.has(kind))
    }
}

/// What has passed of the measured part, in a lane and a pool.
#[derive(Debug, Clone)]
pub struct Passed {
    pub(super) counts: Tally,
    pub(super) spectra: Spectra,
    pub(super) events: Option<Box<Seen>>,
}
