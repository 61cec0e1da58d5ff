//! A switch with frames as bytes.

pub(crate) mod model;
pub(crate) mod sent;

use flowlane_stack::time::Time;
use flowlane_switch::{Config, Output, PortId, Seed, Switch, config::PortConfig};
use flowlane_sys::frame::{Frame, FrameMemory, MemoryConfig, Pool};

pub(crate) struct Bench {
    pub(crate) switch: Switch,
    pub(crate) pool: Pool,
    pub(crate) output: Output,
    pub(crate) now: Time,
}

pub(crate) fn port(n: usize) -> PortId {
    PortId::new(n).unwrap()
}

pub(crate) fn config(ports: usize, words: &str) -> Config {
    let plain = Config::new((0..ports).map(|n| PortConfig::new(&format!("p{n}"))).collect());
    flowlane_switch::Change::parse(&plain, words).unwrap().config
}

pub(crate) fn pool(frames: usize) -> Pool {
    let config =
        MemoryConfig { frames_per_home: frames, lock: false, huge_pages: false, ..MemoryConfig::default() };
    FrameMemory::new(&config).unwrap().attach(0).unwrap()
}

impl Bench {
    pub(crate) fn new(config: Config) -> Bench {
        let (ports, now) = (config.ports.len(), Time::from_secs(1000));
        let mut switch = Switch::new(config, Seed([5, 6, 7, 8]), 1, now).unwrap();
        (0..ports).for_each(|n| switch.set_link(port(n), true));
        Bench { switch, pool: pool(1024), output: Output::new(ports, 256), now }
    }

    pub(crate) fn words(ports: usize, words: &str) -> Bench {
        Bench::new(config(ports, words))
    }

    pub(crate) fn change(&mut self, words: &str) {
        let change = flowlane_switch::Change::parse(self.switch.config(), words).unwrap();
        self.switch.change(change, self.now).unwrap();
    }

    pub(crate) fn frame(&self, bytes: &[u8]) -> Frame {
        let mut rest = bytes;
        let mut frame: Option<Frame> = None;
        loop {
            let mut piece = self.pool.alloc().unwrap();
            if frame.is_some() {
                piece.reset(0);
            }
            let n = rest.len().min(piece.tailroom());
            assert!(piece.extend_from_slice(&rest[..n]));
            rest = &rest[n..];
            match frame.as_mut() {
                None => frame = Some(piece),
                Some(head) => head.append(piece),
            }
            if rest.is_empty() {
                return frame.unwrap();
            }
        }
    }

    /// Where a frame goes, and how it looks there.
    pub(crate) fn send(&mut self, from: usize, bytes: &[u8]) -> Vec<(usize, Vec<u8>)> {
        let frame = self.frame(bytes);
        self.forward(from, frame)
    }

    pub(crate) fn forward(&mut self, from: usize, frame: Frame) -> Vec<(usize, Vec<u8>)> {
        self.switch.forward(port(from), &mut vec![frame], self.now, &mut self.output);
        self.take()
    }

    pub(crate) fn take(&mut self) -> Vec<(usize, Vec<u8>)> {
        sent::take(&mut self.output)
    }
}

pub(crate) fn mac(n: u8) -> [u8; 6] {
    [0x02, 0, 0, 0, 0, n]
}

pub(crate) const ALL: [u8; 6] = [0xff; 6];

/// A frame with these tags (TPID and TCI), the outermost first.
pub(crate) fn frame(dst: [u8; 6], src: [u8; 6], tags: &[(u16, u16)], payload: usize) -> Vec<u8> {
    let mut bytes = [dst, src].concat();
    for (tpid, tci) in tags {
        bytes.extend_from_slice(&tpid.to_be_bytes());
        bytes.extend_from_slice(&tci.to_be_bytes());
    }
    bytes.extend_from_slice(&[0x08, 0x00]);
    bytes.extend((0..payload).map(|n| n as u8));
    bytes
}
