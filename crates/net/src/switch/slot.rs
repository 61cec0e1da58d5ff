//! What names a port. A number that is vacant is given to the next port. So that what is said of the one before is not taken for news of the
//! next, each has a birth.

use flowlane_switch::PortId;

/// A port by its number and its birth: another port that has the number later is another slot.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Slot {
    pub(super) port: PortId,
    pub(super) birth: u32,
}
