//! Nanoseconds per Toeplitz hash, for each form this processor has.
//!
//! Single hashes are taken over 1024 different tuples, so that no branch or cache learns one of them. For the
//! comparison with another implementation see `benches/dpdk/run.sh`.

use std::hint::black_box;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use criterion::{Criterion, Throughput, criterion_main};
use flowlane_rss::{
    Affine, Arrangement, BucketMap, Columns4, Flow, Form, General, HashConfig, Indirection, Key, PacketKind,
    Protocol, Rss, Toeplitz,
};

const TUPLES: usize = 1024;

fn tuples() -> Vec<[u8; 36]> {
    let mut x = 1_u64;
    let mut byte = || {
        x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (x >> 56) as u8
    };
    (0..TUPLES).map(|_| std::array::from_fn(|_| byte())).collect()
}

fn forms(c: &mut Criterion) {
    let v6 = tuples();
    let v4: Vec<[u8; 12]> = v6.iter().map(|t| std::array::from_fn(|i| t[i])).collect();
    let src: Vec<[u8; 4]> = v4.iter().map(|t| [t[0], t[1], t[2], t[3]]).collect();
    let dst: Vec<[u8; 4]> = v4.iter().map(|t| [t[4], t[5], t[6], t[7]]).collect();
    let src_port: Vec<[u8; 2]> = v4.iter().map(|t| [t[8], t[9]]).collect();
    let dst_port: Vec<[u8; 2]> = v4.iter().map(|t| [t[10], t[11]]).collect();
    let columns = Columns4 { src: &src, dst: &dst, src_port: &src_port, dst_port: &dst_port };
    let fields4: Vec<(Ipv4Addr, Ipv4Addr)> =
        src.iter().zip(&dst).map(|(&s, &d)| (s.into(), d.into())).collect();
    let fields6: Vec<(Ipv6Addr, Ipv6Addr)> = v6
        .iter()
        .map(|t| {
            (std::array::from_fn::<u8, 16, _>(|i| t[i]), std::array::from_fn::<u8, 16, _>(|i| t[16 + i]))
        })
        .map(|(s, d)| (s.into(), d.into()))
        .collect();
    let mut out = vec![0; TUPLES];

    for form in Form::ALL {
        let Some(hasher) = Toeplitz::with_form(&Key::MICROSOFT, form) else { continue };
        let mut group = c.benchmark_group(format!("toeplitz/{form:?}"));
        group.throughput(Throughput::Elements(TUPLES as u64));
        group.bench_function("v4-single", |b| {
            b.iter(|| black_box(&v4).iter().zip(&mut out).for_each(|(t, h)| *h = hasher.hash12(t)));
        });
        group.bench_function("v6-single", |b| {
            b.iter(|| black_box(&v6).iter().zip(&mut out).for_each(|(t, h)| *h = hasher.hash36(t)));
        });
        group.bench_function("v4-fields", |b| {
            b.iter(|| {
                let each = black_box(&fields4).iter().zip(&mut out);
                each.for_each(|(&(s, d), h)| *h = hasher.hash_v4_ports(s, d, 1024, 80));
            });
        });
        group.bench_function("v6-fields", |b| {
            b.iter(|| {
                let each = black_box(&fields6).iter().zip(&mut out);
                each.for_each(|(&(s, d), h)| *h = hasher.hash_v6_ports(s, d, 1024, 80));
            });
        });
        group.bench_function("v4-batch", |b| b.iter(|| hasher.batch12(black_box(&v4), &mut out)));
        group.bench_function("v6-batch", |b| b.iter(|| hasher.batch36(black_box(&v6), &mut out)));
        group.bench_function("v4-columns", |b| b.iter(|| hasher.columns4(black_box(columns), &mut out)));
    }
}

/// Any other rule beside Toeplitz in the form that also looks up bytes: hashes of flows, as steering asks for them.
fn general(c: &mut Criterion) {
    let flows: Vec<Flow> = tuples()
        .into_iter()
        .enumerate()
        .map(|(i, t)| {
            let word = |at: usize| -> [u8; 4] { std::array::from_fn(|k| t[at + k]) };
            let sixteen = |at: usize| -> [u8; 16] { std::array::from_fn(|k| t[at + k]) };
            let (src, dst): (IpAddr, IpAddr) = if i < TUPLES / 2 {
                (word(0).into(), word(4).into())
            } else {
                (sixteen(0).into(), sixteen(16).into())
            };
            Flow::new(SocketAddr::new(src, 1024), SocketAddr::new(dst, 80), Protocol::TCP)
        })
        .collect();
    let (v4, v6) = flows.split_at(TUPLES / 2);
    let config = HashConfig::default();
    let parts = || {
        let table = Indirection::new(128, 8).expect("a table");
        (config, table, BucketMap::new(8, 4).expect("a map"))
    };
    let table_form = Toeplitz::with_form(&Key::MICROSOFT, Form::Table).expect("a form");
    let (config, table, map) = parts();
    let mut rules = vec![("toeplitz-table", Rss::from_parts(table_form, config, table, map))];
    for arrangement in Arrangement::ALL {
        let (config, table, map) = parts();
        // The start value keeps it from being taken for Toeplitz.
        let plain = General::toeplitz(&Key::MICROSOFT, &config, arrangement);
        let maps =
            PacketKind::ALL.map(|kind| plain.map(kind).map(|map| Affine::new(map.columns(), 0xffff_ffff)));
        rules
            .push((arrangement.name(), Rss::from_parts(General::new(arrangement, maps), config, table, map)));
    }
    for (name, rss) in rules {
        let mut group = c.benchmark_group(format!("rule/{name}"));
        group.throughput(Throughput::Elements(TUPLES as u64 / 2));
        for (family, flows) in [("v4", v4), ("v6", v6)] {
            let mut out = vec![0; flows.len()];
            group.bench_function(family, |b| {
                b.iter(|| {
                    black_box(flows)
                        .iter()
                        .zip(&mut out)
                        .for_each(|(flow, h)| *h = rss.software_hash(flow).0);
                });
            });
        }
    }
}

#[allow(missing_docs, reason = "the macro's function has no place for a comment")]
mod group {
    criterion::criterion_group!(benches, super::forms, super::general);
}
use group::benches;
criterion_main!(benches);
