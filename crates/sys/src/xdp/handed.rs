//! A map of somebody else: the XDP program on the interface is not ours, and stays. Our sockets are put into its map.
//!
//! So a process without `CAP_NET_ADMIN` and `CAP_BPF` can receive: it has `CAP_NET_RAW` for the sockets, and the descriptor of the map from a
//! process that has more, such as the AF_XDP device plugin of Kubernetes. What a map is, the kernel tells of each descriptor in `/proc` (proc(5),
//! `fdinfo`); which program an interface has, it tells everybody (rtnetlink(7), `IFLA_XDP`).
//!
//! What this cannot tell: whether the program on the interface is the one that looks into this map.

use crate::bpf::{Map, MapKind, XdpMode};
use crate::error::{Error, Result};
use crate::netdev::Interface;
use crate::netdev::watch::xdp_attached;
use crate::words::counted;
use std::fs;
use std::os::fd::{AsRawFd, OwnedFd};

/// Longest text about a descriptor.
const LONGEST: usize = 4096;

/// The map behind a descriptor, if AF_XDP sockets of queues below `queues` can be put into it.
pub(super) fn adopt(fd: OwnedFd, interface: &Interface, queues: u32) -> Result<Map> {
    let unsupported = |what: String| Error::Unsupported { interface: interface.name().to_owned(), what };
    let path = format!("/proc/self/fdinfo/{}", fd.as_raw_fd());
    let text = fs::read_to_string(&path).map_err(|source| Error::System { doing: path, source })?;
    let entries = entries(&text).ok_or_else(|| {
        unsupported("what was handed over is no map of AF_XDP sockets (BPF_MAP_TYPE_XSKMAP)".to_owned())
    })?;
    if entries < queues {
        return Err(unsupported(format!(
            "the map that was handed over has room for {}, and queue {} is to be served: serve fewer with 'queues=0-{}'",
            counted(entries as usize, "queue"),
            queues - 1,
            entries.saturating_sub(1)
        )));
    }
    Ok(Map::of(fd, 4, 4))
}

/// Entries of a map of AF_XDP sockets, by what the kernel says of its descriptor; `None` for anything else.
fn entries(text: &str) -> Option<u32> {
    let text = text.get(..text.len().min(LONGEST))?;
    let of = |name: &str| {
        let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        value.and_then(|value| value.trim().parse::<u32>().ok())
    };
    let right = of("map_type")? == MapKind::XskMap as u32 && of("key_size")? == 4 && of("value_size")? == 4;
    of("max_entries").filter(|_| right)
}

/// Where the program on the interface runs.
///
/// # Errors
/// There is none: packets would never come.
pub(super) fn mode(interface: &Interface) -> Result<XdpMode> {
    const DRIVER: u8 = 1;
    match xdp_attached(interface)? {
        0 => Err(Error::Unsupported {
            interface: interface.name().to_owned(),
            what: "has no XDP program: whoever hands over the map attaches one before, that looks into it"
                .to_owned(),
        }),
        DRIVER => Ok(XdpMode::Native),
        _ => Ok(XdpMode::Generic),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "pos:\t0\nflags:\t02000002\nmnt_id:\t15\nmap_type:\t17\nkey_size:\t4\nvalue_size:\t4\nmax_entries:\t64\nmemlock:\t768\n";

    #[test]
    fn maps_of_sockets_are_told_from_others() {
        assert_eq!(entries(TEXT), Some(64));
        for (from, to) in [
            ("map_type:\t17", "map_type:\t2"),
            ("key_size:\t4", "key_size:\t8"),
            ("max_entries", "entries"),
            ("64", "x"),
        ] {
            assert_eq!(entries(&TEXT.replace(from, to)), None, "{from} as {to}");
        }
        assert_eq!(entries("pos:\t0\nflags:\t0100000\n"), None, "a file");
    }

    #[test]
    fn what_is_no_map_is_refused() {
        let lo = Interface::find("lo").unwrap();
        let file = fs::File::open("/proc/self/stat").unwrap();
        let said = adopt(file.into(), &lo, 1).unwrap_err().to_string();
        assert_eq!(said, "lo: what was handed over is no map of AF_XDP sockets (BPF_MAP_TYPE_XSKMAP)");
        assert!(mode(&lo).unwrap_err().to_string().contains("lo: has no XDP program"));
    }
}
