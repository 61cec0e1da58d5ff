//! Records of flows on kernel sockets: their sums are what both ends counted, whoever reads them.

use std::fs::File;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream, UdpSocket};
use std::process::Command;
use std::time::Duration;

use flowlane::control::{FlowsView, get};
use flowlane_testnet::{Program, Scratch, eventually, free_port};
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::record::{Row, RowAccessor};

use super::collector::end_of_collector;
use super::{Service, command, count, last, load};

/// Bytes that a client sends, and those that it asks for, on each of its connections.
const CONNECTIONS: [(usize, usize); 5] = [(0, 0), (10, 1), (70_000, 0), (3, 1_000_000), (200_000, 300_000)];

/// The rows of a log.
fn rows(path: &str) -> Vec<Row> {
    let reader = SerializedFileReader::new(File::open(path).unwrap()).unwrap();
    reader.get_row_iter(None).unwrap().map(|row| row.unwrap()).collect()
}

/// Of a row: bytes from the source, bytes to it.
fn bytes(row: &Row) -> (u64, u64) {
    (row.get_ulong(12).unwrap(), row.get_ulong(15).unwrap())
}

/// A connection that posts so many bytes and is answered with so many: bytes of both streams, as this end counted them.
fn exchange(port: u16, (post, size): (usize, usize)) -> (u64, u64) {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let mut sent = 0;
    let mut write = |bytes: &[u8]| {
        stream.write_all(bytes).unwrap();
        sent += bytes.len() as u64;
    };
    if post > 0 {
        let head = format!("POST /upload HTTP/1.1\r\nHost: x\r\nContent-Length: {post}\r\n\r\n");
        write(head.as_bytes());
        write(&vec![7; post]);
    }
    write(format!("GET /size/{size} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").as_bytes());
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    assert!(answer.len() > size);
    (sent, answer.len() as u64)
}

/// A web server: a record of each connection, with the bytes that the client counted, and what a kernel socket cannot tell left out.
#[test]
fn a_log_has_what_the_client_counted() {
    for io in ["epoll", "auto"] {
        let dir = Scratch::new(&format!("kernel-log-{io}"));
        let (port, log) = (free_port(), dir.path("flows.parquet"));
        let line = format!("http --link kernel --addr 127.0.0.1/8 --port {port} --flow-log {log} --io {io}");
        let service = Service::start(None, &line);
        let mut counted: Vec<_> = CONNECTIONS.iter().map(|each| exchange(port, *each)).collect();
        let said = service.end();
        let all = last(&said, "summary")["flow-log"].clone();
        assert_eq!((&all["written"], &all["lost"]), (&counted.len().into(), &0.into()), "{all}");
        let rows = rows(&log);
        let mut recorded: Vec<_> = rows.iter().map(bytes).collect();
        counted.sort_unstable();
        recorded.sort_unstable();
        assert_eq!(recorded, counted, "{io}");
        for row in &rows {
            assert_eq!(row.get_string(4).unwrap(), "127.0.0.1", "{row}");
            assert_eq!((row.get_ushort(5).unwrap(), row.get_ubyte(6).unwrap()), (port, 6), "{row}");
            assert_eq!(
                (row.get_bool(7).unwrap(), row.get_string(9).unwrap().as_str()),
                (false, "closed"),
                "{row}"
            );
            assert!(row.get_ulong(10).unwrap() > 0 && row.get_ulong(13).unwrap() > 0, "{row}");
            assert!(
                row.get_ulong(11).is_err() && row.get_ulong(14).is_err(),
                "no octets of IP are told: {row}"
            );
            assert!(row.get_ulong(17).unwrap() > 0, "the round-trip time: {row}");
        }
    }
}

/// nfdump's collector reads them: bytes of the streams, and packets.
#[test]
fn a_collector_reads_records_of_kernel_sockets() {
    if let Some(missing) =
        ["nfcapd", "nfdump"].iter().find(|tool| Command::new(tool).arg("-V").output().is_err())
    {
        return flowlane_testnet::skipped(format!("skipped, because there is no {missing} (package nfdump)"));
    }
    let dir = Scratch::new("kernel-ipfix");
    let (port, at) = (free_port(), UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap());
    let directory = dir.path("");
    let mut collector = Command::new("nfcapd");
    collector.args(["-b", "127.0.0.1", "-p", &at.port().to_string(), "-w", &directory]);
    let mut collector = Program::start(collector);
    collector.hear("Startup");
    let line = format!("http --link kernel --addr 127.0.0.1/8 --port {port} --ipfix {at}");
    let service = Service::start(None, &line);
    let counted: Vec<_> = CONNECTIONS.iter().map(|each| exchange(port, *each)).collect();
    let said = service.end();
    assert_eq!(last(&said, "summary")["ipfix"]["sent"], counted.len(), "{said:?}");
    end_of_collector(collector, at.port());
    let output = Command::new("nfdump").args(["-R", &directory, "-o", "json"]).output().unwrap();
    let flows: Vec<serde_json::Value> = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(flows.len(), counted.len(), "{flows:?}");
    for flow in &flows {
        assert_eq!(
            (&flow["dst_port"], &flow["proto"], &flow["dst4_addr"]),
            (&port.into(), &6.into(), &"127.0.0.1".into())
        );
        assert!(flow["in_packets"].as_u64() > Some(0) && flow["out_packets"].as_u64() > Some(0), "{flow}");
    }
}

/// The generator's connections and the service's are the same: each end's records add up to what the load counted, and to each other.
#[test]
fn both_ends_of_a_load_record_the_same() {
    let dir = Scratch::new("kernel-both");
    let (port, here, there) = (free_port(), dir.path("here.parquet"), dir.path("there.parquet"));
    let line = format!("tcp-echo --link kernel --addr 127.0.0.1/8 --port {port} --flow-log {there}");
    let service = Service::start(None, &line);
    let line = format!(
        "tcp 127.0.0.1:{port} --mode echo --connections 8 --total 300k --duration 5s --flow-log {here}"
    );
    let report = load(None, &line);
    let said = service.end();
    assert_eq!(last(&said, "summary")["flow-log"]["lost"], 0, "{said:?}");
    let sums = |path: &str, ours: bool| {
        let rows = rows(path);
        assert!(rows.iter().all(|row| row.get_bool(7).unwrap() == ours));
        let add = |a: (u64, u64), b: (u64, u64)| (a.0 + b.0, a.1 + b.1);
        (rows.len(), rows.iter().map(bytes).fold((0, 0), add))
    };
    let ((mine, sent), (theirs, received)) = (sums(&here, true), sums(&there, false));
    assert_eq!((mine, theirs, sent), (8, 8, received));
    assert_eq!(sent, (8 * 300_000, 8 * 300_000), "{report}");
    assert_eq!(count(&report, "bytes-sent").max(sent.0), sent.0, "{report}");
}

/// Connected sockets of datagrams have records; a server's socket, which serves everybody, has none, and the command says why.
#[test]
fn datagrams_are_recorded_where_a_socket_has_one_peer() {
    let dir = Scratch::new("kernel-udp");
    let (port, log) = (free_port(), dir.path("flows.parquet"));
    for option in ["--ipfix 127.0.0.1:9", &format!("--flow-log {log}")] {
        let line = format!("serve udp-echo --link kernel --addr 127.0.0.1/8 --port {port} {option}");
        let output = command(None, &line).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!((output.status.code(), said.lines().count()), (Some(2), 1), "{said}");
        assert!(said.contains("one socket for all its peers"), "{said}");
    }
    let service = Service::start(None, &format!("udp-echo --link kernel --addr 127.0.0.1/8 --port {port}"));
    let line =
        format!("udp 127.0.0.1:{port} --rate 500 --duration 500ms --flows 4 --size 100 --flow-log {log}");
    let report = load(None, &line);
    let sent = count(&report, "sent") + count(&report, "probes");
    let rows = rows(&log);
    let sum = |at: usize| rows.iter().map(|row| row.get_ulong(at).unwrap()).sum::<u64>();
    assert_eq!((rows.len(), rows[0].get_ubyte(6).unwrap()), (4, 17));
    assert_eq!((sum(10), sum(13)), (sent, sent), "{report}");
    assert_eq!(sum(12), sum(15), "each answer is as long as its datagram");
    assert!(sum(12) >= count(&report, "sent") * 100, "{report}");
    drop(service.end());
}

/// `flowlane flows` asks the sockets when somebody wants to know: exact counts, bytes of data, nothing to switch on, and nothing to switch off.
#[test]
fn flows_of_kernel_sockets_are_listed_on_demand() {
    let dir = Scratch::new("kernel-flows");
    let (port, control) = (free_port(), dir.path("control"));
    let line =
        format!("tcp-echo --link kernel --addr 127.0.0.1/8 --port {port} --workers 2 --control {control}");
    let service = Service::start(None, &line);
    let mut streams: Vec<_> = (1..=300).map(|_| TcpStream::connect(("127.0.0.1", port)).unwrap()).collect();
    for (n, stream) in streams.iter_mut().enumerate() {
        let data = vec![1; 10 * (n + 1)];
        stream.write_all(&data).unwrap();
        stream.read_exact(&mut vec![0; data.len()]).unwrap();
    }
    let mut view: FlowsView = get(control.as_ref(), "/v1/flows?n=1000").unwrap();
    eventually("all is acknowledged", || {
        view = get(control.as_ref(), "/v1/flows?n=1000").unwrap();
        view.flows.len() == 300
    });
    assert!(
        view.watched && view.room == 0 && view.flows.iter().all(|flow| flow.by_kernel && flow.age.is_none())
    );
    for (n, stream) in streams.iter().enumerate() {
        let peer = stream.local_addr().unwrap().to_string();
        let flow = view.flows.iter().find(|flow| flow.remote == peer).unwrap();
        let each = 10 * (n as u64 + 1);
        assert_eq!((flow.received_bytes, flow.sent_bytes, flow.bytes_error), (each, each, 0), "{flow:?}");
        assert!(flow.packets >= 2 && flow.bytes == 2 * each && flow.local.ends_with(&format!(":{port}")));
    }
    let flows = |more: &str| command(None, &format!("flows {more}")).output().unwrap();
    let output = flows(&format!("-n 2 --by bytes --control {control}"));
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("kernel sockets tell bytes of data, without headers\n"), "{text}");
    let largest = streams[299].local_addr().unwrap().to_string();
    assert!(text.lines().count() == 7 && text.contains("6.00k") && text.contains(&largest), "{text}");
    assert!(flows(&format!("on --control {control}")).status.success());
    let off = flows(&format!("off --control {control}"));
    let said = String::from_utf8_lossy(&off.stderr).into_owned();
    assert_eq!(off.status.code(), Some(2), "{said}");
    assert!(said.contains("nothing to switch off"), "{said}");
    // A connection that is closed is not listed any more.
    let gone = streams.remove(0);
    let peer = gone.local_addr().unwrap().to_string();
    gone.shutdown(Shutdown::Both).unwrap();
    eventually("it is closed", || {
        let view: FlowsView = get(control.as_ref(), "/v1/flows?n=1000").unwrap();
        view.flows.iter().all(|flow| flow.remote != peer)
    });
    drop(streams);
    drop(service.end());
}
