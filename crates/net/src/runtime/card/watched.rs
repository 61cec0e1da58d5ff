//! What other programs change of a card while it is in use: numbers of queues and offloads (`ethtool -L`, `-K`), seen by looking once a second.
//!
//! The kernel announces some of these changes, by no means all, and not on older versions. A look costs five calls that every driver answers from
//! memory; no worker makes it.

use flowlane_sys::netdev::Interface;

use crate::card::{ChannelCounts, Control, Offloads};

/// Offloads that matter to packets that we take, what is worse for us, and what that means.
const MATTER: [(&str, bool, &str); 5] = [
    ("rxhash", false, "packets come without the card's hash"),
    ("rxvlan", true, "the card takes VLAN tags off packets, and AF_XDP does not see them"),
    ("rx-vlan-filter", true, "packets of VLANs that the kernel has no interface for do not come"),
    ("lro", true, "packets come merged, and generic XDP loses them"),
    ("rx-gro-hw", true, "packets come merged, and generic XDP loses them"),
];

/// The card under a link, which other programs may change.
#[derive(Debug)]
pub(crate) struct Watched {
    link: String,
    control: Control,
    /// The first of its queues that are served, and how many are.
    served: (u32, u32),
    before: Seen,
}

/// What was seen of it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
struct Seen {
    channels: Option<ChannelCounts>,
    offloads: Option<Offloads>,
}

impl Seen {
    fn of(control: &Control) -> Self {
        Self { channels: control.channels().ok(), offloads: control.offloads().ok() }
    }
}

impl Watched {
    /// From now on, in whatever network namespace the thread is later. `None` if it cannot be looked at.
    pub(crate) fn new(link: &str, interface: &Interface, served: (u32, u32)) -> Option<Self> {
        let control = Control::open(interface).ok()?;
        let before = Seen::of(&control);
        Some(Self { link: link.to_owned(), control, served, before })
    }

    /// The link's name.
    pub(super) fn link(&self) -> &str {
        &self.link
    }

    /// What has changed since the last look, a line for each.
    pub(super) fn look(&mut self) -> Vec<String> {
        let now = Seen::of(&self.control);
        let news = news(&self.before, &now, self.served);
        self.before = now;
        news
    }
}

/// What changed between two looks, and what it means for the queues that are served. What cannot be read is no change.
fn news(before: &Seen, now: &Seen, (first, count): (u32, u32)) -> Vec<String> {
    let mut news = Vec::new();
    if let (Some(before), Some(now)) = (before.channels, now.channels)
        && before.now != now.now
    {
        let receive = now.now.receiving();
        let last = first + count;
        let meaning = if receive > last {
            format!(
                "packets of queues {last} to {} go to the kernel: a restart serves them, too",
                receive - 1
            )
        } else if receive < last {
            format!(
                "{} served get nothing: a restart serves those that there are",
                if last - receive == 1 { "one of those" } else { "some of those" }
            )
        } else {
            "as many as are served".to_owned()
        };
        news.push(format!("somebody changed its queues (ethtool -L): {receive} receive now; {meaning}"));
    }
    if let (Some(before), Some(now)) = (&before.offloads, &now.offloads) {
        for (name, offload) in now.iter() {
            let Some(was) = before.get(name).filter(|was| was.on != offload.on) else { continue };
            let worse = MATTER.iter().find(|(of, on, _)| *of == name && *on == offload.on);
            let meaning = worse.map_or(String::new(), |(.., meaning)| format!(": {meaning}"));
            let on = if was.on { "off" } else { "on" };
            news.push(format!("somebody switched {name} {on} (ethtool -K){meaning}"));
        }
    }
    news
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::card::{Counts, Offload};

    fn seen(receive: u32, offloads: &[(&'static str, bool)]) -> Seen {
        let now = Counts { combined: receive, ..Counts::default() };
        let one = |&(name, on)| (name, Offload { on, fixed: false });
        Seen {
            channels: Some(ChannelCounts { now, most: now }),
            offloads: Some(Offloads::new(offloads.iter().map(one).collect())),
        }
    }

    #[test]
    fn numbers_of_queues_are_judged_by_those_that_are_served() {
        let of = |before, now, served| news(&seen(before, &[]), &seen(now, &[]), served);
        assert_eq!(of(4, 4, (0, 4)), Vec::<String>::new());
        let more = "somebody changed its queues (ethtool -L): 4 receive now; packets of queues 2 to 3 go to the kernel: a restart serves them, too";
        assert_eq!(of(2, 4, (0, 2)), [more]);
        assert!(of(4, 2, (0, 4))[0].ends_with(
            "2 receive now; some of those served get nothing: a restart serves those that there are"
        ));
        assert!(of(4, 3, (2, 2))[0].contains("one of those served get nothing"));
        assert!(of(8, 4, (2, 2))[0].ends_with("4 receive now; as many as are served"));
    }

    #[test]
    fn offloads_that_matter_say_why() {
        let before = seen(1, &[("rxhash", true), ("rxvlan", false), ("gro", true)]);
        let now = seen(1, &[("rxhash", false), ("rxvlan", true), ("gro", false)]);
        let wanted = [
            "somebody switched rxhash off (ethtool -K): packets come without the card's hash",
            "somebody switched rxvlan on (ethtool -K): the card takes VLAN tags off packets, and AF_XDP does not see them",
            "somebody switched gro off (ethtool -K)",
        ];
        assert_eq!(news(&before, &now, (0, 1)), wanted);
        // Back again is said as well, without a warning.
        assert_eq!(news(&now, &before, (0, 1))[0], "somebody switched rxhash on (ethtool -K)");
    }

    #[test]
    fn what_cannot_be_read_is_no_change() {
        let some = seen(4, &[("rxhash", true)]);
        assert_eq!(news(&some, &Seen::default(), (0, 4)), Vec::<String>::new());
        assert_eq!(news(&Seen::default(), &some, (0, 4)), Vec::<String>::new());
    }
}
