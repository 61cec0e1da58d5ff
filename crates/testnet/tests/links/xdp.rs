//! Kernel peers against AF_XDP queues.

use crate::common::*;
use flowlane_sys::bpf::XdpMode;
use flowlane_sys::error::Error;
use flowlane_sys::frame::{Checksum, FrameMemory};
use flowlane_sys::netdev::Interface;
use flowlane_sys::queue::Queue;
use flowlane_sys::xdp::{self, XdpOptions};
use flowlane_testnet::{Card, CardConfig, Hook};
use std::io::{BufRead, BufReader};
use std::net::UdpSocket;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

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
fn a_card_steered_by_a_filter_is_one_steered_by_tcx() {
    if skip() {
        return;
    }
    // Before Linux 6.6 there is no tcx, and `Hook::Best` is this one.
    let card = match Card::new(&CardConfig { hook: Hook::Filter, ..CardConfig::for_test("xcls", 2) }) {
        Err(why) if why.to_string().contains("attaching") => {
            return flowlane_testnet::skipped(format_args!(
                "skipped, because this kernel has no sch_ingress or cls_bpf: {why}"
            ));
        }
        other => other.unwrap(),
    };
    reflect_and_check(&card, 2, |memory| {
        xdp::open(&XdpOptions::new(card.near_interface(), 2, claims()), memory).unwrap()
    });
}

#[test]
fn a_packet_that_is_always_refused_is_lost_and_counted() {
    if skip() {
        return;
    }
    let card = Card::new(&CardConfig::for_test("xrefused", 1)).unwrap();
    let memory = memory(1);
    let options = XdpOptions::new(card.far_interface(), 1, Vec::new());
    let far = card.far().run(|| xdp::open(&options, &memory).unwrap().remove(0)).unwrap();
    crate::packet::refused_packets_are_in_nobodys_way(&card, far, &memory);
}

#[test]
fn checksums_that_the_sender_left_to_hardware_are_known() {
    if skip() {
        return;
    }
    let card = Card::new(&CardConfig::for_test("xsum", 1)).unwrap();
    for address in near_addresses() {
        card.add_neighbour(address).unwrap();
    }
    let leave = |left| {
        let far = || Interface::find("far0").unwrap().set_transmit_checksum(left).unwrap();
        card.far().run(far).unwrap();
    };
    let memory = memory(1);
    let pool = memory.attach(0).unwrap();
    let there = card.far().run(|| UdpSocket::bind("[::]:0").unwrap()).unwrap();
    for mode in [XdpMode::Native, XdpMode::Generic] {
        let options = XdpOptions { mode, ..XdpOptions::new("near0", 1, claims()) };
        let mut queue = card.in_near(|| xdp::open(&options, &memory)).unwrap().unwrap().remove(0);
        let mut frames = Vec::new();
        queue.receive(&pool, &mut frames, 1); // gives it frames: the pool was in our hands when it was opened
        for left in [true, false] {
            leave(left);
            for target in ["[::ffff:10.11.2.2]:7", "[fd00:11:2::2]:7"] {
                there.send_to(b"hello", target).unwrap();
                let deadline = Instant::now() + Duration::from_secs(5);
                while queue.receive(&pool, &mut frames, 1) == 0 && Instant::now() < deadline {}
                let wanted = if left { Checksum::Partial } else { Checksum::InPacket };
                assert_eq!(frames.pop().unwrap().meta().checksum, wanted, "{mode:?} {target}");
            }
        }
        assert_eq!(queue.stats().rx_unfinished, 2);
    }
}

#[test]
fn no_more_frames_wait_than_is_said() {
    if skip() {
        return;
    }
    let card = Card::new(&CardConfig::for_test("xwait", 2)).unwrap();
    // Two queues at one home share; at two each has its own.
    for (homes, each) in [(1, 50), (2, 100)] {
        let options = XdpOptions { waiting: Some(100), ..XdpOptions::new("near0", 2, claims()) };
        let open = card.in_near(|| xdp::open(&options, &memory(homes)).unwrap()).unwrap();
        assert_eq!(open.iter().map(xdp::XdpQueue::held).collect::<Vec<_>>(), [each; 2]);
    }
}

#[test]
fn neither_a_start_that_fails_nor_an_end_leaves_a_program() {
    if skip() {
        return;
    }
    let card = Card::new(&CardConfig::for_test("xfail", 1)).unwrap();
    let programs = || {
        let near = card.near().unwrap().name().to_owned();
        let out = Command::new("ip").args(["-n", &near, "-d", "link", "show", "near0"]).output().unwrap();
        String::from_utf8(out.stdout).unwrap().matches("prog/xdp").count()
    };
    let options = XdpOptions { copy: xdp::CopyMode::ZeroCopy, ..XdpOptions::new("near0", 1, claims()) };
    card.in_near(|| xdp::open(&options, &memory(1))).unwrap().unwrap_err();
    assert_eq!(programs(), 0);
    let open =
        card.in_near(|| xdp::open(&XdpOptions::new("near0", 1, claims()), &memory(1))).unwrap().unwrap();
    assert_eq!(programs(), 1);
    drop(open);
    assert_eq!(programs(), 0);
}

#[test]
fn an_mtu_that_chains_cannot_carry_is_refused() {
    if skip() {
        return;
    }
    let card = Card::new(&CardConfig { mtu: 60_000, ..CardConfig::for_test("xmtu", 1) }).unwrap();
    let open = |memory: &FrameMemory| {
        card.in_near(|| xdp::open(&XdpOptions::new("near0", 1, claims()), memory)).unwrap()
    };
    let error = open(&memory(1)).unwrap_err().to_string();
    assert!(error.contains("mtu 32238") && error.contains("60000"), "{error}");
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
    assert!(matches!(&error, Error::AddressBusy { .. }), "{error}");
    let other = XdpOptions { claims: vec![("10.11.2.9".parse().unwrap(), 32)], ..good.clone() };
    let error = open(&other).unwrap_err();
    assert!(matches!(&error, Error::DeviceBusy { .. }), "{error}");
    assert!(error.to_string().contains("flowlane_claim"), "names the owner: {error}");
    drop(queues);
    drop(open(&good).unwrap()); // nothing is left behind
}

#[test]
fn what_is_not_claimed_stays_with_the_kernel() {
    if skip() {
        return;
    }
    let card = Card::new(&CardConfig::for_test("xpass", 2)).unwrap();
    let near = card.near().unwrap();
    near.ip("addr add 10.11.2.3/24 dev near0").unwrap();
    let memory = memory(2);
    let queues =
        card.in_near(|| xdp::open(&XdpOptions::new("near0", 2, claims()), &memory)).unwrap().unwrap();
    let here = near.run(|| UdpSocket::bind("10.11.2.3:9").unwrap()).unwrap();
    let there = card.far().run(|| UdpSocket::bind("10.11.2.1:0").unwrap()).unwrap();
    for socket in [&here, &there] {
        socket.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    }
    let mut buffer = [0; 16];
    there.send_to(b"ping", "10.11.2.3:9").unwrap(); // the question for its address goes to the kernel, too
    let (n, from) = here.recv_from(&mut buffer).unwrap();
    here.send_to(&buffer[..n], from).unwrap();
    assert_eq!(there.recv(&mut buffer).unwrap(), 4);
    let passed: u64 = (0..2).map(|q| queues[0].device().counters(q).passed).sum();
    assert!(passed >= 2, "{passed} packets passed");
    assert_eq!((0..2).map(|q| queues[0].device().counters(q).taken).sum::<u64>(), 0);
    // Claims change while packets flow.
    queues[0].device().claims().unwrap().add("10.11.2.3".parse().unwrap(), 32).unwrap();
    here.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
    there.send_to(b"ping", "10.11.2.3:9").unwrap();
    assert!(here.recv_from(&mut buffer).is_err(), "now it is ours");
    assert_eq!((0..2).map(|q| queues[0].device().counters(q).taken).sum::<u64>(), 1);
}

#[test]
fn packets_longer_than_a_frame_come_and_go_in_chains() {
    if skip() {
        return;
    }
    let card = Card::new(&CardConfig { mtu: 32_238, ..CardConfig::for_test("xbig", 1) }).unwrap();
    card.add_neighbour(near_addresses()[0]).unwrap();
    let memory = memory(1);
    let mut queue = match card.in_near(|| xdp::open(&XdpOptions::new("near0", 1, claims()), &memory)).unwrap()
    {
        Err(why) if why.to_string().contains("Linux 6.6") => {
            return flowlane_testnet::skipped(format_args!("skipped, because {why}"));
        }
        other => other.unwrap().remove(0),
    };
    let there = card.far().run(|| UdpSocket::bind("10.11.2.1:0").unwrap()).unwrap();
    there.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    let pool = memory.attach(0).unwrap();
    for size in [100, 1700, 1800, 5000, 8900, 20_000, 32_210] {
        let payload: Vec<u8> = (0..size).map(|i| (i * 7) as u8).collect();
        there.send_to(&payload, (near_addresses()[0], 7)).unwrap();
        let mut frames = Vec::new();
        let deadline = Instant::now() + Duration::from_secs(5);
        while frames.is_empty() && Instant::now() < deadline {
            queue.receive(&pool, &mut frames, 8);
        }
        assert_eq!(frames[0].chain_len(), size + 42);
        assert_eq!(frames[0].is_chained(), size + 42 > 2048 - 256);
        turn_round(frames[0].data_mut()).unwrap();
        assert_eq!(queue.transmit(&mut frames), 1);
        assert!(queue.flush());
        let mut buffer = vec![0; 40_000];
        let n = there.recv(&mut buffer).unwrap();
        assert_eq!(buffer[..n], payload);
    }
    drop(queue);
    assert_eq!(pool.free(), FRAMES);
}

/// Not a test by itself: the process that the next one kills.
#[test]
fn hold_until_killed() {
    let Ok(name) = std::env::var("FLOWLANE_TEST_HOLD") else { return };
    let memory = memory(1);
    let _queues = xdp::open(&XdpOptions::new(&name, 1, claims()), &memory).unwrap();
    println!("\nholding");
    std::io::stdin().lines().for_each(drop);
}

#[test]
fn a_killed_process_leaves_nothing_behind() {
    if skip() {
        return;
    }
    let card = Card::new(&CardConfig::for_test("xkill", 1)).unwrap();
    let mut child = Command::new("ip")
        .args(["netns", "exec", card.near().unwrap().name()])
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", "xdp::hold_until_killed", "--nocapture"])
        .env("FLOWLANE_TEST_HOLD", "near0")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert!(lines.map_while(Result::ok).any(|line| line == "holding"));
    let memory = memory(1);
    let open = || card.in_near(|| xdp::open(&XdpOptions::new("near0", 1, claims()), &memory)).unwrap();
    assert!(matches!(open().unwrap_err(), Error::AddressBusy { .. }));
    child.kill().unwrap();
    child.wait().unwrap();
    drop(open().unwrap());
}

#[test]
fn the_hash_of_the_card_comes_with_the_packet_where_the_driver_gives_it() {
    if skip() {
        return;
    }
    let card = Card::new(&CardConfig::for_test("xhash", 1)).unwrap();
    card.add_neighbour(near_addresses()[0]).unwrap();
    let memory = memory(1);
    let pool = memory.attach(0).unwrap();
    let there = card.far().run(|| UdpSocket::bind("10.11.2.1:0").unwrap()).unwrap();
    for mode in [XdpMode::Native, XdpMode::Generic] {
        let mut options = XdpOptions::new("near0", 1, claims());
        options.mode = mode;
        options.hash_type = Some(|_| 7);
        let mut queue = card.in_near(|| xdp::open(&options, &memory)).unwrap().unwrap().remove(0);
        assert_eq!(queue.device().mode(), mode);
        if mode == XdpMode::Native && !queue.device().delivers_hash() {
            flowlane_testnet::skipped("skipped, because this kernel's veth gives no hash (its part only)");
        }
        let mut frames = Vec::new();
        queue.receive(&pool, &mut frames, 1); // gives it frames: the pool was in our hands when it was opened
        there.send_to(b"hello", (near_addresses()[0], 7)).unwrap();
        let deadline = Instant::now() + Duration::from_secs(5);
        while queue.receive(&pool, &mut frames, 1) == 0 && Instant::now() < deadline {}
        let expected = turn_round(frames[0].data_mut()).unwrap();
        let meta = frames[0].meta();
        assert_eq!(frames[0].data().len(), 47);
        if queue.device().delivers_hash() {
            assert_eq!((meta.hash, meta.hash_type), (expected, 7));
        } else {
            assert_eq!((meta.hash, meta.hash_type), (0, 0));
        }
    }
}
