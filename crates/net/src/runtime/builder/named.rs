//! What a link that was named ([`LinkSpec`]) wants of the builder.

use flowlane_rss::Rss;
use flowlane_stack::address::Prefix;
use flowlane_sys::frame::HEADROOM;
use flowlane_sys::netdev::Interface;
use flowlane_sys::xdp::may_be_zero_copy;

use super::Builder;
use crate::link::LinkSpec;

/// Frames for each queue of AF_XDP: a full ring of 2048 that waits for packets, and as many on their way.
const FRAMES_A_QUEUE: usize = 4096;

impl LinkSpec {
    /// Has frames made large enough that AF_XDP gets each packet in one, where that can be, since before Linux 6.6 it takes no others, and
    /// so large that a card may write them itself ([`may_be_zero_copy`]); and enough of them for all queues of the card. To be called when the number of workers is set.
    pub fn fit_frames(&self, builder: &mut Builder) {
        if let Self::Kernel(Some(name)) = self {
            return builder.near_card(name, 0);
        }
        let Self::AfXdp(name, copy, _, queues, _) = self else { return };
        let Ok(interface) = Interface::find(name) else { return };
        builder.near_card(name, queues.map_or(0, |(first, _)| first));
        let long = interface.mtu().is_ok_and(|mtu| mtu as usize + 18 + HEADROOM > 2048);
        if long || may_be_zero_copy(&interface, *copy) {
            builder.frames_of(4096);
        }
        if let Ok(channels) = interface.channels() {
            let queues = queues.map_or(channels.receive, |(_, count)| count);
            let queues = (queues as usize).div_ceil(builder.worker_count().max(1));
            builder.frames_at_least(queues * FRAMES_A_QUEUE);
        }
    }

    /// Joins the first interface of a host to the link; a host on kernel sockets needs none, and nothing is done. The arguments
    /// are those of [`LinkSpec::open`].
    pub fn join(self, builder: &mut Builder, host: usize, ours: &[Prefix], vlan: Option<u16>, rss: &Rss) {
        if !self.is_kernel() {
            self.fit_frames(builder);
            builder.link(host, 0, self.open(ours, vlan, rss));
        }
    }
}
