//! Nanoseconds for a home port: picked and another given back, so that the set stays as full as it is.
//!
//! From nothing used to 99 % and to the last port, for tables of 128 and 2048 slots of which an eighth is home. `to` is
//! what a new destination costs before the first pick; `destination+pick` is a pick for a new destination each time
//! out of one set.

use std::hint::black_box;
use std::net::{IpAddr, SocketAddr};

use criterion::{Criterion, criterion_group, criterion_main};
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
    let wanted = (ports.len() * per_mille / 1000).min(ports.len() - 1).max(1);
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
    for slots in [128, 2048] {
        let table = Indirection::new(slots, 8).expect("a size in range");
        let buckets = BucketMap::new(8, 8).expect("a power of two");
        let rss = Rss::from_parts(Toeplitz::new(&Key::MICROSOFT), HashConfig::default(), table, buckets);
        let home = HomePorts::new(&rss, &rss.slots_of_bucket(flowlane_rss::Bucket(3)));
        let ports = home.to(local, remote, Protocol::TCP).expect("TCP is hashed");

        let mut group = c.benchmark_group(format!("home_port/{slots}-slots"));
        for (name, per_mille) in
            [("0%", 0), ("50%", 500), ("90%", 900), ("99%", 990), ("99.9%", 999), ("last", 1000)]
        {
            let mut set = ports.all_free(0..=u16::MAX);
            let mut used = fill(&ports, &mut set, per_mille, &mut random);
            group.bench_function(format!("pick+release at {name}"), |b| {
                b.iter(|| {
                    let r = random();
                    let port = ports.pick(r, &mut set).expect("one is free");
                    // One random port of those used goes back, the new one takes its place in the book.
                    let i = ((u64::from(r.rotate_left(9)) * used.len() as u64) >> 32) as usize;
                    ports.release(std::mem::replace(&mut used[i], port), &mut set)
                });
            });
        }
        let mut set = ports.all_free(0..=u16::MAX);
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
        group.bench_function("random numbers alone", |b| b.iter(&mut random));
    }
}

criterion_group!(benches, picks);
criterion_main!(benches);
