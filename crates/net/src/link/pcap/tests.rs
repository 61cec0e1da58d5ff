use super::*;
use flowlane_sys::frame::{FrameMemory, MemoryConfig};

fn pool() -> Pool {
    let config =
        MemoryConfig { frames_per_home: 64, lock: false, huge_pages: false, ..MemoryConfig::default() };
    FrameMemory::new(&config).unwrap().attach(0).unwrap()
}

fn path(name: &str) -> PathBuf {
    std::env::temp_dir().join(format!("flowlane-{}-{name}", std::process::id()))
}

fn options(input: Option<&Path>, output: Option<&Path>) -> PcapOptions {
    PcapOptions {
        input: input.map(Path::to_owned),
        output: output.map(Path::to_owned),
        mac: MacAddr([2, 0, 0, 0, 0, 1]),
        mtu: 1500,
        clock: || 1_700_000_000_123_456_789,
    }
}

fn frame(pool: &Pool, byte: u8, len: usize) -> Frame {
    let mut frame = pool.alloc().unwrap();
    assert!(frame.extend_from_slice(&vec![byte; len]));
    frame
}

#[test]
fn what_is_sent_into_a_file_is_received_from_it() {
    let (pool, path) = (pool(), path("round.pcap"));
    let (info, mut queues) = open(&options(None, Some(&path)), 2).unwrap();
    assert_eq!((info.queues, queues.len()), (2, 2));
    let mut tagged = frame(&pool, 3, 20);
    tagged.meta_mut().vlan = Some(5);
    let mut chained = frame(&pool, 1, 14);
    chained.append(frame(&pool, 2, 6));
    assert_eq!(queues[1].transmit(&mut vec![frame(&pool, 9, 60)]), 1);
    assert_eq!(queues[0].transmit(&mut vec![tagged, chained]), 2);
    drop(queues); // the file is complete when its last user has gone

    let (_, mut queues) = open(&options(Some(&path), None), 2).unwrap();
    let mut got = Vec::new();
    assert!(queues[0].ready() && !queues[1].ready());
    assert_eq!(queues[1].receive(&pool, &mut got, 10), 0);
    assert_eq!(queues[0].receive(&pool, &mut got, 2), 2);
    assert_eq!(queues[0].receive(&pool, &mut got, 10), 1);
    assert!(!queues[0].ready(), "the file has come to its end");
    assert_eq!(got[0].data(), [9; 60]);
    assert_eq!(got[0].meta().timestamp, 1_700_000_000_123_456_789);
    assert_eq!(got[1].data()[10..18], [3, 3, 0x81, 0, 0, 5, 3, 3]);
    assert_eq!(got[2].data(), [[1; 14].to_vec(), [2; 6].to_vec()].concat());
    assert_eq!(queues[0].stats().rx_frames, 3);
    std::fs::remove_file(path).unwrap();
}

#[test]
fn a_mirror_records_both_ways_and_changes_nothing() {
    let (pool, input, record) = (pool(), path("in.pcap"), path("mirror.pcap"));
    let (_, mut queues) = open(&options(None, Some(&input)), 1).unwrap();
    queues[0].transmit(&mut vec![frame(&pool, 7, 30)]);
    drop(queues);

    let capture = Capture::create(&record, || 5).unwrap();
    let (_, mut queues) = open(&options(Some(&input), None), 1).unwrap();
    let mut mirror = Mirror::new(queues.remove(0), capture.clone());
    let mut got = Vec::new();
    assert_eq!(mirror.receive(&pool, &mut got, 10), 1);
    assert_eq!(mirror.transmit(&mut got), 1);
    assert!(got.is_empty() && mirror.flush() && !mirror.ready() && mirror.fd().is_none());
    assert_eq!((mirror.stats().rx_frames, mirror.stats().tx_frames, capture.lost()), (1, 1, 0));
    drop((mirror, capture));

    let (_, mut queues) = open(&options(Some(&record), None), 1).unwrap();
    assert_eq!(queues[0].receive(&pool, &mut got, 10), 2);
    assert!(got.iter().all(|f| f.data() == [7; 30]));
    for file in [input, record] {
        std::fs::remove_file(file).unwrap();
    }
}

#[test]
fn a_file_that_is_none_or_ends_early_is_told() {
    let (pool, path) = (pool(), path("bad.pcap"));
    assert!(matches!(open(&options(Some(&path), None), 1), Err(OpenError::Capture { .. })));
    std::fs::write(&path, b"this is not a capture").unwrap();
    assert!(matches!(open(&options(Some(&path), None), 1), Err(OpenError::Capture { .. })));
    let (_, mut queues) = open(&options(None, Some(&path)), 1).unwrap();
    queues[0].transmit(&mut vec![frame(&pool, 1, 50), frame(&pool, 2, 50)]);
    drop(queues);
    let whole = std::fs::read(&path).unwrap();
    std::fs::write(&path, &whole[..whole.len() - 10]).unwrap();
    let (_, mut queues) = open(&options(Some(&path), None), 1).unwrap();
    let mut got = Vec::new();
    assert_eq!(queues[0].receive(&pool, &mut got, 10), 1);
    assert_eq!(queues[0].stats().rx_bad, 1, "the packet cut short is counted");
    std::fs::remove_file(path).unwrap();
}

#[test]
fn a_capture_of_something_else_than_ethernet_is_refused() {
    let (pool, path) = (pool(), path("raw.pcap"));
    let (_, mut queues) = open(&options(None, Some(&path)), 1).unwrap();
    queues[0].transmit(&mut vec![frame(&pool, 1, 50)]);
    drop(queues);
    let mut bytes = std::fs::read(&path).unwrap();
    // The last word of the header: 101, packets that begin with the IP header.
    bytes[20..24].copy_from_slice(&101u32.to_ne_bytes());
    std::fs::write(&path, &bytes).unwrap();
    let refused = open(&options(Some(&path), None), 1).err();
    let told = |what: &str| what.contains("not of Ethernet");
    assert!(matches!(&refused, Some(OpenError::Option { what, .. }) if told(what)), "{refused:?}");
    std::fs::remove_file(path).unwrap();
}
