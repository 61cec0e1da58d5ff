//! The fuzzer's way into [`flowlane_fuzz::tcp`], and its inputs' structure.
#![no_main]

use flowlane_fuzz::mutate::{TCP, mutate};

libfuzzer_sys::fuzz_target!(init: flowlane_fuzz::seeds::write("tcp"), |data: &[u8]| flowlane_fuzz::tcp::run(data));

libfuzzer_sys::fuzz_mutator!(|data: &mut [u8], size: usize, max: usize, seed: u32| {
    mutate(&TCP, data, size, max, seed, libfuzzer_sys::fuzzer_mutate)
});
