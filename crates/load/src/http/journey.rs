//! What a connection keeps of a request that is redirected: where it is, and the connections that wait for it to come back.
//!
//! A client keeps a connection for each of the last origins it was led to, as browsers and curl do, so that redirects do not cost a handshake
//! each time.

use std::sync::Arc;

use super::hop::Course;
use super::origins::Origin;
use super::prepared::Prepared;
use super::stream::Stream;

/// Most connections that wait beside the one in use.
const PARKED: usize = 4;

/// The journey of a connection's requests.
#[derive(Default)]
pub(super) struct Journey {
    /// The `Location` of the answer that is being read, if it is a redirect.
    pub(super) location: Option<Box<[u8]>>,
    /// The request as it is now, from the first redirect on.
    pub(super) course: Option<Box<Course>>,
    pub(super) prepared: Option<Arc<Prepared>>,
    /// Where the stream leads. `None`: to the connection's own target, and no other was ever asked for.
    pub(super) at: Option<Arc<Origin>>,
    /// The origin of the connection's own target, once another was asked for.
    pub(super) home: Option<Arc<Origin>>,
    /// Streams to other origins, the one that was used last at the end.
    parked: Vec<(Arc<Origin>, Stream)>,
}

impl std::fmt::Debug for Journey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Journey").field("course", &self.course).finish_non_exhaustive()
    }
}

impl Journey {
    /// Whether the stream leads somewhere else than to the connection's target.
    pub(super) fn is_away(&self) -> bool {
        match (&self.at, &self.home) {
            (Some(at), Some(home)) => !Arc::ptr_eq(at, home),
            _ => false,
        }
    }

    /// Takes the stream that leads to an origin, if there is one.
    pub(super) fn take(&mut self, to: &Arc<Origin>) -> Option<Stream> {
        let at = self.parked.iter().position(|(origin, _)| Arc::ptr_eq(origin, to))?;
        Some(self.parked.remove(at).1)
    }

    /// Keeps a stream; returns one for which there is no room any more: never that to the connection's own target.
    pub(super) fn park(&mut self, origin: Arc<Origin>, stream: Stream) -> Option<Stream> {
        self.parked.push((origin, stream));
        // Guard: `self.parked.len() <= PARKED` as `true` fails http::journey
        if self.parked.len() <= PARKED {
            return None;
        }
        let is_home = |origin: &Arc<Origin>| self.home.as_ref().is_some_and(|home| Arc::ptr_eq(origin, home));
        let oldest = self.parked.iter().position(|(origin, _)| !is_home(origin)).unwrap_or(0);
        Some(self.parked.remove(oldest).1)
    }

    /// Ends the journey; returns how many streams waited.
    pub(super) fn end(&mut self) -> usize {
        let waited = self.parked.len();
        *self = Self::default();
        waited
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::origins::Origins;

    #[test]
    fn few_streams_wait_and_that_to_the_target_stays() {
        let mut origins = Origins::default();
        let all: Vec<_> =
            (0..10).map(|n| origins.of(&format!("http://a:{}/", 80 + n).parse().unwrap()).unwrap()).collect();
        let mut journey =
            Journey { home: Some(all[0].clone()), at: Some(all[0].clone()), ..Journey::default() };
        assert!(!journey.is_away());
        let gone =
            all.iter().filter(|origin| journey.park((*origin).clone(), Stream::None).is_some()).count();
        assert_eq!(gone, 6);
        assert!(journey.take(&all[0]).is_some() && journey.take(&all[0]).is_none());
        assert!((1..7).all(|n| journey.take(&all[n]).is_none()) && journey.take(&all[9]).is_some());
        journey.at = Some(all[1].clone());
        assert!(journey.is_away());
        assert_eq!((journey.end(), journey.is_away()), (2, false));
    }
}
