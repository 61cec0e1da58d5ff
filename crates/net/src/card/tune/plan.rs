//! What has to change so that queues, fields, table, interrupts, XPS, RPS and RFS fit together: computed from what was read, without I/O.
//!
//! Aimed at: one queue for each processor of the card's node; slots evenly over the queues; the interrupt of a queue at one processor, no
//! other queue's while there are enough; a processor sends on the queue on which it receives; nothing is moved after the card chose. What fits
//! already stays as it is: the interrupts of queues that are at different processors stay where they are, whichever these are.

use super::settings::{Setting, Value, of, value};
use crate::card::surroundings::{Cpus, ReceiveQueue, Surroundings, TransmitQueue};
use crate::card::{Card, ChannelCounts, Counts, Fields, FlowKind};

/// What the user wants otherwise than by default.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TuneOptions {
    /// So many queues.
    pub queues: Option<u32>,
    /// Processors, in the order of the queues.
    pub cpus: Option<Vec<u32>>,
}

/// A setting that has to change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    /// Which.
    pub setting: Setting,
    /// Its value; `None` for a queue that there is not yet.
    pub was: Option<Value>,
    /// What it has to be.
    pub to: Value,
    /// Why, in words.
    pub why: &'static str,
}

/// All that has to change, in the order in which it is changed.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Plan {
    /// The changes.
    pub steps: Vec<Step>,
    /// Queues that receive, when all is done.
    pub queues: u32,
    /// The processor of each of them.
    pub cpus: Vec<u32>,
    /// What stays as it is although it could be better, and why.
    pub notes: Vec<String>,
}

/// The plan for a card, or why a wish cannot be.
///
/// # Errors
/// A line about a processor that is not online, or a number of queues that the card cannot have.
pub fn plan(card: &Card, around: &Surroundings, wish: &TuneOptions) -> Result<Plan, String> {
    let order = processors(around, wish)?;
    let (channels, queues) = channels(card, around, wish, order.len() as u32)?;
    let mut making = Making { before: of(card, around), plan: Plan { queues, ..Plan::default() } };
    making.queues(card, channels, wish, order.len() as u32);
    let after = resized(around, channels, queues);
    let cpus = homes(&after, &order);
    if queues > 1 {
        making.fields(card);
        making.table(card, queues);
    }
    making.interrupts(&after, &cpus, &order);
    if queues > 1 {
        making.transmit(&after, &cpus, &order);
        making.software(&after);
    } else if after.receive.iter().any(|queue| queue.rps.as_ref().is_some_and(|cpus| !cpus.is_empty())) {
        making.plan.notes.push("RPS stays: with one queue it is what spreads packets".to_owned());
    }
    making.plan.cpus = cpus;
    Ok(making.plan)
}

/// Processors in the order in which queues get them: those of the card's node first, or as wished.
fn processors(around: &Surroundings, wish: &TuneOptions) -> Result<Vec<u32>, String> {
    let online = around.online.as_ref().map_or(&[0][..], |cpus| &cpus.0);
    if let Some(wished) = &wish.cpus {
        return match wished.iter().find(|cpu| !online.contains(cpu)) {
            Some(cpu) => Err(format!(
                "there is no processor {cpu}, or it is offline: online are {}",
                Cpus(online.to_vec())
            )),
            None => Ok(wished.clone()),
        };
    }
    let near = |cpu: &u32| around.near.as_ref().is_none_or(|near| near.is_empty() || near.0.contains(cpu));
    let (mut order, far): (Vec<u32>, Vec<u32>) = online.iter().partition(|cpu| near(cpu));
    // Processors far from the card are for queues that were asked for beyond those of its node.
    let wanted = wish.queues.map_or(order.len(), |queues| queues as usize);
    if order.is_empty() || wanted > order.len() {
        order.extend(far);
    }
    Ok(order)
}

/// The numbers of queues to set, if they can be set, and how many receive then.
fn channels(
    card: &Card,
    around: &Surroundings,
    wish: &TuneOptions,
    processors: u32,
) -> Result<(Option<(Counts, Counts)>, u32), String> {
    let there = around.receive.len() as u32;
    let told = card.channels.ok().filter(|channels| channels.most.receiving() > 0);
    let Some(ChannelCounts { now, most }) = told else {
        return match wish.queues {
            Some(queues) if queues != there => {
                Err(format!("the driver does not let anybody set the number of queues: there are {there}"))
            }
            _ => Ok((None, there)),
        };
    };
    // Either queues that do both, or separate ones: as it is now.
    let both = most.combined > 0 && (now.combined > 0 || now.receive == 0);
    let limit = if both { most.combined } else { most.receive };
    let wanted = match wish.queues {
        Some(queues) if queues == 0 || queues > limit => {
            return Err(format!("--queues {queues}: the card has 1 to {limit}"));
        }
        Some(queues) => queues,
        None => processors.clamp(1, limit.max(1)),
    };
    let to = if both {
        Counts { combined: wanted, ..now }
    } else {
        Counts {
            receive: wanted,
            transmit: wanted.min(most.transmit).max(u32::from(now.transmit > 0)),
            ..now
        }
    };
    Ok((Some((now, to)), to.receiving()))
}

/// The kernel's settings as they will be when the number of queues is changed: new queues have nothing set.
fn resized(around: &Surroundings, channels: Option<(Counts, Counts)>, queues: u32) -> Surroundings {
    let mut after = around.clone();
    let Some((now, to)) = channels.filter(|(now, to)| now != to) else { return after };
    let grown = |there: usize, now: u32, to: u32| (there as u32 + to).saturating_sub(now);
    after.receive.truncate(queues as usize);
    let new = |number| ReceiveQueue {
        number,
        rps: Some(Cpus::default()),
        rps_flows: Some(0),
        ..ReceiveQueue::default()
    };
    after.receive.extend((after.receive.len() as u32..queues).map(new));
    let transmit = grown(around.transmit.len(), now.transmitting(), to.transmitting());
    after.transmit.truncate(transmit as usize);
    let new = |number| TransmitQueue { number, xps_cpus: Some(Cpus::default()), ..TransmitQueue::default() };
    after.transmit.extend((after.transmit.len() as u32..transmit).map(new));
    after
}

/// The processor of each queue. A queue whose interrupt is at one processor of those, which no queue before it has, stays there.
fn homes(after: &Surroundings, order: &[u32]) -> Vec<u32> {
    let usable = &order[..order.len().min(after.receive.len())];
    let mut homes: Vec<Option<u32>> = Vec::new();
    for queue in &after.receive {
        let at = queue.cpu().filter(|cpu| usable.contains(cpu) && !homes.contains(&Some(*cpu)));
        homes.push(at);
    }
    let mut free =
        usable.iter().copied().filter(|cpu| !homes.contains(&Some(*cpu))).collect::<Vec<_>>().into_iter();
    let mut again = usable.iter().copied().cycle();
    homes
        .iter()
        .map(|home| home.or_else(|| free.next()).or_else(|| again.next()).unwrap_or_default())
        .collect()
}

/// The processors that send on each of `count` queues: that of the queue, and processors that have no queue in turn.
fn senders(count: usize, cpus: &[u32], order: &[u32], online: &[u32]) -> Vec<Cpus> {
    let mut sends: Vec<Vec<u32>> = vec![Vec::new(); count];
    for (queue, cpu) in cpus.iter().enumerate() {
        // With fewer queues to send than to receive, several receive queues answer on one.
        let list = &mut sends[queue % count];
        list.push(*cpu);
    }
    // Queues to send beyond those that receive belong to the same processors, in turn.
    for (queue, list) in sends.iter_mut().enumerate().skip(cpus.len()) {
        list.extend(cpus.get(queue % cpus.len().max(1)));
    }
    let others = order.iter().chain(online).filter(|cpu| !cpus.contains(cpu));
    let mut seen: Vec<u32> = Vec::new();
    for &cpu in others {
        if !seen.contains(&cpu) {
            sends[seen.len() % count].push(cpu);
            seen.push(cpu);
        }
    }
    let sorted = |mut list: Vec<u32>| {
        list.sort_unstable();
        list.dedup();
        Cpus(list)
    };
    sends.into_iter().map(sorted).collect()
}

/// A plan that grows.
struct Making {
    before: Vec<(Setting, Value)>,
    plan: Plan,
}

impl Making {
    fn step(&mut self, setting: Setting, to: Value, why: &'static str) {
        let was = value(&self.before, setting).cloned();
        self.plan.steps.push(Step { setting, was, to, why });
    }

    /// A step, unless it is so already.
    fn want(&mut self, setting: Setting, now: Option<&Cpus>, to: Cpus, why: &'static str) {
        if now != Some(&to) {
            self.step(setting, Value::Cpus(to), why);
        }
    }

    fn queues(
        &mut self,
        card: &Card,
        channels: Option<(Counts, Counts)>,
        wish: &TuneOptions,
        processors: u32,
    ) {
        match channels {
            Some((now, to)) if now != to => {
                let why = match wish.queues {
                    Some(_) => "as many as were asked for",
                    None if to.receiving() < processors => "as many as the card has",
                    None => "one for each processor, of the card's node where it has one",
                };
                self.step(Setting::Queues, Value::Queues(to), why);
            }
            Some(_) => {}
            None => {
                let why = match card.channels {
                    Ok(_) => "it has no more".to_owned(),
                    Err(why) => why.to_string(),
                };
                self.plan.notes.push(format!("the number of queues cannot be set: {why}"));
            }
        }
    }

    fn fields(&mut self, card: &Card) {
        let Ok(rss) = &card.rss else {
            self.plan
                .notes
                .push("the driver tells nothing of RSS: neither fields nor table are looked at".to_owned());
            return;
        };
        for (kind, why) in [
            (FlowKind::Tcp4, "TCP spreads by addresses and ports"),
            (FlowKind::Udp4, "by addresses alone all UDP between two hosts comes to one queue"),
            (FlowKind::Tcp6, "TCP spreads by addresses and ports"),
            (FlowKind::Udp6, "by addresses alone all UDP between two hosts comes to one queue"),
        ] {
            if matches!(rss.fields_of(kind), Ok(Fields::NONE | Fields::ADDRESSES)) {
                self.step(Setting::Fields(kind), Value::Fields(Fields::FOUR), why);
            }
        }
    }

    fn table(&mut self, card: &Card, queues: u32) {
        let Ok(rss) = &card.rss else { return };
        let slots = |queue: u32| rss.table.iter().filter(|&&named| named == queue).count();
        let (least, most) = (0..queues).map(slots).fold((usize::MAX, 0), |(a, b), n| (a.min(n), b.max(n)));
        let strays = rss.table.iter().any(|&queue| queue >= queues);
        // What the kernel makes by itself is made again when the number of queues changes.
        let own = value(&self.before, Setting::Table) == Some(&Value::DefaultTable);
        if !own && !rss.table.is_empty() && (strays || most - least > 1) {
            self.step(Setting::Table, Value::DefaultTable, "each queue has as many slots as the others");
        }
    }

    fn interrupts(&mut self, after: &Surroundings, cpus: &[u32], order: &[u32]) {
        const WHY: &str = "the interrupt of a queue is handled by one processor, and no other queue's while there are enough";
        let known = after.receive.iter().any(|queue| !queue.interrupts.is_empty());
        if !known {
            let why = "no interrupts are known of its queues: it has none, or neither its driver nor their names tell which";
            self.plan.notes.push(why.to_owned());
            return;
        }
        // One queue may be handled anywhere near the card.
        let near =
            |allowed: &Cpus| after.receive.len() == 1 && allowed.0.iter().all(|cpu| order.contains(cpu));
        for (queue, &cpu) in after.receive.iter().zip(cpus) {
            let allowed = queue.interrupts.first().map(|interrupt| interrupt.allowed.as_ref());
            if !allowed.flatten().is_some_and(near) {
                self.want(Setting::Interrupt(queue.number), allowed.flatten(), Cpus(vec![cpu]), WHY);
            }
        }
        if after.receive.len() == 1 {
            return;
        }
        for queue in &after.transmit {
            let (Some(interrupt), Some(&cpu)) = (queue.interrupts.first(), cpus.get(queue.number as usize))
            else {
                continue;
            };
            self.want(Setting::SendInterrupt(queue.number), interrupt.allowed.as_ref(), Cpus(vec![cpu]), WHY);
        }
        if after.irqbalance {
            let note =
                "irqbalance runs, and may move the interrupts again at any time: 'systemctl stop irqbalance'";
            self.plan.notes.push(note.to_owned());
        }
    }

    fn transmit(&mut self, after: &Surroundings, cpus: &[u32], order: &[u32]) {
        if after.transmit.len() < 2 {
            return;
        }
        let online = after.online.as_ref().map_or(&[][..], |cpus| &cpus.0);
        let sends = senders(after.transmit.len(), cpus, order, online);
        for (queue, wanted) in after.transmit.iter().zip(sends) {
            const WHY: &str =
                "a processor sends on the queue on which it receives; those without a queue take turns";
            if queue.xps_cpus.is_some() {
                self.want(Setting::Xps(queue.number), queue.xps_cpus.as_ref(), wanted, WHY);
            }
            let own = Cpus(vec![queue.number]);
            if let Some(queues) =
                queue.xps_queues.as_ref().filter(|queues| !queues.is_empty() && **queues != own)
            {
                const WHY: &str = "takes precedence over the processors, and names other queues";
                self.want(Setting::XpsQueues(queue.number), Some(queues), Cpus::default(), WHY);
            }
        }
    }

    fn software(&mut self, after: &Surroundings) {
        for queue in &after.receive {
            if queue.rps.as_ref().is_some_and(|cpus| !cpus.is_empty()) {
                const WHY: &str = "RPS moves packets to other processors after the card chose";
                self.want(Setting::Rps(queue.number), queue.rps.as_ref(), Cpus::default(), WHY);
            }
            if queue.rps_flows.is_some_and(|flows| flows > 0) {
                const WHY: &str = "RFS moves packets to other processors after the card chose";
                self.step(Setting::Rfs(queue.number), Value::Flows(0), WHY);
            }
        }
    }
}

#[cfg(test)]
mod tests;
