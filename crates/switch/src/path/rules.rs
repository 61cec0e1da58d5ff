//! A configuration in the form in which frames are looked at: numbers by port and by VLAN.

use crate::config::{Config, Flags, Mirror, Mode};
use crate::ports::{MAX_PORTS, PortId, PortSet};

/// VLANs by number.
const VIDS: usize = 4096;

/// One VLAN; in modes without VLANs there is one for all frames.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Vlan {
    /// Its ports.
    pub(super) members: PortSet,
    /// Ports by which frames leave with a tag.
    pub(super) tagged: PortSet,
    /// Where addresses are learnt.
    pub(super) fid: u16,
    /// It is configured.
    pub(super) known: bool,
}

/// One port.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct PortRules {
    /// Where its frames may go, other bounds aside.
    pub(super) reach: PortSet,
    pub(super) pvid: u16,
    pub(super) flags: Flags,
    /// The longest payload, bytes.
    pub(super) mtu: u32,
    /// The upper four bits of a tag for frames that come without.
    pub(super) priority: u16,
    pub(super) priorities: [u8; 8],
}

/// All of it.
#[derive(Clone, Debug)]
pub(super) struct Rules {
    /// The number of the switch, in its own probes.
    pub(super) switch: u64,
    /// Of the tags that name VLANs; 0 where there are none.
    pub(super) tpid: u16,
    pub(super) ports: Box<[PortRules; MAX_PORTS]>,
    vlans: Box<[Vlan]>,
    pub(super) pass_reserved: bool,
    pub(super) snooping: bool,
    pub(super) mirror: Option<Mirror>,
    /// Ports that watch: no part of the rest.
    pub(super) monitors: PortSet,
}

impl Rules {
    /// `config` has been checked.
    pub(super) fn new(config: &Config, switch: u64) -> Rules {
        let monitors = config.mirror.map_or(PortSet::NONE, |mirror| mirror.to.alone());
        let all = config.all().without(monitors);
        let mut ports = Box::new([PortRules::default(); MAX_PORTS]);
        for (n, (rules, port)) in ports.iter_mut().zip(&config.ports).enumerate() {
            let group = config.groups.get(&(n as u16)).filter(|_| config.mode == Mode::Port);
            let reach = match config.mode {
                Mode::Port => group.map_or(PortSet::NONE, |group| group.members),
                _ => all,
            };
            let own = PortId::new(n).map_or(PortSet::NONE, PortId::alone);
            *rules = PortRules {
                // Guard: `reach.and(all).without(own)` as `reach.and(all)` fails
                // switch/forwarding::every_mode_tag_and_member switch/model::frames_leave_as_the_model_says
                reach: reach.and(all).without(own),
                pvid: port.pvid,
                flags: port.flags,
                mtu: port.mtu.into(),
                priority: u16::from(port.priority) << 13,
                priorities: port.priorities,
            };
        }
        let with = |flag| -> PortSet {
            let ports = config.ports.iter().enumerate().filter(|(_, port)| port.flags.has(flag));
            ports.filter_map(|(n, _)| PortId::new(n)).collect()
        };
        let (add, strip) = (with(Flags::ADDTAG), with(Flags::STRIPTAG));
        let vlans = if config.mode.tpid().is_some() {
            let mut vlans = vec![Vlan::default(); VIDS].into_boxed_slice();
            for (vid, group) in &config.groups {
                vlans[usize::from(*vid)] = Vlan {
                    members: group.members.without(monitors),
                    tagged: group.tagged.or(add).without(strip),
                    fid: if config.shared { 0 } else { *vid },
                    known: true,
                };
            }
            vlans
        } else {
            Box::new([Vlan { members: all, tagged: PortSet::NONE, fid: 0, known: true }])
        };
        Rules {
            switch,
            tpid: config.mode.tpid().map_or(0, |tpid| tpid.0),
            ports,
            vlans,
            pass_reserved: config.pass_reserved,
            snooping: config.snooping,
            mirror: config.mirror,
            monitors,
        }
    }

    /// A VLAN by number; VLAN 0 is that of modes without.
    #[inline]
    pub(super) fn vlan(&self, vid: u16) -> Vlan {
        self.vlans.get(usize::from(vid)).copied().unwrap_or_default()
    }

    /// Whether an entry of the table is still possible.
    pub(super) fn has_member(&self, fid: u16, port: PortId) -> bool {
        if self.tpid == 0 || fid == 0 {
            return self.vlans.iter().any(|vlan| vlan.known && vlan.fid == fid && vlan.members.has(port));
        }
        let vlan = self.vlan(fid);
        vlan.known && vlan.fid == fid && vlan.members.has(port)
    }
}
