//! What stands beside the congestion window of the few connections for which that is not all: BBR's model of the path, or what Prague knows
//! of marks. Both pace.

use crate::tcp::config::Algorithm;
use crate::tcp::connection::congestion::bbr::Bbr;
use crate::tcp::connection::congestion::pace::Pace;
use crate::tcp::connection::congestion::prague::Prague;

/// One of them, each in a box of its own size.
#[derive(Debug)]
pub(crate) enum Model {
    Bbr(Box<Bbr>),
    Prague(Box<Prague>),
}

impl Model {
    /// Whose it is.
    pub(crate) const fn algorithm(&self) -> Algorithm {
        match self {
            Self::Bbr(_) => Algorithm::Bbr,
            Self::Prague(_) => Algorithm::Prague,
        }
    }

    /// Bytes of memory.
    pub(crate) const fn memory(&self) -> usize {
        match self {
            Self::Bbr(_) => size_of::<Bbr>(),
            Self::Prague(_) => size_of::<Prague>(),
        }
    }

    /// When the next burst may go.
    pub(crate) fn pace(&self) -> &Pace {
        match self {
            Self::Bbr(bbr) => bbr.pace(),
            Self::Prague(prague) => prague.pace(),
        }
    }

    /// The same, to be changed.
    pub(crate) fn pace_mut(&mut self) -> &mut Pace {
        match self {
            Self::Bbr(bbr) => bbr.pace_mut(),
            Self::Prague(prague) => prague.pace_mut(),
        }
    }

    /// BBR's.
    pub(crate) fn bbr_mut(&mut self) -> Option<&mut Bbr> {
        match self {
            Self::Bbr(bbr) => Some(bbr),
            Self::Prague(_) => None,
        }
    }

    /// Prague's, to look at.
    pub(crate) fn prague(&self) -> Option<&Prague> {
        match self {
            Self::Bbr(_) => None,
            Self::Prague(prague) => Some(prague),
        }
    }

    /// Prague's.
    pub(crate) fn prague_mut(&mut self) -> Option<&mut Prague> {
        match self {
            Self::Bbr(_) => None,
            Self::Prague(prague) => Some(prague),
        }
    }
}
