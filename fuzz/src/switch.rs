//! The VLAN switch: frames and commands, as operations, against the model that its own tests use.
//!
//! What must hold: words are a whole configuration, which the file that it is written as gives back, or one line; a frame leaves by exactly the
//! ports that the model says and as it says, also between two changes of the configuration; in the end every frame is back in the pool.
//!
//! A configuration with something that the model does not know (static entries, snooping, mirrors, limits) is taken by a switch of its own, which
//! must not panic, send a frame back, or by a port twice (but to a port that watches).

#[path = "../../crates/switch/tests/switch/common/model.rs"]
mod model;
#[path = "../../crates/switch/tests/switch/common/sent.rs"]
mod sent;

use std::time::Duration;

use flowlane_stack::time::Time;
use flowlane_switch::config::{Flags, PortConfig, file};
use flowlane_switch::{Change, Config, Output, PortId, Seed, Switch};
use flowlane_sys::frame::{Frame, FrameMemory, MemoryConfig, Pool};

use crate::bytes::Bytes;
use model::{Model, PORTS};

const FRAMES: usize = 64;
/// Words that commands are made of: one byte of the input each.
const WORDS: &str = "config vlan_mode default port dot1q qinq learning independent shared reserved drop pass snooping querier query_interval igmp mld on off probe block moves \
    vlangroup members none empty all vlan p0 p1 p2 p3 p4 0 1 2 3 4 10 20 30 4094 4095 10.0.0.1 0t 1t 0,1 0,1,2,3,4 0t,1t,2t,3t,4t p0,p1t,p2 1,3t pvid mtu \
    addresses storm unknown broadcast multicast priority priorities 0,1,2,3,4,5,6,7 7,6,5,4,3,2,1,0 addtag striptag doubletag droptagged \
    dropuntagged ingress firstlock -addtag -striptag -doubletag -droptagged -dropuntagged -ingress -firstlock fdb flush static \
    02:00:00:00:00:01 02:00:00:00:00:02 mirror from to 68 100 1500 9216 100000";
const VIDS: [u16; 8] = [0, 1, 10, 20, 30, 4094, 4095, 2];

thread_local! {
    /// One pool for all runs of a thread.
    static POOL: Pool = {
        let config =
            MemoryConfig { frames_per_home: FRAMES, homes: 1, lock: false, huge_pages: false, ..Default::default() };
        FrameMemory::new(&config).map(|m| m.attach(0).expect("a home of its own")).expect("memory")
    };
    static DICTIONARY: Vec<&'static str> = WORDS.split_whitespace().collect();
}

/// The number of a word, for seeds.
#[must_use]
pub fn word(word: &str) -> Option<u8> {
    DICTIONARY.with(|all| all.iter().position(|one| *one == word)).and_then(|at| u8::try_from(at).ok())
}

/// The configuration that every input begins with.
#[must_use]
pub fn plain() -> Config {
    let mut config = Config::new((0..PORTS).map(|n| PortConfig::new(&format!("p{n}"))).collect());
    // A table that costs little to make and is never full, and no limit of moves, which is one of time.
    (config.addresses, config.moves, config.probe) = (64, 1_000_000, 0);
    config
}

/// Whether the model knows all of it.
fn is_simple(config: &Config) -> bool {
    let base = plain();
    let simple = |port: &PortConfig| {
        port.addresses.is_none()
            && port.storm == PortConfig::new("x").storm
            && !port.flags.has(Flags::FIRSTLOCK)
    };
    config.statics.is_empty()
        && !config.snooping
        && config.mirror.is_none()
        && config.moves == base.moves
        && config.probe == 0
        && config.ports.iter().all(simple)
}

/// A switch, and what it has sent.
struct Bench {
    switch: Switch,
    output: Output,
    now: Time,
}

impl Bench {
    fn new(config: Config) -> Self {
        let now = Time::from_secs(1000);
        let mut switch = Switch::new(config, Seed([1, 2, 3, 4]), 1, now).expect("it was checked");
        (0..PORTS).filter_map(PortId::new).for_each(|port| switch.set_link(port, true));
        Self { switch, output: Output::new(PORTS, FRAMES), now }
    }

    fn send(&mut self, from: usize, frame: Frame) -> Vec<(usize, Vec<u8>)> {
        let port = PortId::new(from).expect("one of a few");
        self.now += Duration::from_micros(10);
        self.switch.forward(port, &mut vec![frame], self.now, &mut self.output);
        sent::take(&mut self.output)
    }
}

/// The operations of an input.
pub fn run(input: &[u8]) {
    POOL.with(|pool| {
        let free = pool.free();
        operations(&mut Bytes(input), pool);
        assert_eq!(pool.free(), free, "every frame is back");
    });
}

fn operations(input: &mut Bytes<'_>, pool: &Pool) {
    let mut bench = Bench::new(plain());
    let mut model = Model::default();
    while !input.is_empty() {
        match input.u8() % 4 {
            0 => command(input, &mut bench, &mut model, pool),
            _ => {
                let (from, bytes, beside) = frame(input);
                if bytes.is_empty() {
                    continue;
                }
                let expected = model.send(bench.switch.config(), from, &bytes);
                let sent = bench.send(from, made(pool, &bytes, beside));
                assert_eq!(sent, expected, "{:?} on {from}: {bytes:02x?}", bench.switch.config());
            }
        }
    }
}

fn command(input: &mut Bytes<'_>, bench: &mut Bench, model: &mut Model, pool: &Pool) {
    let count = usize::from(input.u8());
    let words = if count >= 240 {
        String::from_utf8_lossy(input.take(count - 200)).into_owned()
    } else {
        let words = input.take(count % 24);
        DICTIONARY
            .with(|all| words.iter().map(|w| all[usize::from(*w) % all.len()]).collect::<Vec<_>>().join(" "))
    };
    let before = bench.switch.config().clone();
    let change = match Change::parse(&before, &words) {
        Ok(change) => change,
        Err(e) => {
            assert!(!e.0.is_empty() && !e.0.contains(char::is_control), "{words:?}: {e}");
            return;
        }
    };
    change.config.check().expect("what was read has been checked");
    assert_eq!(file::read(&file::write(&change.config)).as_ref(), Ok(&change.config), "{words:?}");
    if !is_simple(&change.config) {
        strange(change, input, pool);
        return;
    }
    model.changed(&before, &change.config);
    for flush in &change.flush {
        model.flush(&change.config, *flush);
    }
    bench.switch.change(change, bench.now).expect("it has been checked");
}

/// Some frames through a switch of its own.
fn strange(change: Change, input: &mut Bytes<'_>, pool: &Pool) {
    let watches = change.config.mirror.map(|mirror| mirror.to.index());
    let mut bench = Bench::new(change.config);
    for _ in 0..4 {
        let (from, bytes, beside) = frame(input);
        if bytes.is_empty() {
            continue;
        }
        let sent = bench.send(from, made(pool, &bytes, beside));
        let mut ports: Vec<_> =
            sent.iter().map(|(port, _)| *port).filter(|port| Some(*port) != watches).collect();
        assert!(!ports.contains(&from), "back by the port on which it came");
        ports.dedup();
        assert!(ports.len() + 1 >= sent.len(), "twice by one port: {sent:?}");
        bench.now += Duration::from_millis(u64::from(input.u8()) * 100);
        bench.switch.tick(bench.now);
        bench.switch.query(bench.now, pool, &mut bench.output);
        sent::take(&mut bench.output);
    }
}

/// Port, bytes, and whether a tag is beside them.
fn frame(input: &mut Bytes<'_>) -> (usize, Vec<u8>, bool) {
    let (from, kind) = (usize::from(input.u8()) % PORTS, input.u8());
    if kind >= 0xf0 {
        let n = usize::from(input.u8());
        return (from, input.take(n).to_vec(), kind & 1 == 1);
    }
    let station = |n: u8| [2, 0, 0, 0, 0, n % 8];
    let dst = match input.u8() {
        n @ 0..160 => station(n),
        n @ 160..192 => [1, 0x80, 0xc2, 0, 0, n - 160],
        192..224 => [1, 0, 0x5e, 1, 2, 3],
        _ => [0xff; 6],
    };
    let mut bytes = [dst, station(input.u8())].concat();
    for _ in 0..kind % 3 {
        let (vid, upper) = (VIDS[usize::from(input.u8()) % 8], input.u8());
        let tpid: u16 = if upper & 8 == 0 { 0x8100 } else { 0x88a8 };
        bytes.extend(tpid.to_be_bytes());
        bytes.extend((u16::from(upper >> 4) << 12 | vid).to_be_bytes());
    }
    bytes.extend([8, 0]);
    let payload = usize::from(input.u8());
    bytes.resize(bytes.len() + if payload >= 250 { payload * 6 } else { payload }, 7);
    (from, bytes, kind & 16 != 0)
}

/// These bytes in a frame; a tag beside them, if they have one and that is wanted.
fn made(pool: &Pool, bytes: &[u8], beside: bool) -> Frame {
    let beside = beside && bytes.len() >= 18 && bytes[12..14] == [0x81, 0];
    let mut frame = pool.alloc().expect("all frames are back");
    if beside {
        assert!(frame.extend_from_slice(&bytes[..12]) && frame.extend_from_slice(&bytes[16..]));
        frame.meta_mut().vlan = Some(u16::from_be_bytes([bytes[14], bytes[15]]));
    } else {
        assert!(frame.extend_from_slice(bytes));
    }
    frame
}
