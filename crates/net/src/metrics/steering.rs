//! How frames arrived on each queue, and why some of them did not arrive at the worker of their lane.
//!
//! A frame is *aligned* if its queue belongs to the worker that holds its lane, else it is *redirected*: handed over to that worker. It is
//! *misdirected* if hash and table name another queue than it came on, and its hash is *foreign* if key and fields give another. Workers
//! count these for each queue. The causes are told from what they count beside, and from what the card's thread has found out when it
//! asked the driver ([`Strayed`](crate::stats::Strayed)).

use serde::{Deserialize, Serialize};

use crate::stats::{CardReport, QueueArrivals, Report, SteeringStats};

/// What is unusual about frames.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Deviation {
    /// Handed over to another worker.
    Redirected,
    /// On another queue than hash and table name.
    Misdirected,
    /// With a hash that is not that of key and fields.
    ForeignHash,
}

impl Deviation {
    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Redirected => "redirected",
            Self::Misdirected => "misdirected",
            Self::ForeignHash => "foreign hash",
        }
    }
}

/// Frames that deviate for one reason.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct CauseOf {
    /// What is unusual.
    pub what: Deviation,
    /// How many frames.
    pub frames: u64,
    /// Why, for people.
    pub why: String,
}

/// How the frames of a host arrived on one queue.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct QueueSteering {
    /// The interface of the host.
    pub interface: u8,
    /// The queue, by its number within the link.
    pub queue: u16,
    /// The worker that serves it.
    pub worker: usize,
    /// Frames received.
    pub received: u64,
    /// Of them, whose lane was at this worker.
    pub aligned: u64,
    /// Of them, handed to another worker.
    pub redirected: u64,
    /// Of them, on another queue than hash and table name.
    pub misdirected: u64,
    /// Of them, whose delivered hash was not that of key and fields.
    pub foreign_hash: u64,
    /// Why frames were redirected, misdirected, or had a foreign hash; those of one deviation add up to its count. A misdirected frame may
    /// be redirected, too.
    pub causes: Vec<CauseOf>,
}

/// How the frames of a host arrived on each queue, by interface and queue.
#[must_use]
pub fn queues(report: &Report, host: usize) -> Vec<QueueSteering> {
    let card = report.cards.iter().find(|card| card.host == host);
    let served = |interface| {
        let here = |at: &QueueArrivals| (at.host, at.interface) == (host, interface);
        report.workers.iter().filter(|worker| worker.arrivals.iter().any(here)).count()
    };
    let mut all = Vec::new();
    for worker in &report.workers {
        for at in worker.arrivals.iter().filter(|at| at.host == host) {
            let SteeringStats { received, aligned, redirected, misdirected, foreign_hash, .. } = at.stats;
            all.push(QueueSteering {
                interface: at.interface,
                queue: at.queue,
                worker: worker.worker,
                received,
                aligned,
                redirected,
                misdirected,
                foreign_hash,
                causes: causes(at, card, served(at.interface) < report.workers.len()),
            });
        }
    }
    all.sort_by_key(|queue| (queue.interface, queue.queue));
    all
}

/// Why frames deviate on a queue. `shared`: some workers have no queue of the link.
fn causes(at: &QueueArrivals, card: Option<&CardReport>, shared: bool) -> Vec<CauseOf> {
    use Deviation::{ForeignHash, Misdirected, Redirected};
    let stats = &at.stats;
    let explained = stats.redirected_no_flow + stats.redirected_away + stats.redirected_late;
    // Guard: `stats.redirected.saturating_sub(explained)` as `0` fails
    // metrics::steering::tests::causes_add_up
    let rest = stats.redirected.saturating_sub(explained);
    let away = match card {
        _ if shared => "a worker without a queue of the link holds their lane",
        Some(card) if card.counts.refused > 0 => {
            "their lane moved, and the card refused to send them to its new queue"
        }
        Some(_) => "their lane moved, and the card did not yet send them to its new queue",
        None => "their lane moved, and the card's table does not follow",
    };
    let strayed = card.and_then(|card| card.strayed).map_or(
        "the card did not do what its key, fields and table say: 'flowlane rss check' finds out more",
        |why| why.words(),
    );
    let (others, foreign) = if at.by_card {
        (
            "they were misdirected",
            "the card's key or hash is not the one that was read from it: 'flowlane rss check' finds out more",
        )
    } else {
        (
            "steering is in software, and the link chose the queue by a rule of its own",
            "the link hashes by another key or other fields",
        )
    };
    let told = [
        (
            Redirected,
            stats.redirected_no_flow,
            "they have no flow (ARP, for example): all of them belong to the first lane",
        ),
        (Redirected, stats.redirected_late, "they were on their way while their lane moved"),
        (Redirected, stats.redirected_away, away),
        (Redirected, rest, others),
        (Misdirected, stats.misdirected, if at.by_card { strayed } else { others }),
        (ForeignHash, stats.foreign_hash, foreign),
    ];
    let seen = told.into_iter().filter(|(_, frames, _)| *frames > 0);
    seen.map(|(what, frames, why)| CauseOf { what, frames, why: why.to_owned() }).collect()
}

/// A table of the queues, and a line for each cause: at most 80 columns.
#[must_use]
pub fn table(queues: &[QueueSteering]) -> String {
    let several = queues.iter().any(|queue| queue.interface != queues[0].interface);
    let name = |queue: &QueueSteering| match several {
        true => format!("{}/{}", queue.interface, queue.queue),
        false => queue.queue.to_string(),
    };
    let mut text = format!(
        "{:>5} {:>6} {:>13} {:>13} {:>12} {:>12} {:>12}\n",
        "queue", "worker", "received", "aligned", "redirected", "misdirected", "foreign hash"
    );
    for queue in queues {
        let QueueSteering { worker, received, aligned, redirected, misdirected, foreign_hash, .. } = queue;
        text += &format!(
            "{:>5} {worker:>6} {received:>13} {aligned:>13} {redirected:>12} {misdirected:>12} {foreign_hash:>12}\n",
            name(queue)
        );
    }
    let mut causes: Vec<(CauseOf, Vec<String>)> = Vec::new();
    for queue in queues {
        for cause in queue.causes.iter().filter(|cause| cause.frames > 0) {
            match causes.iter_mut().find(|(one, _)| (one.what, &one.why) == (cause.what, &cause.why)) {
                Some((one, of)) => {
                    one.frames += cause.frames;
                    of.push(name(queue));
                }
                None => causes.push((cause.clone(), vec![name(queue)])),
            }
        }
    }
    causes.sort_by_key(|(cause, _)| cause.what);
    for (CauseOf { what, frames, why }, of) in causes {
        let queues = if of.len() == 1 { "queue" } else { "queues" };
        text += &wrapped(&format!("{queues} {}: {frames} {}: {why}", of.join(", "), what.name()));
    }
    text
}

/// A sentence in lines of at most 80 columns, all but the first indented.
fn wrapped(sentence: &str) -> String {
    let mut text = String::new();
    let mut line = String::new();
    for word in sentence.split(' ') {
        if !line.is_empty() && line.len() + 1 + word.len() > 80 {
            text += &line;
            text.push('\n');
            line = "   ".to_owned();
        }
        if !line.is_empty() {
            line.push(' ');
        }
        line += word;
    }
    text + &line + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::{CardCounts, Strayed};

    fn at(by_card: bool, stats: SteeringStats) -> QueueArrivals {
        QueueArrivals { host: 0, interface: 0, queue: 3, by_card, stats }
    }

    fn told(at: &QueueArrivals, card: Option<&CardReport>, shared: bool) -> Vec<(Deviation, u64, String)> {
        causes(at, card, shared).into_iter().map(|cause| (cause.what, cause.frames, cause.why)).collect()
    }

    /// Every frame that deviates has a cause, and the causes of one deviation add up to it.
    #[test]
    fn causes_add_up() {
        let stats = SteeringStats {
            received: 100,
            aligned: 50,
            redirected: 50,
            redirected_no_flow: 3,
            redirected_late: 4,
            redirected_away: 13,
            misdirected: 35,
            foreign_hash: 2,
            ..SteeringStats::default()
        };
        for by_card in [false, true] {
            for shared in [false, true] {
                let all = causes(&at(by_card, stats), None, shared);
                let sum = |what| all.iter().filter(|c| c.what == what).map(|c| c.frames).sum::<u64>();
                let sums = [Deviation::Redirected, Deviation::Misdirected, Deviation::ForeignHash].map(sum);
                assert_eq!(sums, [50, 35, 2], "{all:?}");
            }
        }
        assert_eq!(
            causes(&at(true, SteeringStats { received: 9, aligned: 9, ..Default::default() }), None, true),
            []
        );
    }

    /// Queues that deviate for one reason share a line, and nothing is wider than 80 columns.
    #[test]
    fn the_table_fits() {
        let of = |queue, causes: Vec<CauseOf>| QueueSteering {
            interface: 0,
            queue,
            worker: 1,
            received: 1_234_567_890_123,
            aligned: 1_234_567_890_123,
            redirected: 123_456_789_012,
            misdirected: 0,
            foreign_hash: 0,
            causes,
        };
        let cause = |what, frames, why: &str| CauseOf { what, frames, why: why.to_owned() };
        let long = Strayed::AnotherRule.words();
        let mut queues = vec![
            of(0, vec![cause(Deviation::Misdirected, 5, long), cause(Deviation::Redirected, 2, "moved")]),
            of(1, vec![]),
            of(2, vec![cause(Deviation::Redirected, 40, "moved"), cause(Deviation::Misdirected, 6, long)]),
        ];
        let text = table(&queues);
        assert!(
            text.contains("queues 0, 2: 42 redirected: moved\nqueues 0, 2: 11 misdirected: the card"),
            "{text}"
        );
        assert!(text.lines().all(|line| line.len() <= 80), "{text}");
        assert_eq!(text.split_whitespace().filter(|word| *word == "learn'").count(), 1, "{text}");
        queues[2].interface = 1;
        assert!(
            table(&queues).contains("\n  1/2 ") && table(&queues).contains("queues 0/0, 1/2: 42 redirected")
        );
    }

    #[test]
    fn what_the_cards_thread_found_is_the_cause() {
        let misdirected =
            SteeringStats { received: 70, misdirected: 70, redirected: 70, ..Default::default() };
        for why in Strayed::ALL {
            let card = CardReport { strayed: Some(why), ..CardReport::default() };
            let told = told(&at(true, misdirected), Some(&card), false);
            assert_eq!(told[1], (Deviation::Misdirected, 70, why.words().to_owned()));
            assert_eq!((told[0].1, told[0].2.as_str()), (70, "they were misdirected"));
        }
        let away = SteeringStats { received: 9, redirected: 9, redirected_away: 9, ..Default::default() };
        let refused = CardReport {
            counts: CardCounts { refused: 1, ..CardCounts::default() },
            ..CardReport::default()
        };
        let why = |card: Option<&CardReport>, shared| told(&at(true, away), card, shared).remove(0).2;
        assert!(why(Some(&refused), false).contains("refused"));
        assert!(why(Some(&CardReport::default()), false).contains("not yet"));
        assert!(why(None, false).contains("does not follow"));
        assert!(why(Some(&refused), true).contains("without a queue"));
    }
}
