//! What several modules' tests need: memory, frames, and a host of one lane.

use crate::address::Prefix;
use crate::wire::MacAddr;
use crate::{InterfaceConfig, Lane, LaneConfig};
use flowlane_rss::{Bucket, Key, Rss};
use flowlane_sys::frame::{Frame, FrameMemory, MemoryConfig, Pool};
use std::sync::Arc;

/// So many frames.
pub(crate) fn pool(frames: usize) -> Pool {
    let memory =
        MemoryConfig { frames_per_home: frames, lock: false, huge_pages: false, ..MemoryConfig::default() };
    FrameMemory::new(&memory).unwrap().attach(0).unwrap()
}

/// A frame with these bytes.
pub(crate) fn frame(pool: &Pool, bytes: &[u8]) -> Frame {
    let mut frame = pool.alloc().unwrap();
    assert!(frame.extend_from_slice(bytes));
    frame
}

/// The interface of host `me`, 10.0.0.`me`.
pub(crate) fn interface(me: u8) -> InterfaceConfig {
    let address: Prefix = format!("10.0.0.{me}/24").parse().unwrap();
    InterfaceConfig::new(MacAddr([2, 0, 0, 0, 0, me]), vec![address])
}

/// The only lane of a host.
pub(crate) fn lane(interface: InterfaceConfig, seed: [u64; 4]) -> Lane {
    Lane::new(&LaneConfig::new(Bucket(0), Arc::new(Rss::new(Key::MICROSOFT, 1)), vec![interface], seed))
}
