//! The steering of the hosts that commands create: key, hash types, table and buckets, our own or a card's.

use anyhow::{Context, bail};
use flowlane::card::{self, Card, Change, FlowKind, Held, NotAdopted, Owner, Place, Served, Surroundings};
use flowlane::link::LinkSpec;
use flowlane::{Builder, HashConfig, Indirection, Key, Rss, Runtime, UdpFields};
use flowlane_stack::rng::Rng;
use flowlane_sys::netdev::Interface;
use flowlane_sys::words::counted;

use std::path::{Path, PathBuf};

use crate::cpus::Pinning;
use crate::keeper::{self, Changes};
use crate::link;
use crate::rule_file::Rule;
use crate::say::say;

/// Most workers there can be.
const MOST_WORKERS: usize = 64;

/// The workers given, or one for each processor and at most `most`.
pub(crate) fn workers(given: Option<usize>, most: usize) -> usize {
    given.unwrap_or_else(|| std::thread::available_parallelism().map_or(1, usize::from).min(most))
}

/// Workers on a link: the number given, or one for each processor that the process may use, at most `most` (the listed processors) and
/// at most one for each queue of a card.
pub(crate) fn workers_on(given: Option<usize>, most: Option<usize>, link: Option<&LinkSpec>) -> usize {
    let queues = match link {
        Some(LinkSpec::AfXdp(_, _, _, Some((_, queues)), _)) => *queues as usize,
        // As many as the link opens, also where the driver tells nothing of RSS: a worker without a queue would be handed all of its packets.
        Some(LinkSpec::AfXdp(name, ..)) => Interface::find(name)
            .and_then(|found| found.channels())
            .map_or_else(|_| receive_queues(name), |channels| channels.receive as usize),
        // One for each receive queue, however few the card has.
        Some(LinkSpec::Kernel(Some(name))) => receive_queues(name),
        // An interface that root made with one queue takes no more; one that is to be made has as many as it is asked for.
        Some(LinkSpec::Tap(name)) => {
            let flags = std::fs::read_to_string(format!("/sys/class/net/{name}/tun_flags"));
            flags.map_or(MOST_WORKERS, |flags| tap_queues(&flags))
        }
        _ => MOST_WORKERS,
    };
    workers(given, queues.min(most.unwrap_or(MOST_WORKERS)).clamp(1, MOST_WORKERS))
}

/// Receive queues that the kernel shows of an interface.
fn receive_queues(name: &str) -> usize {
    Surroundings::read(Path::new("/"), name).receive.len()
}

/// Queues that a TAP interface of these flags, as sysfs has them, may have: one without `multi_queue`.
fn tap_queues(flags: &str) -> usize {
    const MULTI_QUEUE: u32 = 0x100;
    let number = flags.trim().strip_prefix("0x").and_then(|digits| u32::from_str_radix(digits, 16).ok());
    if number.is_some_and(|flags| flags & MULTI_QUEUE == 0) { 1 } else { MOST_WORKERS }
}

/// Whose RSS steers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum RssOf {
    /// The card's, as it is: key, fields and table.
    Adopt,
    /// One of ours, written to the card for the run; the card's own is restored at the end.
    Set,
    /// One of ours in software, whatever the card does.
    Software,
    /// The card's, read from a file of `rss learn`.
    File(PathBuf),
}

impl std::str::FromStr for RssOf {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "adopt" => Ok(Self::Adopt),
            "set" => Ok(Self::Set),
            "software" => Ok(Self::Software),
            file if Path::new(file).exists() => Ok(Self::File(file.into())),
            _ => Err("must be adopt, set, software or an existing file".to_owned()),
        }
    }
}

/// The workers of a generator, and whose RSS steers to them.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Workers {
    /// Worker threads, each on a core of its own [default: one for each processor, at most one for each queue of a card].
    #[arg(long, short)]
    workers: Option<usize>,
    #[command(flatten)]
    rss: RssOption,
    #[command(flatten)]
    pinning: Pinning,
}

impl Workers {
    /// Number of workers on a link.
    pub(crate) fn count(&self, link: Option<&LinkSpec>) -> usize {
        workers_on(self.workers, self.pinning.most(), link)
    }

    /// The value of `--rss`.
    pub(crate) fn rss_of(&self) -> Option<RssOf> {
        self.rss.rss.clone()
    }

    /// A runtime's builder with these workers.
    pub(crate) fn builder(&self, link: Option<&LinkSpec>) -> Builder {
        self.pinning.apply(Runtime::builder().workers(self.count(link)))
    }
}

/// The option that chooses whose RSS steers.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct RssOption {
    /// RSS key, fields and table: adopt uses the card's, set writes ours to the card for the run (UDP with ports), software computes ours, FILE uses the
    /// card's as 'rss learn' wrote them [default: adopt where the card has RSS and no key is given].
    #[arg(long, value_name = "adopt|set|software|FILE")]
    pub(crate) rss: Option<RssOf>,
}

/// The options of a host's steering.
#[derive(Debug, Clone)]
pub(crate) struct SteeringOptions<'a> {
    /// Whose RSS.
    pub(crate) of: Option<RssOf>,
    /// Workers.
    pub(crate) workers: usize,
    /// The key given.
    pub(crate) key: Option<Key>,
    /// Whether UDP is to be hashed with ports.
    pub(crate) udp_4tuple: bool,
    /// Whether the run has UDP flows of its own, so that it matters how these are hashed.
    pub(crate) udp: bool,
    /// Options given that only apply to a table of ours.
    pub(crate) ours: &'a [&'static str],
    /// Seed of a fresh key.
    pub(crate) seed: Option<u64>,
}

/// The steering that the card of a link has or is given; `None` if ours is computed in software, with a message that says why. Call it
/// when all other arguments have been checked, since it may change the card.
///
/// # Errors
/// Options that exclude one another.
pub(crate) fn by_card(link: Option<&LinkSpec>, options: &SteeringOptions<'_>) -> anyhow::Result<Option<Rss>> {
    let Some(LinkSpec::AfXdp(interface, _, _, queues, _)) = link else {
        if let Some(of @ (RssOf::Adopt | RssOf::Set | RssOf::File(_))) = &options.of {
            let of = match of {
                RssOf::Adopt => "adopt".to_owned(),
                RssOf::File(path) => path.display().to_string(),
                _ => "set".to_owned(),
            };
            bail!("--rss {of}: only af-xdp:NAME has a card that steers; other links are steered in software");
        }
        return Ok(None);
    };
    let of = match options.of.clone() {
        Some(RssOf::Software) => return Ok(None),
        None if options.key.is_some() || !options.ours.is_empty() => return Ok(None),
        None => RssOf::Adopt,
        Some(of) => of,
    };
    if of == RssOf::Adopt && options.key.is_some() {
        bail!("--key: with --rss adopt the card's key is taken; '--rss set' gives the card this one");
    }
    if let Some(option) = options.ours.first() {
        bail!(
            "{option}: not with the card's table, from which buckets are derived; '--rss software' has its own table"
        );
    }
    if let RssOf::File(path) = &of {
        if queues.is_some() {
            bail!("--rss {}: not together with queues= of the link", path.display());
        }
        return by_file(interface, path, options).map(Some);
    }
    keeper::put_back_what_was_left(interface);
    let Ok(found) = card::read(interface) else {
        // Opening the link fails as well, and prints why.
        return Ok(None);
    };
    let done = match of {
        RssOf::Set => set(interface, &found, *queues, options)?,
        _ => adopt(interface, found, *queues, options),
    };
    if let Err(why) = &done {
        // With one queue there is nothing to steer, and no message.
        if options.of.is_some()
            || queues.is_none_or(|(_, count)| count > 1)
                && card::read(interface).is_ok_and(|card| card.rings != Ok(1))
        {
            link::say_when_open(interface, format!("steering in software: {why}"));
        }
    }
    Ok(done.ok())
}

/// Uses the card's steering as a file describes it. The card is not changed, but for its table, which follows lanes that move if the driver shows
/// the table of the file.
fn by_file(interface: &str, path: &Path, options: &SteeringOptions<'_>) -> anyhow::Result<Rss> {
    if options.key.is_some() {
        bail!("--key: with --rss FILE the card's own rule is used, and no key");
    }
    if options.udp_4tuple {
        bail!("--udp-4tuple: with --rss FILE fields are as the file says");
    }
    let rule = Rule::read(path)?;
    let slots: Vec<u16> = rule.table.slots().iter().map(|queue| queue.0).collect();
    let card = card::read(interface).ok();
    let told = card.as_ref().and_then(|card| card.rings.ok());
    let queues = told.map_or_else(
        || Surroundings::read(Path::new("/"), interface).receive.len(),
        |queues| queues as usize,
    );
    let rss = Rss::of_card(rule.rule.clone(), rule.rule.config(), &slots, queues, options.workers);
    let rss = rss.with_context(|| format!("--rss {}", path.display()))?;
    if rule.is_in_part() {
        let why =
            "the file of --rss tells the queues of some flows only; packets of others may be handed over";
        link::say_when_open(interface, why.to_owned());
    }
    match table_of_others(card.as_ref(), &slots) {
        None => keeper::watch_over(interface, Changes::Rss),
        Some(why) => link::say_when_open(
            interface,
            format!("its table does not follow lanes that move, whose packets are handed over: {why}"),
        ),
    }
    Ok(if rule.hashes { rss } else { rss.without_delivered_hashes() })
}

/// Why a card's table cannot be changed where a file says what it does: it is not the table of the file that the driver shows.
fn table_of_others(card: Option<&Card>, slots: &[u16]) -> Option<&'static str> {
    match card.map(|card| &card.rss) {
        Some(Ok(rss)) if rss.table.is_empty() => Some("its driver shows no table"),
        Some(Ok(rss)) if rss.table.iter().copied().eq(slots.iter().map(|q| u32::from(*q))) => None,
        Some(Ok(_)) => Some("its driver shows another one than the file"),
        _ => Some("its driver shows no table"),
    }
}

/// Adopts the card's steering.
fn adopt(
    interface: &str,
    mut card: Card,
    queues: Option<Served>,
    options: &SteeringOptions<'_>,
) -> Result<Rss, String> {
    let fields = if options.udp_4tuple { card::fields(&card, UdpFields::Four) } else { Vec::new() };
    if !fields.is_empty() {
        match hold(interface, &Change { fields, ..Change::default() }) {
            Ok(()) => card = card::read(interface).map_err(|e| e.to_string())?,
            Err(e) => say!("flowlane: UDP is hashed on addresses alone: {e}"),
        }
    }
    let by_addresses = card::udp_by_addresses(&card);
    if options.udp && !options.udp_4tuple && !by_addresses.is_empty() && queues.is_none_or(|(_, n)| n > 1) {
        link::say_when_open(interface, udp_in_words(interface, &by_addresses));
    }
    let adopted = card::adopt(&card, queues, options.workers).map_err(|e| match e {
        NotAdopted::NotServed { .. } if queues.is_some() => {
            format!("{e}: '--rss set' gives the card a table of ours")
        }
        NotAdopted::NotServed { .. } => {
            format!("{e}: 'ethtool -X {interface} default' makes a new one, and '--rss set' one of ours")
        }
        e => e.to_string(),
    });
    if adopted.is_ok() {
        // The table is changed when lanes move.
        keeper::watch_over(interface, Changes::Rss);
    }
    adopted
}

/// What it means that a card hashes UDP on addresses alone, and what mends it, in a line.
fn udp_in_words(interface: &str, kinds: &[FlowKind]) -> String {
    let commands: Vec<String> =
        kinds.iter().map(|kind| format!("'ethtool -N {interface} rx-flow-hash {kind} sdfn'")).collect();
    format!(
        "it hashes UDP on addresses alone, so all datagrams between two hosts come to one queue: '--rss set' or '--udp-4tuple' \
         hash ports, too, for the run, {} for good",
        commands.join(" and ")
    )
}

/// Writes a steering of ours to the card. UDP is hashed with ports where the driver can: on most cards it is not by default, and then all
/// datagrams between two hosts come to one queue.
fn set(
    interface: &str,
    card: &Card,
    queues: Option<Served>,
    options: &SteeringOptions<'_>,
) -> anyhow::Result<Result<Rss, String>> {
    let udp = if options.udp_4tuple || card::tells_udp(card) { UdpFields::Four } else { UdpFields::Two };
    let length = card.rss.as_ref().map_or(0, |rss| rss.key.0.len());
    let key = match options.key {
        Some(key) => key,
        None => {
            let slots = card.rss.as_ref().map_or(0, |rss| rss.table.len());
            let Ok(table) = Indirection::new(slots, slots) else {
                return Ok(Err("the driver does not show its table".to_owned()));
            };
            let key = random_key(&table, &HashConfig::with_udp(udp), options.seed)?;
            // Cut to the length of the card's key, which covers all bits that the hash uses.
            Key::new(&key.as_bytes()[..length.min(key.as_bytes().len())]).unwrap_or(key)
        }
    };
    let planned = |udp| card::plan(card, queues, key, udp, options.workers);
    let (rss, change) = match planned(udp) {
        Ok(planned) => planned,
        Err(e) => return Ok(Err(e.to_string())),
    };
    rss.require_useful_key().context("the key is of no use")?;
    let why = match hold(interface, &change) {
        Ok(()) => return Ok(Ok(rss)),
        Err(why) => why,
    };
    // A driver that takes the rest, but no ports of UDP, steers all the same.
    if let Ok((rss, without)) = planned(UdpFields::Two)
        && !change.fields.is_empty()
        && without.fields.is_empty()
        && hold(interface, &without).is_ok()
    {
        link::say_when_open(interface, format!("UDP stays hashed on addresses alone: {why}"));
        return Ok(Ok(rss));
    }
    Ok(Err(why))
}

/// Changes the card; the change is undone at the end of the run.
fn hold(interface: &str, change: &Change) -> Result<(), String> {
    let place = Place::usual().map_err(|e| e.to_string())?;
    keeper::watch_over(interface, Changes::Rss);
    let us = Owner::us().map_err(|e| e.to_string())?;
    let held = Held::set(&place, interface, change, us).map_err(|e| e.to_string())?;
    keeper::hold(held);
    Ok(())
}

/// Changes of a card in words: slots moved, changes refused, times that another program changed the table and this one followed, times
/// that settings were restored. `None` if all are zero.
pub(crate) fn card_in_words(counts: [u64; 4]) -> Option<String> {
    let times = |n: u64| if n == 1 { "once".to_owned() } else { format!("{n} times") };
    let [slots_moved, refused, followed, set_again] = counts;
    let parts = [
        (slots_moved > 0).then(|| format!("{} moved", counted(slots_moved as usize, "slot"))),
        (refused > 0).then(|| format!("{} refused", counted(refused as usize, "change"))),
        (followed > 0).then(|| format!("table changed by others {}", times(followed))),
        (set_again > 0).then(|| format!("set again {}", times(set_again))),
    ];
    let words: Vec<String> = parts.into_iter().flatten().collect();
    (!words.is_empty()).then(|| words.join(", "))
}

/// Steering in software for `workers` workers with `key`, or with a new key that reaches every bucket, random or from `seed`.
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

/// A new key that reaches every slot of this table, random or from `seed`.
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

#[cfg(test)]
mod tests {
    use super::{MOST_WORKERS, tap_queues};

    #[test]
    fn a_tap_of_one_queue_has_one_worker() {
        // ip tuntap add t0 mode tap; the same with multi_queue.
        assert_eq!(tap_queues("0x1002\n"), 1);
        assert_eq!(tap_queues("0x1102\n"), MOST_WORKERS);
        assert_eq!(tap_queues(""), MOST_WORKERS);
    }
}
