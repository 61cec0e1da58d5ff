//! A model of the switch: a few lines that know bytes, maps and the words of the standard, and nothing of the switch's tables.
//!
//! It knows modes, VLANs, flags, priorities, MTUs and learning. Not in it: static entries, snooping, mirrors, limits, probes, `firstlock`.

use std::collections::HashMap;

use flowlane_switch::config::{Config, Flags, Flush, Mode};
use flowlane_switch::{PortId, PortSet};

/// Ports of a switch that is compared with it.
pub(crate) const PORTS: usize = 5;

pub(crate) type Bytes = Vec<u8>;

/// What is learnt: by filtering database and address.
#[derive(Debug, Default)]
pub(crate) struct Model {
    learnt: HashMap<(u16, Bytes), usize>,
}

impl Model {
    /// By which ports a frame leaves, and how it looks there.
    pub(crate) fn send(&mut self, config: &Config, from: usize, frame: &[u8]) -> Vec<(usize, Bytes)> {
        self.ways(config, from, frame).unwrap_or_default()
    }

    /// `None`: dropped.
    fn ways(&mut self, config: &Config, from: usize, frame: &[u8]) -> Option<Vec<(usize, Bytes)>> {
        let (dst, src) = (frame.get(..6)?.to_vec(), frame.get(6..12)?.to_vec());
        frame.get(13)?;
        let port = &config.ports[from];
        let tag = |at: usize| frame.get(at..at + 2).map(|b| u16::from(b[0]) << 8 | u16::from(b[1]));
        let tpid = match config.mode {
            Mode::Dot1q => Some(0x8100),
            Mode::Qinq => Some(0x88a8),
            _ => None,
        };
        let looked_at = tpid.is_some() && !port.flags.has(Flags::DOUBLETAG);
        let tagged = looked_at && tag(12) == tpid;
        if tagged && frame.len() < 18 {
            return None;
        }
        if src[0] & 1 == 1 || src.iter().all(|b| *b == 0) {
            return None;
        }
        if dst[..5] == [1, 0x80, 0xc2, 0, 0] && dst[5] < 16 && (!config.pass_reserved || dst[5] == 1) {
            return None;
        }
        // What is left without the VLAN's tag.
        let plain = if tagged { [&frame[..12], &frame[16..]].concat() } else { frame.to_vec() };
        let everybody: Vec<usize> = (0..PORTS).collect();
        let (vid, fid, members, reach, tci) = match tpid {
            None if config.mode == Mode::Port => {
                let group = config.groups.get(&(from as u16)).map_or(PortSet::NONE, |g| g.members);
                (0, 0, everybody, group.map(PortId::index).collect(), 0)
            }
            None => (0, 0, everybody.clone(), everybody, 0),
            Some(_) => {
                let tci = if tagged { tag(14)? } else { 0 };
                let named = tci % 4096;
                if named != 0 && port.flags.has(Flags::DROPTAGGED)
                    || named == 0 && port.flags.has(Flags::DROPUNTAGGED)
                {
                    return None;
                }
                let vid = if named == 0 { port.pvid } else { named };
                let members: Vec<usize> = config.groups.get(&vid)?.members.map(PortId::index).collect();
                if port.flags.has(Flags::INGRESS) && !members.contains(&from) {
                    return None;
                }
                let pcp = if tagged { port.priorities[usize::from(tci / 8192)] } else { port.priority };
                let tci = u16::from(pcp) * 8192 + tci / 4096 % 2 * 4096 + vid;
                (vid, if config.shared { 0 } else { vid }, members.clone(), members, tci)
            }
        };
        if members.contains(&from) {
            self.learnt.insert((fid, src), from);
        }
        let known = self.learnt.get(&(fid, dst.clone())).copied().filter(|_| dst[0] & 1 == 0);
        let mut ways = Vec::new();
        for to in 0..PORTS {
            let allowed = to != from && reach.contains(&to) && members.contains(&to);
            if !allowed || known.is_some_and(|known| known != to) {
                continue;
            }
            if plain.len() - 14
                > usize::from(config.ports[to].mtu) + if tpid.is_none() && is_tag(tag(12)) { 4 } else { 0 }
            {
                continue;
            }
            let out = match tpid {
                Some(tpid) if leaves_tagged(config, vid, to) => {
                    let tag = [tpid.to_be_bytes(), tci.to_be_bytes()].concat();
                    [&plain[..12], &tag[..], &plain[12..]].concat()
                }
                _ => plain.clone(),
            };
            ways.push((to, out));
        }
        Some(ways)
    }

    /// What another configuration leaves.
    pub(crate) fn changed(&mut self, before: &Config, after: &Config) {
        if before.mode != after.mode || before.shared != after.shared {
            self.learnt.clear();
        }
        let vlans = after.mode.tpid().is_some();
        self.learnt.retain(|(fid, _), at| {
            let mut groups = after.groups.iter().filter(|(vid, _)| after.shared || **vid == *fid);
            !vlans || groups.any(|(_, group)| PortId::new(*at).is_some_and(|at| group.members.has(at)))
        });
    }

    /// What was asked to be forgotten.
    pub(crate) fn flush(&mut self, config: &Config, what: Flush) {
        self.learnt.retain(|(fid, _), at| match what {
            Flush::All => false,
            Flush::Port(port) => *at != port.index(),
            Flush::Vlan(vlan) => !config.shared && *fid != vlan,
        });
    }
}

fn is_tag(kind: Option<u16>) -> bool {
    matches!(kind, Some(0x8100 | 0x88a8))
}

fn leaves_tagged(config: &Config, vid: u16, to: usize) -> bool {
    let flags = config.ports[to].flags;
    let tagged = config.groups.get(&vid).is_some_and(|g| PortId::new(to).is_some_and(|to| g.tagged.has(to)));
    (tagged || flags.has(Flags::ADDTAG)) && !flags.has(Flags::STRIPTAG)
}
