//! C programs, compiled in every way that there is, run, and talked to over the loopback.

use std::io::{Read, Write};
use std::net::{TcpStream, UdpSocket};
use std::process::Command;

use flowlane_testnet::{Namespace, PATIENCE, Program, Scratch, free_port, skipped};
use rustix::process::Signal;

use crate::library::{run, ways};

/// Ends a server, which has to end well, and to have nothing more to say: as a sanitizer would.
fn ends_well(server: Program) {
    server.signal(Signal::TERM);
    let ended = server.end();
    assert!(ended.status.success(), "{ended:?}");
    assert_eq!(ended.said.len(), 1, "{ended:?}");
}

fn server(mut command: Command, workers: usize, words: &str) -> (Program, String) {
    let address = format!("127.0.0.1:{}", free_port());
    command.arg(&address).arg(workers.to_string());
    (Program::ready(command, words), address)
}

#[test]
fn published_vectors() {
    for way in ways() {
        assert_eq!(run(&mut way.compile("examples/hash.c")), "8 of 8 vectors\n", "{way:?}");
    }
}

#[test]
fn flows_are_steered_as_in_rust() {
    let rss = flowlane::Rss::from_parts(
        flowlane::Toeplitz::new(&flowlane::Key::MICROSOFT),
        flowlane::HashConfig::with_udp(flowlane::UdpFields::Four),
        flowlane::Indirection::new(128, 8).unwrap(),
        flowlane::BucketMap::new(8, 4).unwrap(),
    );
    let Some(way) = ways().first() else { return };
    let mut command = way.compile("examples/hash.c");
    let mut expected = String::new();
    for n in 0..64_u16 {
        let (source, destination) =
            (format!("10.0.{}.7:{}", n % 5, 1000 + 77 * n), format!("10.1.0.1:{}", 80 + n % 3));
        let (name, protocol) = [("tcp", 6), ("udp", 17), ("ip", 1)][usize::from(n % 3)];
        command.arg(format!("{source},{destination},{name}"));
        let flow = flowlane::Flow::new(
            source.parse().unwrap(),
            destination.parse().unwrap(),
            flowlane::Protocol(protocol),
        );
        let to = rss.steer(&flow);
        let (kind, bucket, worker) = (to.hash_type.as_u8(), to.bucket.0, to.worker.0);
        expected += &format!("{:08x} type {kind:02x} bucket {bucket} worker {worker}\n", to.hash);
    }
    assert_eq!(run(&mut command), expected);
}

#[test]
fn echo() {
    for way in ways() {
        for workers in [1, 2] {
            let (server, address) = server(way.compile("examples/udp_echo.c"), workers, "receives at");
            for client in 0..4_u8 {
                let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
                socket.set_read_timeout(Some(PATIENCE)).unwrap();
                socket.connect(&address).unwrap();
                for n in 0..50_usize {
                    let sent: Vec<u8> = (0..n * 17).map(|at| (at as u8).wrapping_mul(client + 3)).collect();
                    socket.send(&sent).unwrap();
                    let mut came = [0; 2048];
                    let len = socket.recv(&mut came).unwrap();
                    assert_eq!(&came[..len], &sent, "{way:?}, {workers} workers");
                }
            }
            ends_well(server);
        }
    }
}

/// More than the buffers hold goes in before anything is read.
#[test]
fn streams_come_back() {
    for way in ways() {
        let (server, address) = server(way.compile("examples/tcp_echo.c"), 2, "listens at");
        for _ in 0..3 {
            let mut stream = TcpStream::connect(&address).unwrap();
            stream.set_read_timeout(Some(PATIENCE)).unwrap();
            let sent: Vec<u8> = (0..20_000_000_u32).map(|n| (n >> 3) as u8).collect();
            let mut writer = stream.try_clone().unwrap();
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    writer.write_all(&sent).unwrap();
                    writer.shutdown(std::net::Shutdown::Write).unwrap();
                });
                let mut came = Vec::new();
                stream.read_to_end(&mut came).unwrap();
                assert!(came == sent, "{way:?}: {} of {} bytes", came.len(), sent.len());
            });
        }
        ends_well(server);
    }
}

#[test]
fn hello_over_http() {
    const ANSWER: &str = "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 6\r\n\r\nhello\n";
    for way in ways() {
        let (server, address) = server(way.compile("examples/http_hello.c"), 2, "listens at");
        let request = "GET / HTTP/1.1\r\nHost: x\r\n\r\n";
        for requests in [1, 7, 500] {
            let mut stream = TcpStream::connect(&address).unwrap();
            stream.set_read_timeout(Some(PATIENCE)).unwrap();
            // A request in two pieces, and then all others at once.
            stream.write_all(&request.as_bytes()[..9]).unwrap();
            stream.write_all(&request.as_bytes()[9..]).unwrap();
            stream.write_all(request.repeat(requests - 1).as_bytes()).unwrap();
            let mut answers = vec![0; ANSWER.len() * requests];
            stream.read_exact(&mut answers).unwrap();
            assert_eq!(String::from_utf8(answers).unwrap(), ANSWER.repeat(requests), "{way:?}");
            stream.shutdown(std::net::Shutdown::Write).unwrap();
            assert_eq!(stream.read(&mut [0; 1]).unwrap(), 0, "the server closes, too");
        }
        // One that is there when the server ends.
        let _left = TcpStream::connect(&address).unwrap();
        ends_well(server);
    }
}

/// All that the examples do not use: both ends in one process, over a wire in memory and over kernel sockets. It says what is wrong.
#[test]
fn every_function() {
    for way in ways() {
        assert_eq!(run(&mut way.compile("tests/capi/c/functions.c")), "all is well\n", "{way:?}");
    }
}

/// The poll loop without a privilege: its link is a file.
#[test]
fn every_function_of_a_loop() {
    for way in ways() {
        let scratch = Scratch::new("capi-loop");
        let mut command = way.compile("tests/capi/c/loops.c");
        command.arg(format!("pcap:,{}", scratch.path("sent.pcap")));
        assert_eq!(run(&mut command), "all is well\n", "{way:?}");
        assert!(std::fs::metadata(scratch.path("sent.pcap")).unwrap().len() > 24, "nothing was sent");
    }
}

/// What is in the structs, as compilers see it, and the version that runs.
#[test]
fn sizes_and_places() {
    for way in ways() {
        let version = env!("CARGO_PKG_VERSION").split('.').map(|part| part.parse::<u32>().unwrap());
        let version = version.fold(0, |all, part| all * 1000 + part);
        assert_eq!(run(&mut way.compile("tests/capi/c/abi.c")), format!("{version}\n"), "{way:?}");
    }
}

/// The poll loop, in a program's own event loop: the kernel is the peer, at the other side of a TAP interface.
#[test]
fn a_loop_of_its_own() {
    if let Err(why) = flowlane_testnet::requires() {
        skipped(why);
        return;
    }
    for way in ways() {
        let namespace = Namespace::new(&format!("flt-capi-{}", std::process::id())).unwrap();
        let compiled = way.compile("examples/loop_echo.c");
        let mut command = namespace.command(compiled.get_program().to_str().unwrap());
        command.args(["tap:flcapi0", "10.77.0.1/24"]);
        let server = Program::ready(command, "serves 10.77.0.1/24 on tap:flcapi0");
        namespace.ip("addr add 10.77.0.2/24 dev flcapi0").unwrap();
        namespace.ip("link set flcapi0 up").unwrap();
        namespace
            .run(|| {
                let socket = UdpSocket::bind("10.77.0.2:0").unwrap();
                socket.set_read_timeout(Some(PATIENCE)).unwrap();
                socket.connect("10.77.0.1:7").unwrap();
                for n in 0..100_usize {
                    let sent = vec![n as u8; n * 13];
                    socket.send(&sent).unwrap();
                    let mut came = [0; 2048];
                    assert_eq!(socket.recv(&mut came).unwrap(), sent.len());
                    assert_eq!(&came[..sent.len()], &sent);
                }
                let mut stream = TcpStream::connect("10.77.0.1:7").unwrap();
                stream.set_read_timeout(Some(PATIENCE)).unwrap();
                let sent: Vec<u8> = (0..300_000_u32).map(|n| (n >> 4) as u8).collect();
                let mut writer = stream.try_clone().unwrap();
                std::thread::scope(|scope| {
                    scope.spawn(|| writer.write_all(&sent).unwrap());
                    let mut came = vec![0; sent.len()];
                    stream.read_exact(&mut came).unwrap();
                    assert!(came == sent);
                });
            })
            .unwrap();
        ends_well(server);
    }
}
