use super::*;
use crate::find::{Ended, Limit};

/// What a trial finds where bursts of up to `most` pass, and how many it sends.
fn finds(search: &mut BurstSearch, most: u64) -> u64 {
    let mut bursts = 0;
    while let Some(length) = search.length() {
        bursts += 1;
        assert!(bursts < 100, "{search:?}");
        search.tell(length, length <= most);
    }
    bursts
}

#[test]
fn the_longest_burst_is_found() {
    for most in [10, 11, 187, 1000, 54_321, 99_999] {
        for start in
            [None, Some(10), Some(most), Some(most + 5), Some(most / 2), Some(5 * most), Some(1 << 40)]
        {
            let mut exact = BurstSearch::new((10, 100_000), 0.0, start);
            finds(&mut exact, most);
            assert_eq!(exact.bounds(), (Some(most), Some(most + 1)), "{start:?}");
            let mut near = BurstSearch::new((10, 100_000), 0.05, start);
            let bursts = finds(&mut near, most);
            let (Some(passed), Some(failed)) = near.bounds() else { panic!("{near:?}") };
            assert!(passed <= most && most < failed && failed <= passed + (passed / 20).max(1), "{near:?}");
            if start == Some(most) {
                assert!(bursts <= 12, "from where it was found before: {bursts}");
            }
        }
    }
    let mut all = BurstSearch::new((10, 1000), 0.01, None);
    finds(&mut all, 5000);
    assert_eq!(all.bounds(), (Some(1000), None));
    for start in [None, Some(500)] {
        let mut none = BurstSearch::new((10, 1000), 0.01, start);
        finds(&mut none, 9);
        assert_eq!(none.bounds(), (None, Some(10)));
    }
    let mut one = BurstSearch::new((7, 7), 0.01, None);
    assert_eq!((finds(&mut one, 7), one.bounds()), (1, (Some(7), None)));
}

/// One loss may be another's fault.
#[test]
fn a_loss_is_verified() {
    let mut search = BurstSearch::new((10, 1000), 0.0, None);
    let (mut n, mut spoilt) = (0u64, 0);
    while let Some(length) = search.length() {
        n += 1;
        let spoils = n.is_multiple_of(2) && length <= 300;
        spoilt += u64::from(spoils);
        search.tell(length, length <= 300 && !spoils);
    }
    assert_eq!(search.bounds(), (Some(300), Some(301)));
    assert!(spoilt > 2);
}

fn found(
    trials: &[(Option<u64>, Option<u64>, f64)],
    rate: Option<f64>,
    throughput: Option<f64>,
) -> FoundBursts {
    let trial = |(longest, fails_at, rate): &(Option<u64>, Option<u64>, f64)| Trial {
        longest: *longest,
        fails_at: *fails_at,
        bursts: 9,
        rate: *rate,
        ..Trial::default()
    };
    let mut found = FoundBursts {
        version: 1,
        program: "x".into(),
        command: "load udp".into(),
        targets: vec!["a".into()],
        payload: 510.0,
        between: [10, 1000],
        within: 0.01,
        trials_asked: 50,
        rate_asked: rate,
        rate: None,
        longest: None,
        implied_buffer_seconds: None,
        throughput,
        corrected_buffer_seconds: None,
        dropped: 0,
        limit: None,
        ended: Ended::Narrow,
        seconds: 1.0,
        trials: trials.iter().map(trial).collect(),
    };
    found.conclude();
    found
}

fn text(found: &FoundBursts) -> String {
    let mut out = Vec::new();
    summary(found, &mut out).unwrap();
    String::from_utf8(out).unwrap()
}

/// RFC 9004 §5.5, by hand: 26 000 datagrams at 14 880 952 a second are 1.747 ms, of which at 10 000 000 a second 67.2 % were passed on meanwhile.
#[test]
fn the_buffer_is_worked_out() {
    let trials = [(Some(26_100), Some(26_200), 14_000_000.0), (Some(25_900), Some(26_000), 14_000_000.0)];
    let of = found(&trials, Some(14_880_952.0), Some(10_000_000.0));
    let longest = of.longest.unwrap();
    assert_eq!((longest.average, longest.min, longest.max), (26_000.0, 25_900.0, 26_100.0));
    assert!((longest.stdev - 20_000f64.sqrt()).abs() < 1e-9);
    assert_eq!(of.implied_buffer_seconds, Some(0.001747200));
    assert_eq!(of.corrected_buffer_seconds, Some(0.000573082));
    assert_eq!((of.limit, of.ended), (Some(Limit::Server), Ended::Narrow));
    let said = text(&of);
    for part in
        ["average 26000.0, 25900 to 26100, standard deviation 141.4", "1.75 ms", "573", "limit: server"]
    {
        assert!(said.contains(part), "'{part}' in {said}");
    }
    // By the rate that bursts really had.
    let of = found(&trials, None, None);
    assert_eq!((of.implied_buffer_seconds, of.corrected_buffer_seconds), (Some(0.001857143), None));
    assert!(text(&of).contains("--throughput"), "{}", text(&of));
    let of = found(&trials, None, Some(14_000_000.0));
    assert_eq!(of.corrected_buffer_seconds, None);
    assert!(text(&of).contains("the throughput is not below the rate"), "{}", text(&of));
}

#[test]
fn what_passes_always_or_never_is_said() {
    let of = found(&[(Some(1000), None, 1e6)], None, None);
    assert_eq!((of.limit, of.ended), (None, Ended::AllHold));
    assert!(text(&of).contains("bursts of 1 000 datagrams pass without loss, the longest"), "{}", text(&of));
    let of = found(&[(None, Some(10), 1e6)], None, None);
    assert_eq!((of.limit, of.ended, of.longest), (Some(Limit::Server), Ended::NoneHolds, None));
    assert!(text(&of).contains("not even bursts of 10 datagrams pass"), "{}", text(&of));
    assert_eq!(Spread::of(&[]), None);
    assert_eq!(Spread::of(&[3.0]), Some(Spread { average: 3.0, min: 3.0, max: 3.0, stdev: 0.0 }));
    let slow = Trial { too_slow: true, ..Trial::default() };
    assert!(line(3, &slow).starts_with("trial 3: given up, a burst is not sent at the rate"));
}
