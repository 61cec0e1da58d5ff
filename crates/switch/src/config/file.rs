//! A configuration as a TOML file, read and written.
//!
//! ```toml
//! mode = "dot1q"
//!
//! [[port]]
//! name = "p1"
//! link = "tap:a"
//! pvid = 10
//!
//! [[vlan]]
//! id = 10
//! members = "p1,p2,cput"
//! ```
//!
//! What is left out has its usual value. [`write()`] gives a file from which [`read`] makes the same configuration.

use core::fmt::Write;

use flowlane_stack::wire::MacAddr;
use serde::Deserialize;

use super::check::Origin;
use super::{Config, ConfigError, Flags, Mirror, Mode, PortConfig, StormLimits, mistakes, words};
use crate::ports::PortSet;

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct File {
    mode: Option<String>,
    addresses: Option<u32>,
    ageing: Option<u32>,
    learning: Option<String>,
    reserved: Option<String>,
    snooping: Option<bool>,
    querier: Option<String>,
    query_interval: Option<u32>,
    igmp: Option<u8>,
    mld: Option<u8>,
    probe: Option<u32>,
    block: Option<u32>,
    moves: Option<u32>,
    #[serde(default)]
    port: Vec<Port>,
    vlan: Option<Vec<Vlan>>,
    #[serde(default, rename = "static")]
    fixed: Vec<Static>,
    mirror: Option<Watch>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct Port {
    name: String,
    #[serde(default)]
    link: String,
    pvid: Option<u16>,
    flags: Option<Vec<String>>,
    mtu: Option<u16>,
    addresses: Option<u32>,
    storm_unknown: Option<u32>,
    storm_broadcast: Option<u32>,
    storm_multicast: Option<u32>,
    priority: Option<u8>,
    priorities: Option<[u8; 8]>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Vlan {
    id: u16,
    members: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Static {
    #[serde(default)]
    vlan: u16,
    mac: String,
    port: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Watch {
    #[serde(default)]
    from: String,
    vlan: Option<u16>,
    to: String,
}

/// How keys are written, for who wrote them otherwise.
const EXAMPLES: [(&str, &str); 8] = [
    ("port", "[[port]]"),
    ("vlan", "[[vlan]]"),
    ("static", "[[static]]"),
    ("mirror", "[mirror]"),
    ("name", "name = \"a\""),
    ("flags", "flags = [\"private\"]"),
    ("members", "members = \"a,b\""),
    ("priorities", "priorities = [0, 1, 2, 3, 4, 5, 6, 7]"),
];

/// Reads a file and checks what it says.
///
/// # Errors
/// What is wrong, in one line, with the line's number where the file is no TOML.
pub fn read(text: &str) -> Result<Config, ConfigError> {
    let file: File = toml::from_str(text).map_err(|e| {
        let at = e.span().map_or(0, |span| span.start.min(text.len()));
        let line = text.as_bytes()[..at].iter().filter(|b| **b == b'\n').count() + 1;
        ConfigError(format!("line {line}: {}", mistakes::in_words(text, at, e.message(), &EXAMPLES)))
    })?;
    let mut config = Config::new(file.port.iter().map(|port| PortConfig::new(&port.name)).collect());
    if let Some(name) = &file.mode {
        let mode = Mode::NAMES.iter().find(|(known, _)| known == name);
        let (_, mode) = mode.ok_or_else(|| one_of("mode", name, "default, port, dot1q or qinq"))?;
        config.enter(*mode);
    }
    let set = |to: &mut u32, from: Option<u32>| *to = from.unwrap_or(*to);
    set(&mut config.addresses, file.addresses);
    set(&mut config.ageing, file.ageing);
    set(&mut config.probe, file.probe);
    set(&mut config.block, file.block);
    set(&mut config.moves, file.moves);
    set(&mut config.query_interval, file.query_interval);
    config.querier = file.querier.as_deref().map_or(Ok(None), words::querier)?;
    (config.igmp, config.mld) = (file.igmp.unwrap_or(config.igmp), file.mld.unwrap_or(config.mld));
    config.snooping = file.snooping.unwrap_or_default();
    config.shared = choice("learning", file.learning.as_deref(), ["independent", "shared"])?;
    config.pass_reserved = choice("reserved", file.reserved.as_deref(), ["drop", "pass"])?;
    if let Some(vlans) = &file.vlan {
        config.groups.clear();
        for vlan in vlans {
            let group = config.group(&vlan.members)?;
            if config.groups.insert(vlan.id, group).is_some() {
                return Err(ConfigError(format!("vlan {} is there twice", vlan.id)));
            }
        }
    }
    let one = config.mode.tpid().is_some() && config.groups.contains_key(&1);
    for (port, said) in config.ports.iter_mut().zip(&file.port) {
        of_port(port, said, u16::from(one))?;
    }
    for fixed in &file.fixed {
        let mac: MacAddr = fixed
            .mac
            .parse()
            .map_err(|e| ConfigError(format!("static '{}': {e}", fixed.mac.escape_debug())))?;
        let port = config.group(&fixed.port)?;
        let Some(port) = port.members.into_iter().next() else {
            return Err(ConfigError("static: name a port".to_owned()));
        };
        config.statics.insert((fixed.vlan, mac), port);
    }
    if let Some(watch) = &file.mirror {
        let ports = if watch.from.is_empty() { PortSet::NONE } else { config.group(&watch.from)?.members };
        let to = config.port(&watch.to);
        let to =
            to.ok_or_else(|| ConfigError(format!("mirror: '{}' is no port", watch.to.escape_debug())))?;
        config.mirror = Some(Mirror { ports, vlan: watch.vlan, to });
    }
    config.check_as(Origin::InFile)?;
    Ok(config)
}

fn one_of(what: &str, said: &str, known: &str) -> ConfigError {
    ConfigError(format!("{what} '{}': {known}", said.escape_debug()))
}

/// Whether the second of two words was said.
fn choice(what: &str, said: Option<&str>, words: [&str; 2]) -> Result<bool, ConfigError> {
    match said {
        None => Ok(false),
        Some(word) if word == words[0] => Ok(false),
        Some(word) if word == words[1] => Ok(true),
        Some(word) => Err(one_of(what, word, &words.join(" or "))),
    }
}

fn of_port(port: &mut PortConfig, said: &Port, usual: u16) -> Result<(), ConfigError> {
    port.link.clone_from(&said.link);
    port.pvid = said.pvid.unwrap_or(usual);
    if let Some(names) = &said.flags {
        port.flags = Flags::NONE;
        for name in names {
            let flag = Flags::named(name);
            let known = || Flags::NAMES.map(|(name, _)| name).join(", ");
            port.flags = port.flags.or(flag.ok_or_else(|| one_of("flag", name, &known()))?);
        }
    }
    port.mtu = said.mtu.unwrap_or(port.mtu);
    port.addresses = said.addresses;
    port.storm = StormLimits {
        unknown: said.storm_unknown,
        broadcast: said.storm_broadcast,
        multicast: said.storm_multicast,
    };
    port.priority = said.priority.unwrap_or_default();
    port.priorities = said.priorities.unwrap_or(port.priorities);
    Ok(())
}

/// Writes a configuration as a file.
#[must_use]
pub fn write(config: &Config) -> String {
    let mut text = String::new();
    // Writing to a string does not fail.
    let _ = write_switch(config, &mut text);
    for port in config.ports.iter().filter(|port| !port.vacant) {
        let _ = write_port(config, port, &mut text);
    }
    for (id, group) in &config.groups {
        // In mode port a group has the number of its port, which counts the ports before it when the file is read.
        let before = config.all().filter(|port| port.index() < usize::from(*id)).count();
        let id = if config.mode == Mode::Port { before } else { usize::from(*id) };
        let _ = write!(text, "\n[[vlan]]\nid = {id}\nmembers = \"{}\"\n", config.member_words(*group));
    }
    for ((vlan, mac), port) in &config.statics {
        let port = config.name(*port);
        let _ = write!(text, "\n[[static]]\nvlan = {vlan}\nmac = \"{mac}\"\nport = \"{port}\"\n");
    }
    text
}

fn write_switch(config: &Config, text: &mut String) -> core::fmt::Result {
    writeln!(text, "mode = \"{}\"", config.mode.name())?;
    writeln!(text, "addresses = {}\nageing = {}", config.addresses, config.ageing)?;
    writeln!(text, "learning = \"{}\"", if config.shared { "shared" } else { "independent" })?;
    writeln!(text, "reserved = \"{}\"", if config.pass_reserved { "pass" } else { "drop" })?;
    writeln!(text, "snooping = {}", config.snooping)?;
    writeln!(text, "querier = \"{}\"", words::querier_word(config.querier))?;
    writeln!(
        text,
        "query-interval = {}\nigmp = {}\nmld = {}",
        config.query_interval, config.igmp, config.mld
    )?;
    writeln!(text, "probe = {}\nblock = {}\nmoves = {}", config.probe, config.block, config.moves)?;
    if config.groups.is_empty() && config.mode != Mode::Default {
        writeln!(text, "vlan = []")?;
    }
    if let Some(mirror) = &config.mirror {
        writeln!(text, "\n[mirror]")?;
        if !mirror.ports.is_empty() {
            let ports = super::Group { members: mirror.ports, ..super::Group::default() };
            writeln!(text, "from = \"{}\"", config.member_words(ports))?;
        }
        if let Some(vlan) = mirror.vlan {
            writeln!(text, "vlan = {vlan}")?;
        }
        writeln!(text, "to = \"{}\"", config.name(mirror.to))?;
    }
    Ok(())
}

fn write_port(config: &Config, port: &PortConfig, text: &mut String) -> core::fmt::Result {
    writeln!(text, "\n[[port]]\nname = \"{}\"", port.name)?;
    if !port.link.is_empty() {
        writeln!(text, "link = {}", quoted(&port.link))?;
    }
    if config.mode.tpid().is_some() {
        writeln!(text, "pvid = {}", port.pvid)?;
    }
    let flags: Vec<_> = port.flags.names().map(|name| format!("\"{name}\"")).collect();
    writeln!(text, "flags = [{}]\nmtu = {}", flags.join(", "), port.mtu)?;
    for (name, limit) in [
        ("addresses", port.addresses),
        ("storm-unknown", port.storm.unknown),
        ("storm-broadcast", port.storm.broadcast),
        ("storm-multicast", port.storm.multicast),
    ] {
        if let Some(limit) = limit {
            writeln!(text, "{name} = {limit}")?;
        }
    }
    writeln!(text, "priority = {}\npriorities = {:?}", port.priority, port.priorities)
}

/// A basic string of TOML; it has no control characters ([`Config::check`]).
fn quoted(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
}
