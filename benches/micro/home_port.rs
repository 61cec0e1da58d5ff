//! Nanoseconds for a home port: picked, and picked while another is given back, so that the set stays as full as it is.
//! Two random numbers are part of the latter, one of the former.
//!
//! From nothing used to 99 % and almost all, for tables of 128 and 2048 slots of which an eighth is home: those of one
//! bucket of eight, or scattered at random. `to` is
//! what a new destination costs before the first pick; `destination+pick` is a pick for a new destination each time
//! out of one set.

use std::hint::black_box;
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use criterion::{Criterion, criterion_main};
use flowlane_rss::{
    BucketMap, HashConfig, HomePorts, Indirection, Key, PortSet, Ports, Protocol, Rss, Toeplitz,
};

/// Fills the set until `per_mille` of the home ports are used; what was taken, in random order.
fn fill(
    ports: &Ports<'_>,
    set: &mut PortSet,
    per_mille: usize,
    random: &mut impl FnMut() -> u32,
) -> Vec<u16> {
    let wanted = (ports.len() * per_mille / 1000).clamp(1, ports.len() - 8 - usize::from(ports.contains(0)));
    (0..wanted).filter_map(|_| ports.pick(random(), set)).collect()
}

fn picks(c: &mut Criterion) {
    let local: IpAddr = "10.0.0.1".parse().expect("an address");
    let remote: SocketAddr = "10.0.0.2:80".parse().expect("an address");
    let mut x = 7_u64;
    let mut random = || {
        x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (x >> 32) as u32
    };
    for (name, slots, scattered) in
        [("128", 128, false), ("2048", 2048, false), ("2048-scattered", 2048, true)]
    {
        let table = Indirection::new(slots, 8).expect("a size in range");
        let buckets = BucketMap::new(8, 8).expect("a power of two");
        let rss = Rss::from_parts(Toeplitz::new(&Key::MICROSOFT), HashConfig::default(), table, buckets);
        let mut wanted = rss.slots_of_bucket(flowlane_rss::Bucket(3));
        if scattered {
            wanted = (0..slots).filter(|_| random() % 8 == 0).collect();
        }
        let home = HomePorts::new(&rss, &wanted);
        let ports = home.to(local, remote, Protocol::TCP).expect("TCP is hashed");

        let mut group = c.benchmark_group(format!("home_port/{name}-slots"));
        for (name, per_mille) in
            [("0%", 0), ("50%", 500), ("90%", 900), ("99%", 990), ("99.9%", 999), ("all but 8", 1000)]
        {
            let mut set = ports.all_free(1..=u16::MAX);
            let mut used = fill(&ports, &mut set, per_mille, &mut random);
            // Picks alone: some at a time are timed, then as many random ones go back untimed.
            let batch = 32.min(ports.len() - usize::from(ports.contains(0)) - used.len());
            let mut picked = Vec::with_capacity(batch);
            group.bench_function(format!("pick at {name}"), |b| {
                b.iter_custom(|iterations| {
                    let mut time = Duration::ZERO;
                    for _ in 0..iterations {
                        let start = Instant::now();
                        picked.extend((0..batch).map_while(|_| ports.pick(random(), &mut set)));
                        time += start.elapsed();
                        assert_eq!(picked.len(), batch, "as many are free");
                        for port in picked.drain(..) {
                            let i = ((u64::from(random()) * used.len() as u64) >> 32) as usize;
                            ports.release(std::mem::replace(&mut used[i], port), &mut set);
                        }
                    }
                    time / batch as u32
                });
            });
            group.bench_function(format!("pick+release at {name}"), |b| {
                b.iter(|| {
                    let port = ports.pick(random(), &mut set).expect("one is free");
                    // One random port of those used goes back, the new one takes its place in the book.
                    let i = ((u64::from(random()) * used.len() as u64) >> 32) as usize;
                    ports.release(std::mem::replace(&mut used[i], port), &mut set)
                });
            });
        }
        let mut set = ports.all_free(1..=u16::MAX);
        group.bench_function("destination+pick+release", |b| {
            b.iter(|| {
                let remote = SocketAddr::new(IpAddr::from(random().to_be_bytes()), 80);
                let ports = home.to(local, black_box(remote), Protocol::TCP).expect("TCP is hashed");
                let port = ports.pick(random(), &mut set).expect("one is free");
                ports.release(port, &mut set)
            });
        });
        group.bench_function("to", |b| b.iter(|| home.to(local, black_box(remote), Protocol::TCP).is_ok()));
        group.bench_function("nth", |b| b.iter(|| ports.nth(black_box(random() as usize % 8192))));
        group.bench_function("make the solver", |b| b.iter(|| HomePorts::new(&rss, black_box(&wanted))));
        group.bench_function("make a set", |b| b.iter(|| ports.all_free(black_box(1024..=u16::MAX))));
        group.bench_function("random numbers alone", |b| b.iter(&mut random));
    }
}

#[allow(missing_docs, reason = "the macro's function has no place for a comment")]
mod group {
    criterion::criterion_group!(benches, super::picks);
}
use group::benches;
criterion_main!(benches);
