//! Flowlane's Toeplitz hashes, timed cell by cell; the peer of `benches/dpdk/thash.c`.
//!
//! Prints "CELL NANOSECONDS" per hash, the median of the samples. With the name of a form (`table`, `avx2`, `avx512`)
//! that form is timed instead of the best. `benches/dpdk/run.sh` runs both programs in turn.

use std::hint::black_box;
use std::time::Instant;

use flowlane_rss::{Columns4, Form, Key, Toeplitz};

const MAX: usize = 1024;
const SAMPLES: usize = 9;

fn cell(name: &str, n: usize, mut run: impl FnMut(&mut [u32])) {
    let mut out = vec![0; n];
    let repeats = 400_000 / n;
    let mut samples: Vec<f64> = (0..SAMPLES + 2)
        .map(|_| {
            let start = Instant::now();
            for _ in 0..repeats {
                run(black_box(&mut out));
            }
            start.elapsed().as_nanos() as f64 / (repeats * n) as f64
        })
        .collect();
    // The first two warm up.
    let timed = &mut samples[2..];
    timed.sort_by(f64::total_cmp);
    println!("{name}/{n} {:.4}", timed[SAMPLES / 2]);
}

fn main() {
    let form = std::env::args().nth(1);
    let hasher = match form.as_deref() {
        None => Some(Toeplitz::new(&Key::MICROSOFT)),
        Some("table") => Toeplitz::with_form(&Key::MICROSOFT, Form::Table),
        Some("avx2") => Toeplitz::with_form(&Key::MICROSOFT, Form::Avx2),
        Some("avx512") => Toeplitz::with_form(&Key::MICROSOFT, Form::Avx512),
        Some(_) => None,
    };
    let Some(hasher) = hasher else {
        eprintln!("no such form on this processor");
        std::process::exit(2);
    };

    // The peer's generator, for the same tuples.
    let mut x = 1_u64;
    let mut byte = || {
        x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (x >> 56) as u8
    };
    let v6: Vec<[u8; 36]> = (0..MAX).map(|_| std::array::from_fn(|_| byte())).collect();
    let v4: Vec<[u8; 12]> = v6.iter().map(|t| std::array::from_fn(|i| t[i])).collect();
    let src: Vec<[u8; 4]> = v4.iter().map(|t| [t[0], t[1], t[2], t[3]]).collect();
    let dst: Vec<[u8; 4]> = v4.iter().map(|t| [t[4], t[5], t[6], t[7]]).collect();
    let src_port: Vec<[u8; 2]> = v4.iter().map(|t| [t[8], t[9]]).collect();
    let dst_port: Vec<[u8; 2]> = v4.iter().map(|t| [t[10], t[11]]).collect();

    for n in [1, 32, 1024] {
        let (four, six) = (&v4[..n], &v6[..n]);
        cell("v4-single", n, |out| {
            for (tuple, hash) in black_box(four).iter().zip(out) {
                *hash = hasher.hash12(tuple);
            }
        });
        cell("v6-single", n, |out| {
            for (tuple, hash) in black_box(six).iter().zip(out) {
                *hash = hasher.hash36(tuple);
            }
        });
        cell("v4-batch", n, |out| hasher.batch12(black_box(four), out));
        cell("v6-batch", n, |out| hasher.batch36(black_box(six), out));
        let columns =
            Columns4 { src: &src[..n], dst: &dst[..n], src_port: &src_port[..n], dst_port: &dst_port[..n] };
        cell("v4-columns", n, |out| hasher.columns4(black_box(columns), out));
    }
}
