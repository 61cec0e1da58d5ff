//! The fuzzer's way into [`flowlane_fuzz::lane`], and its inputs' structure.
#![no_main]

use flowlane_fuzz::mutate::{LANE, mutate};

libfuzzer_sys::fuzz_target!(init: flowlane_fuzz::seeds::write("lane"), |data: &[u8]| flowlane_fuzz::lane::run(data));

libfuzzer_sys::fuzz_mutator!(|data: &mut [u8], size: usize, max: usize, seed: u32| {
    mutate(&LANE, data, size, max, seed, libfuzzer_sys::fuzzer_mutate)
});
