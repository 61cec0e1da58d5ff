//! `bench hash`: nanoseconds per tuple for every implementation of the hash that this processor supports.

use std::hint::black_box;
use std::time::Instant;

use flowlane::{Key, Toeplitz};

use super::Common;
use super::table::Report;

const TUPLES: usize = 1024;

pub(crate) fn run(common: &Common) -> Report {
    let mut report = Report::new("hash");
    let hasher = Toeplitz::new(&Key::MICROSOFT);
    let mut x = 0x9e37_79b9_7f4a_7c15u64;
    let mut byte = || {
        x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (x >> 56) as u8
    };
    let v4: Vec<[u8; 12]> = (0..TUPLES).map(|_| std::array::from_fn(|_| byte())).collect();
    let v6: Vec<[u8; 36]> = (0..TUPLES).map(|_| std::array::from_fn(|_| byte())).collect();
    let mut hashes = vec![0u32; TUPLES];
    let single = |f: &dyn Fn() -> u32| {
        black_box(f());
    };
    type Case<'a> = (&'a str, Box<dyn FnMut() + 'a>);
    let out = std::cell::RefCell::new(&mut hashes);
    let cases: Vec<Case<'_>> = vec![
        ("IPv4 with ports, one at a time", Box::new(|| v4.iter().for_each(|t| single(&|| hasher.hash12(t))))),
        ("IPv6 with ports, one at a time", Box::new(|| v6.iter().for_each(|t| single(&|| hasher.hash36(t))))),
        ("IPv4 with ports, batches of 1024", Box::new(|| hasher.batch12(&v4, &mut out.borrow_mut()))),
        ("IPv6 with ports, batches of 1024", Box::new(|| hasher.batch36(&v6, &mut out.borrow_mut()))),
    ];
    for (name, mut case) in cases {
        let rounds: Vec<f64> = (0..common.rounds).map(|_| nanos(common, &mut case)).collect();
        report.row(name, "ns", &rounds, None);
    }
    report.note(format!("form: {:?}; beside DPDK: benches/dpdk/run.sh", hasher.form()));
    report
}

/// Nanoseconds per tuple over one round.
fn nanos(common: &Common, case: &mut dyn FnMut()) -> f64 {
    let begin = Instant::now();
    let mut passes = 0u64;
    while begin.elapsed() < common.round() / 4 {
        for _ in 0..16 {
            case();
        }
        passes += 16;
    }
    begin.elapsed().as_nanos() as f64 / (passes * TUPLES as u64) as f64
}
