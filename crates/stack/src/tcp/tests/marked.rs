//! Accurate ECN (RFC 9768) between two of our ends, over a network that marks: what each sender is told against what was marked.

use super::lossy::{FAIR, Net, Weather, check, in_any_weather_that_marks, transfer};
use super::*;

fn config() -> TcpConfig {
    TcpConfig { ecn: Ecn::Accurate, ..TcpConfig::default() }
}

/// s.cep of both senders, without what it begins with, and how many of their segments were marked.
fn counts(net: Net, sizes: [u64; 2]) -> [(u64, u64); 2] {
    let outcome = transfer(net, sizes, None);
    check(&outcome, sizes);
    [0, 1].map(|host| {
        let stats = outcome.net.hosts[host].tcp.stats();
        assert_eq!((stats.accecn_handshakes, stats.accecn_stopped), (1, 0), "{stats:?}");
        (stats.accecn_marks, outcome.net.marked[host])
    })
}

/// Data both ways, marks both ways, packets out of order: each sender knows exactly how many of its segments were marked, where an acknowledgement
/// comes for a few of them.
#[test]
fn each_mark_is_told() {
    let mut all = 0;
    for seed in 0..12 {
        for mark in [5, 50, 300, 900] {
            let config = TcpConfig { coalesce: seed % 2 == 0, timestamps: seed % 3 > 0, ..config() };
            let jitter_us = if seed % 4 == 0 { 0 } else { 300 };
            let weather = Weather { mark, jitter_us, rate: 4_000_000, queue_us: 10_000_000, ..FAIR };
            let net = Net::new(seed, [config.clone(), config], weather, Offload::default());
            for (host, (told, marked)) in counts(net, [300_000, 200_000]).into_iter().enumerate() {
                assert_eq!(told, marked, "seed {seed}, {mark} of 1000, host {host}");
                all += marked;
            }
        }
    }
    assert!(all > 1000, "{all}");
}

/// One way, and most acknowledgements are lost: bytes in the option tell what three bits cannot.
#[test]
fn marks_are_told_where_acknowledgements_are_lost() {
    for seed in 0..8 {
        for mark in [50, 500] {
            let weather = Weather { mark, ..FAIR };
            let mut net = Net::new(seed, [config(), config()], weather, Offload::default());
            net.thinned = 600;
            let [(told, marked), _] = counts(net, [600_000, 0]);
            assert!(
                told.abs_diff(marked) <= marked / 50 + 1,
                "seed {seed}, {mark} of 1000: {told} of {marked}"
            );
        }
    }
}

/// Without the option the safest likely case is taken: never fewer than were marked.
#[test]
fn without_the_option_none_is_forgotten() {
    for seed in 0..8 {
        let config = TcpConfig { accecn_option: false, ..config() };
        let net = Net::new(seed, [config.clone(), config], Weather { mark: 100, ..FAIR }, Offload::default());
        let [(told, marked), _] = counts(net, [300_000, 0]);
        assert!(told >= marked && marked > 10, "seed {seed}: {told} of {marked}");
    }
}

/// Any weather: nothing hangs or panics, and what is delivered is whole.
#[test]
fn in_any_weather() {
    in_any_weather_that_marks(|seed, ecn| {
        let syn_cookies = if seed % 3 == 0 { SynCookies::Always } else { SynCookies::WhenFull };
        [config(), TcpConfig { ecn, syn_cookies, ..config() }]
    });
}
