//! Kernel peers against AF_PACKET queues.

use crate::common::*;
use flowlane_sys::bpf::steer::SteeringRules;
use flowlane_sys::error::Error;
use flowlane_sys::packet::{self, PacketOptions};
use flowlane_testnet::{Card, CardConfig, MICROSOFT_KEY};

#[test]
fn datagrams_of_both_families_come_back_on_the_socket_that_toeplitz_says() {
    if skip() {
        return;
    }
    let card = Card::new(&CardConfig::for_test("pkt", 1)).unwrap();
    let mut options = PacketOptions::new(card.near_interface(), 4, claims());
    options.steering = Some(SteeringRules {
        key: MICROSOFT_KEY.to_vec(),
        table: (0..128).map(|slot| slot % 4).collect(),
        udp_ports: true,
    });
    reflect_and_check(&card, 4, |_| packet::open(&options).unwrap());
}

#[test]
fn what_cannot_be_opened_says_why() {
    if skip() {
        return;
    }
    let card = Card::new(&CardConfig::for_test("perr", 1)).unwrap();
    let open = |name: &str, queues| {
        card.in_near(|| packet::open(&PacketOptions::new(name, queues, claims()))).unwrap()
    };
    assert!(matches!(open("nothere0", 1).unwrap_err(), Error::NoSuchInterface { .. }));
    assert!(matches!(open(card.near_interface(), 0).unwrap_err(), Error::Invalid(_)));
    drop((open(card.near_interface(), 2).unwrap(), open(card.near_interface(), 2).unwrap())); // two groups do not mind
}
