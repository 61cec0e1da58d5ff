//! Peers that are slow, or that only want to occupy us; and a server that stalls on purpose.

use std::time::{Duration, Instant};

use flowlane_http::server::{Counter, Options, Stall, Timeouts};

use crate::kit::{Client, beside, get, status};

fn impatient() -> Options {
    let soon = Duration::from_millis(60);
    let timeouts = Timeouts { head: soon, idle: 2 * soon, body: soon, write: soon };
    Options { timeouts, ..Options::default() }
}

#[test]
fn a_head_that_drips_in() {
    let (took, counts) = beside(impatient(), || async {
        let mut client = Client::connect().await;
        client.write(get("/size/1")).await;
        client.answer().await;
        let began = Instant::now();
        let drip = flowlane::spawn(async move {
            let mut sent = 0;
            for byte in get("/size/1").repeat(1000).bytes().filter(|b| *b != b'\n') {
                if client.stream.write_all(&[byte]).await.is_err() {
                    break;
                }
                sent += 1;
                flowlane::sleep(Duration::from_millis(5)).await;
                if matches!(client.stream.try_read(&mut [0; 12]), Ok(Some(_)) | Err(_)) {
                    break;
                }
            }
            sent
        });
        let sent = drip.unwrap().await.unwrap();
        assert!(sent > 2, "it was not ended by the first byte");
        began.elapsed()
    });
    assert!(took < Duration::from_secs(5), "bytes do not buy time: {took:?}");
    assert_eq!(counts.get(Counter::HeadTimeout), 1);
    assert_eq!(counts.get(Counter::ClientError), 1, "408");
}

/// Sends this again and again until the peer ends the connection; how often.
async fn drip(client: &Client, what: &str) -> u32 {
    for sent in 0..4000 {
        if client.stream.write_all(what.as_bytes()).await.is_err()
            || matches!(client.stream.try_read(&mut [0; 1000]), Ok(Some(0)) | Err(_))
        {
            return sent;
        }
        flowlane::sleep(Duration::from_millis(5)).await;
    }
    panic!("the connection lives as long as something drips in");
}

#[test]
fn empty_lines_do_not_keep_a_connection() {
    let (_, counts) = beside(impatient(), || async {
        let client = Client::connect().await;
        assert!(drip(&client, "\r\n").await > 2, "they are no fault");
        let mut client = Client::connect().await;
        client.write(get("/size/1")).await;
        client.answer().await;
        drip(&client, "\r\n").await;
    });
    assert_eq!(counts.get(Counter::IdleTimeout), 2);
    assert_eq!(counts.errors(), 0, "{counts:?}");
}

#[test]
fn what_drips_in_after_the_end_does_not_keep_a_connection() {
    let (_, counts) = beside(impatient(), || async {
        let client = Client::connect().await;
        client.write("nonsense\r\n\r\n").await;
        // It has our answer and our end, and goes on all the same.
        while !matches!(client.stream.read(&mut [0; 1000]).await, Ok(0)) {}
        for _ in 0..4000 {
            if client.stream.write_all(b"x").await.is_err() {
                return;
            }
            flowlane::sleep(Duration::from_millis(5)).await;
        }
        panic!("the connection lives as long as something drips in");
    });
    assert_eq!(counts.open(), 0);
}

#[test]
fn heads_bodies_and_silence_that_take_too_long() {
    let (_, counts) = beside(impatient(), || async {
        let mut client = Client::connect().await;
        client.write("GET / HT").await;
        assert_eq!(status(&client.rest().await), 408);

        let mut client = Client::connect().await;
        client.write("POST /size/1 HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\nabc").await;
        assert_eq!(status(&client.rest().await), 408);

        let mut client = Client::connect().await;
        assert_eq!(client.rest().await, "", "said nothing, is told nothing");
        let mut client = Client::connect().await;
        client.write(get("/size/1")).await;
        assert_eq!(status(&client.rest().await), 200);
    });
    assert_eq!(counts.get(Counter::HeadTimeout), 1);
    assert_eq!(counts.get(Counter::BodyTimeout), 1);
    assert_eq!(counts.get(Counter::IdleTimeout), 2);
    assert_eq!(counts.errors(), 2);
}

#[test]
fn a_peer_that_does_not_read() {
    let (_, counts) = beside(impatient(), || async {
        let client = Client::connect().await;
        client.write(get("/size/100000000")).await;
        // Reset once it has stopped reading for too long.
        assert!(client.stream.closed().await.is_err());
    });
    assert_eq!(counts.get(Counter::WriteTimeout), 1);
}

#[test]
fn slow_readers_are_waited_for_as_long_as_they_read() {
    let second = Duration::from_secs(1);
    let timeouts = Timeouts { head: second, idle: second, body: second, write: second };
    let (_, counts) = beside(Options { timeouts, ..Options::default() }, || async {
        let mut client = Client::connect().await;
        client.write(get("/size/6000000")).await;
        client.until("\r\n\r\n").await;
        // Longer than any timeout in all, and never so long without reading.
        for _ in 0..60 {
            client.exactly(100_000).await;
            flowlane::sleep(Duration::from_millis(20)).await;
        }
        client.write(get("/size/1")).await;
        assert_eq!(client.answer().await.1, b"0");
    });
    assert_eq!(counts.errors(), 0, "{counts:?}");
}

#[test]
fn answers_to_whoever_writes_slowly() {
    beside(Options::default(), || async {
        let mut client = Client::connect().await;
        for byte in "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nhello".bytes() {
            client.write([byte]).await;
            flowlane::yield_now().await;
        }
        assert_eq!(client.answer().await.1, b"hello");
    });
}

#[test]
fn a_stall_lasts_as_long_as_it_says() {
    let stall = Stall { every: Duration::from_millis(200), length: Duration::from_millis(100) };
    let options = Options { stall: Some(stall), ..Options::default() };
    let (waits, counts) = beside(options, move || async move {
        let mut client = Client::connect().await;
        let mut waits = Vec::new();
        let began = flowlane::now().unwrap();
        while flowlane::now().unwrap() < began + Duration::from_secs(2) {
            let asked = flowlane::precise_now().unwrap();
            client.write(get("/size/1")).await;
            client.answer().await;
            waits.push((asked, flowlane::precise_now().unwrap()));
        }
        waits
    });
    // A machine that is busy may let some stalls pass unseen.
    assert!((3..=12).contains(&counts.get(Counter::Stalled)), "{} stalled", counts.get(Counter::Stalled));
    let held = waits.iter().filter_map(|(asked, answered)| Some((stall.until(*asked)?, *answered)));
    // The server's clock stands still for a turn, so a request at the very edge may count as before it.
    let early = held.filter(|(until, answered)| answered < until).count();
    assert!(early <= 2, "{early} of {} were answered in a stall", waits.len());
}
