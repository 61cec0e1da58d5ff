//! Interrupts of a card that wait while a program is busy: what the kernel makes of the settings of `serve --suspend-irqs`. A datagram that comes while
//! they wait is taken in when the program asks epoll, and not before.

use std::net::UdpSocket;
use std::os::fd::AsFd;
use std::process::Stdio;
use std::time::Duration;

use flowlane_sys::kernel::epoll::{Epoll, Events};
use flowlane_sys::netdev::Interface;
use flowlane_sys::netdev::napi::{Napi, Napis};
use flowlane_sys::poll::wait_readable;
use flowlane_testnet::{Card, CardConfig, skipped};

use crate::common::skip;

/// Far longer than interrupts are deferred, and far shorter than they are suspended.
const A_WHILE: u64 = 20_000_000;
const DEFERRED: u64 = 200_000;
const SUSPENDED: u64 = 10_000_000_000;
const PATIENCE: Duration = Duration::from_secs(20);

/// How a datagram that comes after a busy program's wait arrives: `true` if it waits for the next.
fn waits(card: &Card, suspend: u64) -> bool {
    let near = card.in_near(|| UdpSocket::bind("10.11.2.9:7100").unwrap()).unwrap();
    let far = card.far().run(|| UdpSocket::bind("10.11.2.1:0").unwrap()).unwrap();
    far.connect("10.11.2.9:7100").unwrap();
    near.set_nonblocking(true).unwrap();
    let set = || {
        let mut all = Napis::open(&Interface::find("near0").unwrap()).unwrap();
        for napi in all.list().unwrap() {
            all.set(&Napi { defer: 2, flush: DEFERRED, suspend, ..napi }).unwrap();
        }
    };
    card.in_near(set).unwrap();
    let epoll = Epoll::new().unwrap();
    // Long, so that it still polls when the datagram is sent.
    epoll.set_busy_poll(1_000_000, true).unwrap();
    epoll.add(near.as_fd(), 1).unwrap();
    let mut events = Events::new(4);
    let mut buffer = [0; 16];
    let mut empty = || while near.recv(&mut buffer).is_ok() {};
    // It comes by epoll's own polling only if that has begun, which nobody tells.
    (0..500).any(|_| {
        std::thread::scope(|scope| {
            scope.spawn(|| epoll.wait(&mut events, Some(PATIENCE)));
            far.send(b"first").unwrap();
        });
        empty();
        far.send(b"second").unwrap();
        let limit = if suspend == 0 { PATIENCE.as_nanos() as u64 } else { A_WHILE };
        let there = wait_readable(&[near.as_fd()], Some(limit)).unwrap() > 0;
        if !there {
            assert_eq!(epoll.wait(&mut events, Some(PATIENCE)).unwrap(), 1);
            assert!(near.recv(&mut [0; 16]).is_ok(), "it was there for whoever asked");
        }
        empty();
        !there
    })
}

#[test]
fn packets_wait_for_a_busy_program() {
    if skip() {
        return;
    }
    let card = Card::new(&CardConfig::for_test("susp", 1)).unwrap();
    let near = card.near().unwrap();
    near.ip("addr add 10.11.2.9/24 dev near0").unwrap();
    let mut gro = near.command("ethtool");
    let gro = gro.args(["-K", "near0", "gro", "on"]).stdin(Stdio::null()).output();
    if !gro.is_ok_and(|output| output.status.success()) {
        return skipped("there is no 'ethtool'");
    }
    let able = || Napis::open(&Interface::find("near0").unwrap()).and_then(|mut all| all.list());
    if let Err(e) = near.run(able).unwrap() {
        return skipped(format!("the kernel cannot suspend interrupts, which takes Linux 6.13 ({e})"));
    }
    assert!(waits(&card, SUSPENDED));
    assert!(!waits(&card, 0), "deferring alone ends");
}
