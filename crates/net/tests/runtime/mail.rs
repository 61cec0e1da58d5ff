//! Mailboxes: between lanes that move, full, closed, and where there is none.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, mpsc};
use std::time::Instant;

use flowlane::{Bucket, Host, Key, MailError, Mailboxes, NoMailbox, Rss, Runtime, block_on, current};

use crate::traffic::PATIENCE;

/// Two lanes count up together while both are moved about: every number comes once and in order.
#[test]
fn mail_follows_lanes_that_move() {
    /// They count at least so far, and until they have moved.
    const LEAST: u32 = 20_000;
    const END: u32 = u32::MAX;
    let rss = Arc::new(Rss::new(Key::MICROSOFT, 2));
    let mail: Mailboxes<u32> = Mailboxes::new(rss.buckets.len(), 4);
    let (say, said) = mpsc::channel();
    let moved = Arc::new(AtomicBool::new(false));
    let enough = moved.clone();
    let mut builder = Runtime::builder().workers(2).pin(false);
    let host = builder.host(Host::kernel("host", rss, move || {
        let (mail, say, enough) = (mail.clone(), say.clone(), enough.clone());
        async move {
            let bucket = current().unwrap().bucket.0;
            if bucket > 1 {
                return;
            }
            let mut mailbox = mail.here().unwrap();
            if bucket == 0 {
                mail.send(Bucket(1), 0).await.unwrap();
            }
            let mut expected = u32::from(bucket == 0);
            loop {
                let number = mailbox.recv().await;
                if number == END {
                    break;
                }
                assert_eq!(number, expected);
                let next = if expected >= LEAST && enough.load(Relaxed) { END } else { expected + 1 };
                mail.send(Bucket(1 - bucket), next).await.unwrap();
                if next == END {
                    break;
                }
                expected += 2;
            }
            let _ = say.send(bucket);
        }
    }));
    let runtime = builder.start().unwrap();
    let handle = runtime.handle();
    let (mut done, mut moves, until) = (0, 0, Instant::now() + PATIENCE);
    while done < 2 {
        assert!(Instant::now() < until, "{moves} moves, {done} lanes have counted to the end");
        for bucket in [Bucket(0), Bucket(1)] {
            let from = handle.worker_of(host, bucket).unwrap();
            handle.move_lane(host, bucket, 1 - from).unwrap();
            moves += u32::from(handle.worker_of(host, bucket).unwrap() != from);
        }
        moved.store(moves > 8, Relaxed);
        done += said.try_iter().count();
    }
    assert!(runtime.stop().lanes(host).iter().map(|lane| lane.counts.moves).sum::<u64>() > 2);
}

#[test]
fn mailboxes_are_bounded_and_there_is_one_a_lane() {
    let mail: Mailboxes<u8> = Mailboxes::new(2, 2);
    assert_eq!(mail.here().err(), Some(NoMailbox::NotInLane));
    assert_eq!(mail.try_send(Bucket(2), 9), Err(MailError::NoSuchLane(9)));
    // Nobody has opened it yet: messages wait.
    assert_eq!([1, 2, 3].map(|m| mail.try_send(Bucket(0), m)), [Ok(()), Ok(()), Err(MailError::Full(3))]);
    let rss = Arc::new(Rss::new(Key::MICROSOFT, 1));
    let (say, said) = mpsc::channel();
    let opened = mail.clone();
    let mut builder = Runtime::builder().pin(false);
    builder.host(Host::kernel("host", rss, move || {
        let (mail, say) = (opened.clone(), say.clone());
        async move {
            if current().unwrap().bucket != Bucket(0) {
                return;
            }
            let mut mailbox = mail.here().unwrap();
            assert_eq!(mail.here().err(), Some(NoMailbox::Taken));
            let got = [mailbox.recv().await, mailbox.recv().await];
            assert_eq!(mailbox.try_recv(), None);
            drop(mailbox);
            let _ = say.send(got);
        }
    }));
    let runtime = builder.start().unwrap();
    assert_eq!(said.recv_timeout(PATIENCE), Ok([1, 2]));
    runtime.join().unwrap();
    assert_eq!(mail.try_send(Bucket(0), 4), Err(MailError::Closed(4)));
    assert_eq!(block_on(mail.send(Bucket(0), 5)), Err(MailError::Closed(5)));
}
