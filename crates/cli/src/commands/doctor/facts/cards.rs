//! The cards: interfaces of this network namespace, and what their drivers tell without privileges.

use flowlane::card::{self, Card, Features, Surroundings, forgets_after_xdp};
use flowlane_sys::netdev::Interface;
use flowlane_sys::xdp;
use std::path::Path;

/// Cards that are looked at: a machine of containers has thousands of interfaces.
pub(in super::super) const MOST: usize = 64;

/// What is known of an interface.
#[derive(Debug, Clone)]
pub(in super::super) struct CardFacts {
    pub(in super::super) name: String,
    pub(in super::super) driver: Option<String>,
    pub(in super::super) up: Option<bool>,
    pub(in super::super) queues: u32,
    /// Key and table, as our own; or why they cannot be.
    pub(in super::super) rss: Result<(), String>,
    /// Rules that override the table; `None` where the driver tells of none.
    pub(in super::super) rules: Option<u32>,
    /// What XDP can do there: `None` before Linux 6.3.
    pub(in super::super) xdp: Option<Features>,
    /// It announces zero copy, and loses packets in it.
    pub(in super::super) loses: bool,
    /// It forgets RSS when a program comes or goes.
    pub(in super::super) forgets: bool,
}

pub(super) fn look() -> Result<Vec<CardFacts>, String> {
    let all = Interface::all().map_err(|e| e.to_string())?;
    Ok(all.iter().filter(|interface| interface.name() != "lo").take(MOST).filter_map(of).collect())
}

/// `None` for one that has gone meanwhile.
fn of(interface: &Interface) -> Option<CardFacts> {
    let card = Card::read(interface).ok()?;
    let around = Surroundings::read(Path::new("/"), interface.name());
    let driver = card.driver_name().to_owned();
    Some(CardFacts {
        name: interface.name().to_owned(),
        up: interface.is_up().ok(),
        queues: crate::commands::rss::queues(&card, &around),
        rss: card::steering(&card).map(drop).map_err(|why| why.to_string()),
        rules: card.rules.as_ref().ok().map(|rules| rules.count),
        xdp: card::features(interface.name()).ok().and_then(Result::ok),
        loses: xdp::loses_in_zero_copy(interface),
        forgets: card.rss.is_ok() && forgets_after_xdp(&driver),
        driver: Some(driver).filter(|name| !name.is_empty()),
    })
}
