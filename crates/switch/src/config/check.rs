//! Whether a configuration makes sense, as a whole.

use super::{Config, ConfigError, Flags, MAX_MTU, MAX_VID, Mode, PortConfig};
use crate::ports::{MAX_PORTS, PortId};
use crate::table::MOST_ADDRESSES;

type Checked = Result<(), ConfigError>;

fn wrong(what: String) -> Checked {
    Err(ConfigError(what))
}

/// Where somebody said what is wrong, and so can mend it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Origin {
    InWords,
    InFile,
}

impl Origin {
    /// How to have VLANs.
    fn dot1q(self) -> &'static str {
        match self {
            Self::InWords => "'flowlane switch config vlan_mode dot1q'",
            Self::InFile => "'mode = \"dot1q\"'",
        }
    }

    /// How to have a VLAN with this port.
    fn vlan(self, vid: u16, port: &str) -> String {
        match self {
            Self::InWords => format!("'flowlane switch vlan {vid} members {port}' makes it"),
            Self::InFile => format!("a [[vlan]] with 'id = {vid}' and 'members = \"{port}\"' makes it"),
        }
    }
}

impl Config {
    /// Checks the whole configuration.
    ///
    /// # Errors
    /// The first thing that is wrong, in one line.
    pub fn check(&self) -> Checked {
        self.check_as(Origin::InWords)
    }

    pub(super) fn check_as(&self, said: Origin) -> Checked {
        self.names()?;
        for port in self.ports.iter().filter(|port| !port.vacant) {
            self.of_port(port, said)?;
        }
        self.numbers(said)?;
        self.vlans(said)?;
        self.fixed()?;
        self.watched()
    }

    fn names(&self) -> Checked {
        let count = self.ports.iter().filter(|port| !port.vacant).count();
        if count == 0 || self.ports.len() > MAX_PORTS {
            let count = count.max(self.ports.len());
            return wrong(format!("{count} ports: a switch has from 1 to {MAX_PORTS}"));
        }
        for (n, port) in self.ports.iter().enumerate().filter(|(_, port)| !port.vacant) {
            let name = port.name.as_str();
            let fits = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
            if !name.starts_with(|c: char| c.is_ascii_alphabetic())
                || name.len() > 15
                || !name.chars().all(fits)
            {
                return wrong(format!(
                    "port '{}': a name is a letter and then letters, digits, '-' or '_', 15 at most",
                    name.escape_debug()
                ));
            }
            if ["none", "all", "empty", "add", "del"].contains(&name) {
                return wrong(format!(
                    "port '{name}': the word means something else in commands; take another name"
                ));
            }
            if self.ports[..n].iter().any(|other| other.name == name) {
                return wrong(format!("two ports are named '{name}'"));
            }
            let without = name.strip_suffix(['t', 'T']);
            if let Some(other) = without.filter(|w| self.ports.iter().any(|other| other.name == *w)) {
                return wrong(format!(
                    "ports '{other}' and '{name}': '{other}t' means '{other}, tagged' in a VLAN; rename one"
                ));
            }
            if port.link.chars().any(char::is_control) {
                return wrong(format!("port {name}: its link has a control character"));
            }
        }
        Ok(())
    }

    fn of_port(&self, port: &PortConfig, said: Origin) -> Checked {
        let (name, flags) = (&port.name, port.flags);
        let vlans = self.mode.tpid().is_some();
        if !vlans {
            if port.pvid != 0 {
                return wrong(format!("port {name}: pvid {} needs {} or qinq", port.pvid, said.dot1q()));
            }
            if let Some(flag) = flags.without(Flags::FIRSTLOCK).names().next() {
                return wrong(format!("port {name}: {flag} needs {} or qinq", said.dot1q()));
            }
        }
        if port.pvid != 0 && !self.groups.contains_key(&port.pvid) {
            let vid = port.pvid;
            return wrong(format!(
                "port {name}: there is no VLAN {vid} for its pvid: {}",
                said.vlan(vid, name)
            ));
        }
        for (one, other) in [
            (Flags::ADDTAG, Flags::STRIPTAG),
            (Flags::DROPTAGGED, Flags::DROPUNTAGGED),
            (Flags::DOUBLETAG, Flags::DROPTAGGED),
            (Flags::DOUBLETAG, Flags::DROPUNTAGGED),
        ] {
            if flags.has(one.or(other)) {
                return wrong(format!(
                    "port {name}: {one} and {other} contradict each other; clear one with '-{other}'"
                ));
            }
        }
        if flags.has(Flags::DOUBLETAG) && port.pvid == 0 {
            return wrong(format!("port {name}: doubletag gives every frame the port's VLAN: set pvid"));
        }
        if !(68..=MAX_MTU).contains(&port.mtu) {
            return wrong(format!("port {name}: mtu {}: from 68 to {MAX_MTU}", port.mtu));
        }
        if port.priority > 7 || port.priorities.iter().any(|p| *p > 7) {
            return wrong(format!("port {name}: priorities are from 0 to 7"));
        }
        Ok(())
    }

    fn numbers(&self, said: Origin) -> Checked {
        let within = |what: &str, n: u32, least: u32, most: u32| {
            if (least..=most).contains(&n) {
                Ok(())
            } else {
                wrong(format!("{what} {n}: from {least} to {most}"))
            }
        };
        within("addresses", self.addresses, 1, MOST_ADDRESSES)?;
        within("ageing", self.ageing, 1, 1_000_000)?;
        within("query_interval", self.query_interval, 1, 3600)?;
        within("igmp", self.igmp.into(), 2, 3)?;
        within("mld", self.mld.into(), 1, 2)?;
        if let Some(address) = self.querier {
            if !self.snooping {
                let mend = match said {
                    Origin::InWords => "flowlane switch config snooping on",
                    Origin::InFile => "snooping = true",
                };
                return wrong(format!("querier: it asks for what snooping needs: '{mend}'"));
            }
            if address.is_multicast() || address.is_loopback() || address.is_broadcast() {
                return wrong(format!("querier {address}: no address of a host; 'on' asks from none"));
            }
        }
        within("probe", self.probe, 0, 3600)?;
        within("block", self.block, 1, 86_400)?;
        within("moves", self.moves, 1, 1_000_000)
    }

    fn vlans(&self, said: Origin) -> Checked {
        for (&number, group) in &self.groups {
            match self.mode {
                Mode::Default => {
                    return wrong(format!(
                        "mode default has no groups: {}, qinq or port first",
                        said.dot1q()
                    ));
                }
                Mode::Port if !PortId::new(number.into()).is_some_and(|port| self.all().has(port)) => {
                    let last = self.ports.len() - 1;
                    return wrong(format!(
                        "vlangroup {number}: in mode port groups are numbered like ports, from 0 to {last}"
                    ));
                }
                Mode::Port if !group.tagged.is_empty() => {
                    return wrong(format!(
                        "vlangroup {number}: in mode port there are no tags; leave out the 't'"
                    ));
                }
                Mode::Dot1q | Mode::Qinq if number == 0 || number > MAX_VID => {
                    return wrong(format!("vlangroup {number}: VLANs are from 1 to {MAX_VID}"));
                }
                _ => {}
            }
            if !group.members.without(self.all()).is_empty()
                || !group.tagged.without(group.members).is_empty()
            {
                return wrong(format!("vlangroup {number}: a member is no port of this switch"));
            }
        }
        Ok(())
    }

    fn fixed(&self) -> Checked {
        if self.statics.len() > self.addresses as usize {
            let (have, most) = (self.statics.len(), self.addresses);
            return wrong(format!("{have} static addresses in a table of {most}: raise 'addresses'"));
        }
        for ((vlan, mac), port) in &self.statics {
            let exists = match self.mode.tpid() {
                Some(_) => self.groups.contains_key(vlan),
                None => *vlan == 0,
            };
            if !exists {
                return wrong(format!("static address {mac}: there is no VLAN {vlan}"));
            }
            if !mac.is_unicast() {
                return wrong(format!("static address {mac}: not the address of a station"));
            }
            if !self.all().has(*port) {
                return wrong(format!("static address {mac}: there is no port {port}"));
            }
            let elsewhere = |((v, m), p): (&(u16, _), &_)| m == mac && v != vlan && p != port;
            if self.shared && self.statics.iter().any(elsewhere) {
                return wrong(format!(
                    "static address {mac}: VLANs learn together, so it is on one port only"
                ));
            }
        }
        Ok(())
    }

    fn watched(&self) -> Checked {
        let Some(mirror) = &self.mirror else { return Ok(()) };
        let to = self.name(mirror.to);
        if !self.all().has(mirror.to) || !mirror.ports.without(self.all()).is_empty() {
            return wrong("mirror: there is no such port".to_owned());
        }
        if mirror.ports.has(mirror.to) {
            return wrong(format!("mirror: port {to} cannot be a mirror of itself"));
        }
        if mirror.ports.is_empty() && mirror.vlan.is_none() {
            return wrong("mirror: name ports or a VLAN to watch".to_owned());
        }
        if let Some(vlan) = mirror.vlan.filter(|v| self.mode.tpid().is_none() || !self.groups.contains_key(v))
        {
            return wrong(format!("mirror: there is no VLAN {vlan}"));
        }
        Ok(())
    }
}
