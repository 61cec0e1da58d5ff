//! The steering of a host that a command makes: key, hash types, table and buckets.

use anyhow::Context;
use flowlane::{HashConfig, Indirection, Key, Rss, UdpFields};
use flowlane_stack::rng::Rng;

/// Workers by default: as many as there are processors, but no more than `most`.
pub(crate) fn workers(given: Option<usize>, most: usize) -> usize {
    given.unwrap_or_else(|| std::thread::available_parallelism().map_or(1, usize::from).min(most))
}

/// Steering for so many workers with `key`, or with a fresh one that reaches every bucket: random, or from `seed`.
pub(crate) fn rss(
    workers: usize,
    udp: UdpFields,
    key: Option<Key>,
    seed: Option<u64>,
) -> anyhow::Result<Rss> {
    let config = HashConfig::with_udp(udp);
    let key = match key {
        Some(key) => key,
        None => {
            let table = Rss::new(Key::MICROSOFT, workers.min(64)).table;
            random_key(&table, &config, seed)?
        }
    };
    let mut rss = Rss::new(key, workers.min(64));
    rss.config = config;
    rss.require_useful_key().context("the key is of no use")?;
    Ok(rss)
}

/// A fresh key that is good for this table: random, or from `seed`.
pub(crate) fn random_key(table: &Indirection, config: &HashConfig, seed: Option<u64>) -> anyhow::Result<Key> {
    let mut failed = None;
    let mut rng = seed.map(Rng::new);
    let key = Key::random_useful(table, config, |bytes| match &mut rng {
        Some(rng) => bytes.fill_with(|| rng.next_u64() as u8),
        None => failed = failed.take().or(flowlane::entropy::fill(bytes).err()),
    });
    if let Some(e) = failed {
        return Err(e).context("the kernel gives no randomness");
    }
    key.context("no useful key found")
}

/// A seed: the one given, or a random one.
pub(crate) fn seed(given: Option<u64>) -> anyhow::Result<u64> {
    match given {
        Some(seed) => Ok(seed),
        None => flowlane::entropy::random_u64().context("the kernel gives no randomness"),
    }
}
