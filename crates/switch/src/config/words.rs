//! Changing a configuration by words, in the manner of etherswitchcfg(8).
//!
//! ```text
//!   config vlan_mode dot1q          config addresses 4096 ageing 300 learning shared reserved pass
//!   vlangroup 10 members 1,2,0t     vlangroup 10 members none
//!   port 1 pvid 10 striptag         port p2 flags droptagged,-ingress mtu 9000 storm unknown 1000
//!   mirror from 1,2 vlan 10 to 3    mirror none
//!   fdb static 02:00:00:00:00:01 vlan 10 port 1       fdb flush port 1
//! ```
//!
//! Commands may follow one another on a line. A port is its name or its number; `t` behind a member means "tagged". All words are read, then the
//! whole result is checked: a line changes everything that it says, or nothing.

use core::net::Ipv4Addr;

use flowlane_stack::wire::MacAddr;

use super::{Config, ConfigError, Flags, Group, Mirror, Mode};
use crate::ports::{PortId, PortSet};

/// Learnt addresses that are to be forgotten.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Flush {
    /// All.
    All,
    /// Those of a port.
    Port(PortId),
    /// Those of a VLAN.
    Vlan(u16),
}

/// What a line of words asks for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Change {
    /// The configuration after it, checked.
    pub config: Config,
    /// What is to be forgotten.
    pub flush: Vec<Flush>,
}

impl Change {
    /// Reads words and applies them to a copy of `config`.
    ///
    /// # Errors
    /// What is wrong, in one line; nothing is changed then.
    pub fn parse(config: &Config, text: &str) -> Result<Change, ConfigError> {
        let change = Change { config: config.clone(), flush: Vec::new() };
        let mut reader = Reader { words: text.split_whitespace(), peeked: None, before: None, change };
        while let Some(word) = reader.next() {
            reader.command(word)?;
        }
        reader.change.config.check()?;
        Ok(reader.change)
    }
}

impl Config {
    /// The commands that make this configuration out of [`Config::new`] with the same names of ports, one a line.
    #[must_use]
    pub fn words(&self) -> String {
        let mut text = format!("config vlan_mode {}\n", self.mode.name());
        let on = |is: bool| if is { "on" } else { "off" };
        text += &format!("config addresses {} ageing {}", self.addresses, self.ageing);
        text += if self.shared { " learning shared" } else { " learning independent" };
        text += if self.pass_reserved { " reserved pass" } else { " reserved drop" };
        let querier = querier_word(self.querier);
        text += &format!(" querier {querier} query_interval {}", self.query_interval);
        text += &format!(" igmp {} mld {}", self.igmp, self.mld);
        text += &format!(" snooping {} probe {} block {}", on(self.snooping), self.probe, self.block);
        text += &format!(" moves {}\n", self.moves);
        let mut usual =
            Config::new(self.ports.iter().map(|port| super::PortConfig::new(&port.name)).collect());
        usual.enter(self.mode);
        for number in usual.groups.keys().filter(|number| !self.groups.contains_key(number)) {
            text += &format!("vlangroup {number} members none\n");
        }
        for (number, group) in &self.groups {
            text += &format!("vlangroup {number} members {}\n", self.member_words(*group));
        }
        for (port, usual) in self.ports.iter().zip(&usual.ports).filter(|(port, _)| !port.vacant) {
            text += &format!("port {} mtu {}", port.name, port.mtu);
            if self.mode.tpid().is_some() {
                text += &format!(" pvid {}", port.pvid);
            }
            for (name, flag) in Flags::NAMES {
                match (port.flags.has(flag), usual.flags.has(flag)) {
                    (true, false) => text += &format!(" {name}"),
                    (false, true) => text += &format!(" -{name}"),
                    _ => {}
                }
            }
            text += &port.addresses.map_or(String::new(), |n| format!(" addresses {n}"));
            let storm = [
                ("unknown", port.storm.unknown),
                ("broadcast", port.storm.broadcast),
                ("multicast", port.storm.multicast),
            ];
            for (name, limit) in storm {
                text += &limit.map_or(String::new(), |n| format!(" storm {name} {n}"));
            }
            text += &format!(" priority {} priorities {}\n", port.priority, list(&port.priorities));
        }
        for ((vlan, mac), port) in &self.statics {
            text += &format!("fdb static {mac} vlan {vlan} port {}\n", self.name(*port));
        }
        if let Some(mirror) = self.mirror_words() {
            text += &format!("mirror {mirror}\n");
        }
        text
    }

    /// The mirror as words: `from p1,p2 vlan 10 to p3`.
    #[must_use]
    pub fn mirror_words(&self) -> Option<String> {
        let mirror = self.mirror.as_ref()?;
        let mut text = String::new();
        if !mirror.ports.is_empty() {
            let watched = Group { members: mirror.ports, ..Group::default() };
            text += &format!("from {} ", self.member_words(watched));
        }
        text += &mirror.vlan.map_or(String::new(), |vlan| format!("vlan {vlan} "));
        text += &format!("to {}", self.name(mirror.to));
        Some(text)
    }

    /// Members as words: `p1,p2,cput`; `empty` where there are none.
    #[must_use]
    pub fn member_words(&self, group: Group) -> String {
        if group.members.is_empty() {
            return "empty".to_owned();
        }
        let word =
            |port: PortId| format!("{}{}", self.name(port), if group.tagged.has(port) { "t" } else { "" });
        group.members.map(word).collect::<Vec<_>>().join(",")
    }

    /// The group of these words.
    ///
    /// # Errors
    /// A member that is no port, or is there twice.
    pub(super) fn group(&self, words: &str) -> Result<Group, ConfigError> {
        let mut group = Group::default();
        for word in words.split(',').filter(|_| words != "empty") {
            let named = self.port(word).map(|port| (port, false));
            let tagged = || Some((self.port(word.strip_suffix(['t', 'T'])?)?, true));
            let Some((port, tagged)) = named.or_else(tagged) else { return Err(self.no_port(word)) };
            if group.members.has(port) {
                return Err(ConfigError(format!("member {} is named twice", self.name(port))));
            }
            group.members.set(port, true);
            group.tagged.set(port, tagged);
        }
        Ok(group)
    }

    fn no_port(&self, word: &str) -> ConfigError {
        let all = self.ports.iter().filter(|port| !port.vacant);
        let names: Vec<_> = all.take(8).map(|port| port.name.as_str()).collect();
        let more = if self.all().len() > 8 { ", ..." } else { "" };
        let last = self.ports.len().saturating_sub(1);
        ConfigError(format!(
            "'{}' is no port: it is a number from 0 to {last} or one of {}{more}",
            word.escape_debug(),
            names.join(", ")
        ))
    }
}

fn list(numbers: &[u8]) -> String {
    numbers.iter().map(u8::to_string).collect::<Vec<_>>().join(",")
}

/// What can be said of the switch, and of a port.
const OF_SWITCH: &str = "config: vlan_mode, addresses, ageing, learning, reserved, snooping, querier, query_interval, igmp, mld, probe, \
                         block or moves";
const OF_PORT: &str = "port: pvid, mtu, addresses, storm, priority, priorities, or a flag";

struct Reader<'a> {
    words: core::str::SplitWhitespace<'a>,
    peeked: Option<&'a str>,
    /// The command before.
    before: Option<&'static str>,
    change: Change,
}

impl<'a> Reader<'a> {
    fn next(&mut self) -> Option<&'a str> {
        self.peeked.take().or_else(|| self.words.next())
    }

    fn value(&mut self, of: &str) -> Result<&'a str, ConfigError> {
        self.next().ok_or_else(|| ConfigError(format!("{of}: a word is missing after it")))
    }

    fn number<T: core::str::FromStr>(&mut self, of: &str) -> Result<T, ConfigError> {
        let word = self.value(of)?;
        word.parse().map_err(|_| ConfigError(format!("{of} {}: not a number that fits", word.escape_debug())))
    }

    fn choice<T: Copy>(&mut self, of: &str, choices: &[(&str, T)]) -> Result<T, ConfigError> {
        let word = self.value(of)?;
        let found = choices.iter().find(|(name, _)| *name == word).map(|(_, value)| *value);
        found.ok_or_else(|| {
            let names: Vec<_> = choices.iter().map(|(name, _)| *name).collect();
            ConfigError(format!("{of} {}: one of {}", word.escape_debug(), names.join(", ")))
        })
    }

    fn port(&mut self, of: &str) -> Result<PortId, ConfigError> {
        let word = self.value(of)?;
        self.change.config.port(word).ok_or_else(|| self.change.config.no_port(word))
    }

    fn ports(&mut self, of: &str) -> Result<PortSet, ConfigError> {
        let word = self.value(of)?;
        let group = self.change.config.group(word)?;
        if group.tagged.is_empty() {
            Ok(group.members)
        } else {
            Err(ConfigError(format!("{of} {word}: no 't' here")))
        }
    }

    fn command(&mut self, word: &'a str) -> Result<(), ConfigError> {
        // `port1` and `vlangroup1` as one word, as etherswitchcfg has them.
        let numbered =
            |prefix: &str| word.strip_prefix(prefix).filter(|n| n.starts_with(|c: char| c.is_ascii_digit()));
        if let Some(rest) = numbered("port") {
            self.peeked = Some(rest);
            return self.of_port();
        }
        if let Some(rest) = numbered("vlangroup") {
            self.peeked = Some(rest);
            return self.of_group();
        }
        match word {
            "config" => self.of_switch(),
            "port" => self.of_port(),
            "vlangroup" => self.of_group(),
            "mirror" => self.of_mirror(),
            "fdb" => self.of_table(),
            other => Err(self.unknown(other)),
        }
    }

    /// Neither a word of the command before it, nor one that begins a command.
    fn unknown(&self, word: &str) -> ConfigError {
        let word = word.escape_debug();
        ConfigError(match self.before {
            None => format!("'{word}' is no command: config, port, vlangroup, mirror or fdb"),
            Some("config") => format!("'{word}' is nothing of {OF_SWITCH}"),
            Some("port") => format!("'{word}' is nothing of {OF_PORT}"),
            Some(_) => format!("'{word}' is a word too many: leave it out"),
        })
    }

    fn of_switch(&mut self) -> Result<(), ConfigError> {
        self.before = Some("config");
        const ON: [(&str, bool); 2] = [("on", true), ("off", false)];
        let mut some = false;
        while let Some(word) = self.next() {
            match word {
                "vlan_mode" => {
                    let mode = self.choice(word, &Mode::NAMES)?;
                    self.change.config.enter(mode);
                }
                "addresses" => self.change.config.addresses = self.number(word)?,
                "ageing" => self.change.config.ageing = self.number(word)?,
                "learning" => {
                    self.change.config.shared =
                        self.choice(word, &[("independent", false), ("shared", true)])?;
                }
                "reserved" => {
                    self.change.config.pass_reserved =
                        self.choice(word, &[("drop", false), ("pass", true)])?;
                }
                "snooping" => self.change.config.snooping = self.choice(word, &ON)?,
                "querier" => self.change.config.querier = querier(self.value(word)?)?,
                "query_interval" => self.change.config.query_interval = self.number(word)?,
                "igmp" => self.change.config.igmp = self.choice(word, &[("2", 2), ("3", 3)])?,
                "mld" => self.change.config.mld = self.choice(word, &[("1", 1), ("2", 2)])?,
                "probe" => self.change.config.probe = self.number(word)?,
                "block" => self.change.config.block = self.number(word)?,
                "moves" => self.change.config.moves = self.number(word)?,
                other => {
                    self.peeked = Some(other);
                    break;
                }
            }
            some = true;
        }
        self.said(some, OF_SWITCH)
    }

    fn said(&mut self, some: bool, what: &str) -> Result<(), ConfigError> {
        match (some, self.peeked) {
            (true, _) => Ok(()),
            (false, Some(word)) => {
                Err(ConfigError(format!("'{}' is nothing of {what}", word.escape_debug())))
            }
            (false, None) => Err(ConfigError(format!("say what to change of {what}"))),
        }
    }

    fn of_port(&mut self) -> Result<(), ConfigError> {
        self.before = Some("port");
        let port = self.port("port")?;
        let mut some = false;
        while let Some(word) = self.next() {
            if word == "flags" {
                let words = self.value(word)?;
                for flag in words.split(',') {
                    if !self.flag(port, flag) {
                        return Err(unknown_flag(flag));
                    }
                }
            } else if word == "storm" {
                self.storm(port)?;
            } else if word.starts_with('-') && !self.flag(port, word) {
                return Err(unknown_flag(word));
            } else if word.starts_with('-') || self.flag(port, word) {
            } else if !self.setting(port, word)? {
                self.peeked = Some(word);
                break;
            }
            some = true;
        }
        self.said(some, OF_PORT)
    }

    /// Sets or clears one flag; `false` if there is none of this name.
    fn flag(&mut self, port: PortId, word: &str) -> bool {
        let (name, clear) = word.strip_prefix('-').map_or((word, false), |name| (name, true));
        let Some(flag) = Flags::named(name) else { return false };
        let flags = &mut self.change.config.ports[port.index()].flags;
        *flags = if clear { flags.without(flag) } else { flags.or(flag) };
        true
    }

    fn storm(&mut self, port: PortId) -> Result<(), ConfigError> {
        let kind = self.choice("storm", &[("unknown", 0), ("broadcast", 1), ("multicast", 2)])?;
        let limit = match self.value("storm")? {
            "none" => None,
            word => Some(word.parse().map_err(|_| {
                ConfigError(format!("storm {}: frames a second, or none", word.escape_debug()))
            })?),
        };
        let storm = &mut self.change.config.ports[port.index()].storm;
        *[&mut storm.unknown, &mut storm.broadcast, &mut storm.multicast][kind] = limit;
        Ok(())
    }

    /// `false` if there is no such setting.
    fn setting(&mut self, port: PortId, word: &str) -> Result<bool, ConfigError> {
        let port = port.index();
        match word {
            "pvid" => self.change.config.ports[port].pvid = self.number(word)?,
            "mtu" => self.change.config.ports[port].mtu = self.number(word)?,
            "addresses" => {
                self.change.config.ports[port].addresses = match self.value(word)? {
                    "none" => None,
                    n => Some(n.parse().map_err(|_| {
                        ConfigError(format!("addresses {}: a number, or none", n.escape_debug()))
                    })?),
                };
            }
            "priority" => self.change.config.ports[port].priority = self.number(word)?,
            "priorities" => {
                let text = self.value(word)?;
                let all: Option<Vec<u8>> = text.split(',').map(|n| n.parse().ok()).collect();
                self.change.config.ports[port].priorities =
                    all.and_then(|all| all.try_into().ok()).ok_or_else(|| {
                        ConfigError(format!(
                            "priorities {}: eight numbers, as 0,1,2,3,4,5,6,7",
                            text.escape_debug()
                        ))
                    })?;
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn of_group(&mut self) -> Result<(), ConfigError> {
        self.before = Some("vlangroup");
        let number: u16 = self.number("vlangroup")?;
        if self.value("vlangroup")? != "members" {
            return Err(ConfigError(format!(
                "vlangroup {number}: 'members 1,2,0t', 'members empty' or 'members none'"
            )));
        }
        let words = self.value("members")?;
        if words == "none" {
            self.change.config.groups.remove(&number);
        } else {
            let group = self.change.config.group(words)?;
            self.change.config.groups.insert(number, group);
        }
        Ok(())
    }

    fn of_mirror(&mut self) -> Result<(), ConfigError> {
        self.before = Some("mirror");
        let (mut ports, mut vlan) = (PortSet::NONE, None);
        loop {
            match self.value("mirror")? {
                "none" => {
                    self.change.config.mirror = None;
                    return Ok(());
                }
                "from" => ports = self.ports("from")?,
                "vlan" => vlan = Some(self.number("vlan")?),
                "to" => {
                    let to = self.port("to")?;
                    self.change.config.mirror = Some(Mirror { ports, vlan, to });
                    return Ok(());
                }
                other => {
                    return Err(ConfigError(format!(
                        "mirror {}: 'mirror from 1,2 vlan 10 to 3' or 'mirror none'",
                        other.escape_debug()
                    )));
                }
            }
        }
    }

    fn of_table(&mut self) -> Result<(), ConfigError> {
        self.before = Some("fdb");
        match self.value("fdb")? {
            "flush" => {
                let flush = match self.value("flush")? {
                    "all" => Flush::All,
                    "port" => Flush::Port(self.port("port")?),
                    "vlan" => Flush::Vlan(self.number("vlan")?),
                    other => {
                        return Err(ConfigError(format!(
                            "flush {}: all, port N or vlan N",
                            other.escape_debug()
                        )));
                    }
                };
                self.change.flush.push(flush);
                Ok(())
            }
            "static" => {
                let text = self.value("static")?;
                let mac: MacAddr =
                    text.parse().map_err(|e| ConfigError(format!("static {}: {e}", text.escape_debug())))?;
                let mut vlan = 0;
                loop {
                    match self.value("static")? {
                        "vlan" => vlan = self.number("vlan")?,
                        "port" => {
                            let port = self.port("port")?;
                            self.change.config.statics.insert((vlan, mac), port);
                            return Ok(());
                        }
                        "none" => {
                            if self.change.config.statics.remove(&(vlan, mac)).is_none() {
                                return Err(ConfigError(format!(
                                    "{mac} is no static address of VLAN {vlan}"
                                )));
                            }
                            return Ok(());
                        }
                        other => {
                            return Err(ConfigError(format!(
                                "static {}: vlan N, port N or none",
                                other.escape_debug()
                            )));
                        }
                    }
                }
            }
            other => Err(ConfigError(format!("fdb {}: flush or static", other.escape_debug()))),
        }
    }
}

/// Whether the switch asks who listens, and from which address.
pub(super) fn querier(word: &str) -> Result<Option<Ipv4Addr>, ConfigError> {
    match word {
        "off" => Ok(None),
        "on" => Ok(Some(Ipv4Addr::UNSPECIFIED)),
        address => address.parse().map(Some).map_err(|_| {
            ConfigError(format!("querier {}: on, off, or an address of IPv4", word.escape_debug()))
        }),
    }
}

/// The word that [`querier`] reads.
pub(super) fn querier_word(querier: Option<Ipv4Addr>) -> String {
    match querier {
        None => "off".to_owned(),
        Some(address) if address.is_unspecified() => "on".to_owned(),
        Some(address) => address.to_string(),
    }
}

fn unknown_flag(word: &str) -> ConfigError {
    let names: Vec<_> = Flags::NAMES.iter().map(|(name, _)| *name).collect();
    ConfigError(format!(
        "'{}' is no flag: {}, each with '-' to clear it",
        word.escape_debug(),
        names.join(", ")
    ))
}
