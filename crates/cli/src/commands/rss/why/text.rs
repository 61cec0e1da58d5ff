//! The page of `rss why`.

use super::super::words::{line, untold};
use super::{Explained, protocol};
use flowlane::card::{Action, Cpus};
use flowlane_rss::Fields;
use std::fmt::Write as _;
use std::net::SocketAddr;

/// The page: a line for each step.
pub(super) fn page(of: &Explained) -> String {
    let mut page = String::new();
    let driver = of.card.driver.as_ref().map_or_else(|why| untold(*why), |driver| driver.name.clone());
    let _ = writeln!(page, "{}: {driver}", of.card.interface.name());
    let end = |ip, port| if of.ports { SocketAddr::new(ip, port).to_string() } else { format!("{ip}") };
    let flow = &of.flow;
    let (from, to) = (end(flow.src, flow.src_port), end(flow.dst, flow.dst_port));
    line(&mut page, "packet", &format!("{from} -> {to}, {}", protocol(flow)));
    rules(&mut page, of);
    hash(&mut page, of);
    queue(&mut page, of);
    software(&mut page, of);
    answers(&mut page, of);
    runs(&mut page, of);
    if !of.around.unseen.is_empty() {
        let paths: Vec<String> =
            of.around.unseen.iter().take(4).map(|unseen| unseen.path.display().to_string()).collect();
        let _ = writeln!(page, "\nNot seen for lack of permission (try it as root):");
        for path in paths {
            let _ = writeln!(page, "    {path}");
        }
    }
    page
}

fn rules(page: &mut String, of: &Explained) {
    match &of.card.rules {
        Err(why) => line(page, "rules", &untold(*why)),
        Ok(rules) if rules.count == 0 => line(page, "rules", "none: the table decides"),
        Ok(rules) if of.way.rules.is_empty() => {
            line(page, "rules", &format!("{}, none takes it: the table decides", rules.count));
        }
        Ok(_) => {}
    }
    for rule in &of.way.rules {
        let takes = if rule.perhaps {
            "may take it (it asks for more than a flow tells)"
        } else {
            "takes it before the table"
        };
        line(page, "rule", &format!("{} {takes}: {} to {}", rule.location, rule.what, rule.action));
    }
}

fn hash(page: &mut String, of: &Explained) {
    let hashed = match &of.way.hashed {
        Ok(hashed) => hashed,
        Err(why) => {
            line(page, "hash", &format!("not known: {why}"));
            return;
        }
    };
    let (why, steered) = (&hashed.why, &hashed.why.steered);
    let fields = match why.fields {
        Fields::None => "nothing",
        Fields::Addresses => "addresses",
        Fields::AddressesAndPorts => "addresses and ports",
    };
    line(page, "fields", &format!("{fields} ({})", why.reason));
    if let Ok(spread) = &of.spread {
        if !spread.assumed.is_empty() {
            line(page, "", "the driver does not tell its fields: the usual ones are assumed");
        }
        let input: String = why.input().iter().map(|byte| format!("{byte:02x}")).collect();
        for (i, part) in input.as_bytes().chunks(64).enumerate() {
            line(page, if i == 0 { "input" } else { "" }, &String::from_utf8_lossy(part));
        }
        let by =
            if spread.hashes { spread.by.clone() } else { format!("{}, not the card's own hash", spread.by) };
        line(page, "hash", &format!("{:08x} ({by})", steered.hash));
        line(
            page,
            "slot",
            &format!("{} of {}, which names queue {}", steered.slot, spread.table.len(), hashed.queue),
        );
    }
}

fn queue(page: &mut String, of: &Explained) {
    let Some(queue) = of.way.queue else {
        let sure = of.way.rules.last().filter(|rule| !rule.perhaps).map(|rule| rule.action);
        let said = match sure {
            Some(Action::Drop) => "none: the rule drops it".to_owned(),
            Some(action @ Action::VirtualFunction { .. }) => format!("not this function's: {action}"),
            _ => "not known".to_owned(),
        };
        line(page, "queue", &said);
        return;
    };
    let there = of.around.receive.iter().any(|receive| receive.number == queue);
    line(page, "queue", &if there { format!("{queue}") } else { format!("{queue}, which is not there") });
    match (&of.way.interrupt, of.way.cpu) {
        (Some(interrupt), Some(cpu)) => {
            line(
                page,
                "interrupt",
                &format!("{} {}, handled by CPU {cpu}", interrupt.number, interrupt.name),
            );
        }
        (Some(interrupt), None) => {
            let cpus =
                interrupt.cpus().map_or("unknown CPUs".to_owned(), |cpus| format!("one of CPUs {cpus}"));
            line(page, "interrupt", &format!("{} {}, handled by {cpus}", interrupt.number, interrupt.name));
        }
        (None, _) => line(
            page,
            "interrupt",
            "none is known: the processor that sends takes it (veth), or the driver names it otherwise",
        ),
    }
}

fn software(page: &mut String, of: &Explained) {
    if of.way.queue.is_none() {
        return;
    }
    match &of.way.rps {
        Some((_, Some(cpu))) => line(page, "RPS", &format!("moves it to CPU {cpu}")),
        Some((cpus, None)) => {
            line(page, "RPS", &format!("moves it to one of CPUs {cpus}, by the kernel's own hash"));
        }
        None => line(page, "RPS", "off: it stays on that CPU"),
    }
    match of.way.rfs {
        0 => line(page, "RFS", "off"),
        flows => line(
            page,
            "RFS",
            &format!("on, {flows} flows: moves it to the CPU where its socket was last read"),
        ),
    }
}

fn answers(page: &mut String, of: &Explained) {
    let Cpus(queues) = &of.way.answers;
    let queues = match queues.as_slice() {
        [] => "not known".to_owned(),
        [one] => format!("queue {one}"),
        _ => format!("one of queues {}", of.way.answers),
    };
    line(page, "answers", &format!("{queues} ({})", of.way.answers_by));
    if let (Some(queue), false) = (of.way.queue, of.way.answers.is_empty())
        && !of.way.answers.0.contains(&queue)
    {
        line(page, "", "not the queue on which it is received");
    }
}

fn runs(page: &mut String, of: &Explained) {
    for run in &of.runs {
        let who = format!("{} (process {}), host {}", run.name, run.pid, run.host);
        let where_to = match (&run.steered, run.worker) {
            (Err(why), _) => format!("bucket not known: {why}"),
            (Ok((hash, bucket)), None) => {
                format!("hash {hash:08x}, bucket {bucket}, whose lane is between workers")
            }
            (Ok((hash, bucket)), Some(worker)) => {
                let cpu = run.cpu.map_or(String::new(), |cpu| format!(", on CPU {cpu}"));
                format!("hash {hash:08x}, bucket {bucket}, its lane at worker {worker}{cpu}")
            }
        };
        line(page, "Flowlane", &format!("{who}: {where_to}"));
    }
    if of.runs.is_empty() {
        line(page, "Flowlane", "no run of this user with a control socket is on this interface");
    }
}
