//! What is asked: the options of keys, values and requests.

use std::collections::BTreeMap;
use std::sync::Arc;

use anyhow::{Context, ensure};
use clap::{Args, ValueEnum};
use flowlane_load::memcached::{Items, Mix, Popularity, Protocol, Sizes, Workload};

use crate::units::{self, show_count};

/// Share of requests that are sets unless it is said.
const UPDATE: f64 = 0.1;
/// Sizes of keys and values unless they are said, bytes.
const SIZES: (Sizes, Sizes) = (Sizes::Fixed(30), Sizes::Fixed(200));

/// The options.
#[derive(Debug, Args)]
#[command(next_help_heading = "Requests")]
pub(super) struct MixOptions {
    /// Sizes, popularity and mix of requests as published: etc or usr of Facebook (Atikoglu et al., SIGMETRICS 2012). Options below change single ones.
    #[arg(long, value_name = "NAME")]
    workload: Option<Workload>,
    /// Number of keys.
    #[arg(long, value_name = "N", default_value = "10k", value_parser = units::count)]
    keys: u64,
    /// Sizes of keys in bytes: 30, 16..40, normal:MEAN,SD, exponential:MEAN, pareto:LOC,SCALE,SHAPE or gev:LOC,SCALE,SHAPE [default: 30].
    #[arg(long, short = 'K', value_name = "SIZE")]
    key_size: Option<Sizes>,
    /// Sizes of values in bytes, likewise [default: 200].
    #[arg(long, short = 'V', value_name = "SIZE")]
    value_size: Option<Sizes>,
    /// What keys begin with.
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    key_prefix: String,
    /// How often each key is asked for: uniform, or by Zipf's law zipf:S [default: uniform; --workload zipf:0.99].
    #[arg(long, value_name = "LAW")]
    popularity: Option<Popularity>,
    /// Share of requests that are sets: 0.1, 10% [default: 10%].
    #[arg(long, short = 'u', value_name = "SHARE", value_parser = share)]
    update: Option<f64>,
    /// The same as sets and gets: 1:10.
    #[arg(long, value_name = "SETS:GETS", value_parser = ratio, conflicts_with = "update")]
    ratio: Option<f64>,
    /// Keys of a get.
    #[arg(long, value_name = "N", default_value = "1", value_parser = units::count)]
    multiget: u64,
    /// The text protocol (get, set) or the meta protocol (mg, ms).
    #[arg(long, value_enum, value_name = "NAME", default_value = "text")]
    protocol: ProtocolName,
    /// Compare the values that come with those that belong to the keys.
    #[arg(long)]
    verify: bool,
}

/// Values of `--protocol`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum ProtocolName {
    Text,
    Meta,
}

/// `0.1` or `10%`.
fn share(text: &str) -> Result<f64, String> {
    let percent = text.strip_suffix('%');
    let number = percent.unwrap_or(text).trim().parse::<f64>().ok();
    let share = number.map(|n| if percent.is_some() { n / 100.0 } else { n });
    share.filter(|s| (0.0..=1.0).contains(s)).ok_or_else(|| format!("'{text}' is not a share, as 0.1 or 10%"))
}

/// `1:10`, the sets first; the share of them.
fn ratio(text: &str) -> Result<f64, String> {
    let parts = text.split_once(':').and_then(|(sets, gets)| {
        let part = |n: &str| n.trim().parse::<u32>().ok().map(f64::from);
        Some((part(sets)?, part(gets)?))
    });
    let (sets, gets) = parts
        .filter(|(sets, gets)| sets + gets > 0.0)
        .ok_or_else(|| format!("'{text}' is not SETS:GETS, as 1:10"))?;
    Ok(sets / (sets + gets))
}

impl MixOptions {
    /// What is asked.
    pub(super) fn plan(&self) -> anyhow::Result<Mix> {
        let (key_sizes, value_sizes) = match self.workload {
            Some(workload) => (workload.key_sizes(), workload.value_sizes()),
            None => SIZES,
        };
        let key_sizes = self.key_size.unwrap_or(key_sizes);
        let value_sizes = self.value_size.unwrap_or(value_sizes);
        let items = Items::new(self.keys, &self.key_prefix, key_sizes, value_sizes)?;
        let popularity = match self.workload {
            Some(workload) => workload.popularity(),
            None => Popularity::Uniform,
        };
        let update = self.workload.map_or(UPDATE, Workload::update);
        ensure!((1..=1000).contains(&self.multiget), "--multiget {}: from 1 to 1000", self.multiget);
        Ok(Mix {
            items: Arc::new(items),
            popularity: self.popularity.unwrap_or(popularity),
            update: self.update.or(self.ratio).unwrap_or(update),
            multiget: u16::try_from(self.multiget).context("--multiget")?,
            protocol: match self.protocol {
                ProtocolName::Text => Protocol::Text,
                ProtocolName::Meta => Protocol::Meta,
            },
            verify: self.verify,
        })
    }

    /// How many keys there are.
    pub(super) fn keys(&self) -> u64 {
        self.keys
    }

    /// The same in words, for the report.
    pub(super) fn words(&self, mix: &Mix, fills: bool) -> BTreeMap<String, String> {
        let (keys, values) = mix.items.sizes();
        let sets = format!("{:.4}", mix.update * 100.0);
        let sets = sets.trim_end_matches('0').trim_end_matches('.');
        let of = if mix.multiget > 1 { format!(", gets of {} keys", mix.multiget) } else { String::new() };
        let protocol = match mix.protocol {
            Protocol::Text => "text",
            Protocol::Meta => "meta",
        };
        let mut words = BTreeMap::from([
            ("keys".to_owned(), format!("{} of {keys}, {}", show_count(self.keys), mix.popularity)),
            ("values".to_owned(), values.to_string()),
            ("requests".to_owned(), format!("{sets} % sets{of}")),
            ("protocol".to_owned(), protocol.to_owned()),
        ]);
        for (name, value, is_so) in [
            ("verify", "every value is compared", self.verify),
            ("fill", "all items are stored before the run", fills),
        ] {
            if is_so {
                words.insert(name.to_owned(), value.to_owned());
            }
        }
        words
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_read() {
        assert_eq!(
            (share("0.25"), share("25%"), share("0"), share("100%")),
            (Ok(0.25), Ok(0.25), Ok(0.0), Ok(1.0))
        );
        assert_eq!((ratio("1:3"), ratio("0:1"), ratio("1:0")), (Ok(0.25), Ok(0.0), Ok(1.0)));
        for wrong in ["", "2", "-1", "101%", "%", "NaN"] {
            assert!(share(wrong).is_err(), "{wrong}");
        }
        for wrong in ["", "1", "0:0", "1:", ":1", "1:-1", "1.5:1"] {
            assert!(ratio(wrong).is_err(), "{wrong}");
        }
    }
}
