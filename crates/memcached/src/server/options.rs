//! What a server may do, and what it tells of itself.

use std::sync::Arc;
use std::time::Duration;

use flowlane::Rss;

/// What happens to a connection whose keys are another lane's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Placement {
    /// It stays, and its requests go to their lane by message.
    #[default]
    Route,
    /// It moves to the lane that has nearly all of its keys; a client with keys everywhere stays. On kernel sockets: on our own stack the flow hash
    /// says where a connection is, and requests go by message.
    Move,
}

impl Placement {
    /// Its name in options and answers.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Route => "route",
            Self::Move => "move",
        }
    }
}

/// Options of a server.
#[derive(Debug, Clone)]
pub struct Options {
    /// Bytes that the items of all lanes and all that is kept about them may take.
    pub memory: usize,
    /// Largest item, bytes, as [`item_size`](crate::store::item_size) counts.
    pub item_max: usize,
    /// Most connections, in all lanes together. Further ones are told so and closed.
    pub connections: u64,
    /// Bytes that requests on their way and answers that peers do not read may take, in all lanes together.
    pub buffers: usize,
    /// A connection on which nothing comes or goes for so long is closed; `None`: never.
    pub idle: Option<Duration>,
    /// The port, which `stats settings` tells.
    pub port: u16,
    /// The address, likewise; `None` for all.
    pub address: Option<String>,
    /// Workers, likewise.
    pub workers: usize,
    /// The UDP port, likewise; 0 for none.
    pub udp_port: u16,
    /// The Unix socket, likewise.
    pub path: Option<String>,
    /// Whether connections are encrypted, likewise.
    pub tls: bool,
    /// By what rule connections come to lanes, which `stats lanes` tells; `None`: by one that clients cannot foresee.
    pub steering: Option<Arc<Rss>>,
    /// What happens to a connection whose keys are another lane's.
    pub placement: Placement,
}

impl Default for Options {
    /// Those of memcached: 64 MiB, items of 1 MiB, 1024 connections.
    fn default() -> Self {
        Self {
            memory: 64 << 20,
            item_max: 1 << 20,
            connections: 1024,
            buffers: 256 << 20,
            idle: None,
            port: 11211,
            address: None,
            workers: 1,
            udp_port: 0,
            path: None,
            tls: false,
            steering: None,
            placement: Placement::Route,
        }
    }
}

/// Least memory of one lane, bytes: some pages for each size of items that is in use, and the table.
pub const LEAST_MEMORY: usize = 1 << 20;

/// What is wrong with a number, for people.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum OptionsError {
    /// Each lane's share is less than [`LEAST_MEMORY`].
    #[error("too little memory for {0} lanes: each needs 1 MiB at least")]
    TooLittleMemory(usize),
    /// An item may be larger than half of what a lane has, or smaller than 1 KiB.
    #[error("an item may have from 1 KiB to half of a lane's memory, which is {0} KiB here")]
    Item(usize),
    /// A lane's share of the buffers has no room for the largest item.
    #[error("too little for buffers: each of {0} lanes must have room for the largest item")]
    Buffers(usize),
    /// The number of lanes is no power of two.
    #[error("{0} lanes: their number must be a power of two")]
    Lanes(usize),
}

impl Options {
    /// Whether that many lanes can do with it.
    ///
    /// # Errors
    /// See [`OptionsError`].
    pub fn check(&self, lanes: usize) -> Result<(), OptionsError> {
        if !lanes.is_power_of_two() {
            return Err(OptionsError::Lanes(lanes));
        }
        let share = self.memory / lanes;
        if share < LEAST_MEMORY {
            return Err(OptionsError::TooLittleMemory(lanes));
        }
        if !(1024..=share / 2).contains(&self.item_max) {
            return Err(OptionsError::Item(share / 2048));
        }
        if self.buffers / lanes < self.item_max {
            return Err(OptionsError::Buffers(lanes));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lane_needs_memory_and_room_for_an_item() {
        let usual = Options::default();
        assert_eq!(usual.check(4), Ok(()));
        assert_eq!(usual.check(32), Ok(()), "2 MiB each");
        assert_eq!(usual.check(64), Err(OptionsError::Item(512)));
        assert_eq!(usual.check(128), Err(OptionsError::TooLittleMemory(128)));
        assert_eq!(usual.check(3), Err(OptionsError::Lanes(3)));
        let few = Options { buffers: (4 << 20) - 1, ..Options::default() };
        assert_eq!(few.check(4), Err(OptionsError::Buffers(4)));
        let small = |item_max| Options { item_max, ..Options::default() };
        assert!(small(1023).check(1).is_err() && small(1024).check(1).is_ok());
    }
}
