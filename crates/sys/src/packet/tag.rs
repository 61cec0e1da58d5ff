//! Inserting an 802.1Q tag into a packet, for links without another place for it.

use crate::frame::Frame;

impl Frame {
    /// Puts the tag `protocol`, `tag` (host byte order) behind the Ethernet addresses and clears the one beside the
    /// data. A frame too short to have addresses, or without headroom, stays as it is: `false`.
    pub fn insert_tag(&mut self, protocol: u16, tag: u16) -> bool {
        const ADDRESSES: usize = 12;
        if self.len() < ADDRESSES {
            return false;
        }
        let Some(all) = self.push_front(4) else { return false };
        all.copy_within(4..4 + ADDRESSES, 0);
        all[ADDRESSES..ADDRESSES + 2].copy_from_slice(&protocol.to_be_bytes());
        all[ADDRESSES + 2..ADDRESSES + 4].copy_from_slice(&tag.to_be_bytes());
        self.meta_mut().vlan = None;
        true
    }
}

#[cfg(test)]
mod tests {
    use crate::frame::{FrameMemory, MemoryConfig};

    #[test]
    fn a_tag_goes_behind_the_addresses() {
        let config =
            MemoryConfig { frames_per_home: 2, lock: false, huge_pages: false, ..MemoryConfig::default() };
        let pool = FrameMemory::new(&config).unwrap().attach(0).unwrap();
        let mut frame = pool.alloc().unwrap();
        assert!(!frame.insert_tag(0x8100, 1));
        assert!(frame.extend_from_slice(&[1, 1, 1, 1, 1, 1, 2, 2, 2, 2, 2, 2, 8, 0, 0x45]));
        frame.meta_mut().vlan = Some(7);
        assert!(frame.insert_tag(0x8100, 0x2007));
        assert_eq!(frame.data(), [1, 1, 1, 1, 1, 1, 2, 2, 2, 2, 2, 2, 0x81, 0, 0x20, 7, 8, 0, 0x45]);
        assert_eq!(frame.meta().vlan, None);
    }
}
