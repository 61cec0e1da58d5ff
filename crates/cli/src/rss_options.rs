//! The arguments that describe an RSS configuration and the endpoints of a flow.
//!
//! Every command that steers or explains steering uses them, so that all have the same options and the same checks.

use crate::steering::random_key;
use anyhow::{Context, bail};
use flowlane_rss::{
    Bucket, BucketMap, HashConfig, Indirection, Key, Protocol, Rss, Toeplitz, UdpFields, default_buckets,
};
use std::net::{IpAddr, SocketAddr};

/// Options of the RSS configuration.
#[derive(Debug, Clone, clap::Args)]
#[command(next_help_heading = "Steering")]
pub(crate) struct Steering {
    /// Key of the hash: 'microsoft', 'symmetric', 'random' or 16 to 52 bytes in hexadecimal [default: rss: microsoft; serve: random].
    #[arg(long, value_name = "KEY")]
    pub(crate) key: Option<String>,
    /// Hash UDP over addresses and ports [default: over addresses alone, so that fragments have the hash of their flow].
    #[arg(long)]
    pub(crate) udp_4tuple: bool,
    /// Slots of the indirection table, 2 to 2048 [default: 128, or more if there are more buckets].
    #[arg(long, value_name = "N")]
    pub(crate) slots: Option<usize>,
    /// Workers that share the buckets [default: rss: 1; serve: one for each processor, at most one for each queue of a card].
    #[arg(long, value_name = "N")]
    pub(crate) workers: Option<usize>,
}

/// The key to use when none is given.
#[derive(Debug, Clone, Copy)]
pub(crate) enum DefaultKey {
    /// Microsoft's published key: for commands that compute.
    Microsoft,
    /// A new random key, which nobody can aim packets with: for commands that run.
    Random,
}

impl Steering {
    /// The configuration. With `useful`, a key that leaves buckets out of reach is refused.
    pub(crate) fn build(
        &self,
        buckets: Option<usize>,
        default: DefaultKey,
        useful: bool,
    ) -> anyhow::Result<Rss> {
        let workers = self.workers.unwrap_or(1);
        self.build_for(workers, buckets, default, useful)
    }

    /// As [`Steering::build`], for this many workers.
    pub(crate) fn build_for(
        &self,
        workers: usize,
        buckets: Option<usize>,
        default: DefaultKey,
        useful: bool,
    ) -> anyhow::Result<Rss> {
        if workers == 0 || workers > 64 {
            bail!("--workers {workers}: must be from 1 to 64");
        }
        let count = buckets.unwrap_or_else(|| default_buckets(workers));
        let map = BucketMap::new(count, workers).context("--buckets")?;
        let slots = self.slots.unwrap_or(Indirection::DEFAULT_SLOTS.max(count));
        let table = Indirection::new(slots, count).context("--slots")?;
        if slots < count {
            bail!("--slots {slots}: too few to name {count} buckets");
        }
        let config = HashConfig::with_udp(if self.udp_4tuple { UdpFields::Four } else { UdpFields::Two });
        let key = self.key(default, &table, &config)?;
        let rss = Rss::from_parts(Toeplitz::new(&key), config, table, map);
        if useful {
            rss.require_useful_key().context("--key")?;
        }
        Ok(rss)
    }

    /// The key that a result is computed with, in at most 72 columns. A running instance has a different key unless `--key` was given.
    pub(crate) fn key_in_words(&self) -> String {
        match self.key.as_deref() {
            None => "microsoft, for want of --key; serve and load take a fresh one then".to_owned(),
            Some("random") => "a fresh one, which nobody else has".to_owned(),
            Some(name @ ("microsoft" | "symmetric")) => name.to_owned(),
            // Digits without what separated them. A text that is no key has been refused.
            Some(text) => match text.parse::<Key>() {
                Ok(key) if key.as_bytes().len() <= 36 => key.to_string(),
                Ok(key) => format!("{}... ({} bytes)", &key.to_string()[..48], key.as_bytes().len()),
                Err(_) => text.to_owned(),
            },
        }
    }

    /// The key given by name or in hexadecimal; `None` for a random one.
    pub(crate) fn named_key(&self) -> anyhow::Result<Option<Key>> {
        match self.key.as_deref() {
            None | Some("random") => Ok(None),
            Some(text) => Ok(Some(text.parse().context("--key")?)),
        }
    }

    fn key(&self, default: DefaultKey, table: &Indirection, config: &HashConfig) -> anyhow::Result<Key> {
        match (self.key.as_deref(), default) {
            (Some("random"), _) | (None, DefaultKey::Random) => random_key(table, config, None),
            (None, DefaultKey::Microsoft) => Ok(Key::MICROSOFT),
            (Some(text), _) => text.parse().context("--key"),
        }
    }
}

/// Options that select the protocol.
#[derive(Debug, Clone, Copy, clap::Args)]
pub(crate) struct Which {
    /// Take the packets as UDP.
    #[arg(long, conflicts_with = "tcp")]
    pub(crate) udp: bool,
    /// Take the packets as TCP: the default if ports are given.
    #[arg(long)]
    pub(crate) tcp: bool,
}

impl Which {
    /// The protocol, for packets with or without ports.
    pub(crate) fn protocol(self, ports: bool) -> Protocol {
        match (self.udp, self.tcp || ports) {
            (true, _) => Protocol::UDP,
            (false, true) => Protocol::TCP,
            // 253 stands for any protocol without ports: reserved for experiments by RFC 3692.
            (false, false) => Protocol(253),
        }
    }
}

/// An address with or without a port: `10.0.0.1`, `10.0.0.1:7`, `fd00::1`, `[fd00::1]:7`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct End {
    pub(crate) ip: IpAddr,
    pub(crate) port: Option<u16>,
}

impl std::str::FromStr for End {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let bare = text.strip_prefix('[').and_then(|t| t.strip_suffix(']')).unwrap_or(text);
        if let Ok(ip) = bare.parse() {
            return Ok(Self { ip, port: None });
        }
        match text.parse::<SocketAddr>() {
            Ok(end) => Ok(Self { ip: end.ip(), port: Some(end.port()) }),
            Err(_) => Err("not ADDRESS or ADDRESS:PORT ([ADDRESS]:PORT for IPv6)".into()),
        }
    }
}

/// Parses `0,3` or `0-3` or `all`, the value of `option`.
pub(crate) fn buckets(option: &str, text: &str, count: usize) -> anyhow::Result<Vec<Bucket>> {
    if text == "all" {
        return Ok((0..count).map(|b| Bucket(b as u16)).collect());
    }
    let mut list = Vec::new();
    for part in text.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (Ok(first), Ok(last)) = (first.parse::<u16>(), last.parse::<u16>()) else {
            bail!("{option} '{part}': not a bucket's number, a range A-B or 'all'");
        };
        if first > last || usize::from(last) >= count {
            bail!("{option}: bucket {part}: there are buckets 0 to {}", count - 1);
        }
        list.extend((first..=last).map(Bucket));
    }
    list.sort_unstable();
    list.dedup();
    Ok(list)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ends() {
        let end = |text: &str| text.parse::<End>().map(|e| (e.ip.to_string(), e.port)).ok();
        assert_eq!(end("10.0.0.1"), Some(("10.0.0.1".into(), None)));
        assert_eq!(end("10.0.0.1:7"), Some(("10.0.0.1".into(), Some(7))));
        assert_eq!(end("fd00::1"), Some(("fd00::1".into(), None)));
        assert_eq!(end("[fd00::1]"), Some(("fd00::1".into(), None)));
        assert_eq!(end("[fd00::1]:7"), Some(("fd00::1".into(), Some(7))));
        assert_eq!(end("10.0.0.1:65536"), None);
        assert_eq!(end("lane"), None);
    }

    #[test]
    fn lists_of_buckets() {
        let list =
            |text| buckets("--buckets", text, 8).ok().map(|l| l.iter().map(|b| b.0).collect::<Vec<_>>());
        assert_eq!(list("all"), Some((0..8).collect()));
        assert_eq!(list("3,0,3"), Some(vec![0, 3]));
        assert_eq!(list("1-3,7"), Some(vec![1, 2, 3, 7]));
        assert_eq!(list("8"), None);
        assert_eq!(list("3-1"), None);
        assert_eq!(list(""), None);
    }
}
