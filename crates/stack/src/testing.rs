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

/// An Ethernet frame with a datagram of `payload` bytes over IPv4.
pub(crate) fn datagram(src: u32, sport: u16, dst: u32, dport: u16, payload: u16) -> Vec<u8> {
    let mut bytes = vec![2; 12];
    bytes.extend([8, 0, 0x45, 0]);
    bytes.extend((28 + payload).to_be_bytes());
    bytes.extend([0, 0, 0, 0, 64, 17, 0, 0]);
    bytes.extend(src.to_be_bytes());
    bytes.extend(dst.to_be_bytes());
    bytes.extend(sport.to_be_bytes());
    bytes.extend(dport.to_be_bytes());
    bytes.extend((8 + payload).to_be_bytes());
    bytes.extend([0, 0]);
    bytes.resize(42 + usize::from(payload), 9);
    bytes
}
