//! Which guards one run breaks: all, those with a word, or those that changed lately and a tenth of the others.
//!
//! To break them all takes long, and a guard whose file stood still was tried when the file was written. A test can become blind
//! without it all the same, so every run takes a tenth of the rest, another one by turn: ten runs have tried all.

use super::marks::Guard;
use std::collections::BTreeSet;

/// What is asked for; all guards if nothing is.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(crate) struct Choice {
    /// Only guards whose text, file or test has this word.
    pub(crate) only: Option<String>,
    /// Files that changed, a line each.
    pub(crate) changed: Option<String>,
    /// Of the others a tenth, by this turn.
    pub(crate) tenth: Option<u64>,
}

/// The guards to break.
pub(crate) fn chosen<'a>(guards: &'a [Guard], choice: &Choice) -> Vec<&'a Guard> {
    let some = choice.changed.is_some() || choice.tenth.is_some();
    let files: BTreeSet<&str> = choice.changed.as_deref().unwrap_or_default().lines().collect();
    guards
        .iter()
        .filter(|guard| choice.only.as_deref().is_none_or(|word| guard.mentions(word)))
        .filter(|guard| {
            !some
                || files.contains(guard.file.as_str())
                || choice.tenth.is_some_and(|turn| share(guard) == turn % 10)
        })
        .collect()
}

/// Which of ten shares a guard is in, by what it says: one that moves in its file stays in its share.
fn share(guard: &Guard) -> u64 {
    // FNV-1a: the same on every machine and with every compiler.
    let bytes = guard.file.bytes().chain(guard.text.bytes());
    let hash = bytes.fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    (hash >> 32) % 10
}

#[cfg(test)]
mod tests {
    use super::*;

    fn guards() -> Vec<Guard> {
        let guard = |n: u32| Guard {
            number: n,
            file: format!("crates/a/src/{}.rs", n / 4),
            text: format!("x == {n}"),
            at: 0..0,
            broken: "true".into(),
            tests: vec![(String::new(), "t".into())],
            line: n as usize * 4,
        };
        (1..=200).map(guard).collect()
    }

    fn numbers(choice: &Choice) -> Vec<u32> {
        chosen(&guards(), choice).iter().map(|guard| guard.number).collect()
    }

    #[test]
    fn ten_turns_try_every_guard_once() {
        let mut seen = Vec::new();
        for turn in 883..893 {
            let tenth = numbers(&Choice { tenth: Some(turn), ..Choice::default() });
            assert!((5..60).contains(&tenth.len()), "{} of 200 in one turn", tenth.len());
            seen.extend(tenth);
        }
        seen.sort_unstable();
        assert_eq!(seen, (1..=200).collect::<Vec<_>>());
    }

    #[test]
    fn what_changed_is_tried_and_nothing_else() {
        let changed = |text: &str| numbers(&Choice { changed: Some(text.into()), ..Choice::default() });
        assert_eq!(changed("README.md\ncrates/a/src/2.rs\n"), [8, 9, 10, 11]);
        assert_eq!(changed(""), [0; 0]);
    }

    #[test]
    fn without_a_choice_all_are_tried() {
        assert_eq!(numbers(&Choice::default()).len(), 200);
        assert_eq!(numbers(&Choice { only: Some("/2.rs".into()), ..Choice::default() }), [8, 9, 10, 11]);
    }
}
