//! Sends probes to a card, counts them, and repeats those whose answers are lost or doubtful.

use super::{Answer, LearnError, Oracle};
use crate::packet::Tuple;
use crate::random::Random;
use crate::{Flow, PacketKind};

/// How often a packet is sent before its answer counts as lost.
const TRIES: usize = 4;
/// Most answers that are asked for about one doubtful packet.
const OPINIONS: usize = 15;
/// Answers that are kept.
const KEPT: usize = 160;
/// Of these, those that show whether the card has changed.
const BEFORE: usize = 32;

pub(super) struct Asker<'a> {
    oracle: &'a mut Oracle<'a>,
    pub(super) random: Random,
    pub(super) asked: usize,
    limit: usize,
    /// Packets that were never answered.
    pub(super) lost: usize,
    /// The first packets that were answered. Sent again later, they show whether the card answers the same.
    first: Vec<(Tuple, Answer)>,
}

impl<'a> Asker<'a> {
    pub(super) fn new(oracle: &'a mut Oracle<'a>, seed: u64, limit: usize) -> Self {
        Self { oracle, random: Random::new(seed), asked: 0, limit, lost: 0, first: Vec::new() }
    }

    /// How many probes may still be sent.
    pub(super) fn left(&self) -> usize {
        self.limit.saturating_sub(self.asked)
    }

    fn once(&mut self, tuples: &[Tuple], doing: &'static str) -> Result<Vec<Option<Answer>>, LearnError> {
        // Guard: `self.asked + tuples.len() > self.limit` as `false` fails a_budget_too_small
        if self.asked + tuples.len() > self.limit {
            return Err(LearnError::Probes { limit: self.limit, doing });
        }
        self.asked += tuples.len();
        let flows: Vec<Flow> = tuples.iter().map(Tuple::flow).collect();
        let mut answers = (self.oracle)(&flows);
        answers.resize(tuples.len(), None);
        Ok(answers)
    }

    /// Sends all of these. A packet without an answer is sent again, a few times.
    pub(super) fn ask(
        &mut self,
        tuples: &[Tuple],
        doing: &'static str,
    ) -> Result<Vec<Option<Answer>>, LearnError> {
        let mut answers = self.once(tuples, doing)?;
        for _ in 1..TRIES {
            let open: Vec<usize> = (0..tuples.len()).filter(|&i| answers[i].is_none()).collect();
            if open.is_empty() {
                break;
            }
            let again: Vec<Tuple> = open.iter().map(|&i| tuples[i]).collect();
            for (&i, answer) in open.iter().zip(self.once(&again, doing)?) {
                answers[i] = answer;
            }
        }
        self.lost += answers.iter().filter(|answer| answer.is_none()).count();
        for (tuple, answer) in tuples.iter().zip(&answers) {
            if self.first.len() < KEPT {
                self.first.extend(answer.map(|answer| (*tuple, answer)));
            }
        }
        Ok(answers)
    }

    /// The queues of these packets. Each packet is sent until one queue has so many answers more than any other.
    pub(super) fn queues(
        &mut self,
        tuples: &[Tuple],
        lead: usize,
        doing: &'static str,
    ) -> Result<Vec<u16>, LearnError> {
        let mut votes: Vec<Vec<u16>> = vec![Vec::new(); tuples.len()];
        let mut open: Vec<usize> = (0..tuples.len()).collect();
        let mut rounds = 0;
        while !open.is_empty() {
            let now: Vec<Tuple> = open.iter().map(|&i| tuples[i]).collect();
            for (&i, answer) in open.iter().zip(self.ask(&now, doing)?) {
                votes[i].extend(answer.map(|answer| answer.queue));
            }
            rounds += 1;
            if rounds >= 3 && open.iter().any(|&i| votes[i].is_empty()) || rounds > 2 * OPINIONS {
                return Err(LearnError::NoAnswer { asked: self.asked, lost: self.lost });
            }
            open.retain(|&i| votes[i].len() < OPINIONS && leader(&votes[i]).1 < lead);
        }
        Ok(votes.iter().map(|votes| leader(votes).0).collect())
    }

    /// The packets among these that arrive on another queue than predicted. If one answer is not enough, what contradicts is asked again until a
    /// queue leads by more.
    pub(super) fn contradicting(
        &mut self,
        tuples: &[Tuple],
        lead: usize,
        doing: &'static str,
        predict: impl Fn(&Tuple) -> u16,
    ) -> Result<Vec<usize>, LearnError> {
        let wrong = |asker: &mut Self, among: &[usize], lead| {
            let asked: Vec<Tuple> = among.iter().map(|&i| tuples[i]).collect();
            let queues = asker.queues(&asked, lead, doing)?;
            let all = among.iter().copied().zip(queues);
            Ok(all.filter(|(i, queue)| predict(&tuples[*i]) != *queue).map(|(i, _)| i).collect())
        };
        let all: Vec<usize> = (0..tuples.len()).collect();
        let first: Vec<usize> = wrong(self, &all, 1)?;
        if lead == 1 || first.is_empty() { Ok(first) } else { wrong(self, &first, lead + 2) }
    }

    /// How many answered packets are kept.
    pub(super) fn answered(&self) -> usize {
        self.first.len()
    }

    /// Sends packets again that were answered already, `count` of them behind the first `skip`, or as many as there are. Returns how many arrived
    /// on another queue than before, and of how many that is known.
    pub(super) fn again(&mut self, skip: usize, count: usize) -> Result<(usize, usize), LearnError> {
        let both =
            self.answered_again(skip, count, "seeing whether the same packet comes on the same queue")?;
        Ok((both.iter().filter(|(before, now)| before.queue != now.queue).count(), both.len()))
    }

    /// Answers to packets before and now.
    fn answered_again(
        &mut self,
        skip: usize,
        count: usize,
        doing: &'static str,
    ) -> Result<Vec<(Answer, Answer)>, LearnError> {
        // The same packets are not kept twice.
        let first = core::mem::take(&mut self.first);
        let before = first.iter().skip(skip).take(count);
        let tuples: Vec<Tuple> = before.clone().map(|(tuple, _)| *tuple).collect();
        let answers = self.ask(&tuples, doing);
        let both = answers
            .map(|now| before.zip(now).filter_map(|((_, before), now)| Some((*before, now?))).collect());
        self.first = first;
        both
    }

    /// Whether the first packets are answered as before. If not, the card has changed.
    pub(super) fn still_the_same(&mut self) -> Result<bool, LearnError> {
        let asked = self.first.len().min(BEFORE);
        // These few probes exceed the limit; they show why it did not suffice.
        self.limit += TRIES * asked;
        let both = self.answered_again(0, asked, "seeing whether the card still says the same")?;
        Ok(2 * both.iter().filter(|(before, now)| before == now).count() >= asked)
    }

    /// A random packet of this kind.
    pub(super) fn any(&mut self, kind: PacketKind) -> Tuple {
        let mut bytes = self.random.bytes::<36>();
        let used = if kind.has_ports() { kind.bits() / 8 } else { kind.bits() / 8 - 4 };
        bytes[used..].fill(0);
        Tuple { kind, bytes }
    }
}

/// The queue with the most answers, and by how many it leads.
fn leader(votes: &[u16]) -> (u16, usize) {
    let mut sorted = votes.to_vec();
    sorted.sort_unstable();
    let (mut best, mut second) = ((0, 0), 0);
    for run in sorted.chunk_by(|a, b| a == b) {
        if run.len() > best.1 {
            second = best.1;
            best = (run[0], run.len());
        } else {
            second = second.max(run.len());
        }
    }
    (best.0, best.1 - second)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_leads() {
        assert_eq!(leader(&[]), (0, 0));
        assert_eq!(leader(&[3]), (3, 1));
        assert_eq!(leader(&[3, 1, 3, 3]), (3, 2));
        assert_eq!(leader(&[3, 1]).1, 0);
    }
}
