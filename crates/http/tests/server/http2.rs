//! HTTP/2 with peers that are slow, that flood, that do not read, and that break the protocol: each is told why, in order.

use std::time::Duration;

use flowlane_http::server::{Counter, Options, Timeouts};
use flowlane_http::tls::Alpn;

use crate::frames::{
    DATA, END_HEADERS, GOAWAY, HEADERS, PING, PREFACE, RST_STREAM, SETTINGS, Two, ask, fields, frame, window,
};
use crate::kit::{Client, all_ended, beside, beside_with};
use crate::others::{connect, tls};

const LONG: Duration = Duration::from_secs(3600);
const SOON: Duration = Duration::from_millis(60);
/// Nobody is ever too slow, but for what a test changes.
const PATIENT: Timeouts = Timeouts { head: LONG, idle: LONG, body: LONG, write: LONG };

const NO_ERROR: u32 = 0;
const PROTOCOL_ERROR: u32 = 1;
const FRAME_SIZE_ERROR: u32 = 6;
const ENHANCE_YOUR_CALM: u32 = 11;

fn options(timeouts: Timeouts) -> Options {
    Options { timeouts, ..Options::default() }
}

#[test]
fn a_preface_and_frames_have_the_time_of_a_head() {
    let (_, counts) = beside(options(Timeouts { head: SOON, ..PATIENT }), || async {
        for begun in [3, 10, PREFACE.len() - 1] {
            let mut client = Client::connect().await;
            client.write(&PREFACE[..begun]).await;
            client.gone().await;
        }
        let head = frame(HEADERS, END_HEADERS, 1, &fields("/size/1"));
        let begun = frame(HEADERS, 0, 1, &fields("/size/1"));
        for unfinished in [&head[..5], &head[..12], &begun] {
            let mut client = Two::connect().await;
            client.write([PREFACE, &window(1 << 16), unfinished].concat()).await;
            assert_eq!(client.goodbye().await.reason(), NO_ERROR);
        }
    });
    assert_eq!((counts.get(Counter::HeadTimeout), counts.errors()), (6, 6), "{counts:?}");
}

#[test]
fn a_connection_that_only_pings_is_idle() {
    // Time enough after the first goodbye for who is slow on a busy machine to see it.
    let head = Duration::from_secs(3);
    let (_, counts) = beside(options(Timeouts { idle: SOON, head, ..PATIENT }), || async {
        let mut client = Two::connect().await;
        client.write([PREFACE, &window(1 << 16)].concat()).await;
        for _ in 0..4000 {
            client.write(frame(PING, 0, 0, &[7; 8])).await;
            if client.frame().await.unwrap().kind == GOAWAY {
                client.goodbye().await;
                return;
            }
            flowlane::sleep(Duration::from_millis(5)).await;
        }
        panic!("the connection lives as long as it pings");
    });
    assert_eq!((counts.get(Counter::IdleTimeout), counts.errors()), (1, 0), "{counts:?}");
}

#[test]
fn who_does_not_answer_a_goodbye_is_told_again_and_left() {
    let (_, counts) = beside(options(Timeouts { idle: SOON, head: SOON, ..PATIENT }), || async {
        let mut client = Two::connect().await;
        client.write([PREFACE, &window(1 << 16)].concat()).await;
        // Neither the settings nor the ping is answered.
        assert_eq!(client.goodbye().await.reason(), NO_ERROR);
    });
    assert_eq!((counts.get(Counter::IdleTimeout), counts.errors()), (1, 0), "{counts:?}");
}

#[test]
fn the_last_word_arrives_though_much_is_unread() {
    // h2spec 4.2/2 and 4.2/3: a frame beyond the limit, with all its payload behind it.
    let (_, counts) = beside_with(options(PATIENT), |server| async move {
        for kind in [DATA, HEADERS] {
            let mut client = Two::connect().await;
            let large = frame(kind, END_HEADERS, 1, &vec![0; 200_000]);
            client
                .write(
                    [PREFACE, &window(1 << 16), &frame(HEADERS, END_HEADERS, 1, &fields("/echo"))].concat(),
                )
                .await;
            client.until(HEADERS).await;
            client.write(large).await;
            assert_eq!(client.goodbye().await.reason(), FRAME_SIZE_ERROR);
        }
        all_ended(&server).await;
    });
    assert_eq!((counts.get(Counter::Http2Failed), counts.errors()), (2, 2), "{counts:?}");
}

#[test]
fn a_fault_inside_tls_ends_with_a_goodbye_of_tls_too() {
    let (server, clients) = tls();
    let client = clients(Alpn::Http2);
    let server = Options { tls: Some(server), ..options(PATIENT) };
    let (_, counts) = beside(server, move || async move {
        let mut client = Two { stream: connect(Some(client)).await };
        let ping = frame(PING, 0, 3, &[0; 8]);
        client.write([PREFACE, &window(1 << 16), &ping, &vec![0; 100_000]].concat()).await;
        // Without close_notify the end would be an error.
        assert_eq!(client.goodbye().await.reason(), PROTOCOL_ERROR);
    });
    assert!(counts.errors() <= 1, "{counts:?}");
    // What is no HTTP/2 at all, and more of it than is read.
    let (server, clients) = tls();
    let client = clients(Alpn::Http2);
    let server = Options { tls: Some(server), ..options(PATIENT) };
    let (_, counts) = beside(server, move || async move {
        let mut client = Two { stream: connect(Some(client)).await };
        client.write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n".repeat(1000)).await;
        assert_eq!(client.frame().await, None, "nothing, and a proper end");
    });
    assert_eq!((counts.get(Counter::Http2Failed), counts.errors()), (1, 1), "{counts:?}");
}

#[test]
fn floods_of_frames_that_carry_nothing_are_ended() {
    let floods: [fn(u32) -> Vec<u8>; 4] = [
        |_| frame(PING, 0, 0, &[1; 8]),
        |_| frame(SETTINGS, 0, 0, &[]),
        // Requests that are taken back at once.
        |n| [ask(2 * n + 1, "/delay/100000"), frame(RST_STREAM, 0, 2 * n + 1, &[0, 0, 0, 8])].concat(),
        // A kind that nobody knows.
        |_| frame(99, 0, 0, &[0; 8]),
    ];
    for flood in floods {
        let (_, counts) = beside(options(PATIENT), move || async move {
            let mut client = Two::connect().await;
            client.write([PREFACE, &window(1 << 16)].concat()).await;
            let (mut reader, mut writer) = tokio::io::split(client.stream);
            let writing = flowlane::spawn(async move {
                let mut sent = 0;
                while sent < 100_000 {
                    let bytes: Vec<u8> = (sent..sent + 100).flat_map(flood).collect();
                    if tokio::io::AsyncWriteExt::write_all(&mut writer, &bytes).await.is_err() {
                        break;
                    }
                    sent += 100;
                }
                sent
            });
            let mut all = Vec::new();
            // A reset at the very end is right: it goes on flooding.
            let _ = tokio::io::AsyncReadExt::read_to_end(&mut reader, &mut all).await;
            let sent = writing.unwrap().await.unwrap();
            let goodbye = [&[GOAWAY, 0, 0, 0, 0, 0][..]].concat();
            let at = all.windows(goodbye.len()).rposition(|w| w == goodbye).expect("no GOAWAY");
            let reason = all[at + goodbye.len() + 4..][..4].try_into().unwrap();
            assert_eq!(u32::from_be_bytes(reason), ENHANCE_YOUR_CALM);
            sent
        });
        // Requests taken back before anybody looked at them are counted by the library.
        let ended = counts.get(Counter::Http2Flood) + counts.get(Counter::Http2Failed);
        assert_eq!((ended, counts.errors()), (1, 1), "{counts:?}");
    }
}

#[test]
fn blocks_of_fields_without_an_end_are_ended() {
    let (_, counts) = beside(options(PATIENT), || async {
        let mut client = Two::connect().await;
        client.write([PREFACE, &window(1 << 16), &frame(HEADERS, 0, 1, &fields("/"))].concat()).await;
        // CONTINUATION: fields of a kilobyte each, for ever.
        let field = [&[0x00, 1, b'a', 0x7f, 0x81, 0x07][..], &[b'x'; 1024]].concat();
        for _ in 0..4000 {
            let (kind, flags) = (9, 0);
            if tokio::io::AsyncWriteExt::write_all(&mut client.stream, &frame(kind, flags, 1, &field))
                .await
                .is_err()
            {
                return;
            }
        }
        panic!("taken for ever");
    });
    assert_eq!((counts.errors(), counts.open()), (1, 0), "{counts:?}");
}

#[test]
fn who_reads_nothing_at_all_is_reset() {
    let (_, counts) = beside(options(Timeouts { write: SOON, ..PATIENT }), || async {
        let mut client = Two::connect().await;
        // Room for everything in its windows, none in its stream of bytes.
        let much = 0x7fff_ffff;
        let room = frame(8, 0, 0, &(much - 65535_u32).to_be_bytes());
        client.write([PREFACE, &window(much), &room, &ask(1, "/size/1000000000")].concat()).await;
        assert!(client.stream.get_ref().closed().await.is_err(), "not reset");
    });
    assert_eq!((counts.get(Counter::WriteTimeout), counts.open()), (1, 0), "{counts:?}");
}

#[test]
fn hosts_are_hosts() {
    let (_, counts) = beside(options(PATIENT), || async {
        let mut client = Two::connect().await;
        client.write([PREFACE, &window(1 << 16)].concat()).await;
        // `host`, never remembered: index 38 of the static table.
        let bad = [&fields("/size/1")[..], &[0x1f, 38 - 15, 7], b"a b/c@d"].concat();
        client.write(frame(HEADERS, END_HEADERS | 1, 1, &bad)).await;
        let answer = client.until(HEADERS).await;
        assert_eq!(answer.payload[0], 0x80 | 12, ":status 400, index 12 of the static table");
    });
    assert_eq!((counts.get(Counter::BadHost), counts.get(Counter::ClientError)), (1, 1));
}
