//! The kernel against TAP queues.

use crate::common::*;
use flowlane_sys::bpf::steer::SteeringRules;
use flowlane_sys::error::Error;
use flowlane_sys::netdev::Interface;
use flowlane_sys::tun::{self, TapOptions};
use flowlane_testnet::{MICROSOFT_KEY, Namespace};
use std::net::IpAddr;
use std::time::{Duration, Instant};

fn open_in(
    namespace: &Namespace,
    options: &TapOptions,
    homes: usize,
) -> (Vec<tun::TapQueue>, flowlane_sys::frame::FrameMemory) {
    let memory = memory(homes);
    let queues = namespace.run(|| tun::open(options, &memory)).unwrap().unwrap();
    for address in near_addresses() {
        let mac: Vec<String> = queues[0].tap().mac().iter().map(|b| format!("{b:02x}")).collect();
        let (mac, name) = (mac.join(":"), &options.interface);
        namespace.ip(&format!("neigh replace {address} lladdr {mac} dev {name} nud permanent")).unwrap();
    }
    (queues, memory)
}

#[test]
fn datagrams_of_both_families_come_back_on_the_queue_that_toeplitz_says() {
    if skip() {
        return;
    }
    let far = Namespace::new(&format!("fl-tap-{}", std::process::id())).unwrap();
    for segmentation in [false, true] {
        let mut options = TapOptions::new("tap0", 4);
        options.steering = Some(SteeringRules {
            key: MICROSOFT_KEY.to_vec(),
            table: (0..128).map(|slot| slot % 4).collect(),
            udp_ports: true,
        });
        options.segmentation = segmentation;
        options.addresses = vec![(IpAddr::from([10, 11, 2, 1]), 24)];
        let (queues, memory) = open_in(&far, &options, 4);
        far.ip("addr add fd00:11:2::1/64 dev tap0 nodad").unwrap();
        assert!(queues[0].tap().steering().is_some());
        check(&far, queues, &memory);
        // With its last descriptor: another test may just be starting a program that has a copy.
        let deadline = Instant::now() + Duration::from_secs(5);
        while far.run(|| Interface::find("tap0")).unwrap().is_ok() {
            assert!(Instant::now() < deadline, "an interface we made goes with us");
        }
    }
}

#[test]
fn an_interface_of_one_queue_serves_one_and_says_so_to_more() {
    if skip() {
        return;
    }
    let far = Namespace::new(&format!("fl-tap1-{}", std::process::id())).unwrap();
    far.ip("tuntap add one0 mode tap vnet_hdr").unwrap();
    far.ip("link add veth7 type veth").unwrap();
    let memory = memory(1);
    let open = |name: &str, queues| far.run(|| tun::open(&TapOptions::new(name, queues), &memory)).unwrap();
    let error = open("one0", 2).unwrap_err();
    assert!(error.to_string().contains("multi_queue"), "{error}");
    let queue = open("one0", 1).unwrap();
    let error = open("one0", 1).unwrap_err();
    assert!(matches!(error, Error::AddressBusy { .. }), "{error}");
    drop(queue);
    assert!(matches!(open("veth7", 1).unwrap_err(), Error::Unsupported { .. }));
    assert!(matches!(open("one0", 0).unwrap_err(), Error::Invalid(_)));
}
