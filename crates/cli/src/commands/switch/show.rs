//! What a switch shows: ports and what they counted, VLANs, addresses.

use crate::stdout;
use std::collections::BTreeMap;
use std::io::{self, Write};

use flowlane::control::{self, AddressesView, ConfigView};
use flowlane::switch::{PortView, SwitchView};

use super::Name;
use crate::wrap::{WIDTH, listed};

/// Show a running switch: its ports, what they counted and dropped, its VLANs.
#[derive(Debug, clap::Args)]
pub(crate) struct Show {
    #[command(flatten)]
    name: Name,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

fn view(name: &Name) -> anyhow::Result<SwitchView> {
    Ok(control::get(&name.path()?, "/v1/switch")?)
}

impl Show {
    pub(super) fn run(self) -> anyhow::Result<()> {
        let view = view(&self.name)?;
        let mut out = stdout::lock();
        if self.json {
            writeln!(out, "{}", serde_json::to_string_pretty(&view)?)?;
            return Ok(());
        }
        writeln!(
            out,
            "mode {}, {} addresses of {}, {}",
            view.mode,
            view.addresses,
            view.capacity,
            if view.workers == 1 { "1 worker".to_owned() } else { format!("{} workers", view.workers) }
        )?;
        print_ports(&mut out, &view)?;
        for port in &view.ports {
            let shown = ["received", "received-bytes", "sent", "sent-bytes", "learnt"];
            let others = port.counters.iter().filter(|(name, n)| **n > 0 && !shown.contains(&name.as_str()));
            print_counts(&mut out, port, "counted", &others.map(|(n, c)| (n.clone(), *c)).collect())?;
            print_counts(&mut out, port, "dropped", &port.drops)?;
        }
        if view.lost_news > 0 {
            writeln!(out, "{} news between workers found no room", view.lost_news)?;
        }
        for (vid, members) in &view.groups {
            writeln!(out, "{}", folded(&format!("vlangroup {vid} members"), members))?;
        }
        if let Some(mirror) = &view.mirror {
            writeln!(out, "mirror {mirror}")?;
        }
        for (vlan, group, ports) in &view.listeners {
            writeln!(out, "{}", folded(&format!("vlan {vlan}  {group} "), ports))?;
        }
        for (vlan, family, who) in &view.queriers {
            writeln!(out, "vlan {vlan}  {family} querier  {who}")?;
        }
        Ok(())
    }
}

fn print_counts(
    out: &mut impl Write,
    port: &PortView,
    what: &str,
    counts: &BTreeMap<String, u64>,
) -> io::Result<()> {
    if counts.is_empty() {
        return Ok(());
    }
    let all: Vec<_> = counts.iter().map(|(name, n)| format!("{name} {n}")).collect();
    writeln!(out, "{}", listed(&format!("port {}: {what}:", port.name), &all))
}

/// Names with commas between them, behind `head`: as they are where they fit a line, else in lines of a page.
fn folded(head: &str, names: &str) -> String {
    let line = format!("{head} {names}");
    if line.chars().count() <= WIDTH {
        return line;
    }
    listed(head, &names.split(',').map(str::to_owned).collect::<Vec<_>>())
}

fn print_ports(out: &mut impl Write, view: &SwitchView) -> io::Result<()> {
    writeln!(out, "no name            state   pvid    received        sent addresses")?;
    for port in &view.ports {
        let count = |name: &str| port.counters.get(name).copied().unwrap_or_default();
        writeln!(
            out,
            "{:>2} {:<15} {:<7} {:>4} {:>11} {:>11} {:>9}",
            port.number,
            port.name,
            port.state,
            port.pvid,
            count("received"),
            count("sent"),
            port.addresses
        )?;
    }
    Ok(())
}

fn print_vlans(out: &mut impl Write, view: &SwitchView) -> io::Result<()> {
    for (vid, members) in &view.groups {
        writeln!(out, "vlangroup {vid} members {members}")?;
    }
    Ok(())
}

/// The VLANs, each on a line, as the words that make it.
pub(super) fn vlans(name: &Name, json: bool) -> anyhow::Result<()> {
    let view = view(name)?;
    let mut out = stdout::lock();
    if json {
        writeln!(out, "{}", serde_json::to_string_pretty(&view.groups)?)?;
    } else {
        print_vlans(&mut out, &view)?;
    }
    Ok(())
}

/// The mirror, as the words that make it.
pub(super) fn mirror(name: &Name, json: bool) -> anyhow::Result<()> {
    let view = view(name)?;
    let mut out = stdout::lock();
    if json {
        writeln!(out, "{}", serde_json::to_string_pretty(&view.mirror)?)?;
    } else {
        writeln!(out, "mirror {}", view.mirror.as_deref().unwrap_or("none"))?;
    }
    Ok(())
}

/// The configuration, as a file; with `json` what that file says.
pub(super) fn config(name: &Name, json: bool) -> anyhow::Result<()> {
    let view: ConfigView = control::get(&name.path()?, "/v1/switch/config")?;
    let mut out = stdout::lock();
    if json {
        let said: toml::Table = view.file.parse()?;
        writeln!(out, "{}", serde_json::to_string_pretty(&said)?)?;
    } else {
        out.write_all(view.file.as_bytes())?;
    }
    Ok(())
}

/// The ports, with links and flags.
pub(super) fn ports(name: &Name, json: bool) -> anyhow::Result<()> {
    let view = view(name)?;
    let mut out = stdout::lock();
    if json {
        writeln!(out, "{}", serde_json::to_string_pretty(&view.ports)?)?;
        return Ok(());
    }
    for port in &view.ports {
        let flags =
            if port.flags.is_empty() { String::new() } else { format!(" flags {}", port.flags.join(",")) };
        let workers: Vec<_> = port.workers.iter().map(ToString::to_string).collect();
        let workers =
            if workers.is_empty() { String::new() } else { format!(" worker {}", workers.join(",")) };
        writeln!(out, "port {} {} {} pvid {}{workers}{flags}", port.name, port.link, port.state, port.pvid)?;
    }
    Ok(())
}

/// The table of addresses.
pub(super) fn addresses(name: &Name, json: bool) -> anyhow::Result<()> {
    let view: AddressesView = control::get(&name.path()?, "/v1/switch/addresses")?;
    let mut out = stdout::lock();
    if json {
        writeln!(out, "{}", serde_json::to_string_pretty(&view)?)?;
        return Ok(());
    }
    for address in &view.addresses {
        let age = if address.is_static { "static".to_owned() } else { format!("{} s", address.age) };
        writeln!(out, "{} vlan {:>4} port {:<15} {age}", address.mac, address.vlan, address.port)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn vlans_of_many_ports_fit_a_page_and_those_of_few_stay_words_to_type() {
        assert_eq!(folded("vlangroup 10 members", "a,bt,c"), "vlangroup 10 members a,bt,c");
        let many: Vec<String> = (0..60).map(|n| format!("port-number-{n}")).collect();
        let page = folded("vlangroup 10 members", &many.join(","));
        assert!(page.lines().all(|line| line.chars().count() <= WIDTH), "{page}");
        assert_eq!(
            page.replace("\n   ", "").replace(", ", ","),
            format!("vlangroup 10 members {}", many.join(","))
        );
    }
}
