//! Bytes that are sent from where they are: who keeps them, for how long, and how much may wait.

use super::*;
use flowlane_sys::block::OwnedBytes;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Wake, Waker};

/// Bytes of the stream from `at` on, and a handle that is alone when they are gone.
fn given(at: u64, len: u64) -> (OwnedBytes, Arc<()>) {
    struct Owner(Vec<u8>, #[expect(dead_code, reason = "counts")] Arc<()>);
    impl AsRef<[u8]> for Owner {
        fn as_ref(&self) -> &[u8] {
            &self.0
        }
    }
    let alive = Arc::new(());
    (OwnedBytes::new(Owner((at..at + len).map(byte).collect(), alive.clone())), alive)
}

fn send(s: &mut Scene, bytes: &mut OwnedBytes) -> Result<usize, SendError> {
    let id = s.id.unwrap();
    let sent = s.with(|tcp, cx| tcp.send_owned(cx, id, bytes));
    s.written += *sent.as_ref().unwrap_or(&0) as u64;
    s.drain();
    sent
}

/// A scene whose link cuts.
fn cutting() -> Scene {
    let mut s = Scene::established(Scene::config());
    s.offload = Offload { checksum: true, segmentation: 65_000 };
    s
}

#[test]
fn a_packet_to_be_cut_refers_to_the_bytes_until_they_are_acknowledged() {
    let mut s = cutting();
    let (mut bytes, alive) = given(0, 8000);
    let free = s.pool.free();
    assert_eq!(send(&mut s, &mut bytes), Ok(8000));
    drop(bytes);
    assert_eq!(s.tcp.buffers_for_test(), 8000);
    let (_, text, mut out) = s.heard.pop_front().unwrap();
    assert!(text.starts_with("P. 1:8001(8000) ack 1"), "{text}");
    assert!(!out.frame.is_shared(), "headers are its own");
    let next = out.frame.take_next().unwrap();
    assert!(next.is_shared() && !next.is_empty());
    // Acknowledged while a frame still has it, as if it had been sent twice.
    send!(s, 20, ". 1:1(0) ack 8001");
    assert_eq!(s.tcp.buffers_for_test(), 0);
    assert_eq!(Arc::strong_count(&alive), 2, "the frames keep it");
    drop((out, next));
    assert_eq!(Arc::strong_count(&alive), 1);
    s.heard.clear();
    assert_eq!(s.pool.free(), free);
}

/// What was copied is not written over while frames refer to it.
#[test]
fn memory_of_copied_bytes_counts_until_frames_have_gone() {
    let mut s = cutting();
    s.write(8000);
    let (_, _, out) = s.heard.pop_front().unwrap();
    send!(s, 20, ". 1:1(0) ack 8001");
    assert_eq!(s.tcp.buffers_for_test(), 8192, "acknowledged, and still in use");
    s.write(8000);
    assert_eq!(s.tcp.buffers_for_test(), 16_384);
    let bytes = out.frame.chunks().collect::<Vec<_>>().concat();
    let want: Vec<u8> = (0..8000).map(byte).collect();
    assert!(bytes.ends_with(&want));
    drop(out);
    s.heard.clear();
    send!(s, 30, ". 1:1(0) ack 16001");
    s.write(1);
    s.heard.clear();
    send!(s, 40, ". 1:1(0) ack 16002");
    assert_eq!(s.tcp.buffers_for_test(), 0);
}

/// The harness compares what is sent again with the stream.
#[test]
fn given_bytes_are_sent_again_among_copied_ones() {
    for segmentation in [0, 65_000] {
        let mut s = Scene::established(Scene::config());
        s.offload = Offload { checksum: segmentation > 0, segmentation };
        let mut alive = Vec::new();
        for _ in 0..3 {
            s.write(700);
            let (mut bytes, told) = given(s.written, 2500);
            assert_eq!(send(&mut s, &mut bytes), Ok(2500));
            alive.push(told);
        }
        s.heard.clear();
        // Nothing arrives: what was sent is sent again, and again.
        s.until(2000);
        assert!(!s.heard.is_empty());
        let mut acked = 1;
        for ms in 20.. {
            s.until(ms * 100);
            let ends =
                s.heard.drain(..).filter_map(|(_, text, _)| text.split([':', '(']).nth(1)?.parse().ok());
            acked = ends.fold(acked, u32::max);
            send!(s, ms * 100, &format!(". 1:1(0) ack {acked}"));
            if acked == 9601 {
                break;
            }
        }
        s.heard.clear();
        assert!(alive.iter().all(|told| Arc::strong_count(told) == 1));
        assert_eq!(s.tcp.buffers_for_test(), 0);
    }
}

#[test]
fn few_bytes_are_copied_and_too_many_taken_in_part() {
    let mut s = cutting();
    let (mut bytes, alive) = given(0, 2047);
    assert_eq!(send(&mut s, &mut bytes), Ok(2047));
    assert!(bytes.is_empty());
    drop(bytes);
    assert_eq!(Arc::strong_count(&alive), 1);
    let config = TcpConfig { max_memory: 16_384, ..Scene::config() };
    let mut s = Scene::established(config);
    let (mut bytes, _) = given(0, 22_000);
    let taken = send(&mut s, &mut bytes).unwrap();
    assert!((12_000..14_336).contains(&taken), "what there is memory for: {taken}");
    assert_eq!((bytes.len(), s.tcp.buffers_for_test()), (22_000 - taken, taken));
    let (mut more, _) = given(taken as u64, 3000);
    assert_eq!(send(&mut s, &mut more), Err(SendError::WouldBlock));
    assert_eq!(more.len(), 3000);
}

#[derive(Default)]
struct Count(AtomicU32);

impl Wake for Count {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// What is not sent yet is bounded where nobody has set the buffer's size; its writer is woken by sending, not only by
/// acknowledgements.
#[test]
fn little_waits_unsent() {
    let config = TcpConfig {
        send_buffer: BufferSize { initial: 1 << 20, max: 1 << 20 },
        max_unsent: 9000,
        ..Scene::config()
    };
    let mut s = Scene::established(config);
    let id = s.id.unwrap();
    let all = vec![0; 20_000];
    assert_eq!(s.with(|tcp, cx| tcp.send(cx, id, &all)), Ok(9000));
    assert_eq!(s.with(|tcp, cx| tcp.send(cx, id, &all)), Err(SendError::WouldBlock));
    let count = Arc::new(Count::default());
    s.tcp.register(id, Interest::Write, &Waker::from(count.clone())).unwrap();
    assert_eq!(count.0.load(Ordering::Relaxed), 0);
    while s.with(Tcp::poll_output).is_some() {}
    assert_eq!(count.0.load(Ordering::Relaxed), 1, "sent, and so there is room");
    assert!(s.tcp.readiness(id).unwrap().writable);
    // With a size of its own, that alone counts.
    let options = SocketOptions { send_buffer: Some(100_000), ..SocketOptions::default() };
    s.with(|tcp, cx| tcp.set_options(cx, id, &options)).unwrap();
    assert_eq!(s.with(|tcp, cx| tcp.send(cx, id, &all)), Ok(20_000));
}
