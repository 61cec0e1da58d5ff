//! Records of real connections, written and read back by the reader of the crate `parquet`.

use super::files::Part;
use super::table::Row;
use super::*;
use flowlane::{
    FlowRecords, FlowTotals, Host, Interface, Key, Rss, Runtime, TcpListener, TcpStream, Time, spawn,
};
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::record::RowAccessor;
use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::sync::{Arc, mpsc};
use std::time::Duration;

struct Dir(PathBuf);

impl Dir {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("flowlane-flow-log-{name}-{}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn target(&self, more: &str) -> Target {
        format!("{}{more}", self.0.join("flows.parquet").display()).parse().unwrap()
    }

    /// Names in it, in order.
    fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(&self.0).unwrap();
        let mut names: Vec<_> = entries.map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }
}

impl Drop for Dir {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// So many connections to a server, one after the other, each of which sends its number of bytes; the server's records go to `records`.
fn connect(records: &FlowRecords, connections: usize) {
    let rss = Arc::new(Rss::new(Key::MICROSOFT, 1));
    let on = |address: &str| Interface { addresses: vec![address.parse().unwrap()], ..Interface::default() };
    let mut builder = Runtime::builder().pin(false);
    let server = Host::new("server", rss.clone(), || async {
        let listener = TcpListener::on_port(80).unwrap();
        while let Ok(stream) = listener.accept().await {
            spawn(async move { while stream.read(&mut [0; 4096]).await.is_ok_and(|n| n > 0) {} }).unwrap();
        }
    });
    let server = builder.host(server.interface(on("10.0.0.1/24")).flows(records));
    let (done, finished) = mpsc::channel();
    let client = Host::new("client", rss, move || {
        let done = done.clone();
        async move {
            if flowlane::current().unwrap().bucket.0 != 0 {
                return;
            }
            for n in 0..connections {
                let stream = TcpStream::connect("10.0.0.1:80".parse().unwrap()).await.unwrap();
                stream.write_all(&vec![7; n]).await.unwrap();
                stream.shutdown(std::net::Shutdown::Write).unwrap();
                // The other end closes, too.
                while stream.read(&mut [0; 16]).await.is_ok_and(|n| n > 0) {}
            }
            done.send(()).unwrap();
        }
    });
    let client = builder.host(client.interface(on("10.0.0.2/24")));
    builder.pair((server, 0), (client, 0), Default::default());
    let runtime = builder.start().unwrap();
    finished.recv_timeout(Duration::from_secs(60)).unwrap();
    assert_eq!(runtime.stop().total(server).tcp.flow_records_lost, 0);
}

/// Bytes that each connection of a file sent, in order.
fn bytes_in(dir: &Dir, name: &str) -> Vec<u64> {
    let reader = SerializedFileReader::new(File::open(dir.0.join(name)).unwrap()).unwrap();
    assert!(reader.metadata().file_metadata().created_by().unwrap().starts_with("flowlane "));
    let rows = reader.get_row_iter(None).unwrap().map(|row| row.unwrap());
    rows.map(|row| {
        let text = |at: usize| row.get_string(at).unwrap().as_str();
        assert_eq!((text(2), text(4), text(9)), ("10.0.0.2", "10.0.0.1", "closed"), "{row}");
        assert_eq!((row.get_ushort(5).unwrap(), row.get_ubyte(6).unwrap()), (80, 6), "{row}");
        assert!(!row.get_bool(7).unwrap() && row.get_ushort(3).unwrap() > 1023, "{row}");
        let (packets, octets, bytes) = (row.get_ulong(10), row.get_ulong(11), row.get_ulong(12));
        let (packets, octets, bytes) = (packets.unwrap(), octets.unwrap(), bytes.unwrap());
        assert!(packets >= 3 && octets > bytes + 40 * packets - 1, "{row}");
        assert_eq!(row.get_ulong(15).unwrap(), 0, "the server sends nothing: {row}");
        bytes
    })
    .collect()
}

#[test]
fn records_are_read_back_and_nothing_is_overwritten() {
    let dir = Dir::new("rows");
    fs::write(dir.0.join("flows-0006.parquet"), "precious").unwrap();
    let queue = FlowLog::queue();
    let log = FlowLog::start(queue.clone(), &dir.target(",every=1h"), Time::ZERO).unwrap();
    assert_eq!(dir.names(), ["flows-0006.parquet", "flows-0007.parquet.part"]);
    connect(&queue, 40);
    assert_eq!(log.end(2), Logged { written: 40, files: 1, failed: 0, lost: 2 });
    assert_eq!(dir.names(), ["flows-0006.parquet", "flows-0007.parquet"]);
    let mode = fs::metadata(dir.0.join("flows-0007.parquet")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    assert_eq!(fs::read_to_string(dir.0.join("flows-0006.parquet")).unwrap(), "precious");
    let mut bytes = bytes_in(&dir, "flows-0007.parquet");
    bytes.sort_unstable();
    assert_eq!(bytes, (0..40).collect::<Vec<_>>());
    // Nothing ended: a file without rows, which can be read.
    let log = FlowLog::start(FlowLog::queue(), &dir.target(""), Time::ZERO).unwrap();
    assert_eq!(log.end(0), Logged { written: 0, files: 1, ..Logged::default() });
    assert!(bytes_in(&dir, "flows-0008.parquet").is_empty());
}

/// One file has the name that was asked for; a second run does not overwrite it.
#[test]
fn a_single_file_has_the_name_that_was_given() {
    let dir = Dir::new("single");
    for (names, n) in [(vec!["flows.parquet"], 3), (vec!["flows-0001.parquet", "flows.parquet"], 5)] {
        let queue = FlowLog::queue();
        let log = FlowLog::start(queue.clone(), &dir.target(",every=1h"), Time::ZERO).unwrap();
        connect(&queue, n);
        assert_eq!(log.end(0), Logged { written: n as u64, files: 1, ..Logged::default() });
        assert_eq!(dir.names(), names);
    }
    assert_eq!(bytes_in(&dir, "flows.parquet").len(), 3);
}

/// pyarrow, which nobody here wrote, reads the same: column names and types, and sums.
#[test]
fn pyarrow_reads_them() {
    let python = std::env::var("FLOWLANE_PYARROW").unwrap_or_else(|_| "python3".to_owned());
    let run =
        |script: &str, file: &str| std::process::Command::new(&python).args(["-c", script, file]).output();
    if !run("import pyarrow.parquet", "").is_ok_and(|output| output.status.success()) {
        return flowlane_testnet::skipped(
            "skipped, because there is no pyarrow (FLOWLANE_PYARROW names a Python that has it)",
        );
    }
    let dir = Dir::new("pyarrow");
    let queue = FlowLog::queue();
    let log = FlowLog::start(queue.clone(), &dir.target(""), Time::ZERO).unwrap();
    connect(&queue, 40);
    assert_eq!(log.end(0).written, 40);
    let script = "import sys, pyarrow.parquet as p
t = p.read_table(sys.argv[1])
print(t.num_rows, sum(t['source_bytes'].to_pylist()), set(t['ended'].to_pylist()), t['vlan'].null_count)
print(*(f'{f.name}:{f.type}' for f in t.schema), sep=' ')
s, e = (t[name].cast('int64').to_pylist() for name in ('start', 'end'))
print(all(a <= b for a, b in zip(s, e)), s[0] > 1_700_000_000 * 10**9)";
    let output = run(script, dir.0.join("flows.parquet").to_str().unwrap()).unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let wanted = "40 780 {'closed'} 40
start:timestamp[ns, tz=UTC] end:timestamp[ns, tz=UTC] source_address:string source_port:uint16 \
destination_address:string destination_port:uint16 protocol:uint8 opened_by_us:bool vlan:uint16 ended:string \
source_packets:uint64 source_octets:uint64 source_bytes:uint64 destination_packets:uint64 destination_octets:uint64 \
destination_bytes:uint64 retransmitted_by_us:uint64 \
rtt_ns:uint64 lane:uint16
True True
";
    assert_eq!(text, wanted, "{}", String::from_utf8_lossy(&output.stderr));
}

/// A record in both queues that a host was given.
#[test]
fn two_exporters_get_every_record() {
    let (one, other) = (FlowRecords::new(100), FlowRecords::new(5));
    connect(&one.clone().and(&other), 10);
    let taken = |queue: &FlowRecords| std::iter::from_fn(|| queue.try_next()).count();
    assert_eq!((taken(&one), one.lost(), taken(&other), other.lost()), (10, 0, 5, 5));
}

/// A file is finished when it is large; all files together have no more bytes than is allowed, and records beyond that are counted.
#[test]
fn files_are_bounded() {
    let dir = Dir::new("size");
    let queue = FlowLog::queue();
    connect(&queue, 100);
    let log = FlowLog::start(queue, &dir.target(",every=1h,size=4Ki,max=32Ki"), Time::ZERO).unwrap();
    let Logged { written, files, failed, lost } = log.end(0);
    assert_eq!((written + failed, lost, dir.names().len() as u64), (100, 0, files));
    assert!(files > 1 && failed > 0 && written > 16, "{written} {files} {failed}");
    let rows = |name: &String| bytes_in(&dir, name).len() as u64;
    assert_eq!(dir.names().iter().map(rows).sum::<u64>(), written);
    let size = |name: &String| fs::metadata(dir.0.join(name)).unwrap().len();
    let sizes: Vec<u64> = dir.names().iter().map(size).collect();
    // Each may be larger than its size by its last row group and its footer, all together may not.
    assert!(sizes.iter().all(|size| (1000..16_384).contains(size)), "{sizes:?}");
    let all = sizes.iter().sum::<u64>();
    assert!((12 << 10..=32 << 10).contains(&all), "{sizes:?}");
}

/// What a file is said to take at most is not less than it takes.
#[test]
fn the_bound_of_a_file_holds() {
    let dir = Dir::new("bound");
    let (target, queue) = (dir.target(""), FlowLog::queue());
    connect(&queue, 1);
    let first = queue.try_next().unwrap();
    let wide = |n: u64| {
        let end = |low: u64| {
            std::net::SocketAddr::new(
                std::net::Ipv6Addr::from_bits(!0 << 60 | u128::from(low)).into(),
                low as u16,
            )
        };
        let totals =
            FlowTotals { segments: n.wrapping_mul(0x9e37_79b9_7f4a_7c15), octets: !n, bytes: n << 40 };
        let mut record = first;
        (record.local, record.remote, record.sent, record.received) =
            (end(n << 44 | n), end(!n), totals, totals);
        record.vlan = Some(n as u16 & 4095);
        Row { record, began: (n << 20) as i64, ended: (n << 33) as i64 }
    };
    for (number, (groups, rows)) in [(1, 1), (1, 16), (7, 16), (1, 16_384), (40, 1)].into_iter().enumerate() {
        let mut part = Part::begin(&target, number as u32).unwrap();
        let mut at_most = 0;
        for group in 0..groups {
            at_most = part.at_most(rows);
            part.write(&(0..rows).map(|row| wide(group * rows + row)).collect::<Vec<_>>()).unwrap();
        }
        let bytes = part.finish().unwrap();
        assert_eq!(fs::metadata(dir.0.join(format!("flows-{number:04}.parquet"))).unwrap().len(), bytes);
        assert!(bytes <= at_most, "{groups} groups of {rows}: {bytes} {at_most}");
    }
}

/// The directory is gone: records are lost and counted, the service goes on, and later ones are written again.
#[test]
fn a_directory_that_goes() {
    let dir = Dir::new("gone");
    let inner = dir.0.join("inner");
    fs::create_dir(&inner).unwrap();
    let target: Target = format!("{},every=1h", inner.join("a.parquet").display()).parse().unwrap();
    let queue = FlowLog::queue();
    let log = FlowLog::start(queue.clone(), &target, Time::ZERO).unwrap();
    fs::remove_dir_all(&inner).unwrap();
    connect(&queue, 3);
    assert_eq!(log.end(0), Logged { failed: 3, ..Logged::default() });
    let refused = FlowLog::start(queue, &target, Time::ZERO).unwrap_err();
    assert_eq!(refused.kind(), std::io::ErrorKind::NotFound);
}

#[test]
fn targets_that_make_no_sense() {
    for bad in [
        "",
        "a",
        "a.pq",
        ".parquet",
        "a.parquet,every=1ms",
        "a.parquet,size=1",
        "a.parquet,x=1",
        "a.parquet,max",
    ] {
        assert!(bad.parse::<Target>().is_err(), "{bad}");
    }
    assert!("dir/a.parquet,every=1m,size=1Mi,max=2Gi".parse::<Target>().is_ok());
}
