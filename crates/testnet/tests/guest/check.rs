//! `flowlane rss check` on a virtio card with 4 queues: nothing is reported while nothing is wrong, each injected fault is reported with its
//! cause, and beside a run of Flowlane on the card that run's counters are judged.
//!
//! The interrupt of queue i is on processor i. The peer sends datagrams of 64 flows in rounds to the guest's kernel, each round after the
//! answers to the last one. Nobody listens there, except where threads are judged, because a slow guest does not run all threads of a service
//! during a check. So most answers are ICMP's.
//!
//! A check that saw too few packets, or had ended before its fault was injected, is made again and takes longer.

use crate::alignment;
use crate::guest::Guest;
use crate::peer;
use serde_json::Value;
use std::io::ErrorKind;
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

const FLOWS: usize = 64;
const V4: &str = "10.9.1.3:7";
const V6: &str = "[fd00:9:1::3]:7";
/// Of a run of ours over AF_XDP.
const OURS: &str = "10.9.1.2:7";
/// Samples that a check needs, and the seconds of the last one that is made.
const ENOUGH: u64 = 100;
const LONGEST: u32 = 8;
/// For an answer. Some packets are lost when queues or addresses change.
const PATIENCE: Duration = Duration::from_secs(1);

/// Datagrams to one address until this is dropped.
struct Traffic {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Traffic {
    fn to(address: &str) -> Self {
        let to: SocketAddr = address.parse().unwrap();
        let sockets: Vec<UdpSocket> = (0..FLOWS).map(|_| peer::connected(to)).collect();
        sockets.iter().for_each(|socket| socket.set_read_timeout(Some(PATIENCE)).unwrap());
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        let rounds = move || {
            let mut answer = [0; 64];
            while !stopped.load(Ordering::Relaxed) {
                for socket in &sockets {
                    // The first call may return the error of an earlier datagram.
                    let _ = socket.send(&[7; 64]).or_else(|_| socket.send(&[7; 64]));
                }
                // A flood would fill the rings of a slow guest, which QEMU then leaves full: at most a round at a time is not answered.
                let unanswered = |e: std::io::Error| e.kind() == ErrorKind::WouldBlock;
                for socket in &sockets {
                    if socket.recv(&mut answer).is_err_and(unanswered) {
                        break;
                    }
                }
            }
        };
        Self { stop, thread: Some(std::thread::spawn(rounds)) }
    }
}

impl Drop for Traffic {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

/// What one check reported.
struct Report {
    code: i32,
    json: Value,
}

impl Report {
    fn of(code: i32, said: &str) -> Self {
        let line =
            said.lines().find(|line| line.starts_with('{')).unwrap_or_else(|| panic!("{code}: {said}"));
        Self { code, json: serde_json::from_str(line).unwrap() }
    }

    fn number(&self, path: &str) -> u64 {
        self.json.pointer(path).and_then(Value::as_u64).unwrap_or_else(|| panic!("{path}: {}", self.json))
    }

    fn codes(&self) -> Vec<&str> {
        let causes = self.json["causes"].as_array().unwrap();
        causes.iter().map(|cause| cause["code"].as_str().unwrap()).collect()
    }

    /// Nothing is off, and the queue and processor of nearly everything was judged.
    fn is_clean(&self, what: &str) {
        assert_eq!((self.code, self.codes()), (0, vec![]), "{what}: {}", self.json);
        let sampled = self.number("/sampled");
        assert_eq!(self.number("/aligned"), sampled, "{what}: {}", self.json);
        for step in ["queue", "cpu"] {
            let judged = self.number(&format!("/judged/{step}"));
            assert!(judged * 20 >= sampled * 19, "{what}: {step}: {}", self.json);
        }
    }

    /// This cause is named and no other; its description has these words.
    fn names(&self, what: &str, cause: &str, words: &str) {
        assert_eq!((self.code, self.codes()), (1, vec![cause]), "{what}: {}", self.json);
        self.says(what, words);
    }

    /// The first cause is this one; its description has these words.
    fn names_first(&self, what: &str, cause: &str, words: &str) {
        assert_eq!((self.code, self.codes().first()), (1, Some(&cause)), "{what}: {}", self.json);
        self.says(what, words);
    }

    fn says(&self, what: &str, words: &str) {
        let said = self.json["causes"][0]["what"].as_str().unwrap();
        assert!(said.contains(words), "{what}: {words}: {}", self.json);
        println!("{what}: {}: {said}", self.json["causes"][0]["code"]);
    }
}

/// A check that saw enough, with these further options.
fn check_with(guest: &mut Guest, more: &str, enough: impl Fn(&Report) -> bool) -> Report {
    let mut last = Value::Null;
    for seconds in 1..=LONGEST {
        let done = guest.run(&format!("flowlane rss check virtio --json --for {seconds}s {more}"));
        let report = Report::of(done.code, &done.said);
        if enough(&report) {
            return report;
        }
        last = report.json;
    }
    panic!("too few packets came: {last}");
}

fn check(guest: &mut Guest) -> Report {
    check_with(guest, "", |report| report.number("/sampled") >= ENOUGH)
}

/// A check of at least so many seconds during which `fault` is injected. `undo` comes before another try.
fn check_of(least: u32, enough: u64, guest: &mut Guest, fault: &str, undo: &str) -> Report {
    // The check samples by a packet socket, so this file has another line for as long.
    let samples = "[ $(wc -l </proc/net/packet) -gt $n ]";
    for seconds in least..=LONGEST {
        let done = guest.run(&format!(
            "n=$(wc -l </proc/net/packet); flowlane rss check virtio --json --for {seconds}s >/run/check 2>&1 & check=$!; \
             for i in $(seq 500); do ! {samples} || break; usleep 10000; done; \
             {fault}; {samples} && echo in time; wait $check; code=$?; cat /run/check; (exit $code)"
        ));
        let report = Report::of(done.code, &done.said);
        if done.said.contains("in time") && report.number("/sampled") >= enough {
            return report;
        }
        guest.must(undo);
    }
    panic!("{fault}: no check lasted until it was injected");
}

fn check_while(guest: &mut Guest, fault: &str, undo: &str) -> Report {
    check_of(1, ENOUGH, guest, fault, undo)
}

/// Sets queue i's interrupt, RPS and XPS to processor i, nothing and queue i.
const AS_IT_SHOULD: &str = "for q in 0 1 2 3; do irq=$(sed -n \"s/ *\\([0-9]*\\):.*-input.$q\\$/\\1/p\" /proc/interrupts); \
     echo $q >/proc/irq/$irq/smp_affinity_list; echo 0 >/sys/class/net/virtio/queues/rx-$q/rps_cpus; \
     printf %x $((1 << q)) >/sys/class/net/virtio/queues/tx-$q/xps_cpus; done";
const KEY: &str = "01:02:03:04:05:06:07:08:09:0a:0b:0c:0d:0e:0f:10:11:12:13:14:15:16:17:18:19:1a:1b:1c:1d:1e:1f:20:21:22:23:24:25:26:27:28";

/// The card with four queues, each at its processor, and the guest's kernel with addresses on it.
fn tidy(guest: &mut Guest) {
    alignment::tidy(guest);
    guest.must("ethtool -N virtio rx-flow-hash udp4 sdfn; ethtool -K virtio rxhash off");
    guest.must("echo 0 >/proc/sys/net/ipv6/conf/virtio/disable_ipv6; echo 0 >/proc/sys/net/ipv6/conf/virtio/accept_dad");
    guest.must("ip addr replace 10.9.1.3/24 dev virtio; ip addr replace fd00:9:1::3/64 dev virtio nodad");
    guest.must("echo 0 >/proc/sys/net/ipv4/icmp_ratelimit; echo 0 >/proc/sys/net/ipv6/icmp/ratelimit; echo 100000 >/proc/sys/net/ipv4/icmp_msgs_per_sec; echo 1000 >/proc/sys/net/ipv4/icmp_msgs_burst");
    guest.must(AS_IT_SHOULD);
}

/// As other cases expect the guest.
fn leave(guest: &mut Guest) {
    guest.must("echo 1000 >/proc/sys/net/ipv4/icmp_ratelimit; echo 1000 >/proc/sys/net/ipv6/icmp/ratelimit; echo 1000 >/proc/sys/net/ipv4/icmp_msgs_per_sec; echo 50 >/proc/sys/net/ipv4/icmp_msgs_burst");
    guest.run(
        "finish kernel KILL; ip addr flush dev virtio; echo 1 >/proc/sys/net/ipv6/conf/virtio/disable_ipv6",
    );
    alignment::tidy(guest);
    guest.must(AS_IT_SHOULD);
}

/// A rule file with the card's key, or another; UDP hashed with ports or not; and a table of these queues again and again.
fn rule(guest: &mut Guest, key: Option<&str>, ports: bool, queues: &str) {
    let shown = guest.must("ethtool -x virtio | sed -n '/hash key/{n;p}'");
    let key = key.unwrap_or(shown.trim()).replace(':', "");
    let queues = vec![queues; 128 / queues.split(',').count()].join(",");
    guest.must(&format!(
        "echo '{{\"version\":1,\"what\":\"for a test\",\"learned-from\":\"a test\",\"findings\":[],\"hashes\":true,\"kinds\":[\"ipv4\",\
         \"tcp-ipv4\",\"udp-ipv4\",\"ipv6\",\"tcp-ipv6\",\"udp-ipv6\"],\"arrangement\":\"plain\",\"key\":\"{key}\",\
         \"udp-ports\":{ports},\"maps\":[],\"queues\":[{queues}]}}' >/run/rule"
    ));
}

#[test]
fn nothing_is_reported_where_nothing_is_wrong_and_each_fault_with_its_cause() {
    let Some(mut guest) = Guest::get() else { return };
    let guest = &mut *guest;
    tidy(guest);
    let traffic = Traffic::to(V4);
    check(guest).is_clean("IPv4");
    guest.must("ethtool -K virtio rxhash on");
    check(guest).is_clean("with the card's hash");
    interrupts_and_the_kernel(guest);
    another_card_than_told(guest);
    settings_that_change(guest);
    queues_that_change(guest);
    drop(traffic);
    let _traffic = Traffic::to(V6);
    check(guest).is_clean("IPv6");
    leave(guest);
}

fn interrupts_and_the_kernel(guest: &mut Guest) {
    let irq = |queue: u32| {
        format!(
            "/proc/irq/$(sed -n 's/ *\\([0-9]*\\):.*-input.{queue}$/\\1/p' /proc/interrupts)/smp_affinity_list"
        )
    };
    let queues = "/sys/class/net/virtio/queues";
    guest.must(&format!("echo 2 >{}", irq(3)));
    check(guest).names("two interrupts on one processor", "interrupt", "queues 2 and 3");
    guest.must(AS_IT_SHOULD);
    let moved = check_while(guest, &format!("echo 0 >{}", irq(1)), AS_IT_SHOULD);
    moved.names("an interrupt is moved", "interrupt", "was moved while it was checked, from CPU 1 to CPU 0");
    guest.must(AS_IT_SHOULD);
    guest.must(&format!("echo 8 >{queues}/rx-1/rps_cpus"));
    check(guest).names("RPS", "rps", "RPS");
    guest.must(AS_IT_SHOULD);
    guest.must(&format!("echo 0 >{queues}/tx-2/xps_cpus; echo c >{queues}/tx-3/xps_cpus"));
    check(guest).names("XPS against the table", "xps", "CPU 2");
    guest.must(AS_IT_SHOULD);
}

/// The card is not what the check was told of it by a file: another table, key, or fields.
fn another_card_than_told(guest: &mut Guest) {
    let with = |guest: &mut Guest| {
        check_with(guest, "--rss /run/rule", |report| report.number("/sampled") >= ENOUGH)
    };
    rule(guest, None, true, "0,1,2,3");
    with(guest).is_clean("a file that is right");
    guest.must("ethtool -X virtio weight 5 1 0 3");
    with(guest).names("another table", "table", "another queue");
    guest.must("ethtool -X virtio equal 4");
    rule(guest, Some(KEY), true, "0,1,2,3");
    with(guest).names("another key", "key", "the card hashes with another one");
    rule(guest, None, false, "0,1,2,3");
    with(guest).names("other fields", "fields", "udp4");
}

fn settings_that_change(guest: &mut Guest) {
    let undo = "ethtool -X virtio default && ethtool -N virtio rx-flow-hash udp4 sdfn";
    let faults = [
        ("ethtool -X virtio weight 5 1 0 3", "table"),
        (&*format!("ethtool -X virtio hkey {KEY}"), "key"),
        ("ethtool -N virtio rx-flow-hash udp4 sd", "fields"),
    ];
    for (fault, part) in faults {
        let report = check_while(guest, fault, undo);
        report.names(fault, "changed", &format!("the card's {part} changed"));
    }
    check(guest).is_clean("another table and key, and UDP on addresses alone");
    guest.must(undo);
}

/// This driver keeps the table when the number of queues changes, and forgets its RSS.
fn queues_that_change(guest: &mut Guest) {
    let (two, four) = ("ethtool -L virtio combined 2", "ethtool -L virtio combined 4");
    let undo = format!("{four} && ethtool -X virtio default; {AS_IT_SHOULD}");
    let changed = check_while(guest, two, &undo);
    changed.names_first("two queues meanwhile", "channels", "from 4 to 2");
    check(guest).names_first("two queues", "channels", "");
    guest.must(&format!("{four}; {AS_IT_SHOULD}"));
    check(guest).names("four queues again", "rss-off", "switches RSS off");
    guest.must(&undo);
    check(guest).is_clean("RSS is on again");
}

/// All packets come on one queue, so that there is a right processor for the only thread.
#[test]
fn a_thread_that_is_moved() {
    let Some(mut guest) = Guest::get() else { return };
    let guest = &mut *guest;
    tidy(guest);
    guest.must("ethtool -X virtio weight 0 0 1 0");
    guest.must("start kernel flowlane serve udp-echo --link kernel --port 7 --workers 1 --json");
    let bind = |cpu: u32| {
        format!(
            "for t in /proc/$(cat /run/kernel.pid)/task/*; do case $(cat $t/comm) in flowlane-[0-9]*) taskset -pc {cpu} ${{t##*/}};; esac; done"
        )
    };
    guest.must(&bind(2));
    let _traffic = Traffic::to(V4);
    let check = |guest: &mut Guest| check_with(guest, "", |report| report.number("/judged/threads") >= 20);
    check(guest).is_clean("the thread is where its packets are");
    guest.must(&bind(1));
    check(guest).names("a thread that was moved", "thread", "read on another processor");
    leave(guest);
}

/// Our own stack has the card by AF_XDP: no packet socket sees its frames, so its own counters are judged.
#[test]
fn beside_a_run_of_ours() {
    let Some(mut guest) = Guest::get() else { return };
    let guest = &mut *guest;
    alignment::tidy(guest);
    guest.must(AS_IT_SHOULD);
    let done =
        guest.start("serve udp-echo --link af-xdp:virtio --addr 10.9.1.2/24 --port 7 --json --control");
    assert_eq!(done.code, 0, "{}", done.said);
    let _traffic = Traffic::to(OURS);
    // A lane moves, and its slots of the table with it: that is no fault.
    let moved = "flowlane lanes move 0 1 && flowlane stat | grep 'slots moved'";
    for (what, seconds, meanwhile) in [("it runs", 1, "true"), ("a lane moves", 3, moved)] {
        let report = check_of(seconds, 0, guest, meanwhile, "flowlane lanes move 0 0; true");
        assert_eq!((report.code, report.codes()), (0, vec![]), "{what}: {}", report.json);
        assert!(report.number("/runs/0/received") > 0, "{what}: {}", report.json);
    }
    let report = check_of(1, 0, guest, "ethtool -X virtio weight 0 0 0 1", "true");
    report.names_first("somebody else sets the table", "changed", "table");
    assert_eq!(guest.finish().code, 0);
    leave(guest);
}
