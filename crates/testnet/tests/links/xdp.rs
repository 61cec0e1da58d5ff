//! Kernel peers against AF_XDP queues.

use crate::common::*;
use flowlane_sys::error::Error;
use flowlane_sys::xdp::{self, XdpOptions};
use flowlane_testnet::{Card, CardConfig};

#[test]
fn datagrams_of_both_families_come_back_on_the_queue_that_toeplitz_says() {
    if skip() {
        return;
    }
    let card = Card::new(&CardConfig::for_test("xdp", 2)).unwrap();
    reflect_and_check(&card, 2, |memory| {
        xdp::open(&XdpOptions::new(card.near_interface(), 2, claims()), memory).unwrap()
    });
}

#[test]
fn what_cannot_be_opened_says_why() {
    if skip() {
        return;
    }
    let card = Card::new(&CardConfig::for_test("xerr", 2)).unwrap();
    let memory = memory(1);
    let open = |options: &XdpOptions| card.in_near(|| xdp::open(options, &memory)).unwrap();
    let good = XdpOptions::new(card.near_interface(), 2, claims());
    assert!(matches!(
        open(&XdpOptions::new("nothere0", 1, claims())).unwrap_err(),
        Error::NoSuchInterface { .. }
    ));
    let wrong = XdpOptions { queues: 3, ..good.clone() };
    assert!(matches!(open(&wrong).unwrap_err(), Error::Unsupported { .. }));
    let wrong = XdpOptions { copy: xdp::CopyMode::ZeroCopy, ..good.clone() };
    let error = open(&wrong).unwrap_err();
    assert!(error.to_string().contains("copy mode"), "{error}");
    let wrong = XdpOptions { ring_size: 100, ..good.clone() };
    assert!(matches!(open(&wrong).unwrap_err(), Error::Invalid(_)));

    let queues = open(&good).unwrap();
    let error = open(&good).unwrap_err();
    assert!(matches!(&error, Error::DeviceBusy { .. }), "{error}");
    assert!(error.to_string().contains("flowlane_claim"), "names the owner: {error}");
    drop(queues);
    drop(open(&good).unwrap()); // nothing is left behind
}
