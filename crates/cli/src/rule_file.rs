//! The file with the rule of a learned card: written by `rss learn`, read by every command with `--rss FILE`.
//!
//! A JSON document: where the rule comes from, how packet fields are arranged, the key if the hash is Toeplitz or the columns of the
//! affine maps if not, and the queue of each slot. Only its owner may read it, since anyone who knows the rule can aim packets at one
//! queue.

use anyhow::{Context, bail, ensure};
use flowlane_rss::learn::Learned;
use flowlane_rss::{
    Affine, Arrangement, Bucket, BucketMap, Flow, General, HashConfig, Indirection, Key, PacketKind, Rss,
    UdpFields,
};
use serde::{Deserialize, Serialize};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};

/// The option with such a file, for commands that compute a card's queues.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct RuleOption {
    /// The card's rule and table, from a file written by 'rss learn'; buckets are then the card's queues.
    #[arg(long, value_name = "FILE", help_heading = "Steering")]
    #[arg(conflicts_with_all = ["key", "slots", "workers", "udp_4tuple"])]
    rss: Option<PathBuf>,
}

impl RuleOption {
    /// The rule, if a file was named.
    pub(crate) fn read(&self) -> anyhow::Result<Option<Rule>> {
        self.rss.as_deref().map(Rule::read).transpose()
    }

    /// The description that takes the place of the key's.
    pub(crate) fn in_words(&self) -> Option<String> {
        let name = self.rss.as_deref()?.file_name()?.to_string_lossy().into_owned();
        Some(format!("the rule in {}", name.chars().take(50).collect::<String>()))
    }
}

/// Largest file that is read, bytes; the largest rule has six maps of 288 columns and 2048 slots.
const LARGEST: u64 = 1 << 20;

/// The document.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct Document {
    version: u32,
    what: String,
    /// Where the rule was learned, for people.
    learned_from: String,
    findings: Vec<String>,
    /// Whether the rule's hashes are those that the card reports.
    hashes: bool,
    /// The kinds of packets that the rule covers.
    kinds: Vec<String>,
    arrangement: String,
    /// The key of a Toeplitz hash, and whether UDP is hashed with ports; then there are no maps.
    key: Option<String>,
    udp_ports: Option<bool>,
    maps: Vec<Map>,
    /// The queue of each slot.
    queues: Vec<u16>,
}

/// The affine map of some kinds of packets.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct Map {
    kinds: Vec<String>,
    /// The hash of zeros, eight hexadecimal digits.
    constant: String,
    /// The columns of the map, one for each input bit from the first bit of the source address on, eight hexadecimal digits each.
    columns: String,
}

const WHAT: &str = "how a card steers: arranged bits -> hash -> slot -> queue (flowlane rss learn)";

/// A rule that was read.
#[derive(Debug, Clone)]
pub(crate) struct Rule {
    pub(crate) rule: General,
    pub(crate) table: Indirection,
    /// Whether the rule's hashes are those that the card reports.
    pub(crate) hashes: bool,
    kinds: Vec<PacketKind>,
}

impl Rule {
    /// The rule that was learned for these kinds.
    pub(crate) fn of(learned: &Learned, kinds: &[PacketKind]) -> Self {
        Self {
            rule: learned.rule.clone(),
            table: learned.table.clone(),
            hashes: learned.hashes,
            kinds: kinds.to_vec(),
        }
    }

    /// Writes the file, or replaces it.
    pub(crate) fn write(&self, path: &Path, learned: &Learned, from: &str) -> anyhow::Result<()> {
        let document = self.document(learned, from);
        let text = serde_json::to_string_pretty(&document)?;
        let mut options = std::fs::OpenOptions::new();
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        let opened = options.write(true).create(true).truncate(true).open(path);
        let written = opened.and_then(|mut file| file.write_all(compact(&text).as_bytes()));
        written.with_context(|| format!("{}", path.display()))
    }

    fn document(&self, learned: &Learned, from: &str) -> Document {
        let config = self.rule.config();
        let plain = |kinds: &[PacketKind]| kinds.iter().map(|kind| kind.name().to_owned()).collect();
        let whole = HashConfig::with_udp(if config.udp_ipv4 { UdpFields::Four } else { UdpFields::Two });
        let key = self.rule.toeplitz_key().filter(|_| config == whole);
        let mut maps: Vec<(Vec<PacketKind>, &Affine)> = Vec::new();
        for (kind, map) in PacketKind::ALL.into_iter().filter_map(|kind| Some((kind, self.rule.map(kind)?))) {
            match maps.iter_mut().find(|(_, known)| *known == map) {
                Some((kinds, _)) => kinds.push(kind),
                None => maps.push((vec![kind], map)),
            }
        }
        let of_map = |(kinds, map): (Vec<PacketKind>, &Affine)| Map {
            kinds: plain(&kinds),
            constant: format!("{:08x}", map.constant()),
            columns: map.columns().iter().map(|column| format!("{column:08x}")).collect(),
        };
        Document {
            version: 1,
            what: WHAT.to_owned(),
            learned_from: from.to_owned(),
            findings: learned.findings.iter().map(ToString::to_string).collect(),
            hashes: learned.hashes,
            kinds: plain(&self.kinds),
            arrangement: self.rule.arrangement().name().to_owned(),
            key: key.map(|key| key.to_string()),
            udp_ports: key.map(|_| config.udp_ipv4),
            maps: if key.is_some() { Vec::new() } else { maps.into_iter().map(of_map).collect() },
            queues: self.table.slots().iter().map(|queue| queue.0).collect(),
        }
    }

    /// Reads a file. Errors are one line.
    pub(crate) fn read(path: &Path) -> anyhow::Result<Self> {
        Self::try_read(path).with_context(|| format!("--rss {}", path.display()))
    }

    fn try_read(path: &Path) -> anyhow::Result<Self> {
        let mut text = String::new();
        let file = std::fs::File::open(path)?;
        file.take(LARGEST + 1).read_to_string(&mut text)?;
        ensure!(text.len() as u64 <= LARGEST, "larger than any rule: not a file of 'flowlane rss learn'");
        let value: serde_json::Value =
            serde_json::from_str(&text).context("not a file of 'flowlane rss learn'")?;
        match value.get("version").and_then(serde_json::Value::as_u64) {
            Some(1) => {}
            Some(n) => bail!("version {n}: this program reads version 1"),
            None => bail!("no version: not a file of 'flowlane rss learn'"),
        }
        let document: Document = serde_json::from_value(value)?;
        let kinds = document.kinds.iter().map(|name| kind(name)).collect::<anyhow::Result<Vec<_>>>()?;
        let arrangement = Arrangement::from_name(&document.arrangement)
            .with_context(|| format!("arrangement '{}': there is none of that name", document.arrangement))?;
        let rule = match &document.key {
            Some(key) => {
                ensure!(document.maps.is_empty(), "both a key and maps");
                let key: Key = key.parse().context("key")?;
                let ports = document.udp_ports == Some(true);
                let config = HashConfig::with_udp(if ports { UdpFields::Four } else { UdpFields::Two });
                General::toeplitz(&key, &config, arrangement)
            }
            None => General::new(arrangement, maps(&document.maps)?),
        };
        let table =
            Indirection::from_slots(document.queues.into_iter().map(Bucket).collect()).context("queues")?;
        let most = table.slots().iter().map(|queue| queue.0).max().unwrap_or(0);
        ensure!(usize::from(most) < flowlane_rss::MAX_BUCKETS, "queues: queue {most}: too large a number");
        Ok(Self { rule, table, hashes: document.hashes, kinds })
    }

    /// The configuration in which a bucket is one of the card's queues, and the worker of its number serves it.
    pub(crate) fn steering(&self) -> anyhow::Result<Rss> {
        let queues = usize::from(self.table.slots().iter().map(|queue| queue.0).max().unwrap_or(0)) + 1;
        let map = BucketMap::new(queues.next_power_of_two(), queues)?;
        Ok(Rss::from_parts(self.rule.clone(), self.rule.config(), self.table.clone(), map))
    }

    /// Refuses packets of a kind that was not learned.
    pub(crate) fn must_know(&self, flow: &Flow) -> anyhow::Result<()> {
        match PacketKind::of(flow) {
            Some(kind) if !self.kinds.contains(&kind) => {
                bail!("--rss: the file says nothing of {kind} packets: learn them, too (--kinds)")
            }
            _ => Ok(()),
        }
    }
}

/// Lists of numbers on one line.
fn compact(pretty: &str) -> String {
    let mut text = String::new();
    let mut inside = false;
    for line in pretty.lines() {
        let trimmed = line.trim_start();
        if inside {
            text.push_str(if trimmed.starts_with(']') { trimmed } else { trimmed.trim_end() });
            inside = !trimmed.starts_with(']');
        } else {
            text.push_str(line);
            inside = trimmed == "\"queues\": [";
        }
        if !inside {
            text.push('\n');
        }
    }
    text
}

fn kind(name: &str) -> anyhow::Result<PacketKind> {
    let found = PacketKind::ALL.into_iter().find(|kind| kind.name() == name);
    found.with_context(|| format!("kind '{name}': there is none of that name"))
}

/// A list of kinds, as in `tcp-ipv4,udp-ipv4`.
pub(crate) fn kinds(option: &str, text: &str) -> anyhow::Result<Vec<PacketKind>> {
    if text == "all" {
        return Ok(PacketKind::ALL.to_vec());
    }
    let all = text.split(',').map(|name| kind(name.trim()));
    let names = PacketKind::ALL.map(PacketKind::name).join(", ");
    all.collect::<anyhow::Result<Vec<_>>>().with_context(|| format!("{option}: of {names} or all"))
}

fn maps(maps: &[Map]) -> anyhow::Result<[Option<Affine>; 6]> {
    let mut found = [const { None }; 6];
    for map in maps {
        let digits = map.columns.as_bytes();
        let constant = number(map.constant.as_bytes()).context("constant")?;
        ensure!(digits.len().is_multiple_of(8), "columns: not eight hexadecimal digits each");
        let columns =
            digits.chunks(8).map(number).collect::<anyhow::Result<Vec<u32>>>().context("columns")?;
        for name in &map.kinds {
            let kind = kind(name)?;
            ensure!(columns.len() == kind.bits(), "{kind}: {} columns, not {}", columns.len(), kind.bits());
            found[kind as usize] = Some(Affine::new(&columns, constant));
        }
    }
    Ok(found)
}

fn number(digits: &[u8]) -> anyhow::Result<u32> {
    let text = std::str::from_utf8(digits).ok().filter(|text| text.len() == 8 && !text.starts_with('+'));
    text.and_then(|text| u32::from_str_radix(text, 16).ok()).context("not eight hexadecimal digits")
}
