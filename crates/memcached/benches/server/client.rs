//! The client: connections, or sockets of datagrams, of one thread, each with one request under way. It asks on all of them, then reads from all.

use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream, UdpSocket};
use std::sync::Arc;
use std::time::Duration;

use flowlane_memcached::map::LaneMap;

/// Of a client that is not said to have fewer.
pub(crate) const CONNECTIONS: usize = 64;
pub(crate) const KEYS: u64 = 100_000;
/// A datagram whose answer has not come by then is sent again.
const LOST: Duration = Duration::from_millis(50);

/// A way to the server.
enum Way {
    Tcp(TcpStream),
    Udp(UdpSocket),
}

impl Way {
    fn new(to: SocketAddr, udp: bool) -> Self {
        if udp {
            let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).unwrap();
            socket.connect(to).unwrap();
            socket.set_read_timeout(Some(LOST)).unwrap();
            return Self::Udp(socket);
        }
        let stream = TcpStream::connect(to).unwrap();
        stream.set_nodelay(true).unwrap();
        Self::Tcp(stream)
    }

    fn write(&mut self, request: &[u8]) {
        match self {
            Self::Tcp(stream) => stream.write_all(&request[8..]).unwrap(),
            Self::Udp(socket) => _ = socket.send(request).unwrap(),
        }
    }

    /// Reads an answer, which ends like this.
    fn read(&mut self, request: &[u8], wanted: &[u8]) {
        let mut answer = [0; 2048];
        let mut len = 0;
        while !answer[..len].ends_with(wanted) {
            match self {
                Self::Tcp(stream) => len += stream.read(&mut answer[len..]).unwrap(),
                Self::Udp(socket) => match socket.recv(&mut answer) {
                    Ok(n) => len = n,
                    Err(e) if e.kind() == ErrorKind::WouldBlock => _ = socket.send(request).unwrap(),
                    Err(e) => panic!("{e}"),
                },
            }
        }
    }
}

pub(crate) struct Client {
    ways: Vec<Way>,
    /// Of each way the keys that it asks for, if not all.
    keys: Vec<Arc<Vec<u64>>>,
    random: Random,
    /// Of a hundred requests.
    get: u64,
}

impl Client {
    /// One to a server that has all keys then.
    pub(crate) fn new(server: SocketAddr, get: u64, udp: bool, connections: usize) -> Self {
        fill(server, KEYS, set);
        let ways = (0..connections).map(|_| Way::new(server, udp)).collect();
        Self { ways, keys: Vec::new(), random: Random::new(), get }
    }

    /// From now on each connection asks for keys of one lane alone, one after another of another: wherever it has come to.
    pub(crate) fn by_lane(self, server: SocketAddr) -> Self {
        let map = lanes(&mut TcpStream::connect(server).unwrap());
        let lanes = (0..self.ways.len()).map(|n| n % map.lanes).collect();
        self.with_keys_of(&map, lanes)
    }

    /// From now on each connection asks for keys of the lane that it has come to, as clients do that know the lanes.
    pub(crate) fn at_home(mut self) -> Self {
        let of = |way: &mut Way| match way {
            Way::Tcp(stream) => lanes(stream),
            Way::Udp(_) => LaneMap::default(),
        };
        let maps: Vec<LaneMap> = self.ways.iter_mut().map(of).collect();
        let lanes = maps.iter().map(|map| map.here).collect();
        self.with_keys_of(&maps[0], lanes)
    }

    fn with_keys_of(mut self, map: &LaneMap, lanes: Vec<usize>) -> Self {
        let mut keys = vec![Vec::new(); map.lanes];
        (0..KEYS).for_each(|n| keys[map.lane_of(format!("key:{n:028}").as_bytes())].push(n));
        let keys: Vec<Arc<Vec<u64>>> = keys.into_iter().map(Arc::new).collect();
        self.keys = lanes.into_iter().map(|lane| keys[lane].clone()).collect();
        self
    }

    /// Asks on every connection and reads all answers; how many.
    pub(crate) fn round(&mut self) -> u64 {
        let mut asked: Vec<(Vec<u8>, bool)> = vec![(Vec::new(), false); self.ways.len()];
        for (at, (way, (request, is_get))) in self.ways.iter_mut().zip(&mut asked).enumerate() {
            *is_get = self.random.below(100) < self.get;
            let n = match self.keys.get(at) {
                Some(keys) => keys[self.random.below(keys.len() as u64) as usize],
                None => self.random.below(KEYS),
            };
            // The header of a datagram, which connections leave out.
            request.extend_from_slice(&[0, 7, 0, 0, 0, 1, 0, 0]);
            if *is_get {
                request.extend_from_slice(format!("get key:{n:028}\r\n").as_bytes());
            } else {
                set(request, n);
            }
            way.write(request);
        }
        for (way, (request, is_get)) in self.ways.iter_mut().zip(&asked) {
            way.read(request, if *is_get { b"END\r\n" } else { b"STORED\r\n" });
        }
        self.ways.len() as u64
    }
}

/// What a server says of its lanes, and of that of this connection.
fn lanes(stream: &mut TcpStream) -> LaneMap {
    stream.write_all(b"stats lanes\r\n").unwrap();
    let (mut said, mut some) = (Vec::new(), [0; 4096]);
    while !said.ends_with(b"END\r\n") {
        let n = stream.read(&mut some).unwrap();
        said.extend_from_slice(&some[..n]);
    }
    String::from_utf8(said).unwrap().parse().unwrap()
}

/// Stores so many items over one connection.
pub(crate) fn fill(server: SocketAddr, items: u64, set: impl Fn(&mut Vec<u8>, u64)) {
    let mut all = Vec::new();
    (0..items).for_each(|n| set(&mut all, n));
    let mut reader = TcpStream::connect(server).unwrap();
    let mut writer = reader.try_clone().unwrap();
    let writing = std::thread::spawn(move || writer.write_all(&all).unwrap());
    let mut stored = vec![0; 8 * items as usize];
    reader.read_exact(&mut stored).unwrap();
    writing.join().unwrap();
}

/// A key of 32 bytes and a value of 100.
pub(crate) fn set(out: &mut Vec<u8>, n: u64) {
    out.extend_from_slice(format!("set key:{n:028} 0 0 100\r\n{n:0100}\r\n").as_bytes());
}

/// Marsaglia's xorshift.
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new() -> Self {
        Self(88_172_645_463_325_252)
    }

    pub(crate) fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % n
    }
}
