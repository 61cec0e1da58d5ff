//! `load tcp`, `load udp` and `load memcached` that agents make: how one is conducted, and how an agent makes its part.

use std::time::Instant;

use anyhow::{Context, ensure};
use flowlane_agents::Summary;
use flowlane_load::report::{About, Usage, live};
use flowlane_load::timeline;

use super::super::agents::{Conducted, Errand, Job, Order, PART_EVERY, Stands, counts_of};
use super::super::alignment;
use super::{CountsOf, Judgement, Load, begin};
use crate::{drops, steering};

/// Has agents make the run. Whoever conducts sends nothing to the target, so that it is neither asked nor waited for.
pub(super) fn conduct<L: Load>(mut load: L) -> anyhow::Result<()> {
    let name = short::<L>();
    load.course().crew.check(name)?;
    ensure!(load.course().find.find_rate.is_none(), "--find-rate: not with --agents");
    load.settle(load.named().choose_by(|_| true))?;
    let course = load.course();
    let rss = course.near.rss(load.fields(), !L::TCP, &course.home)?;
    let config = load.plan(&rss, &course.near.clients(course.target)?, course.phases(load.ramp()))?;
    let (words, phases, seed) = (load.words(&config), load.whole(&config)?, L::seed(&config));
    let job = Job {
        load: name,
        seed,
        told: load.told(),
        scenario: None,
        pools: 1,
        requests: words.requests.len(),
        phases: phases.clone(),
        answers: load.patience(),
        shared: load.has_connections(),
    };
    load.announce();
    let about = About { phases: timeline::shown(&phases), ..course.about(L::NAME, words, seed) };
    course.crew.make(&job, &course.outputs, &["all".to_owned()], about, |conducted: &Conducted, about| {
        let counts = conducted.counts::<CountsOf<L>>();
        let Judgement { failure, failures_count } = load.judge(&counts, conducted.is_cut_short());
        About { failure, failures_count, ..about }
    })
}

/// What a load is called among loads: `tcp`.
fn short<L: Load>() -> &'static str {
    L::NAME.trim_start_matches("load ")
}

/// Makes a part of a run that others conduct; returns what came of it, in words.
pub(in super::super) fn make<L: Load>(mut load: L, mut errand: Errand) -> anyhow::Result<String> {
    ensure!(load.course().find.find_rate.is_none(), "looks for no rate (--find-rate behind its --)");
    // Guard: no `errand.admits(&load.named().0, false)?;` fails cli/agents::kinds::agents_send_where
    errand.admits(&load.named().0, false)?;
    load.choose()?;
    let rss = load.course().near.rss(load.fields(), !L::TCP, &load.course().home)?;
    let lanes = rss.buckets.len();
    let part = errand.dealt(lanes)?;
    let course = load.course_mut();
    course.part = Some(part);
    course.near.clients = errand.clients(part, &course.near.clients, lanes)?;
    let course = load.course();
    let clients = course.near.clients(course.target)?;
    let config = load.plan(&rss, &clients, course.phases(load.ramp()))?;
    // The choices of the machine alone, such as of its ports, are not to be those of the others.
    load.course_mut().near.seed = Some(steering::seed(None)?);
    let (snapshots, from) = live::channel();
    let (before, begun) = (Usage::now(), Instant::now());
    let begin_with = (load.needs(&config, &clients)?, Some(snapshots.into()));
    load.course().near.asked()?.announce();
    let (made, runtime, host) = begin(&load, config, (&rss, &clients), begin_with, || errand.goes_on())?;
    let outcome = made.wait(PART_EVERY, |_| {
        let stands = Stands { ready: made.is_ready(), ..Stands::default() };
        errand.tick(&from, stands, |order| match order {
            Order::Begin(moment) => made.begin_at(moment),
            Order::Share(gone) => made.share(part.of, &gone),
            Order::Finish => {}
        })
    });
    let usage = Usage::now().since(before).within(begun.elapsed());
    let counted = runtime.stop();
    let course = load.course();
    let summary = Summary {
        interrupted: outcome.interrupted,
        failure: outcome.failure,
        workers: course.near.workers(),
        counts: counts_of(&outcome.counts).context("counts")?,
        drops: drops::by_reason(&counted, &[("load", host)]),
        alignment: alignment(course.near.is_kernel(), &counted, host),
        home_ports: course.home.counted(&counted, host),
        ..Summary::default()
    };
    Ok(errand.ended(summary.taking(outcome.elapsed, outcome.measured).using(usage), &outcome.records))
}
