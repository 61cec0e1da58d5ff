//! Files as tshark reads them, and the bounds.

use super::chunk::{Chunk, Kind, Record, segment_of};
use super::*;
use flowlane_sys::frame::{Frame, FrameMemory, MemoryConfig, Pool, Segmentation};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

fn pool() -> Pool {
    let memory = MemoryConfig { frames_per_home: 64, lock: false, huge_pages: false, ..Default::default() };
    FrameMemory::new(&memory).unwrap().attach(0).unwrap()
}

/// An Ethernet frame with a datagram of so many bytes, in as many frames as it takes.
fn datagram(pool: &Pool, payload: usize) -> Frame {
    let mut bytes = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0, 0x45, 0];
    bytes.extend(((28 + payload) as u16).to_be_bytes());
    bytes.extend([0, 0, 0x40, 0, 64, 17, 0, 0, 10, 0, 0, 2, 10, 0, 0, 1, 0, 5, 0, 9]);
    bytes.extend(((8 + payload) as u16).to_be_bytes());
    bytes.extend([0, 0]);
    bytes.resize(42 + payload, 7);
    let mut pieces = bytes.chunks(1500).map(|piece| {
        let mut frame = pool.alloc().unwrap();
        assert!(frame.extend_from_slice(piece));
        frame
    });
    let mut first = pieces.next().unwrap();
    pieces.for_each(|piece| first.append(piece));
    first
}

fn tap(rings: usize) -> Arc<Tap> {
    Arc::new(Tap {
        number: 0,
        filter: Filter::default(),
        snap: 256,
        rings: (0..rings).map(|_| Ring::new()).collect(),
        epoch: 0,
        first_interface: vec![0, 2],
        over: AtomicBool::new(false),
        workers: AtomicUsize::new(rings),
    })
}

fn interfaces() -> Vec<Interface> {
    let one = |name: &str| Interface { name: name.into(), description: "host a".into() };
    vec![one("af-xdp:eth0"), one("inside")]
}

fn record(kind: Kind, frame: &Frame, (length, kept): (u32, u32)) -> Record {
    Record {
        time: 1_700_000_000_123_456_789,
        kind,
        interface: 0,
        host: 0,
        bucket: 5,
        queue: Some(3),
        hash: 0x1a2b_3c4d,
        hash_type: 0x81,
        segment: segment_of(frame),
        length,
        kept,
    }
}

fn put(chunk: &mut Chunk, kind: Kind, frame: &Frame) {
    let lengths = chunk.copy(frame, 256, true);
    chunk.records.push(record(kind, frame, lengths));
}

fn options(name: &str) -> CaptureOptions {
    let path = std::env::temp_dir().join(format!("flowlane-capture-{name}-{}.pcapng", std::process::id()));
    let _ = std::fs::remove_file(&path);
    CaptureOptions { snap: 256, ..CaptureOptions::new(path) }
}

/// What tshark prints of fields of each packet, if there is one; it may not complain.
fn tshark(path: &Path, fields: &str) -> Option<Vec<String>> {
    let mut command = Command::new("tshark");
    command.args(["-r", path.to_str().unwrap(), "-T", "fields", "-E", "separator=|"]);
    command.args(fields.split(' ').flat_map(|field| ["-e", field]));
    let Ok(output) = command.output() else {
        skipped("there is no tshark");
        return None;
    };
    let said = String::from_utf8_lossy(&output.stderr);
    let complaints: Vec<_> = said.lines().filter(|line| !line.contains("could be dangerous")).collect();
    assert!(output.status.success() && complaints.is_empty(), "{said}");
    Some(String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect())
}

fn skipped(why: &str) {
    flowlane_testnet::skipped(format_args!("skipped, because {why} (its part only)"));
}

#[test]
fn tshark_reads_every_field() {
    let (pool, tap, options) = (pool(), tap(2), options("fields"));
    let mut chunk = tap.rings[1].fresh().unwrap();
    put(&mut chunk, Kind::Received, &datagram(&pool, 100));
    put(&mut chunk, Kind::Dropped("stack", "udp-no-socket"), &datagram(&pool, 1000));
    // A tag that the link took out of the frame is back in it.
    let mut tagged = datagram(&pool, 10);
    tagged.meta_mut().vlan = Some(0x2007);
    put(&mut chunk, Kind::Sent, &tagged);
    // In many frames, and to be cut by the link.
    let mut large = datagram(&pool, 40_000);
    (large.meta_mut().segmentation, large.meta_mut().segment_size) = (Segmentation::Udp, 1400);
    put(&mut chunk, Kind::Sent, &large);
    let mut inside = datagram(&pool, 20);
    assert!(inside.trim_front(14));
    let lengths = chunk.copy(&inside, 256, false);
    chunk.records.push(Record {
        interface: 1,
        queue: None,
        ..record(Kind::Dropped("tcp", "a"), &inside, lengths)
    });
    tap.rings[1].put(chunk);
    let writer = Writer::start(&options, &interfaces(), tap.clone(), || {}).unwrap();
    tap.workers.store(0, Ordering::Release);
    let status = writer.stop();
    assert_eq!(
        (status.frames, status.dropped, status.missed, &status.ended),
        (5, 2, 0, &Some(Ended::Stopped))
    );
    assert_eq!(std::fs::metadata(&options.path).unwrap().len(), status.bytes);
    let fields = "frame.time_epoch frame.interface_name frame.len frame.cap_len vlan.id udp.srcport \
                  frame.packet_flags_direction frame.interface_queue frame.comment";
    let Some(rows) = tshark(&options.path, fields) else { return };
    let common = "worker 1, queue 3, hash 1a2b3c4d, type 81, bucket 5";
    let at = "1700000000.123456789";
    // tshark 4.0 shows numbers of the directions as they are in the file: 1 in, 2 out.
    let wanted = [
        format!("{at}|af-xdp:eth0|142|142||5|1|3|received; {common}"),
        format!("{at}|af-xdp:eth0|1042|256||5|1|3|dropped: stack udp-no-socket; {common}"),
        format!("{at}|af-xdp:eth0|56|56|7|5|2|3|sent; {common}"),
        format!("{at}|af-xdp:eth0|40042|256||5|2|3|sent; {common}, to be cut into packets of 1400 bytes"),
        format!("{at}|inside|62|62||5|1||dropped: tcp a; worker 1, hash 1a2b3c4d, type 81, bucket 5"),
    ];
    for (row, wanted) in rows.iter().zip(&wanted) {
        let (row, wanted): (Vec<_>, Vec<_>) = (row.split('|').collect(), wanted.split('|').collect());
        let direction = u32::from_str_radix(row[6].trim_start_matches("0x"), 16).unwrap();
        assert_eq!(direction.to_string(), wanted[6]);
        assert_eq!((&row[..6], &row[7..]), (&wanted[..6], &wanted[7..]));
    }
    assert_eq!(rows.len(), 5);
    std::fs::remove_file(&options.path).unwrap();
}

/// Frames are lost and counted when all chunks of a worker wait to be written, and the next packet of the file says how many.
#[test]
fn what_finds_no_room_is_counted() {
    let (pool, tap, options) = (pool(), tap(1), options("missed"));
    let ring = &tap.rings[0];
    let frame = datagram(&pool, 10);
    let mut chunks: Vec<Chunk> = std::iter::from_fn(|| ring.fresh()).collect();
    assert_eq!(chunks.len(), 64);
    (0..3).for_each(|_| ring.lose());
    put(&mut chunks[0], Kind::Received, &frame);
    chunks.into_iter().for_each(|chunk| ring.put(chunk));
    let writer = Writer::start(&options, &interfaces(), tap.clone(), || {}).unwrap();
    tap.workers.store(0, Ordering::Release);
    let status = writer.stop();
    assert_eq!((status.frames, status.missed), (1, 3));
    assert!(ring.fresh().is_some(), "chunks have come back");
    if let Some(rows) = tshark(&options.path, "frame.drop_count") {
        assert_eq!(rows, ["3"]);
    }
    std::fs::remove_file(&options.path).unwrap();
}

/// The file ends at its bound, whole; a second file does not overwrite it.
#[test]
fn a_full_file_is_whole() {
    let (pool, tap) = (pool(), tap(1));
    let options = CaptureOptions { max_bytes: 20_000, ..options("full") };
    let writer = Writer::start(&options, &interfaces(), tap.clone(), || {}).unwrap();
    let deadline = Instant::now() + Duration::from_secs(20);
    let mut given = 0_u64;
    while !writer.has_ended() {
        // What has no end does not fill the disk either.
        assert!(Instant::now() < deadline && given < 100_000, "{:?}", writer.status());
        let Some(mut chunk) = tap.rings[0].fresh() else { continue };
        (0..10).for_each(|_| put(&mut chunk, Kind::Received, &datagram(&pool, 500)));
        given += 10;
        tap.rings[0].put(chunk);
    }
    let status = writer.stop();
    assert_eq!(status.ended, Some(Ended::Full));
    assert!(tap.over.load(Ordering::Relaxed) && status.frames < given);
    let len = std::fs::metadata(&options.path).unwrap().len();
    assert!((19_000..=20_000).contains(&len) && len == status.bytes, "{len} {status:?}");
    if let Some(rows) = tshark(&options.path, "frame.number") {
        assert_eq!(rows.len() as u64, status.frames);
    }
    let error = Writer::start(&options, &interfaces(), tap.clone(), || {}).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::AlreadyExists);
    assert_eq!(std::fs::metadata(&options.path).unwrap().len(), len);
    std::fs::remove_file(&options.path).unwrap();
    let device = create(Path::new("/dev/null"), true).unwrap_err();
    assert!(device.to_string().contains("no regular file"));
}

/// A disk with little room, which may refuse a write that has none as a whole.
struct Small {
    bytes: Vec<u8>,
    room: usize,
    whole: bool,
}

impl io::Write for Small {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let left = self.room - self.bytes.len();
        if left == 0 || (self.whole && left < bytes.len()) {
            return Err(io::ErrorKind::StorageFull.into());
        }
        let n = left.min(bytes.len());
        self.bytes.extend_from_slice(&bytes[..n]);
        Ok(n)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A full disk takes the blocks that fit, and none in part.
#[test]
fn a_full_disk_has_whole_blocks() {
    let (bytes, ends): (Vec<u8>, _) = ((0..100).collect(), [10, 30, 35, 100]);
    let fits = [(9, 0), (10, 10), (29, 10), (30, 30), (34, 30), (99, 35), (100, 100)];
    for (room, fits) in fits {
        for whole in [false, true] {
            let mut disk = Small { bytes: vec![7; 3], room: 3 + room, whole };
            let cut = |disk: &mut Small, whole| disk.bytes.truncate(3 + whole);
            let (done, written) = super::writer::write_blocks(&mut disk, &bytes, &ends, cut);
            assert_eq!((done, written.is_ok()), (fits, fits == 100), "{room} {whole}");
            assert_eq!((&disk.bytes[..3], &disk.bytes[3..]), (&[7; 3][..], &bytes[..fits]), "{room} {whole}");
        }
    }
}

/// Nobody asks for it any more: it ends.
#[test]
fn a_forgotten_capture_ends() {
    let tap = tap(1);
    let options = CaptureOptions { lease: Some(Duration::ZERO), ..options("lease") };
    let writer = Writer::start(&options, &interfaces(), tap, || {}).unwrap();
    let begun = std::time::Instant::now();
    while !writer.has_ended() {
        assert!(begun.elapsed().as_secs() < 30, "it goes on");
        std::thread::yield_now();
    }
    assert_eq!(writer.stop().ended, Some(Ended::Forgotten));
    std::fs::remove_file(&options.path).unwrap();
}
