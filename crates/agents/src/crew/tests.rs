use super::*;
use crate::desk::Desk;
use crate::message::{PROTOCOL, write};
use flowlane_load::report::{Recorder, Span};

const MS: Duration = Duration::from_millis(1);
const LANES: usize = 2;

/// Agents at their desks, and whoever conducts them, in a time that goes on by steps.
struct Lab {
    crew: Crew,
    desks: Vec<Desk>,
    clocks: Vec<Clock>,
    /// Who does not answer.
    silent: Vec<bool>,
    /// Who makes its part; else it stands as it is.
    works: Vec<bool>,
    /// Whose questions to start are lost.
    unstarted: Option<usize>,
    now: Instant,
    ours: Clock,
}

fn here(name: &str) -> Here {
    let program = "1.0".into();
    Here { id: name.into(), name: name.into(), host: "h".into(), program, protocol: PROTOCOL, busy: false }
}

impl Lab {
    fn new(loss: Loss) -> Self {
        let now = Instant::now();
        let names = ["a", "b", "c"];
        let work = Work {
            program: "1.0".into(),
            protocol: PROTOCOL,
            load: "http".into(),
            options: Vec::new(),
            scenario: None,
            share: loss == Loss::Share,
            patience_ms: 2000,
        };
        let plan = Plan {
            run: "r".into(),
            work,
            patience: 2000 * MS,
            loss,
            pools: 1,
            phases: 0,
            requests: 0,
            longest: 20_000 * MS,
        };
        Self {
            crew: Crew::new(plan, names.map(here).to_vec(), now),
            desks: names.iter().map(|name| Desk::new(here(name), 9000)).collect(),
            clocks: [0, 1_500_000_000, -3_000_000_000].map(|ahead| Clock::apart(ahead, 0.0)).to_vec(),
            silent: vec![false; 3],
            works: vec![true; 3],
            unstarted: None,
            now,
            ours: Clock::default(),
        }
    }

    /// What an agent does by itself.
    fn work(&mut self, i: usize) {
        let (desk, now) = (&mut self.desks[i], self.now);
        let ended = desk.goes_on("r", now).is_err();
        let over = desk.start("r").is_some_and(|at| self.clocks[i].at(now) > at + 1_000_000_000);
        if desk.take_work(now).is_some() {
            desk.prepared("r", LANES);
        } else if let Some((first, _)) = desk.part("r") {
            desk.opening("r", (1, 1), true);
            if ended || over {
                self.works[i] = false;
                let record = |lane| {
                    let mut recorder = Recorder::new(lane, 0, 1, Span::all(0));
                    (0..100).for_each(|i| recorder.sent(i, i + 5, 1));
                    recorder.finish(1_000_000_000)
                };
                let records = [record(first as u16), record(first as u16 + 1)];
                desk.ended("r", Summary { interrupted: ended, ..Summary::default() }.write(&records));
            }
        } else if ended {
            desk.failed("r", "stopped".into());
        }
    }

    /// Goes on until it is over, or for so long.
    fn run(&mut self, time: Duration, mut each: impl FnMut(&mut Self)) {
        let end = self.now + time;
        while self.now < end && !self.crew.is_over() {
            self.now += MS;
            for i in (0..3).filter(|i| self.works[*i]).collect::<Vec<_>>() {
                self.work(i);
            }
            for (i, kind, ask) in self.crew.asks(self.now, &self.ours) {
                let asked = self.ours.at(self.now);
                let bytes = write(&ask, &[]);
                let read = Ask::read(&bytes).unwrap();
                let (received, clock) = (self.clocks[i].at(self.now), self.clocks[i]);
                let lost = self.unstarted == Some(i) && matches!(ask, Ask::Start { .. });
                let answer = (!self.silent[i] && !lost).then(|| {
                    let (answer, behind) = self.desks[i].answer(read, self.now, received, &clock);
                    // Time stands still while it answers.
                    let answer = match answer {
                        Answer::Status { state, .. } => {
                            Answer::Status { received, answered: received, state }
                        }
                        other => other,
                    };
                    write(&answer, &behind)
                });
                self.crew.heard(i, (kind, &ask), answer.as_deref(), (asked, asked + 1000), self.now);
            }
            each(self);
        }
    }
}

#[test]
fn three_agents_start_at_one_moment_and_have_all_lanes() {
    let mut lab = Lab::new(Loss::Fail);
    lab.run(20_000 * MS, |_| {});
    assert!(lab.crew.is_over() && !lab.crew.has_failed());
    let start = lab.crew.start().unwrap();
    for (i, member) in lab.crew.members.iter().enumerate() {
        assert_eq!(member.part, Some((Part { first: i * LANES, of: 3 * LANES }, LANES)));
        let begun = lab.clocks[i].moment(lab.desks[i].start("r").unwrap()).unwrap();
        let off = begun.max(start).duration_since(begun.min(start));
        let uncertain = Duration::from_nanos(member.clock.at_start().unwrap().uncertainty);
        assert!(off <= uncertain + Duration::from_micros(200), "{off:?}, {uncertain:?}");
        let (_, records) = member.results.as_ref().unwrap();
        assert_eq!(records.iter().map(|r| r.counts()[0]).sum::<u64>(), 200);
        assert_eq!(member.fault, None);
    }
    assert_eq!(lab.crew.lanes(), 6);
    assert!(matches!(lab.crew.farewell(), Ask::Done { run } if run == "r"));
}

#[test]
fn an_agent_that_falls_silent_is_named_and_the_run_fails_or_goes_on() {
    for loss in [Loss::Fail, Loss::GoOn] {
        let mut lab = Lab::new(loss);
        lab.run(20_000 * MS, |lab| {
            lab.silent[1] |= lab.crew.start().is_some_and(|start| lab.now > start + 500 * MS);
        });
        assert!(lab.crew.is_over());
        assert_eq!(lab.crew.has_failed(), loss == Loss::Fail);
        let fault = lab.crew.members[1].fault.clone().unwrap();
        assert!(fault.contains("not answered for 2.0 s") && fault.contains("after the start"), "{fault}");
        assert!(lab.crew.members[1].results.is_none());
        assert!([0, 2].iter().all(|i| lab.crew.members[*i].results.is_some()), "the others' is kept");
    }
}

#[test]
fn the_others_have_the_share_of_an_agent_that_is_lost() {
    let gone = vec![Gone { first: 2, lanes: LANES, sent: Vec::new() }];
    for (loss, gone) in [(Loss::Share, Some(gone)), (Loss::GoOn, None)] {
        let mut lab = Lab::new(loss);
        // What is asked is lost at first, and asked again.
        let mut seen = 0;
        lab.works[2] = true;
        lab.run(20_000 * MS, |lab| {
            let since = lab.crew.start().map(|start| lab.now.saturating_duration_since(start));
            lab.silent[1] |= since.is_some_and(|since| since > 10 * MS);
            if since.is_some_and(|since| since > 20 * MS) {
                // They would have ended before it was missed.
                (lab.works[0], lab.works[2]) = (since > Some(2500 * MS), since > Some(2500 * MS));
            }
            if lab.crew.members[1].fault.is_some() && lab.crew.members[0].results.is_none() {
                seen += 1;
                if seen > 100 {
                    assert_eq!([0, 2].map(|i| lab.desks[i].gone("r", 0)), [gone.clone(), gone.clone()]);
                }
            } else if lab.crew.members[1].fault.is_none() {
                assert_eq!(lab.desks[0].gone("r", 0), None);
            }
        });
        assert!(seen > 100 && lab.crew.is_over() && !lab.crew.has_failed(), "{seen}");
    }
}

#[test]
fn an_agent_that_waits_ends_when_all_shares_are_made() {
    let mut lab = Lab::new(Loss::Share);
    let (mut waited, mut told) = (0, false);
    lab.run(20_000 * MS, |lab| {
        let start = lab.crew.start();
        let Some(since) = start.and_then(|start| lab.now.checked_duration_since(start)) else { return };
        let known = |desk: &mut Desk| desk.gone("r", 0).map_or(0, |gone| gone.len());
        if lab.desks[0].is_finished("r") {
            assert!(lab.desks[2].is_finished("r") || since > 4000 * MS);
            (lab.works[0], lab.works[2]) = (true, true);
            return;
        }
        lab.works.fill(false);
        // The first has made its share at once, the second is gone before it has, and the third takes long for what was left.
        lab.silent[1] = true;
        let idle = known(&mut lab.desks[0]);
        lab.desks[0].idle("r", Some(idle));
        let slow = known(&mut lab.desks[2]);
        lab.desks[2].idle("r", if slow == 0 || since > 4000 * MS { Some(slow) } else { None });
        told |= slow == 1 && idle == 1;
        waited += u32::from(told);
    });
    assert!(lab.crew.is_over() && !lab.crew.has_failed());
    assert!(waited > 1000, "{waited}: until the third had made its share, too");
    assert!(
        [0, 2].iter().all(|i| lab.crew.members[*i].results.is_some() && lab.crew.members[*i].fault.is_none())
    );
}

/// An agent that is ended at its machine has given its records: what is in these is not to be made again.
#[test]
fn what_is_in_the_report_is_not_made_again() {
    let mut lab = Lab::new(Loss::Share);
    let mut seen = false;
    lab.run(20_000 * MS, |lab| {
        if lab.crew.start().is_some_and(|start| lab.now > start + 100 * MS) && !seen {
            lab.works = vec![false; 3];
            let record = |lane| {
                let mut recorder = Recorder::new(lane, 0, 1, Span::all(0));
                (0..30).for_each(|i| recorder.sent(i, i + 5, 1));
                recorder.finish(1_000_000)
            };
            let summary = Summary { interrupted: true, ..Summary::default() };
            lab.desks[1].ended("r", summary.write(&[record(2), record(3)]));
            if let Some(gone) = lab.desks[0].gone("r", 0) {
                assert_eq!(gone, [Gone { first: 2, lanes: LANES, sent: vec![60] }]);
                seen = true;
                lab.works = vec![true, false, true];
            }
        }
    });
    assert!(seen && lab.crew.is_over() && !lab.crew.has_failed());
}

#[test]
fn where_all_are_lost_nobody_goes_on() {
    let mut lab = Lab::new(Loss::GoOn);
    lab.run(20_000 * MS, |lab| {
        let since = lab.crew.start().map(|start| lab.now.saturating_duration_since(start));
        lab.silent = [100 * MS, 500 * MS, 900 * MS].map(|at| since.is_some_and(|since| since > at)).to_vec();
        if since.is_some_and(|since| (2110 * MS..2240 * MS).contains(&since)) {
            assert!(lab.crew.lost(0).is_some() && lab.crew.lost(1).is_none() && !lab.crew.has_failed());
        }
    });
    assert!(lab.crew.is_over() && lab.crew.has_failed());
}

#[test]
fn a_short_silence_is_forgiven() {
    let mut lab = Lab::new(Loss::Fail);
    lab.run(20_000 * MS, |lab| {
        let since = lab.crew.start().map(|start| lab.now.saturating_duration_since(start));
        let gone = since.is_some_and(|since| (300 * MS..2000 * MS).contains(&since));
        lab.silent = vec![gone; 3];
    });
    assert!(lab.crew.is_over() && lab.crew.members.iter().all(|m| m.fault.is_none() && m.results.is_some()));
}

#[test]
fn a_run_that_cannot_be_prepared_or_started_fails_whatever_was_chosen() {
    for (silence, word) in [(0, "not answered"), (1, "not answered")] {
        let mut lab = Lab::new(Loss::GoOn);
        lab.run(20_000 * MS, |lab| {
            lab.silent[2] |= silence == 0 || lab.crew.members[2].part.is_some();
        });
        assert!(lab.crew.is_over() && lab.crew.has_failed() && lab.crew.start().is_none());
        let fault = lab.crew.members[2].fault.clone().unwrap();
        assert!(fault.contains(word), "{fault}");
    }
}

#[test]
fn who_does_not_confirm_the_start_comes_late() {
    let mut lab = Lab::new(Loss::Fail);
    lab.unstarted = Some(2);
    lab.run(20_000 * MS, |_| {});
    let fault = lab.crew.members[2].fault.clone().unwrap();
    assert!(fault.contains("comes late") && lab.crew.has_failed(), "{fault}");
}

#[test]
fn a_run_that_is_stopped_ends_with_what_it_has() {
    let mut lab = Lab::new(Loss::Fail);
    lab.run(20_000 * MS, |lab| {
        if lab.crew.start().is_some_and(|start| lab.now > start + 300 * MS) {
            lab.crew.stop("^C", lab.now);
        }
    });
    assert!(lab.crew.is_over() && !lab.crew.has_failed());
    assert!(
        lab.crew
            .members
            .iter()
            .all(|m| m.fault.is_none() && m.results.as_ref().is_some_and(|r| r.0.interrupted))
    );
    // Before there is anything.
    let mut lab = Lab::new(Loss::Fail);
    lab.crew.stop("^C", lab.now);
    lab.run(20_000 * MS, |_| {});
    assert!(lab.crew.is_over() && lab.crew.members.iter().all(|m| m.results.is_none()));
}

#[test]
fn one_that_never_says_whether_it_can_is_not_waited_for() {
    let mut lab = Lab::new(Loss::GoOn);
    lab.works[1] = false;
    lab.run(40_000 * MS, |_| {});
    assert!(lab.crew.is_over() && lab.crew.has_failed());
    assert!(lab.crew.members[1].fault.as_deref().is_some_and(|f| f.contains("whether it can")));
}

#[test]
fn one_that_never_ends_is_not_waited_for() {
    let mut lab = Lab::new(Loss::Fail);
    lab.run(60_000 * MS, |lab| lab.works[0] &= lab.crew.start().is_none());
    assert!(lab.crew.is_over());
    assert!(lab.crew.members[0].fault.as_deref().is_some_and(|f| f.contains("not ended in time")));
}

#[test]
fn answers_of_others_change_nothing() {
    let mut lab = Lab::new(Loss::Fail);
    let status = Ask::Status { run: "r".into() };
    let many = State::Ended { parts: 3, bytes: u64::MAX };
    let answers = [
        b"nonsense".to_vec(),
        write(&Answer::Here(here("x")), &[]),
        write(&Answer::Results { part: 7 }, b"x"),
        write(&Answer::Status { received: 9, answered: 1, state: State::Running }, &[0xff; 100]),
    ];
    for answer in &answers {
        let now = lab.now;
        assert!(lab.crew.heard(0, (Kind::Status, &status), Some(answer), (5, 4), now).is_empty());
        assert!(lab.crew.heard(99, (Kind::Status, &status), Some(answer), (5, 4), now).is_empty());
    }
    assert_eq!(lab.crew.members[0].clock.count(), 0);
    let much = write(&Answer::Status { received: 1, answered: 1, state: many }, &[]);
    lab.crew.heard(0, (Kind::Status, &status), Some(&much), (0, 1), lab.now);
    assert!(lab.crew.members[0].fault.as_deref().is_some_and(|f| f.contains("more results")));
}
