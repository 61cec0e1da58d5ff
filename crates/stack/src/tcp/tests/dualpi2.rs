//! What becomes of Prague and of CUBIC in a queue of L4S.

use super::bbr::streams;
use super::dual_queue::DualPi2;
use super::lossy::{Net, Weather};
use super::prague::{LINK, net};
use super::*;

/// What each of them got of the link, and the link. One way takes so many microseconds.
fn over(algorithms: &[Algorithm], delay_us: u32) -> (Vec<f64>, Net) {
    let mut net = net(1, Weather { rate: 0, delay_us, ..LINK }, [0, 0]);
    net.dual = Some(DualPi2::new(LINK.rate));
    let read = streams(&mut net, algorithms, Duration::from_secs(5), Duration::from_secs(20));
    (read.iter().map(|bytes| *bytes as f64 / (LINK.rate * 15) as f64).collect(), net)
}

/// Alone, Prague fills the link with a queue of a millisecond, and knows of each mark.
#[test]
fn prague_alone() {
    let (got, mut net) = over(&[Algorithm::Prague], 10_000);
    let [((middle, most), marked), (_, others)] = net.dual.as_mut().unwrap().queues();
    let told = net.hosts[0].tcp.stats().accecn_marks;
    println!("{got:.3?} of the link, {middle} us, {most} us, {marked} marked, {told} told");
    assert!(got[0] > 0.9 && middle < 1200 && most < 2500, "{got:?} {middle} {most}");
    // The last ones are under way.
    assert!(marked > 100 && marked - told < 20 && others == 0, "{marked} {told} {others}");
}

/// Beside CUBIC, whose queue is the long one: neither gets less than a quarter of its part, and Prague's packets wait no longer for it.
#[test]
fn prague_beside_cubic() {
    for delay_us in [5_000, 10_000, 20_000] {
        let (got, mut net) = over(&[Algorithm::Prague, Algorithm::Cubic], delay_us);
        let [((middle, most), marked), ((long, _), others)] = net.dual.as_mut().unwrap().queues();
        println!(
            "{delay_us} us: {got:.3?} of the link, {middle} us, {most} us, CUBIC's {long} us, {marked} and {others} signalled"
        );
        assert!(got[0] + got[1] > 0.9 && got[0].min(got[1]) > 0.125, "{got:?}");
        assert!(middle < 1200 && most < 5000 && (5000..25_000).contains(&long), "{middle} {most} {long}");
        assert!(marked > 100 && others > 10, "{marked} {others}");
    }
}
