//! A card's RSS as a host's steering: adopted as it is, or made for the host and written to the card.

use std::fmt;

use flowlane_rss::{CardTableError, HashConfig, Key, Rss, Toeplitz, UdpFields, worker_of_queue};
use flowlane_sys::netdev::card::control::{Change, Table};
use flowlane_sys::netdev::card::fields::{Fields, FlowKind};
use flowlane_sys::netdev::card::rss::{Function, HashKey, Transform};
use flowlane_sys::netdev::card::{Card, Untold};

use super::{NotOurs, steering};

/// Why a host cannot be steered as a card steers.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum NotAdopted {
    /// The card steers by rules that are not ours.
    NotOurs(NotOurs),
    /// Its table does not fit.
    Table(CardTableError),
    /// The driver does not tell how many queues receive.
    Queues(Untold),
    /// A slot names a queue that is not served.
    NotServed {
        /// The slot.
        slot: usize,
        /// The queue that it names.
        queue: u32,
        /// The first queue that is served.
        first: u32,
        /// How many are.
        queues: usize,
    },
}

impl fmt::Display for NotAdopted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotOurs(why) => write!(f, "{why}"),
            Self::Table(why) => write!(f, "{why}"),
            Self::Queues(why) => write!(f, "its queues are not known: {why}"),
            Self::NotServed { slot, queue, first: 0, queues } => {
                write!(f, "slot {slot} of the card's table names queue {queue}, but {queues} are served")
            }
            Self::NotServed { slot, queue, first, queues } => write!(
                f,
                "slot {slot} of the card's table names queue {queue}, but {first} to {} are served",
                *first as usize + queues - 1
            ),
        }
    }
}

impl std::error::Error for NotAdopted {}

/// Queues of a card that are served: the first and how many. Our numbers of them begin at 0.
pub type Served = (u32, u32);

/// All queues, where no others are chosen.
fn served(card: &Card, chosen: Option<Served>) -> Result<(u32, usize), NotAdopted> {
    let (first, count) = match chosen {
        Some(chosen) => chosen,
        None => (0, card.rings.map_err(NotAdopted::Queues)?),
    };
    Ok((first, count as usize))
}

/// The steering of a host behind this card for `workers` workers: the card's key, fields and table, whole. `chosen`: queues that are
/// served, if not all.
///
/// # Errors
/// See [`NotAdopted`].
pub fn adopt(card: &Card, chosen: Option<Served>, workers: usize) -> Result<Rss, NotAdopted> {
    let theirs = steering(card).map_err(NotAdopted::NotOurs)?;
    let (first, queues) = served(card, chosen)?;
    if let Some((slot, &queue)) =
        theirs.table.iter().enumerate().find(|(_, q)| !(first..first + queues as u32).contains(*q))
    {
        return Err(NotAdopted::NotServed { slot, queue, first, queues });
    }
    let slots: Vec<u16> = theirs.table.iter().map(|q| (*q - first) as u16).collect();
    Rss::of_card(theirs.hasher(), theirs.config, &slots, queues, workers).map_err(NotAdopted::Table)
}

/// Steering for `workers` workers with our key and fields on a card, and the change of the card that it needs
/// ([`Held::set`](super::Held::set)). The table has the length of the card's, and gives each worker an equal share of the served queues:
/// all, or those `chosen`.
///
/// # Errors
/// See [`NotAdopted`]; the driver has to show key and table.
pub fn plan(
    card: &Card,
    chosen: Option<Served>,
    key: Key,
    udp: UdpFields,
    workers: usize,
) -> Result<(Rss, Change), NotAdopted> {
    let theirs = card.rss.as_ref().map_err(|why| NotAdopted::NotOurs(NotOurs::Untold(*why)))?;
    let (first, queues) = served(card, chosen)?;
    let slots = equal_table(theirs.table.len(), queues, workers);
    let config = HashConfig::with_udp(udp);
    let rss =
        Rss::of_card(Toeplitz::new(&key), config, &slots, queues, workers).map_err(NotAdopted::Table)?;
    let change = Change {
        key: Some(HashKey(key.as_bytes().to_vec())),
        function: (theirs.function != Function::Toeplitz).then_some(Function::Toeplitz),
        transform: (theirs.transform != Transform::None).then_some(Transform::None),
        table: Some(Table::Slots(slots.iter().map(|q| first + u32::from(*q)).collect())),
        fields: fields(card, udp),
    };
    Ok((rss, change))
}

/// The fields that have to be changed on a card for UDP to be hashed like this; those of other kinds stay.
#[must_use]
pub fn fields(card: &Card, udp: UdpFields) -> Vec<(FlowKind, Fields)> {
    let wanted = match udp {
        UdpFields::Two => Fields::ADDRESSES,
        UdpFields::Four => Fields::FOUR,
    };
    let Ok(rss) = &card.rss else { return Vec::new() };
    let differs = |kind: &FlowKind| rss.fields_of(*kind).is_ok_and(|now| now != wanted);
    [FlowKind::Udp4, FlowKind::Udp6].into_iter().filter(differs).map(|kind| (kind, wanted)).collect()
}

/// Whether the driver tells how UDP is hashed, in both families: only then can it be asked for ports.
#[must_use]
pub fn tells_udp(card: &Card) -> bool {
    let Ok(rss) = &card.rss else { return false };
    [FlowKind::Udp4, FlowKind::Udp6].into_iter().all(|kind| rss.fields_of(kind).is_ok())
}

/// The kinds of UDP packets that the card hashes on addresses alone, the habit of Intel's drivers: all datagrams between two hosts come to
/// one queue. None with one queue.
#[must_use]
pub fn udp_by_addresses(card: &Card) -> Vec<FlowKind> {
    let Ok(rss) = &card.rss else { return Vec::new() };
    let only = |kind: &FlowKind| rss.fields_of(*kind) == Ok(Fields::ADDRESSES);
    let several = card.rings.is_ok_and(|queues| queues > 1);
    [FlowKind::Udp4, FlowKind::Udp6].into_iter().filter(|kind| several && only(kind)).collect()
}

/// A table that gives each worker its share of the slots in turn, and each of its queues a share of these.
fn equal_table(slots: usize, queues: usize, workers: usize) -> Vec<u16> {
    let sharing = workers.clamp(1, queues.max(1));
    let of_worker =
        |w: usize| (0..queues as u16).filter(move |q| usize::from(worker_of_queue(*q, sharing).0) == w);
    let queues_of: Vec<Vec<u16>> = (0..sharing).map(|w| of_worker(w).collect()).collect();
    (0..slots)
        .map(|slot| {
            let queues = &queues_of[slot % sharing];
            queues.get(slot / sharing % queues.len().max(1)).copied().unwrap_or(0)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_worker_gets_an_equal_share() {
        for (queues, workers) in
            [(1, 1), (1, 4), (3, 2), (4, 2), (4, 4), (5, 3), (2, 8), (8, 8), (8, 2), (8, 3), (8, 5)]
        {
            let table = equal_table(128, queues, workers);
            assert!(table.iter().all(|q| usize::from(*q) < queues));
            let rss =
                Rss::of_card(Toeplitz::new(&Key::MICROSOFT), HashConfig::default(), &table, queues, workers);
            let rss = rss.unwrap();
            let share = |w| rss.slots_of_worker(flowlane_rss::Worker(w as u16)).len();
            let shares: Vec<usize> = (0..workers).map(share).collect();
            let (least, most) = (shares.iter().min().unwrap(), shares.iter().max().unwrap());
            assert!(most - least <= 1 + 128 / workers / 4, "{queues} queues, {workers} workers: {shares:?}");
        }
    }
}
