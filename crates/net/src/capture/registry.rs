//! The captures of a runtime: a few at once, by number.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::{CaptureError, CaptureStatus, Writer};

/// Captures at once.
const MOST: usize = 4;
/// Captures that have ended whose end can still be asked for.
const REMEMBERED: usize = 16;

/// Those that run, and the last that did.
#[derive(Debug, Default)]
pub(crate) struct Captures {
    all: Mutex<Vec<(u64, Arc<Writer>)>>,
    next: AtomicU64,
}

impl Captures {
    fn all(&self) -> MutexGuard<'_, Vec<(u64, Arc<Writer>)>> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds one, made by `start` with its number, if there may be another.
    pub(crate) fn add(
        &self,
        start: impl FnOnce(u64) -> Result<Writer, CaptureError>,
    ) -> Result<u64, CaptureError> {
        let mut all = self.all();
        if all.iter().filter(|(_, writer)| !writer.has_ended()).count() >= MOST {
            return Err(CaptureError::TooMany);
        }
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        all.push((number, Arc::new(start(number)?)));
        while all.len() > REMEMBERED {
            let Some(ended) = all.iter().position(|(_, writer)| writer.has_ended()) else { break };
            all.remove(ended);
        }
        Ok(number)
    }

    fn find(&self, number: u64) -> Option<Arc<Writer>> {
        self.all().iter().find(|(n, _)| *n == number).map(|(_, writer)| writer.clone())
    }

    pub(crate) fn status(&self, number: u64) -> Option<CaptureStatus> {
        Some(self.find(number)?.status())
    }

    /// Ends one, and waits for its file.
    pub(crate) fn stop(&self, number: u64) -> Option<CaptureStatus> {
        Some(self.find(number)?.stop())
    }

    /// Ends one that no worker has heard of, and removes its file.
    pub(crate) fn give_up(&self, number: u64) {
        if let Some(writer) = self.find(number) {
            // Guard: `let _ = std::fs::remove_file(writer.stop_unheard().path);` as `let _ =
            // writer.stop_unheard();` fails runtime/capture::a_capture_of_the_runtime
            let _ = std::fs::remove_file(writer.stop_unheard().path);
        }
    }

    /// Ends all, and waits for their files.
    pub(crate) fn stop_all(&self) {
        let all: Vec<_> = self.all().iter().map(|(_, writer)| writer.clone()).collect();
        all.iter().for_each(|writer| drop(writer.stop()));
    }
}
