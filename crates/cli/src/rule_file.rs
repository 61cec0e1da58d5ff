//! The file with the rule of a learned card: written by `rss learn`, read by every command with `--rss FILE`.
//!
//! A JSON document: where the rule comes from, how packet fields are arranged, the key if the hash is Toeplitz or the columns of the
//! affine maps if not, and the queue of each slot. Only its owner may read it, since anyone who knows the rule can aim packets at one
//! queue.

use anyhow::{Context, bail, ensure};
use flowlane::written;
use flowlane_rss::learn::{Finding, Gaps, Learned, Span};
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
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct Document {
    /// 1.
    version: u32,
    /// What the file is.
    what: String,
    /// Where the rule was learned, for people.
    learned_from: String,
    /// What else was noticed, for people.
    findings: Vec<String>,
    /// Whether the rule's hashes are those that the card reports.
    hashes: bool,
    /// The kinds of packets that the rule covers.
    kinds: Vec<String>,
    /// How fields are arranged before they are hashed: `plain`, `sorted`, `sorted-apart` or `or-xor`.
    arrangement: String,
    /// The key of a Toeplitz hash, hexadecimal; then there are no maps.
    key: Option<String>,
    /// With a key: whether UDP is hashed with ports.
    udp_ports: Option<bool>,
    /// Without a key: the affine maps that are the hash.
    maps: Vec<Map>,
    /// The queue of each slot.
    queues: Vec<u16>,
    /// Where the rule was learned from packets that came by themselves, so that it is not known for all flows: what they tell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    in_part: Option<InPart>,
}

/// What a rule is known for, where that is not everything.
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct InPart {
    /// Of kinds whose flows are not all predicted, those that are.
    flows: Vec<Flows>,
    /// Slots whose queue nobody has seen.
    slots_not_seen: Vec<u16>,
}

/// Flows that are predicted: sums of an odd number of these.
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct Flows {
    /// The kind of packets.
    kind: String,
    /// Of each 74 hexadecimal digits: 36 bytes of the arranged bits of a packet, and 80 for one that is itself known, 00 for a difference
    /// of such.
    rows: String,
}

/// The affine map of some kinds of packets.
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct Map {
    /// The kinds.
    kinds: Vec<String>,
    /// The hash of zeros, eight hexadecimal digits.
    constant: String,
    /// The columns of the map, one for each input bit from the first bit of the source address on, eight hexadecimal digits each.
    columns: String,
}

#[cfg(test)]
#[test]
fn schema_of_rss_rule() {
    let about = "How a card steers; --rss FILE reads it.";
    flowlane_schema::Made::new("rss-rule-v1", "File of flowlane rss learn, version 1", about)
        .form::<Document>()
        .keep();
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
    /// Of kinds that are known in part, what is known.
    spans: Vec<Span>,
    /// Slots whose queue nobody has seen.
    unseen: Vec<u16>,
}

impl Rule {
    /// The rule that was learned for these kinds.
    pub(crate) fn of(learned: &Learned, kinds: &[PacketKind]) -> Self {
        Self {
            rule: learned.rule.clone(),
            table: learned.table.clone(),
            hashes: learned.hashes,
            kinds: kinds.to_vec(),
            spans: Vec::new(),
            unseen: Vec::new(),
        }
    }

    /// The same, of which only this is known.
    pub(crate) fn in_part(mut self, gaps: &Gaps) -> Self {
        let spans = gaps.extents.iter().map(|extent| &extent.span);
        self.spans = spans.filter(|span| !span.is_whole()).cloned().collect();
        self.unseen = gaps.unseen.iter().flat_map(|slots| slots.iter().map(|slot| slot as u16)).collect();
        self
    }

    /// Whether it tells of some flows only.
    pub(crate) fn is_in_part(&self) -> bool {
        !self.spans.is_empty() || !self.unseen.is_empty()
    }

    /// Writes the file, or replaces it.
    pub(crate) fn write(&self, path: &Path, learned: &Learned, from: &str) -> anyhow::Result<()> {
        let document = self.document(learned, from);
        let text = serde_json::to_string_pretty(&document)?;
        let written = written::open_for_writing(path, 0o600).and_then(|mut file| {
            if file.metadata()?.is_file() {
                file.set_len(0)?;
            }
            file.write_all(compact(&text).as_bytes())
        });
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
        // Slots that continue a pattern are taken for seen.
        let pattern = |finding: &Finding| matches!(finding, Finding::SlotsUnseen { pattern: true, .. });
        let unseen = if learned.findings.iter().any(pattern) { &[] } else { self.unseen.as_slice() };
        let in_part = (!self.spans.is_empty() || !unseen.is_empty()).then(|| InPart {
            flows: self.spans.iter().map(flows_of).collect(),
            slots_not_seen: unseen.to_vec(),
        });
        Document {
            in_part,
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
        written::note_read(&file).keep();
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
        let (mut spans, mut unseen) = (Vec::new(), Vec::new());
        if let Some(in_part) = document.in_part {
            let read = in_part.flows.iter().map(|flows| span_of(flows, arrangement));
            spans = read.collect::<anyhow::Result<Vec<_>>>().context("in-part")?;
            unseen = in_part.slots_not_seen;
        }
        Ok(Self { rule, table, hashes: document.hashes, kinds, spans, unseen })
    }

    /// The configuration in which a bucket is one of the card's queues, and the worker of its number serves it.
    pub(crate) fn steering(&self) -> anyhow::Result<Rss> {
        let queues = usize::from(self.table.slots().iter().map(|queue| queue.0).max().unwrap_or(0)) + 1;
        let map = BucketMap::new(queues.next_power_of_two(), queues)?;
        Ok(Rss::from_parts(self.rule.clone(), self.rule.config(), self.table.clone(), map))
    }

    /// Refuses packets of a kind that was not learned.
    pub(crate) fn must_know_kind(&self, flow: &Flow) -> anyhow::Result<()> {
        match PacketKind::of(flow) {
            Some(kind) if !self.kinds.contains(&kind) => {
                bail!("--rss: the file says nothing of {kind} packets: learn them, too (--kinds)")
            }
            _ => Ok(()),
        }
    }

    /// Refuses packets that the file says nothing of.
    pub(crate) fn must_know(&self, flow: &Flow) -> anyhow::Result<()> {
        self.must_know_kind(flow)?;
        let Some(kind) = PacketKind::of(flow) else { return Ok(()) };
        ensure!(
            self.spans.iter().all(|span| span.kind() != kind || span.contains(flow)),
            "--rss: the file does not tell this flow: it was learned from {kind} flows of which this is no combination"
        );
        let slot = self.table.slot_of(self.rule.hash(flow).unwrap_or(0));
        ensure!(
            !self.unseen.iter().any(|unseen| usize::from(*unseen) == slot),
            "--rss: the file does not tell the queue of slot {slot}, to which this flow leads: no packet that it was learned from came there"
        );
        Ok(())
    }

    /// Whether it tells what becomes of such a packet.
    pub(crate) fn knows(&self, flow: &Flow) -> bool {
        self.must_know(flow).is_ok()
    }
}

fn flows_of(span: &Span) -> Flows {
    let rows = span.to_rows();
    let digits = rows.iter().flatten().map(|byte| format!("{byte:02x}")).collect();
    Flows { kind: span.kind().name().to_owned(), rows: digits }
}

fn span_of(flows: &Flows, arrangement: Arrangement) -> anyhow::Result<Span> {
    let kind = kind(&flows.kind)?;
    let digits = flows.rows.as_bytes();
    ensure!(digits.len().is_multiple_of(74), "rows: not 74 hexadecimal digits each");
    let mut rows = Vec::with_capacity(digits.len() / 74);
    for digits in digits.chunks(74) {
        let mut row = [0; 37];
        for (byte, two) in row.iter_mut().zip(digits.chunks(2)) {
            let text = std::str::from_utf8(two).ok().filter(|text| !text.starts_with('+'));
            *byte =
                text.and_then(|text| u8::from_str_radix(text, 16).ok()).context("rows: not hexadecimal")?;
        }
        rows.push(row);
    }
    Ok(Span::from_rows(kind, arrangement, &rows))
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
            inside = trimmed == "\"queues\": [" || trimmed == "\"slots-not-seen\": [";
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
