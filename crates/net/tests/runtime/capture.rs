//! A capture is read no faster than the workers take it: a file can wait, so nothing of it is lost on the way between them.

use std::sync::Arc;
use std::time::{Duration, Instant};

use flowlane::capture::CaptureOptions;
use flowlane::link::pcap::{self, Capture, PcapOptions};
use flowlane::wire::MacAddr;
use flowlane::{Host, Interface, Key, Runtime, StartError, UdpFields};
use flowlane_sys::frame::{FrameMemory, MemoryConfig};

use crate::traffic::{PATIENCE, rss};

const FRAMES: u64 = 30_000;

/// A datagram of one of many flows, to a port at which nobody is.
fn datagram(n: u32) -> Vec<u8> {
    let mut bytes = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0];
    bytes.extend([0x45, 0, 0, 46, 0, 0, 0x40, 0, 64, 17, 0, 0]);
    bytes.extend([10, 0, 1, (n >> 8) as u8, 10, 0, 0, 1]);
    bytes.extend([(n % 251) as u8 + 1, n as u8, 0, 9, 0, 26, 0, 0]);
    bytes.resize(60, 7);
    bytes
}

#[test]
fn every_frame_of_a_capture_arrives_with_several_workers() {
    let path = std::env::temp_dir().join(format!("flowlane-{}-all.pcap", std::process::id()));
    let clock = || 1_700_000_000_000_000_000;
    {
        let memory =
            MemoryConfig { frames_per_home: 16, lock: false, huge_pages: false, ..Default::default() };
        let pool = FrameMemory::new(&memory).unwrap().attach(0).unwrap();
        let capture = Capture::create(&path, clock).unwrap();
        for n in 0..FRAMES as u32 {
            let mut frame = pool.alloc().unwrap();
            assert!(frame.extend_from_slice(&datagram(n)));
            capture.record(&frame);
        }
    }
    for workers in [2, 4] {
        let mut builder = Runtime::builder().workers(workers).pin(false).seed(1).frames(8192);
        let interface = Interface { addresses: vec!["10.0.0.1/8".parse().unwrap()], ..Interface::default() };
        let rss: Arc<_> = rss(Key::MICROSOFT, 2 * workers, workers, UdpFields::Four);
        let host = builder.host(Host::new("reader", rss, || async {}).interface(interface));
        let mac = MacAddr([2, 0, 0, 0, 0, 1]);
        let options = PcapOptions { input: Some(path.clone()), output: None, mac, mtu: 1500, clock };
        let open = move |_: &FrameMemory, workers| pcap::open(&options, workers).map_err(StartError::Link);
        builder.link(host, 0, Box::new(open));
        let runtime = builder.start().unwrap();
        let (handle, began) = (runtime.handle(), Instant::now());
        // Each look is an answer of every worker.
        let lost =
            |report: &flowlane::stats::Report| report.workers.iter().map(|w| w.netisr.dropped).sum::<u64>();
        loop {
            let report = handle.report();
            if report.total(host).ethernet.received + lost(&report) >= FRAMES {
                break;
            }
            assert!(began.elapsed() < PATIENCE + Duration::ZERO, "{report:?}");
        }
        let report = runtime.stop();
        assert_eq!((report.total(host).ethernet.received, lost(&report)), (FRAMES, 0), "{workers} workers");
        assert!(report.workers.iter().map(|w| w.netisr.queued).sum::<u64>() > FRAMES / 4);
    }
    std::fs::remove_file(&path).unwrap();
}

/// A capture that begins with the runtime has the first frames, and is gone if the runtime does not start.
#[test]
fn a_capture_of_the_runtime_begins_before_its_first_frame() {
    let dir = std::env::temp_dir().join(format!("flowlane-{}-first", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    let (input, file) = (dir.join("in.pcap"), dir.join("out.pcapng"));
    let clock = || 1_700_000_000_000_000_000;
    {
        let memory =
            MemoryConfig { frames_per_home: 16, lock: false, huge_pages: false, ..Default::default() };
        let pool = FrameMemory::new(&memory).unwrap().attach(0).unwrap();
        let recorder = Capture::create(&input, clock).unwrap();
        for n in 0..10 {
            let mut frame = pool.alloc().unwrap();
            assert!(frame.extend_from_slice(&datagram(n)));
            recorder.record(&frame);
        }
    }
    let start = |fails: bool| {
        let mut builder = Runtime::builder().workers(2).pin(false).seed(1);
        let interface = Interface { addresses: vec!["10.0.0.1/8".parse().unwrap()], ..Interface::default() };
        let rss: Arc<_> = rss(Key::MICROSOFT, 4, 2, UdpFields::Four);
        let main = move || async move { if fails { Err("it does not begin") } else { Ok(()) } };
        let host = builder.host(Host::new("reader", rss, main).interface(interface));
        let mac = MacAddr([2, 0, 0, 0, 0, 1]);
        let options = PcapOptions { input: Some(input.clone()), output: None, mac, mtu: 1500, clock };
        let open = move |_: &FrameMemory, workers| pcap::open(&options, workers).map_err(StartError::Link);
        builder.link(host, 0, Box::new(open));
        let mut options = CaptureOptions::new(&file);
        options.drops_only = true;
        assert_eq!(builder.capture(options), 0);
        (builder.start(), host)
    };
    assert!(matches!(start(true).0, Err(StartError::FirstTask { .. })));
    assert!(!file.exists(), "it is removed with the runtime that did not start");
    let (runtime, host) = start(false);
    let runtime = runtime.unwrap();
    let (handle, began) = (runtime.handle(), Instant::now());
    while handle.report().total(host).ethernet.received < 10 {
        assert!(began.elapsed() < PATIENCE);
    }
    let _ = runtime.stop();
    // It has ended with the runtime.
    let status = handle.capture_status(0).unwrap();
    assert_eq!((status.frames, status.dropped, status.missed), (10, 10, 0), "{status:?}");
    // The file is there now, and nobody overwrites it.
    assert!(matches!(start(false).0, Err(StartError::Capture(_))));
    assert_eq!(std::fs::metadata(&file).unwrap().len(), status.bytes);
    std::fs::remove_dir_all(&dir).unwrap();
}
