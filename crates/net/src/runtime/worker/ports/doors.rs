//! From a link and a VLAN to the interface that a frame is for.

use flowlane_sys::frame::Frame;

/// The VLAN identifier within a tag (IEEE 802.1Q section 9.6).
const VID: u16 = 0x0fff;

/// An interface of a host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Door {
    pub(crate) host: usize,
    pub(crate) interface: u8,
}

/// The interfaces on a link. Most links have one.
#[derive(Debug, Clone)]
pub(crate) struct Doors {
    /// That of untagged frames or, where there is none, of the lowest VLAN. It gets what is for no other, and drops it by name.
    first: Door,
    /// All of them by VLAN, ascending, where there are several; 0 is untagged.
    by_vlan: Vec<(u16, Door)>,
}

impl Doors {
    /// Of these interfaces, each with its VLAN. There is at least one.
    ///
    /// # Errors
    /// A VLAN that two are on.
    pub(crate) fn new(doors: Vec<(Option<u16>, Door)>) -> Result<Self, Option<u16>> {
        let mut by_vlan: Vec<(u16, Door)> =
            doors.into_iter().map(|(vlan, door)| (vlan.unwrap_or(0), door)).collect();
        by_vlan.sort_by_key(|(vlan, _)| *vlan);
        if let Some(two) = by_vlan.windows(2).find(|two| two[0].0 == two[1].0) {
            return Err(Some(two[0].0).filter(|vlan| *vlan != 0));
        }
        let first = by_vlan.first().map_or(Door { host: usize::MAX, interface: 0 }, |(_, door)| *door);
        if by_vlan.len() == 1 {
            by_vlan.clear();
        }
        Ok(Self { first, by_vlan })
    }

    /// The one interface, if there is only one.
    #[inline]
    pub(crate) fn only(&self) -> Option<Door> {
        self.by_vlan.is_empty().then_some(self.first)
    }

    /// The first interface.
    pub(crate) fn first(&self) -> Door {
        self.first
    }

    /// All interfaces.
    pub(crate) fn all(&self) -> impl Iterator<Item = Door> + '_ {
        self.only().into_iter().chain(self.by_vlan.iter().map(|(_, door)| *door))
    }

    /// Whether an interface of this host is on the link.
    pub(crate) fn serve(&self, host: usize) -> bool {
        self.all().any(|door| door.host == host)
    }

    /// The interface that a frame is for. A tag lies in the frame, or beside it where the link took it off.
    pub(crate) fn of(&self, frame: &Frame) -> Door {
        let inside = || match frame.data().get(12..16) {
            Some(&[0x81, 0x00, a, b]) => u16::from_be_bytes([a, b]),
            _ => 0,
        };
        // Guard: `VID` as `u16::MAX` fails ports::doors
        let vlan = frame.meta().vlan.unwrap_or_else(inside) & VID;
        match self.by_vlan.binary_search_by_key(&vlan, |(vlan, _)| *vlan) {
            Ok(found) => self.by_vlan[found].1,
            Err(_) => self.first,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flowlane_sys::frame::{FrameMemory, MemoryConfig};

    fn door(host: usize) -> Door {
        Door { host, interface: 0 }
    }

    #[test]
    fn a_tag_names_the_interface() {
        let config =
            MemoryConfig { frames_per_home: 8, lock: false, huge_pages: false, ..MemoryConfig::default() };
        let pool = FrameMemory::new(&config).unwrap().attach(0).unwrap();
        let doors = Doors::new(vec![(Some(7), door(1)), (None, door(0)), (Some(4094), door(2))]).unwrap();
        let host = |inside: Option<u16>, beside: Option<u16>| {
            let mut frame = pool.alloc().unwrap();
            assert!(frame.extend_from_slice(&[2; 12]));
            if let Some(tag) = inside {
                assert!(frame.extend_from_slice(&[0x81, 0, (tag >> 8) as u8, tag as u8]));
            }
            assert!(frame.extend_from_slice(&[8, 0, 0x45, 0]));
            frame.meta_mut().vlan = beside;
            doors.of(&frame).host
        };
        assert_eq!([host(None, None), host(Some(7), None), host(None, Some(4094))], [0, 1, 2]);
        // Priority alone is no VLAN; priority beside one is not part of its number.
        assert_eq!([host(Some(0xe000), None), host(Some(0xe007), None), host(None, Some(0x6007))], [0, 1, 1]);
        // Of a VLAN that nobody is on: to the first, who drops it and counts.
        assert_eq!([host(Some(8), None), host(None, Some(4095))], [0, 0]);
        assert_eq!((doors.only(), doors.all().count()), (None, 3));
    }

    #[test]
    fn one_interface_a_vlan() {
        assert_eq!(Doors::new(vec![(None, door(0)), (None, door(1))]).err(), Some(None));
        assert_eq!(Doors::new(vec![(Some(5), door(0)), (Some(5), door(1))]).err(), Some(Some(5)));
        let one = Doors::new(vec![(Some(5), door(3))]).unwrap();
        assert_eq!((one.only(), one.all().collect::<Vec<_>>()), (Some(door(3)), vec![door(3)]));
    }
}
