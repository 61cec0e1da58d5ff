//! One engine, its clock and its peer's notation.

pub(super) use super::super::*;
pub(super) use crate::packet::{Cx, IcmpErrorKind, IpInput, IpMeta, IpOutput, Offload};
pub(super) use crate::path_mtu::PathMtus;
pub(super) use crate::rng::Rng;
pub(super) use crate::time::Time;
use crate::wire::{
    AccEcnOption, FastOpenOption, SackBlock, SeqNum, Sum, TcpFlags, TcpHeader, TcpOptions, Timestamps, tcp,
};
pub(super) use core::net::{IpAddr, Ipv4Addr, SocketAddr};
pub(super) use core::time::Duration;
use flowlane_sys::frame::{FrameMemory, MemoryConfig, Pool};
use std::collections::VecDeque;

pub(super) const US: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1));
pub(super) const PEER: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 2));
pub(super) const OUR_PORT: u16 = 8080;
pub(super) const PEER_PORT: u16 = 40_000;
/// The peer's initial sequence number: its stream wraps.
pub(super) const PEER_ISS: u32 = u32::MAX - 2000;

pub(super) fn pool_of(frames: usize) -> Pool {
    let config =
        MemoryConfig { frames_per_home: frames, huge_pages: false, lock: false, ..MemoryConfig::default() };
    FrameMemory::new(&config).unwrap().attach(0).unwrap()
}

/// Byte `n` of a stream.
pub(super) fn byte(n: u64) -> u8 {
    let x = (n / 8).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (x >> (8 * (n % 8))) as u8 ^ n as u8
}

pub(super) struct Scene {
    pub(super) tcp: Tcp,
    pub(super) pool: Pool,
    pub(super) rng: Rng,
    pub(super) paths: PathMtus,
    pub(super) now: Time,
    pub(super) offload: Offload,
    pub(super) iss: Option<u32>,
    pub(super) heard: VecDeque<(u64, String, IpOutput)>,
    pub(super) listener: Option<ListenerId>,
    pub(super) id: Option<ConnId>,
    pub(super) written: u64,
    pub(super) read: u64,
    pub(super) peer_port: u16,
    pub(super) our_ip: IpAddr,
    pub(super) our_port: u16,
    pub(super) ecn: u8,
    pub(super) flows: FlowSums,
}

/// Active timeout of scenes.
pub(super) const ACTIVE: Duration = Duration::from_millis(700);

/// The records of a lane's flows, which with what stands must sum up to its counters.
pub(super) struct FlowSums {
    pub(super) records: Vec<FlowRecord>,
    /// Records of flows that went on. They are added to that of their end, which then says what it would without them.
    pub(super) parts: Vec<FlowRecord>,
    /// Whether records are taken and compared.
    pub(super) takes: bool,
    /// Bytes and segments sent again, of all records.
    sums: (u64, u64),
}

impl FlowSums {
    /// For a lane that has done nothing yet.
    pub(super) fn of(tcp: &mut Tcp) -> Self {
        tcp.watch_flows(Time::ZERO, 1 << 16, Some(ACTIVE));
        Self { records: Vec::new(), parts: Vec::new(), takes: true, sums: (0, 0) }
    }

    pub(super) fn compare(&mut self, tcp: &mut Tcp) {
        if !self.takes {
            return;
        }
        while let Some(record) = tcp.poll_flow() {
            self.sums.0 += record.sent.bytes;
            self.sums.1 += u64::from(record.retransmitted);
            if record.end == FlowEnd::ActiveTimeout {
                self.parts.push(record);
            } else {
                let whole = self.whole(record);
                self.records.push(whole);
            }
        }
        let ended = self.records.len() as u64;
        let stats = tcp.stats();
        assert_eq!((ended, stats.flow_records, stats.flow_records_lost), (stats.closed, stats.closed, 0));
        if tcp.connections() > 300 {
            // A look at each of them at each step would take long.
            return;
        }
        let (standing, bytes, again) = tcp.flows_that_stand_for_test();
        let (sums, stats) = ((self.sums.0 + bytes, self.sums.1 + again), tcp.stats());
        assert_eq!(sums, (stats.data_bytes_sent, stats.packets_retransmitted), "flows and counters");
        assert!(standing <= tcp.connections() as u64);
    }

    /// The last record of a flow, and those before together.
    pub(super) fn whole(&mut self, mut last: FlowRecord) -> FlowRecord {
        let ends = |record: &FlowRecord| (record.local, record.remote);
        let (parts, others) =
            std::mem::take(&mut self.parts).into_iter().partition(|part| ends(part) == ends(&last));
        let parts: Vec<FlowRecord> = parts;
        self.parts = others;
        for part in parts.iter().rev() {
            assert!(part.ended <= last.began, "one after the other");
            last.began = part.began;
            last.retransmitted += part.retransmitted;
            for (all, part) in [(&mut last.sent, part.sent), (&mut last.received, part.received)] {
                all.bytes += part.bytes;
                all.segments += part.segments;
                all.octets += part.octets;
            }
        }
        last
    }
}

impl Scene {
    pub(super) fn new(config: TcpConfig) -> Self {
        let mut tcp = Tcp::new(config, [1, 2, 3]);
        Scene {
            flows: FlowSums::of(&mut tcp),
            tcp,
            pool: pool_of(4096),
            rng: Rng::new(1),
            paths: PathMtus::new(1),
            now: Time::from_secs(100),
            offload: Offload::default(),
            iss: None,
            heard: VecDeque::new(),
            listener: None,
            id: None,
            written: 0,
            read: 0,
            peer_port: PEER_PORT,
            our_ip: US,
            our_port: OUR_PORT,
            ecn: 0,
        }
    }

    pub(super) fn with<R>(&mut self, what: impl FnOnce(&mut Tcp, &mut Cx<'_>) -> R) -> R {
        // As the lane does when time passes.
        self.paths.expire(self.now);
        let Self { now, pool: frames, rng, paths, offload, .. } = self;
        let mut cx = Cx { now: *now, frames, rng, paths, offload: *offload };
        let result = what(&mut self.tcp, &mut cx);
        assert_eq!(self.tcp.states(), self.tcp.counted_states_for_test());
        self.flows.compare(&mut self.tcp);
        result
    }

    pub(super) fn millis(&self) -> u64 {
        self.now.as_millis() - 100_000
    }

    /// Everything the engine wants to send now.
    pub(super) fn drain(&mut self) {
        while let Some(out) = self.with(super::super::Tcp::poll_output) {
            let text = self.show(&out);
            self.heard.push_back((self.millis(), text, out));
        }
    }

    /// Lets time pass until `ms`.
    pub(super) fn until(&mut self, ms: u64) {
        let end = Time::from_millis(100_000 + ms);
        self.drain();
        while let Some(next) = self.tcp.next_deadline().filter(|next| *next <= end) {
            self.now = self.now.max(next);
            self.with(super::super::Tcp::on_timer);
            self.drain();
        }
        assert!(self.now <= end, "the dialogue goes back in time");
        self.now = end;
    }

    fn show(&mut self, out: &IpOutput) -> String {
        let bytes: Vec<u8> = out.frame.chunks().collect::<Vec<_>>().concat();
        let (header, data) = TcpHeader::parse(&bytes).unwrap();
        let (IpAddr::V4(src), IpAddr::V4(dst)) = (out.src, out.dst) else { panic!() };
        let sum = Sum::pseudo_v4(src, dst, TCP, bytes.len() as u16);
        if !self.offload.checksum {
            assert!(tcp::intact(sum, &bytes), "checksum");
        }
        let options = TcpOptions::parse(&bytes[20..data.start]);
        let f = header.flags;
        let mut flags = String::new();
        for (flag, c) in [
            (TcpFlags::FIN, 'F'),
            (TcpFlags::SYN, 'S'),
            (TcpFlags::RST, 'R'),
            (TcpFlags::PSH, 'P'),
            (TcpFlags::ACK, '.'),
            (TcpFlags::ECE, 'E'),
            (TcpFlags::CWR, 'W'),
            (TcpFlags::AE, 'A'),
        ] {
            if f.contains(flag) {
                flags.push(c);
            }
        }
        if f.contains(TcpFlags::SYN) {
            self.iss = Some(header.seq.0);
        }
        let iss = if f.contains(TcpFlags::RST) && !f.contains(TcpFlags::ACK) && self.iss.is_none() {
            0
        } else {
            self.iss.unwrap_or(0)
        };
        let seq = header.seq.0.wrapping_sub(iss);
        let len = data.len() as u32;
        let first = seq.wrapping_add(u32::from(f.contains(TcpFlags::SYN)));
        for (n, b) in bytes[data].iter().enumerate() {
            assert_eq!(*b, byte(u64::from(first) - 1 + n as u64), "payload at {seq}+{n}");
        }
        let mut text = format!("{flags} {seq}:{}({len})", seq.wrapping_add(len));
        if f.contains(TcpFlags::ACK) {
            text += &format!(" ack {}", header.ack.0.wrapping_sub(PEER_ISS));
        }
        text += &format!(" win {}", header.window);
        let mut list = Vec::new();
        if let Some(mss) = options.mss {
            list.push(format!("mss {mss}"));
        }
        if options.sack_permitted {
            list.push("sackOK".into());
        }
        if let Some(ts) = options.timestamps {
            list.push(format!("TS {} {}", ts.value, ts.echo));
        }
        if let Some(shift) = options.window_scale {
            list.push(format!("wscale {shift}"));
        }
        if let Some(option) = options.fast_open {
            list.push(fast_open_text(&option));
        }
        if let Some(option) = options.accecn {
            list.push(format!("{option:?}"));
        }
        for block in options.sack.as_slice() {
            let rel = |seq: SeqNum| seq.0.wrapping_sub(PEER_ISS);
            list.push(format!("sack {}:{}", rel(block.left), rel(block.right)));
        }
        text += &format!(" <{}>", list.join(","));
        text
    }

    /// The peer speaks.
    pub(super) fn speak(&mut self, ms: u64, text: &str) {
        self.until(ms);
        let frame = self.frame(text);
        self.give(frame);
    }

    /// The peer says several things at once.
    pub(super) fn burst(&mut self, ms: u64, texts: &[&str]) {
        self.until(ms);
        for text in texts {
            let packet = IpInput { frame: self.frame(text), ip: self.meta() };
            self.with(|tcp, cx| tcp.input_in_burst(cx, packet));
        }
        self.with(super::super::Tcp::end_burst);
    }

    /// The packet that a line describes.
    pub(super) fn frame(&mut self, text: &str) -> flowlane_sys::frame::Frame {
        let (header, options, len) = self.parse(text);
        let mut frame = self.pool.alloc().expect("a frame");
        let room = frame.push_back(tcp::HEADER_LEN + options.len()).unwrap();
        header.emit(&options, room);
        let first = header.seq + u32::from(header.flags.contains(TcpFlags::SYN));
        let at = u64::from(first.0.wrapping_sub(PEER_ISS)).wrapping_sub(1);
        let payload: Vec<u8> = (0..u64::from(len)).map(|n| byte(at.wrapping_add(n))).collect();
        assert!(frame.extend_from_slice(&payload), "payload too long for a frame");
        let (IpAddr::V4(src), IpAddr::V4(dst)) = (PEER, self.our_ip) else { panic!() };
        let sum = Sum::pseudo_v4(src, dst, TCP, frame.len() as u16);
        tcp::fill_checksum(sum, frame.data_mut());
        (frame.meta_mut().hash, frame.meta_mut().hash_type) = (0xabcd, 2);
        frame
    }

    pub(super) fn give(&mut self, frame: flowlane_sys::frame::Frame) {
        let ip = self.meta();
        self.with(|tcp, cx| tcp.input(cx, IpInput { frame, ip }));
    }

    pub(super) fn meta(&self) -> IpMeta {
        IpMeta {
            src: PEER,
            dst: self.our_ip,
            protocol: TCP.0,
            hop_limit: 64,
            traffic_class: self.ecn,
            header_len: 20,
            interface: 0,
            mtu: 1500,
            unicast: true,
        }
    }

    pub(super) fn parse(&self, text: &str) -> (TcpHeader, TcpOptions, u32) {
        let mut header = TcpHeader {
            src_port: self.peer_port,
            dst_port: self.our_port,
            seq: SeqNum(0),
            ack: SeqNum(0),
            flags: TcpFlags::NONE,
            window: 65_000,
            urgent: 0,
        };
        let (text, list) = match text.split_once('<') {
            Some((text, list)) => (text, list.trim_end_matches('>')),
            None => (text, ""),
        };
        let mut words = text.split_whitespace();
        for c in words.next().expect("flags").chars() {
            header.flags |= match c {
                'F' => TcpFlags::FIN,
                'S' => TcpFlags::SYN,
                'R' => TcpFlags::RST,
                'P' => TcpFlags::PSH,
                '.' => TcpFlags::ACK,
                'U' => TcpFlags::URG,
                'E' => TcpFlags::ECE,
                'W' => TcpFlags::CWR,
                'A' => TcpFlags::AE,
                '-' => TcpFlags::NONE,
                c => panic!("flag {c}"),
            };
        }
        let range = words.next().expect("sequence numbers");
        let (first, rest) = range.split_once(':').unwrap();
        let len: u32 = rest.split_once('(').unwrap().1.trim_end_matches(')').parse().unwrap();
        header.seq = SeqNum(PEER_ISS) + first.parse::<i64>().unwrap() as u32;
        while let Some(word) = words.next() {
            let value: u32 = words.next().unwrap().parse::<i64>().unwrap() as u32;
            match word {
                "ack" => header.ack = SeqNum(self.iss.unwrap_or(0)) + value,
                "win" => header.window = value as u16,
                "urg" => header.urgent = value as u16,
                word => panic!("{word}"),
            }
        }
        let mut options = TcpOptions::default();
        for option in list.split(',').filter(|o| !o.is_empty()) {
            let words: Vec<&str> = option.split(&[' ', ':'][..]).collect();
            let n = |at: usize| words[at].parse::<i64>().unwrap() as u32;
            match words[0] {
                "mss" => options.mss = Some(n(1) as u16),
                "sackOK" => options.sack_permitted = true,
                "wscale" => options.window_scale = Some(n(1) as u8),
                "TS" => options.timestamps = Some(Timestamps { value: n(1), echo: n(2) }),
                "sack" => {
                    let iss = SeqNum(self.iss.unwrap());
                    options.sack.push(SackBlock { left: iss + n(1), right: iss + n(2) });
                }
                "FO" | "FOEXP" => {
                    let hex = words.get(1).copied().unwrap_or_default();
                    let bytes: Vec<u8> = (0..hex.len() / 2)
                        .map(|n| u8::from_str_radix(&hex[2 * n..2 * n + 2], 16).unwrap())
                        .collect();
                    let draft = words[0] == "FOEXP";
                    let request = FastOpenOption::request(draft);
                    let cookie = FastOpenOption::cookie(&bytes, draft);
                    options.fast_open = if bytes.is_empty() { Some(request) } else { cookie };
                }
                "ECN" => {
                    let of = |name| words.iter().position(|word| *word == name).map_or(0, |at| n(at + 1));
                    let order_1 = words.get(1) == Some(&"e1b");
                    let counters = [of("e0b"), of("ceb"), of("e1b")];
                    options.accecn = Some(AccEcnOption::new(order_1, counters, words.len() / 2));
                }
                word => panic!("{word}"),
            }
        }
        (header, options, len)
    }

    /// The peer hears.
    pub(super) fn hear(&mut self, ms: u64, want: &str) {
        self.until(ms);
        let Some((at, got, _)) = self.heard.pop_front() else {
            panic!("at {ms}: nothing was sent, expected {want}");
        };
        let mut got_short = got.clone();
        if !want.contains('<') {
            got_short.truncate(got_short.find(" <").unwrap());
        }
        if !want.contains("win") {
            let from = got_short.find(" win").unwrap();
            let to = got_short[from + 5..].find(' ').map_or(got_short.len(), |n| from + 5 + n);
            got_short.replace_range(from..to, "");
        }
        assert_eq!(got_short, want, "at {ms}; in full: {got}; then {:?}", self.texts());
        assert_eq!(at, ms, "right segment at the wrong time: {got}");
    }

    pub(super) fn texts(&self) -> Vec<(u64, &str)> {
        self.heard.iter().map(|(at, text, _)| (*at, text.as_str())).collect()
    }

    pub(super) fn quiet(&mut self, ms: u64) {
        self.until(ms);
        assert!(self.heard.is_empty(), "expected silence until {ms}: {:?}", self.texts());
    }

    /// The application writes `n` bytes.
    pub(super) fn write(&mut self, n: u64) {
        let bytes: Vec<u8> = (self.written..self.written + n).map(byte).collect();
        let id = self.id.unwrap();
        assert_eq!(self.with(|tcp, cx| tcp.send(cx, id, &bytes)), Ok(n as usize));
        self.written += n;
        self.drain();
    }

    /// The application reads exactly `n` bytes.
    pub(super) fn expect_read(&mut self, n: u64) {
        let mut into = vec![0; n as usize];
        let id = self.id.unwrap();
        let mut done = 0;
        while done < n as usize {
            done += self.with(|tcp, cx| tcp.recv(cx, id, &mut into[done..])).expect("bytes");
        }
        assert_eq!(done, n as usize);
        for (at, b) in into[..done].iter().enumerate() {
            assert_eq!(*b, byte(self.read + at as u64), "byte {at}");
        }
        self.read += n;
        self.drain();
    }

    pub(super) fn read_result(&mut self) -> Result<usize, RecvError> {
        let id = self.id.unwrap();
        let mut into = [0; 16];
        self.with(|tcp, cx| tcp.recv(cx, id, &mut into))
    }

    pub(super) fn state(&self) -> State {
        self.tcp.info(self.id.unwrap()).unwrap().state
    }

    pub(super) fn info(&self) -> TcpInfo {
        self.tcp.info(self.id.unwrap()).unwrap()
    }

    pub(super) fn close(&mut self) {
        let id = self.id.unwrap();
        self.with(|tcp, cx| tcp.close(cx, id)).unwrap();
        self.drain();
    }

    pub(super) fn shutdown(&mut self) {
        let id = self.id.unwrap();
        self.with(|tcp, cx| tcp.shutdown(cx, id, std::net::Shutdown::Write)).unwrap();
        self.drain();
    }

    pub(super) fn set(&mut self, change: impl FnOnce(&mut SocketOptions)) {
        let id = self.id.unwrap();
        let mut options = self.tcp.options(id).unwrap();
        change(&mut options);
        self.with(|tcp, cx| tcp.set_options(cx, id, &options)).unwrap();
        self.drain();
    }

    pub(super) fn dropped(&self, reason: DropReason) -> u64 {
        self.tcp.stats().dropped(reason)
    }

    pub(super) fn listen(config: TcpConfig) -> Scene {
        let mut s = Scene::new(config);
        s.listener = Some(s.tcp.listen(None, OUR_PORT, ListenOptions::default()).unwrap());
        s
    }

    pub(super) fn accept(&mut self) {
        let listener = self.listener.unwrap();
        self.id = Some(self.tcp.accept(listener).unwrap().expect("a connection").id);
    }

    /// Without timestamps, so that dialogues are short.
    pub(super) fn config() -> TcpConfig {
        TcpConfig { timestamps: false, ..TcpConfig::default() }
    }

    /// ESTABLISHED by a passive open, at 10 ms round-trip time. SACK, no timestamps, window scale 0 from the peer.
    pub(super) fn established(config: TcpConfig) -> Scene {
        let mut s = Scene::listen(config);
        s.speak(0, "S 0:0(0) win 65000 <mss 1000,sackOK,wscale 0>");
        s.hear(0, "S. 0:0(0) ack 1");
        s.speak(10, ". 1:1(0) ack 1 win 65000");
        s.accept();
        assert_eq!(s.state(), State::Established);
        s
    }

    /// SYN-SENT.
    pub(super) fn connecting(config: TcpConfig) -> Scene {
        let mut s = Scene::new(config);
        let (local, remote) = (SocketAddr::new(US, OUR_PORT), SocketAddr::new(PEER, PEER_PORT));
        let options = ConnectOptions { hash: 0xabcd, hash_type: 2, ..Default::default() };
        s.id = Some(s.with(|tcp, cx| tcp.connect(cx, local, remote, &options)).unwrap());
        s.drain();
        s
    }
}

/// The option as packet captures show it.
fn fast_open_text(option: &FastOpenOption) -> String {
    let name = if option.is_experimental() { "FOEXP" } else { "FO" };
    let cookie: String = option.as_slice().iter().map(|byte| format!("{byte:02x}")).collect();
    format!("{name} {cookie}").trim_end().into()
}

/// At a time, the peer says.
macro_rules! send {
    ($scene:expr, $ms:expr, $text:expr) => {
        $scene.speak($ms, $text)
    };
}

/// At a time, the peer hears.
macro_rules! recv {
    ($scene:expr, $ms:expr, $text:expr) => {
        $scene.hear($ms, $text)
    };
}

pub(super) use {recv, send};
