use super::*;

const SECOND: Duration = Duration::from_secs(1);

/// An agent, and a time that goes on when it is told to.
struct Agent {
    desk: Desk,
    now: Instant,
    clock: Clock,
}

impl Agent {
    fn new() -> Self {
        let here = Here { id: "a".into(), name: "a".into(), program: "1.0".into(), ..Here::default() };
        Self { desk: Desk::new(here, 8192), now: Instant::now(), clock: Clock::default() }
    }

    fn asked(&mut self, ask: Ask) -> Answer {
        self.desk.answer(ask, self.now, 1_000_000, &self.clock).0
    }

    fn refuses(&mut self, ask: &Ask, word: &str) {
        let answer = self.asked(ask.clone());
        assert!(matches!(&answer, Answer::Refused { why } if why.contains(word)), "{ask:?}: {answer:?}");
    }

    fn state(&mut self) -> State {
        match self.asked(Ask::Status { run: run() }) {
            Answer::Status { state, .. } => state,
            other => panic!("{other:?}"),
        }
    }

    /// With a run that is ready.
    fn ready() -> Self {
        let mut agent = Self::new();
        assert_eq!(agent.asked(prepare("r")), Answer::Done);
        agent.desk.take_work(agent.now).unwrap();
        agent.desk.prepared("r", 2);
        assert_eq!(agent.asked(deal()), Answer::Done);
        agent.desk.opening("r", (4, 4), true);
        agent
    }
}

fn run() -> String {
    "r".into()
}

fn deal() -> Ask {
    Ask::Deal { run: run(), first: 2, of: 6 }
}

fn prepare(run: &str) -> Ask {
    let work = Work {
        program: "1.0".into(),
        protocol: PROTOCOL,
        load: "http".into(),
        options: Vec::new(),
        scenario: None,
        share: false,
        patience_ms: 5000,
    };
    Ask::Prepare { run: run.into(), work }
}

#[test]
fn a_run_from_its_beginning_to_its_end() {
    let mut agent = Agent::new();
    for _ in 0..2 {
        assert_eq!(agent.asked(prepare("r")), Answer::Done, "asked twice, made once");
    }
    assert!(agent.desk.take_work(agent.now).is_some_and(|(run, _)| run == "r"));
    assert!(agent.desk.take_work(agent.now).is_none());
    assert_eq!(agent.state(), State::Preparing);
    agent.refuses(&deal(), "no use");
    agent.desk.prepared("r", 2);
    assert_eq!(agent.state(), State::Prepared { lanes: 2 });
    agent.refuses(&Ask::Deal { run: run(), first: 5, of: 6 }, "no use");
    for _ in 0..2 {
        assert_eq!(agent.asked(deal()), Answer::Done);
    }
    agent.refuses(&Ask::Deal { run: run(), first: 0, of: 6 }, "no use");
    assert_eq!(agent.desk.part("r"), Some((2, 6)));
    agent.desk.opening("r", (3, 4), false);
    assert_eq!(agent.state(), State::Opening { standing: 3, of: 4 });
    agent.refuses(&Ask::Start { run: run(), at: 2_000_000 }, "not ready");
    agent.desk.opening("r", (4, 4), true);
    agent.refuses(&Ask::Start { run: run(), at: 500_000 }, "late");
    for _ in 0..2 {
        assert_eq!(agent.asked(Ask::Start { run: run(), at: 2_000_000 }), Answer::Done);
    }
    assert_eq!((agent.desk.start("r"), agent.state()), (Some(2_000_000), State::Running));
    agent.desk.snapshot("r", b"12");
    agent.desk.snapshot("r", &[0; 8192]);
    agent.desk.snapshot("r", b"3");
    let status =
        |agent: &mut Agent| agent.desk.answer(Ask::Status { run: run() }, agent.now, 0, &agent.clock).1;
    assert_eq!((status(&mut agent), status(&mut agent)), (b"123".to_vec(), Vec::new()));
    assert_eq!(agent.desk.gone("r", 0), None);
    agent.desk.idle("r", Some(0));
    assert_eq!(agent.state(), State::Idle { gone: 0 });
    let (part, of) = agent.desk.part("r").unwrap();
    let gone = |first| Gone { first, lanes: 1, sent: Vec::new() };
    let others: Vec<usize> = (0..of).filter(|lane| !(part..part + 2).contains(lane)).collect();
    for n in [1, 2, 2] {
        let list: Vec<Gone> = others[..n].iter().map(|lane| gone(*lane)).collect();
        assert_eq!(agent.asked(Ask::Share { run: run(), gone: list.clone() }), Answer::Done);
        assert_eq!(agent.desk.gone("r", n - 1), Some(list));
        assert_eq!((agent.desk.gone("r", n), agent.state()), (None, State::Running));
    }
    // Its own lanes, fewer than before, and lanes that there are not.
    for list in [vec![gone(others[0]), gone(others[1]), gone(part)], vec![gone(others[0])], vec![gone(of)]] {
        agent.refuses(&Ask::Share { run: run(), gone: list }, "no use");
    }
    assert!(!agent.desk.is_finished("r"));
    assert_eq!(agent.asked(Ask::Finish { run: run() }), Answer::Done);
    assert!(agent.desk.is_finished("r"));
    agent.refuses(&Ask::Results { run: run(), part: 0 }, "no such part");
    let results: Vec<u8> = (0..10_000u32).map(|i| i as u8).collect();
    agent.desk.ended("r", results.clone());
    assert_eq!(agent.state(), State::Ended { parts: 3, bytes: 10_000 });
    let parts = (0..3)
        .flat_map(|part| agent.desk.answer(Ask::Results { run: run(), part }, agent.now, 0, &agent.clock).1);
    assert_eq!(parts.collect::<Vec<u8>>(), results);
    agent.refuses(&Ask::Results { run: run(), part: 3 }, "no such part");
    assert_eq!(agent.asked(Ask::Done { run: run() }), Answer::Done);
    agent.refuses(&Ask::Status { run: run() }, "nothing");
}

#[test]
fn one_run_at_a_time_and_only_of_the_same_version() {
    let mut agent = Agent::ready();
    agent.refuses(&prepare("other"), "busy");
    assert!(matches!(agent.asked(Ask::Who), Answer::Here(Here { busy: true, .. })));
    agent.refuses(&Ask::Stop { run: "other".into(), why: String::new() }, "nothing");
    assert_eq!(agent.desk.goes_on("r", agent.now), Ok(()));
    let mut agent = Agent::new();
    let Ask::Prepare { run, work } = prepare("r") else { unreachable!() };
    agent.refuses(
        &Ask::Prepare { run: run.clone(), work: Work { program: "1.1".into(), ..work.clone() } },
        "version 1.0",
    );
    agent.refuses(&Ask::Prepare { run, work: Work { protocol: PROTOCOL + 1, ..work } }, "version");
    assert!(!agent.desk.is_busy(agent.now));
}

#[test]
fn who_is_not_heard_of_has_no_run() {
    let mut agent = Agent::ready();
    agent.now += 5 * SECOND;
    assert_eq!(agent.desk.goes_on("r", agent.now), Ok(()));
    assert_eq!(agent.state(), State::Ready);
    agent.now += 5 * SECOND;
    assert_eq!(agent.desk.goes_on("r", agent.now), Ok(()), "a question is a sign of life");
    agent.now += SECOND;
    let why = agent.desk.goes_on("r", agent.now).unwrap_err();
    assert!(why.contains("nothing was heard") && why.contains("6.0 s"), "{why}");
    agent.desk.ended("r", vec![1]);
    assert!(!agent.desk.is_busy(agent.now), "another run may come");
    assert!(matches!(agent.state(), State::Ended { .. }), "but its results are kept for a while");
    agent.now += KEPT + SECOND;
    assert!(agent.desk.take_work(agent.now).is_none());
    agent.refuses(&Ask::Status { run: run() }, "nothing");
}

#[test]
fn a_run_is_stopped_or_given_up() {
    let mut agent = Agent::ready();
    assert_eq!(agent.asked(Ask::Stop { run: run(), why: "^C".into() }), Answer::Done);
    assert_eq!(agent.desk.goes_on("r", agent.now), Err("^C".into()));
    agent.desk.ended("r", vec![1]);
    assert_eq!(agent.state(), State::Ended { parts: 1, bytes: 1 });
    for ends in [|desk: &mut Desk| desk.ended("r", vec![1]), |desk: &mut Desk| desk.failed("r", "no".into())]
    {
        let mut agent = Agent::ready();
        assert_eq!(agent.asked(Ask::Done { run: run() }), Answer::Done);
        assert!(agent.desk.goes_on("r", agent.now).is_err() && agent.desk.is_busy(agent.now));
        ends(&mut agent.desk);
        assert!(!agent.desk.is_busy(agent.now), "nobody wants its results");
    }
}

#[test]
fn an_agent_cannot_be_made_to_wait_for_ever() {
    let mut agent = Agent::new();
    let Ask::Prepare { run, work } = prepare("r") else { unreachable!() };
    agent.asked(Ask::Prepare { run, work: Work { patience_ms: u64::MAX, ..work } });
    agent.now += *PATIENCE.end() + SECOND;
    assert!(agent.desk.goes_on("r", agent.now).is_err());
}
