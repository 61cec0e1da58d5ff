//! Every target as a plain test: over its seeds, every seed cut short, every seed with bits flipped, and the inputs kept
//! in `corpus/` because they once failed.

use std::fs;
use std::path::Path;

use flowlane_fuzz::{TARGETS, Target, seeds};

fn target(name: &str) -> Target {
    *TARGETS.iter().find(|(n, _)| *n == name).expect("a target of this name")
}

fn seeds_and_damage(name: &str) {
    let (name, run) = target(name);
    let inputs = seeds::inputs(name);
    assert!(!inputs.is_empty());
    for input in &inputs {
        run(input);
        // About a hundred of each, spread over the input.
        let step = input.len().div_ceil(100).max(1);
        for cut in (0..input.len()).step_by(step) {
            run(&input[..cut]);
        }
        let mut changed = input.clone();
        for bit in (0..input.len() * 8).step_by(step * 8 - 1) {
            changed[bit / 8] ^= 1 << (bit % 8);
            run(&changed);
            changed[bit / 8] ^= 1 << (bit % 8);
        }
    }
}

fn kept(name: &str) {
    let (name, run) = target(name);
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(name);
    let Ok(entries) = fs::read_dir(&dir) else { return };
    let mut files: Vec<_> = entries.map(|e| e.expect("a directory that can be read").path()).collect();
    files.sort();
    for file in files {
        println!("{}", file.display());
        run(&fs::read(&file).expect("a file that can be read"));
    }
}

macro_rules! targets {
    ($($name:ident)+) => {
        $(mod $name {
            // Long: every input is cut and changed at a hundred places.
            #[test]
            fn seeds_and_damage() {
                super::seeds_and_damage(stringify!($name));
            }

            #[test]
            fn kept() {
                super::kept(stringify!($name));
            }
        })+

        #[test]
        fn every_target_is_tested() {
            let mut tested = vec![$(stringify!($name)),+];
            let mut all: Vec<&str> = TARGETS.iter().map(|(name, _)| *name).collect();
            tested.sort_unstable();
            all.sort_unstable();
            assert_eq!(tested, all);
        }
    };
}

targets!(classify http1 http3 lane memcached proxy reassembly rss_key_hex switch websocket wire tcp);
