//! `flowlane rss key`: generates a key, or rates one.
//!
//! A key is useless if changing one field alone, such as the source port, cannot reach every bucket. Exit code: 0 for a useful key, 1 for
//! a useless one, 2 for a malformed one.

use super::documents;
use crate::document::value;
use crate::exit::Missed;
use crate::stdout;
use crate::steering::random_key;
use anyhow::{Context, bail};
use flowlane_rss::{FieldQuality, HashConfig, Indirection, Key, Quality, UdpFields};
use std::io::{self, Write};

/// Arguments.
#[derive(Debug, clap::Args)]
pub(crate) struct KeyCommand {
    /// Print a key: 'random' (a new one, checked), 'microsoft' or 'symmetric' [default: random].
    #[arg(long, value_name = "KIND", conflicts_with = "judge")]
    make: Option<String>,
    /// Rate a key: hexadecimal digits, 'microsoft' or 'symmetric'. The exit code is 1 for a key that leaves buckets out of reach.
    #[arg(long, value_name = "KEY")]
    judge: Option<String>,
    /// Slots of the indirection table.
    #[arg(long, value_name = "N", default_value_t = Indirection::DEFAULT_SLOTS)]
    slots: usize,
    /// Number of buckets.
    #[arg(long, value_name = "N", default_value_t = 8)]
    buckets: usize,
    /// Accept a key that is too short for IPv6.
    #[arg(long)]
    ipv4_only: bool,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

impl KeyCommand {
    pub(crate) fn run(self) -> anyhow::Result<()> {
        flowlane_rss::BucketMap::new(self.buckets, 1).context("--buckets")?;
        let table = Indirection::new(self.slots, self.buckets).context("--slots")?;
        if self.slots < self.buckets {
            bail!("--slots {}: too few to name {} buckets", self.slots, self.buckets);
        }
        let mut config = HashConfig::with_udp(UdpFields::Two);
        if self.ipv4_only {
            config = HashConfig { ipv6: false, tcp_ipv6: false, ..config };
        }
        match self.judge.as_deref() {
            Some(text) => self.judge(text.parse().context("--judge")?, &table, &config),
            None => self.make(&table, &config),
        }
    }

    fn make(&self, table: &Indirection, config: &HashConfig) -> anyhow::Result<()> {
        let key = match self.make.as_deref().unwrap_or("random") {
            "random" => random_key(table, config, None)?,
            "microsoft" => Key::MICROSOFT,
            "symmetric" => Key::symmetric(),
            other => bail!("--make '{other}': must be random, symmetric or microsoft"),
        };
        let mut out = stdout::lock();
        if self.json {
            writeln!(out, "{}", value(documents::Key { version: 1, key: key.to_string() }))?;
        } else {
            writeln!(out, "{key}")?;
        }
        Ok(())
    }

    fn judge(&self, key: Key, table: &Indirection, config: &HashConfig) -> anyhow::Result<()> {
        let quality = key.judge(table);
        let verdict = quality.require_useful(config);
        let symmetric = is_symmetric(&key);
        let mut out = stdout::lock();
        if self.json {
            let judgement = documents::Judgement {
                version: 1,
                key: key.to_string(),
                bytes: key.as_bytes().len(),
                slots: self.slots,
                buckets: self.buckets,
                useful: verdict.is_ok(),
                why: verdict.as_ref().err().map(ToString::to_string),
                full_rank: quality.is_full(),
                symmetric,
                ipv4: quality.ipv4.map(field).into(),
                ipv6: quality.ipv6.map(field).into(),
            };
            writeln!(out, "{}", value(judgement))?;
        } else if verdict.is_ok() {
            self.text(&mut out, &key, &quality, symmetric)?;
        }
        drop(out);
        verdict.map_err(|e| anyhow::Error::new(Missed(e.to_string())))
    }

    fn text(&self, mut out: impl Write, key: &Key, quality: &Quality, symmetric: bool) -> io::Result<()> {
        writeln!(
            out,
            "key of {} bytes, {} slots, {} buckets",
            key.as_bytes().len(),
            self.slots,
            self.buckets
        )?;
        writeln!(
            out,
            "\n{:<26} {:>7} {:>9} {:>8} {:>8}",
            "field, last 16 bits", "rank", "buckets", "fewest", "most"
        )?;
        let families = [("IPv4", &quality.ipv4), ("IPv6", &quality.ipv6)];
        for (family, field) in
            families.iter().flat_map(|(family, fields)| fields.iter().map(move |f| (family, f)))
        {
            writeln!(
                out,
                "{:<26} {:>7} {:>9} {:>8} {:>8}",
                format!("{family} {}", field.name),
                format!("{}/{}", field.rank, field.full_rank),
                format!("{}/{}", field.buckets_reached, quality.buckets),
                field.fewest,
                field.most,
            )?;
        }
        let extent = if quality.is_full() {
            "every field reaches every slot"
        } else {
            "every field reaches every bucket, though not every slot"
        };
        let caution =
            if symmetric { "\nsymmetric: both directions of a flow meet, entropy is lost" } else { "" };
        writeln!(out, "\nuseful: {extent}{caution}")
    }
}

/// Whether the hash stays the same when source and destination are swapped, for addresses and ports of both families.
pub(super) fn is_symmetric(key: &Key) -> bool {
    let same = |a: usize, b: usize, bits: usize| (0..bits).all(|i| key.window(a + i) == key.window(b + i));
    same(0, 32, 32) && same(64, 80, 16) && same(0, 128, 128) && same(256, 272, 16)
}

fn field(of: FieldQuality) -> documents::Field {
    let FieldQuality { name, rank, full_rank, buckets_reached, most, fewest } = of;
    documents::Field { field: name, rank, full_rank, buckets_reached, most, fewest }
}
