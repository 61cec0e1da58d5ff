//! A pair between two namespaces, and traffic of the kernel through it.

use flowlane::epair::EpairReport;
use flowlane_sys::netdev::Interface;
use flowlane_sys::netdev::watch::LinkWatch;
pub(crate) use flowlane_testnet::PATIENCE;
use flowlane_testnet::{Ended, Namespace, Program};
use rustix::process::Signal;
use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

/// Addresses of A and B, of either family.
pub(crate) const ADDRESSES: [[&str; 2]; 2] = [["10.11.7.1", "10.11.7.2"], ["fd00:11:7::1", "fd00:11:7::2"]];

/// Whether pairs can be made here; says why not.
pub(crate) fn can() -> bool {
    let able = flowlane_testnet::requires().and_then(|()| match std::fs::metadata("/dev/net/tun") {
        Ok(_) => Ok(()),
        Err(e) => Err(format!("skipped, because there is no /dev/net/tun: {e}")),
    });
    able.map_err(flowlane_testnet::skipped).is_ok()
}

pub(crate) fn command(arguments: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_flowlane"));
    command.args(arguments.split_whitespace()).stdin(Stdio::null()).env_remove("RUST_LOG");
    command
}

pub(crate) fn flowlane(arguments: &str) -> Output {
    command(arguments).output().unwrap()
}

/// What it prints where it succeeds.
pub(crate) fn text(arguments: &str) -> String {
    let output = flowlane(arguments);
    assert!(output.status.success(), "{arguments}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// The one line with which it refuses.
pub(crate) fn refused(arguments: &str) -> String {
    let output = flowlane(arguments);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "{arguments}: {said}");
    assert_eq!(said.lines().count(), 1, "{arguments}: {said}");
    said
}

/// Namespaces for A and B, and a third to move to.
pub(crate) fn namespaces(label: &str) -> [Namespace; 3] {
    let name = |end: &str| Namespace::new(&format!("fl-ep{label}-{end}-{}", std::process::id())).unwrap();
    [name("a"), name("b"), name("c")]
}

/// A running pair with interfaces `a` and `b` in namespaces of their own. Killed on drop.
pub(crate) struct Pair {
    pub(crate) spaces: [Namespace; 3],
    /// `None` after its end.
    program: Option<Program>,
    control: PathBuf,
}

impl Pair {
    pub(crate) fn up(label: &str, more: &str) -> Self {
        let spaces = namespaces(label);
        let control = std::env::temp_dir().join(format!("flowlane-ep{label}-{}.sock", std::process::id()));
        let arguments = format!(
            "epair up a b --netns-a {} --netns-b {} --control {} {more}",
            spaces[0].name(),
            spaces[1].name(),
            control.display(),
        );
        let mut pair = Self { spaces, program: Some(Program::start(command(&arguments))), control };
        pair.said_that("flowlane: epair a in ");
        addresses(&pair.spaces[0], "a", 0);
        addresses(&pair.spaces[1], "b", 1);
        pair
    }

    /// Waits for a line that begins so.
    pub(crate) fn said_that(&mut self, begins: &str) -> String {
        let program = self.program.as_mut().unwrap();
        loop {
            let line = program.hear(begins);
            if line.starts_with(begins) {
                return line;
            }
        }
    }

    /// `epair WHAT`, asked of this pair.
    pub(crate) fn ask(&self, what: &str) -> String {
        text(&format!("epair {what} --control {}", self.control.display()))
    }

    /// The line with which it is refused.
    pub(crate) fn refuses(&self, what: &str) -> String {
        refused(&format!("epair {what} --control {}", self.control.display()))
    }

    pub(crate) fn report(&self) -> EpairReport {
        serde_json::from_str(&self.ask("show --json")).unwrap()
    }

    /// Tells the kernel at each end where the other is.
    pub(crate) fn neighbours(&self) {
        let mac = |space: &Namespace, interface| {
            let mac =
                space.run(|| Interface::find(interface).and_then(|found| found.mac())).unwrap().unwrap();
            mac.map(|byte| format!("{byte:02x}")).join(":")
        };
        let [a, b, _] = &self.spaces;
        let macs = [mac(a, "a"), mac(b, "b")];
        for [of_a, of_b] in ADDRESSES {
            a.ip(&format!("neigh replace {of_b} lladdr {} dev a nud permanent", macs[1])).unwrap();
            b.ip(&format!("neigh replace {of_a} lladdr {} dev b nud permanent", macs[0])).unwrap();
        }
    }

    /// Its threads: the name, of which the kernel keeps fifteen letters, and how nice each is.
    pub(crate) fn threads(&self) -> Vec<(String, i32)> {
        let tasks = format!("/proc/{}/task", self.program.as_ref().unwrap().id());
        let stat = |task: std::fs::DirEntry| std::fs::read_to_string(task.path().join("stat")).unwrap();
        let of = |stat: String| {
            let (before, after) = stat.rsplit_once(") ").unwrap();
            let name = before.split_once(" (").unwrap().1.to_owned();
            (name, after.split(' ').nth(16).unwrap().parse().unwrap())
        };
        std::fs::read_dir(tasks).unwrap().map(|task| of(stat(task.unwrap()))).collect()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        self.program.as_ref().unwrap().signal(signal);
    }

    /// Waits for its end: exit code and what it printed.
    pub(crate) fn end(&mut self) -> (Option<i32>, String) {
        let Ended { status, printed, .. } = self.program.take().unwrap().end();
        (status.code(), printed)
    }

    pub(crate) fn kill(&mut self) {
        drop(self.program.take());
    }
}

impl Drop for Pair {
    fn drop(&mut self) {
        self.kill();
        let _ = std::fs::remove_file(&self.control);
    }
}

/// Gives an end its addresses, or those back that it has lost: IPv6 loses its own with each time down.
pub(crate) fn addresses(space: &Namespace, interface: &str, end: usize) {
    space.ip(&format!("addr replace {}/24 dev {interface}", ADDRESSES[0][end])).unwrap();
    space.ip(&format!("addr replace {}/64 dev {interface} nodad", ADDRESSES[1][end])).unwrap();
    space.owns(ADDRESSES[1][end].parse().unwrap());
}

/// How an interface is: `up`, `no-carrier`, `down` or `gone`.
pub(crate) fn state(space: &Namespace, interface: &str) -> &'static str {
    let shown =
        Command::new("ip").args(["-n", space.name(), "-o", "link", "show", "dev", interface]).output();
    let shown = String::from_utf8(shown.unwrap().stdout).unwrap();
    let flags = shown.split_once('<').and_then(|(_, rest)| rest.split_once('>')).map(|(flags, _)| flags);
    let Some(flags) = flags else { return "gone" };
    let has = |wanted| flags.split(',').any(|flag| flag == wanted);
    match (has("UP"), has("LOWER_UP")) {
        (false, _) => "down",
        (true, false) => "no-carrier",
        (true, true) => "up",
    }
}

/// Waits until an interface is so, by the kernel's news of it.
pub(crate) fn until(space: &Namespace, interface: &str, wanted: &str, when: &str) {
    let found = space.run(|| Interface::find(interface)).unwrap();
    let Ok(found) = found else {
        assert_eq!("gone", wanted, "{interface}, {when}");
        return;
    };
    let mut watch = space.run(|| LinkWatch::new(&found)).unwrap().unwrap();
    let deadline = Instant::now() + PATIENCE;
    while state(space, interface) != wanted {
        let left = deadline.saturating_duration_since(Instant::now());
        let is = state(space, interface);
        assert!(!left.is_zero(), "{interface} is {is}, not {wanted}: {when}");
        watch.wait(Some(left.as_nanos() as u64));
    }
}

/// Whether B answers A before patience ends: a datagram for a port that nobody has is refused by the host that it reaches. A refusal that
/// the kernel's limit of one a second holds back is asked for again. `bytes`: of the datagram, without headers.
pub(crate) fn answers(from: &Namespace, family: usize, bytes: usize, patience: Duration) -> bool {
    const NOBODY: u16 = 1;
    let asking = socket(from, ADDRESSES[family][0], 0);
    asking.connect((ADDRESSES[family][1], NOBODY)).unwrap();
    asking.set_read_timeout(Some(Duration::from_secs(1))).unwrap();
    let deadline = Instant::now() + patience;
    while Instant::now() < deadline {
        let _ = asking.send(&vec![0; bytes]);
        if asking.recv(&mut [0]).is_err_and(|e| e.kind() == ErrorKind::ConnectionRefused) {
            return true;
        }
    }
    false
}

/// The byte of a stream at this place.
fn byte(at: usize) -> u8 {
    (at.wrapping_mul(2_654_435_761) >> 11) as u8
}

/// Sends bytes over a connection from one end to the other, and compares each.
pub(crate) fn stream(from: &Namespace, to: &Namespace, address: &str, bytes: usize) {
    let address: IpAddr = address.parse().unwrap();
    let listener = to.run(|| TcpListener::bind((address, 0))).unwrap().unwrap();
    let at = listener.local_addr().unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut stream = from.run(|| TcpStream::connect(at)).unwrap().unwrap();
            stream.set_write_timeout(Some(PATIENCE)).unwrap();
            let data: Vec<u8> = (0..bytes).map(byte).collect();
            stream.write_all(&data).unwrap();
        });
        let (mut stream, _) = listener.accept().unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut got = Vec::new();
        stream.read_to_end(&mut got).unwrap();
        assert_eq!(got.len(), bytes);
        assert!(got.iter().enumerate().all(|(at, b)| *b == byte(at)), "a byte differs");
    });
}

/// A UDP socket in a namespace.
pub(crate) fn socket(space: &Namespace, address: &str, port: u16) -> UdpSocket {
    let address: SocketAddr = (address.parse::<IpAddr>().unwrap(), port).into();
    let socket = space.run(|| UdpSocket::bind(address)).unwrap().unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    socket
}
