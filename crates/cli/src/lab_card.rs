//! The card of a `flowlane lab` tells the instruments its key, table and fields, so that one can practise there.
//!
//! A veth has no settings of RSS to read: the lab's program hashes. So `lab up` writes what it hashes by into the alias of the interface (`ip
//! link` shows it), where it lives exactly as long as the interface, and only an administrator can write it. [`read`] reads a card, and
//! takes from there what the driver does not tell.

use flowlane::card::{Card, CardRss, Fields, FlowKind, Function, HashKey, Transform, Untold};
use flowlane_rss::{Key, Rss, Worker};
use flowlane_sys::error::Error;
use std::path::Path;

/// With what the alias of a lab's card begins.
const SIGN: &str = "flowlane-lab:toeplitz,key=microsoft,udp=ports,queues=";
/// Queues of a lab's card at most.
pub(crate) const MOST_QUEUES: u32 = 16;

/// The key of a lab's card.
pub(crate) const KEY: Key = Key::MICROSOFT;

/// The queue of each slot.
pub(crate) fn table(queues: u32) -> Vec<u16> {
    let rss = Rss::new(KEY, queues as usize);
    let queue = |bucket: &flowlane_rss::Bucket| {
        let Worker(worker) = rss.buckets.worker_of(*bucket);
        worker
    };
    rss.table.slots().iter().map(queue).collect()
}

/// The alias of a lab's card with so many queues.
pub(crate) fn alias(queues: u32) -> String {
    format!("{SIGN}{queues}")
}

/// What an alias says; `None` if it is no lab's.
fn told(alias: &str) -> Option<(u32, CardRss)> {
    let queues = alias.trim_end().strip_prefix(SIGN)?.parse().ok()?;
    if !(1..=MOST_QUEUES).contains(&queues) {
        return None;
    }
    let fields = |kind: FlowKind| match kind {
        FlowKind::Tcp4 | FlowKind::Tcp6 | FlowKind::Udp4 | FlowKind::Udp6 => Ok(Fields::FOUR),
        FlowKind::Ip4 | FlowKind::Ip6 => Ok(Fields::ADDRESSES),
        _ => Err(Untold::Unsupported),
    };
    let rss = CardRss {
        function: Function::Toeplitz,
        transform: Transform::None,
        key: HashKey(KEY.as_bytes().to_vec()),
        table: table(queues).into_iter().map(u32::from).collect(),
        fields: FlowKind::ALL.iter().map(|&kind| (kind, fields(kind))).collect(),
    };
    Some((queues, rss))
}

/// Reads how a card is set up, the card of a lab included.
///
/// # Errors
/// As [`flowlane::card::read`].
pub(crate) fn read(interface: &str) -> Result<Card, Error> {
    let mut card = flowlane::card::read(interface)?;
    if card.rss.is_err() && card.driver_name() == "veth" {
        let path = Path::new("/sys/class/net").join(card.interface.name()).join("ifalias");
        if let Some((queues, rss)) = std::fs::read_to_string(path).ok().as_deref().and_then(told) {
            (card.rss, card.rings) = (Ok(rss), Ok(queues));
        }
    }
    Ok(card)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What `up` writes is what the instruments read, and nothing else is.
    #[test]
    fn an_alias_says_how_the_card_hashes() {
        let (queues, rss) = told(&format!("{}\n", alias(4))).unwrap();
        assert_eq!((queues, rss.table.len(), rss.table.iter().max()), (4, 128, Some(&3)));
        let ours = flowlane::card::steering_of(&rss).unwrap();
        assert_eq!((ours.key, ours.config.udp_ipv6, ours.assumed), (KEY, true, vec![]));
        for other in ["", "uplink", "flowlane-lab", &alias(0), &alias(17), &format!("x{}", alias(2))] {
            assert!(told(other).is_none(), "{other}");
        }
    }
}
