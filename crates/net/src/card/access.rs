//! Access of a running runtime to a card's RSS.

use super::{CardRss, Held};

/// Access to the RSS of the card under a link, for as long as a runtime lasts ([`Builder::steer_card`](crate::Builder::steer_card)): slots
/// of its table follow lanes that move, and settings that it has forgotten are set again.
///
/// Called on a thread of its own, never on a worker's. Errors are one line for people, without the interface's name.
pub trait Access: Send {
    /// The spreading as the driver shows it now.
    ///
    /// # Errors
    /// It cannot be read.
    fn rss(&mut self) -> Result<CardRss, String>;

    /// Lets slots of the table, each by number, name other queues. When this returns the card sends packets there.
    ///
    /// # Errors
    /// The driver refuses it, permission is missing, or another program has changed the table. The card is unchanged.
    fn set_slots(&mut self, slots: &[(usize, u32)]) -> Result<(), String>;

    /// Sets the card again as it was last set, or found, whatever the driver shows.
    ///
    /// # Errors
    /// The driver does not take it, or the right is missing.
    fn set_again(&mut self) -> Result<(), String>;
}

/// With the right to change the card (`CAP_NET_ADMIN`) on the thread that uses it.
impl Access for Held {
    fn rss(&mut self) -> Result<CardRss, String> {
        Held::rss(self).map_err(|e| e.to_string())
    }

    fn set_slots(&mut self, slots: &[(usize, u32)]) -> Result<(), String> {
        Held::set_slots(self, slots).map_err(|e| e.to_string())
    }

    fn set_again(&mut self) -> Result<(), String> {
        Held::set_again(self).map_err(|e| e.to_string())
    }
}
