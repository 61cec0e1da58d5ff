//! Impairments as arguments: for both directions, and for one as `loss=1%,delay=5ms`.

use crate::units;
use anyhow::{Context, anyhow, bail};
use flowlane::impair::{Chance, Cycle, Impairments, Slots, USUAL_LIMIT};
use std::time::Duration;

/// Bytes that may wait, at least: one packet of any length.
const LEAST: usize = 128 << 10;
/// And at most.
const MOST: usize = 1 << 30;
/// The MTU of an interface to which none was given.
pub(super) const USUAL_MTU: u32 = 1500;
/// Bytes of a frame besides its packet.
const ETHERNET: u64 = 14;
/// Seconds that the wire may be taken by one packet of the MTU: TCP gives a connection up after a minute or two.
const SLOWEST: u64 = 10;

/// Bytes that are under way within the delay at the rate, and a quarter more for the bookkeeping of short packets. Less room than that would
/// lose packets of whoever keeps to the rate.
fn under_way(rules: &Impairments) -> usize {
    let nanos = u128::from(rules.delay.saturating_add(rules.jitter));
    let bytes = nanos * u128::from(rules.rate.unwrap_or(0)) / 8_000_000_000;
    usize::try_from(bytes + bytes / 4).unwrap_or(MOST).min(MOST)
}

/// Impairments of both directions, and more of one.
#[derive(Debug, Clone, Default, clap::Args)]
#[command(next_help_heading = "Impairments")]
pub(super) struct Rules {
    /// Time under way, each way.
    #[arg(long, value_name = "TIME", value_parser = units::duration)]
    delay: Option<Duration>,
    /// The delay varies by up to this much to either side. Packets keep their order.
    #[arg(long, value_name = "TIME", value_parser = units::duration)]
    jitter: Option<Duration>,
    /// Bits a second: 100M, 1G; a packet of the MTU may take 10 s at most. 0 is no limit.
    #[arg(long, value_name = "BITS", value_parser = units::count)]
    rate: Option<u64>,
    /// Share of packets lost: 0.1% or 0.001.
    #[arg(long, value_name = "SHARE", value_parser = chance)]
    loss: Option<Chance>,
    /// Share of packets that come twice.
    #[arg(long, value_name = "SHARE", value_parser = chance)]
    duplicate: Option<Chance>,
    /// Share of packets that leave 1 ms late, so that others overtake them.
    #[arg(long, value_name = "SHARE", value_parser = chance)]
    reorder: Option<Chance>,
    /// Share of packets in which one bit is flipped.
    #[arg(long, value_name = "SHARE", value_parser = chance)]
    corrupt: Option<Chance>,
    /// Bytes that may wait in each queue and direction [default: 16Mi, or what is under way at the rate within the delay, at most 1Gi].
    #[arg(long, value_name = "BYTES", value_parser = units::size)]
    limit: Option<usize>,
    /// Send in slots of a cycle only: 8x2ms is eight slots of 2 ms. The clock is CLOCK_TAI, so several programs agree.
    #[arg(long, value_name = "NxTIME", requires = "slot")]
    slots: Option<Cycle>,
    /// Which slot, from 0.
    #[arg(long, value_name = "N", requires = "slots")]
    slot: Option<u32>,
    /// Time at the end of a slot in which nothing begins to be sent.
    #[arg(long, value_name = "TIME", value_parser = units::duration, requires = "slots")]
    guard: Option<Duration>,
    /// Impairments from A to B only, by the same names: loss=1%,delay=5ms.
    #[arg(long, value_name = "NAME=VALUE,...")]
    a_to_b: Option<String>,
    /// Impairments from B to A only.
    #[arg(long, value_name = "NAME=VALUE,...")]
    b_to_a: Option<String>,
}

/// A share, as a percentage or a fraction.
fn chance(text: &str) -> Result<Chance, String> {
    let (number, by) = match text.strip_suffix('%') {
        Some(number) => (number, 100.0),
        None => (text, 1.0),
    };
    let value = number.trim().parse::<f64>().ok().map(|value| value / by);
    value.and_then(Chance::new).ok_or_else(|| format!("'{text}' is not a share such as 0.1% or 0.001"))
}

impl Rules {
    /// Whether none is given.
    pub(super) fn is_empty(&self) -> bool {
        let Self {
            delay, jitter, rate, loss, duplicate, reorder, corrupt, limit, slots, slot, guard, ..
        } = self;
        let times = delay.is_none() && jitter.is_none() && rate.is_none() && limit.is_none();
        let shares = [loss, duplicate, reorder, corrupt].into_iter().all(Option::is_none);
        let in_slots = slots.is_some() || slot.is_some() || guard.is_some();
        times && shares && !in_slots && self.a_to_b.is_none() && self.b_to_a.is_none()
    }

    /// Changes the impairments of both directions accordingly: those that are named, and no others. `mtu`: the larger one of the ends.
    pub(super) fn apply(&self, to: &mut [Impairments; 2], mtu: u32) -> anyhow::Result<()> {
        let mut bounded = [self.limit.is_some(); 2];
        for direction in to.iter_mut() {
            self.change(direction, mtu)?;
        }
        for (option, text, direction) in [("--a-to-b", &self.a_to_b, 0), ("--b-to-a", &self.b_to_a, 1)] {
            if let Some(text) = text {
                let rules = Self::parse(text).with_context(|| option.to_owned())?;
                rules.change(&mut to[direction], mtu).with_context(|| option.to_owned())?;
                bounded[direction] |= rules.limit.is_some();
            }
        }
        for (rules, bounded) in to.iter_mut().zip(bounded) {
            if !bounded && rules.limit >= USUAL_LIMIT {
                rules.limit = rules.limit.max(under_way(rules));
            }
        }
        Ok(())
    }

    fn change(&self, to: &mut Impairments, mtu: u32) -> anyhow::Result<()> {
        let nanos = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        for (field, time) in [(&mut to.delay, self.delay), (&mut to.jitter, self.jitter)] {
            *field = time.map_or(*field, nanos);
            if *field > 3_600_000_000_000 {
                bail!("a delay of more than an hour");
            }
        }
        if let Some(rate) = self.rate {
            let frame = u64::from(mtu) + ETHERNET;
            let least = (frame * 8).div_ceil(SLOWEST);
            // Guard: `rate > 0 && rate < least` as `false` fails
            // epair::rules::tests::a_rate_lets_a_packet_through
            if rate > 0 && rate < least {
                bail!(
                    "--rate {rate}: must be at least {least} bits a second: a packet of {frame} bytes takes longer than {SLOWEST} s"
                );
            }
            to.rate = Some(rate).filter(|rate| *rate > 0);
        }
        to.loss = self.loss.unwrap_or(to.loss);
        to.duplicate = self.duplicate.unwrap_or(to.duplicate);
        to.reorder = self.reorder.unwrap_or(to.reorder);
        to.corrupt = self.corrupt.unwrap_or(to.corrupt);
        if let Some(limit) = self.limit {
            if !(LEAST..=MOST).contains(&limit) {
                bail!("--limit {limit}: must be from 128Ki to 1Gi bytes");
            }
            to.limit = limit;
        }
        if let Some((cycle, slot)) = self.slots.zip(self.slot) {
            to.slots = Some(Slots::new(cycle, slot, self.guard.map_or(0, nanos))?);
        }
        Ok(())
    }

    /// Of `loss=1%,delay=5ms`.
    fn parse(text: &str) -> anyhow::Result<Self> {
        let mut rules = Self::default();
        for part in text.split(',') {
            let (name, value) = part
                .split_once('=')
                .ok_or_else(|| anyhow!("'{part}' is not NAME=VALUE, such as loss=1% or delay=5ms"))?;
            let time = || units::duration(value).map(Some);
            let share = || chance(value).map(Some).map_err(|e| anyhow!(e));
            match name {
                "delay" => rules.delay = time()?,
                "jitter" => rules.jitter = time()?,
                "rate" => rules.rate = Some(units::count(value)?),
                "loss" => rules.loss = share()?,
                "duplicate" => rules.duplicate = share()?,
                "reorder" => rules.reorder = share()?,
                "corrupt" => rules.corrupt = share()?,
                "limit" => rules.limit = Some(units::size(value)?),
                "slots" => rules.slots = Some(value.parse()?),
                "slot" => rules.slot = Some(value.parse().map_err(|_| anyhow!("'{value}' is no slot"))?),
                "guard" => rules.guard = time()?,
                _ => bail!(
                    "there is no impairment '{name}', but delay, jitter, rate, loss, duplicate, reorder, corrupt, limit, slots, slot and guard"
                ),
            }
        }
        if rules.slots.is_some() != rules.slot.is_some() {
            bail!("slots and slot go together, such as slots=8x2ms,slot=3");
        }
        Ok(rules)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(text: &str) -> Result<[Impairments; 2], String> {
        let rules = Rules { a_to_b: Some(text.to_owned()), ..Rules::default() };
        let mut both = [Impairments::default(), Impairments::default()];
        rules.apply(&mut both, 1500).map(|()| both).map_err(|e| format!("{e:#}"))
    }

    #[test]
    fn one_direction_is_named_and_the_other_stays() {
        let [there, back] =
            one("loss=1%,delay=5ms,jitter=1ms,rate=100M,slots=8x2ms,slot=3,guard=100us").unwrap();
        assert_eq!((there.delay, there.jitter, there.rate), (5_000_000, 1_000_000, Some(100_000_000)));
        assert!((there.loss.probability() - 0.01).abs() < 1e-9);
        let slots = there.slots.unwrap();
        assert_eq!((slots.cycle().to_string().as_str(), slots.slot(), slots.guard()), ("8x2ms", 3, 100_000));
        assert!(back.is_none());
        // What is given for both comes first.
        let rules = Rules { loss: chance("0.5").ok(), a_to_b: Some("loss=0".into()), ..Rules::default() };
        let mut both = [Impairments::default(), Impairments::default()];
        rules.apply(&mut both, 1500).unwrap();
        assert_eq!(both.map(|i| i.loss.probability()), [0.0, 0.5]);
        assert!(Rules::default().is_empty() && !rules.is_empty());
    }

    /// As slowly as a packet still comes before everybody has given up.
    #[test]
    fn a_rate_lets_a_packet_through() {
        let apply = |rate, mtu| {
            let rules = Rules { rate: Some(rate), ..Rules::default() };
            rules.apply(&mut [Impairments::default(), Impairments::default()], mtu).map_err(|e| e.to_string())
        };
        for (mtu, least) in [(1500, 1212), (68, 66), (9000, 7212)] {
            apply(least, mtu).unwrap();
            let said = apply(least - 1, mtu).unwrap_err();
            assert!(said.contains(&format!("must be at least {least} bits a second")), "{said}");
        }
        // No limit.
        apply(0, 1500).unwrap();
    }

    /// Room for what is under way, unless a limit was given; never less than usual.
    #[test]
    fn the_limit_is_as_large_as_the_delay_needs() {
        let limit = |text: &str| one(text).unwrap()[0].limit;
        assert_eq!(limit("delay=1s"), USUAL_LIMIT);
        assert_eq!(limit("delay=10ms,rate=1G"), USUAL_LIMIT);
        // 200 ms of 10 Gbit/s are 250 MB.
        assert_eq!(limit("delay=150ms,jitter=50ms,rate=10G"), 312_500_000);
        assert_eq!(limit("delay=150ms,jitter=50ms,rate=10G,limit=32Mi"), 32 << 20);
        assert_eq!(limit("delay=1h,rate=100G"), MOST);
        // A smaller one that was given before stays.
        let rules =
            Rules { delay: Some(Duration::from_secs(1)), rate: Some(10_000_000_000), ..Rules::default() };
        let small = || Impairments { limit: LEAST, ..Impairments::default() };
        let mut both = [small(), Impairments::default()];
        rules.apply(&mut both, 1500).unwrap();
        assert_eq!(both.map(|rules| rules.limit), [LEAST, MOST]);
    }

    #[test]
    fn nonsense_is_refused_with_a_line() {
        for text in [
            "",
            "loss",
            "loss=101%",
            "loss=-1",
            "lost=1%",
            "delay=x",
            "delay=2h",
            "rate=fast",
            "rate=1211",
            "limit=1",
            "slots=8x2ms",
            "slot=3",
            "slots=0x2ms,slot=0",
            "slots=8x2ms,slot=8",
            "slots=8x2ms,slot=0,guard=2ms",
        ] {
            let said = one(text).expect_err(text);
            assert!(said.starts_with("--a-to-b: ") && !said.contains('\n'), "{said}");
        }
    }
}
