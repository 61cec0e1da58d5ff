//! Recordings as they are found in the world, and as nobody should write them.

use super::*;

fn read(bytes: &[u8], wishes: &Wishes) -> Result<Recording, String> {
    parse(bytes, wishes)
}

/// The requests as they are written for HTTP/1 to `http://t:81`, each with its time in milliseconds.
fn written(recording: &Recording) -> Vec<(u64, String)> {
    let lines = Lines::new(&"http://t:81/".parse().unwrap(), None);
    let mut out = Vec::new();
    let write = |number: usize| {
        let rest = recording.write(number, &lines, false, &mut out);
        assert!(rest.is_none());
        (recording.due()[number] / 1_000_000, String::from_utf8(out.clone()).unwrap())
    };
    (0..recording.requests()).map(write).collect()
}

fn asked(recording: &Recording) -> Vec<(u64, String)> {
    let line = |(at, text): (u64, String)| (at, text.split(" HTTP/1.1").next().unwrap().to_owned());
    written(recording).into_iter().map(line).collect()
}

const LOG: &str = r#"
10.0.0.1 - - [01/Mar/2026:12:00:01 +0100] "GET /b HTTP/1.1" 200 5 "-" "curl/8"
10.0.0.1 - - [01/Mar/2026:12:00:00 +0100] "GET /a?x=1 HTTP/2.0" 200 5 "http://r/" "A \"B\" \x43"
::1 - bob [smith] [01/Mar/2026:11:00:01 +0000] "POST /b HTTP/1.0" 200 5
10.0.0.1 - - [01/Mar/2026:12:00:01 +0100] "GET http://h/c HTTP/1.1" 200 5
10.0.0.1 - - [01/Mar/2026:12:00:01 +0100] "GET /b HTTP/1.1" 304 0 "-" "curl/8"
10.0.0.1 - - [01/Mar/2026:12:00:04 +0100] "CONNECT a:443 HTTP/1.1" 405 0
10.0.0.1 - - [01/Mar/2026:12:00:04 +0100] "\x16\x03\x01" 400 0
10.0.0.1 - - [01/Mar/2026:12:00:04 +0100] "" 400 0
10.0.0.1 - - [01/Mar/2026:12:00:04 +0100] "OPTIONS * HTTP/1.1" 400 0
10.0.0.1 - - [01/Mar/2026:12:00:04 +0100] "GET /a b HTTP/1.1" 400 0
no line
"#;

#[test]
fn an_access_log_is_replayed_by_its_seconds() {
    let recording = read(LOG.as_bytes(), &Wishes::default()).unwrap();
    let expected =
        [(0, "GET /a?x=1"), (1000, "GET /b"), (1250, "POST /b"), (1500, "GET /c"), (1750, "GET /b")];
    assert_eq!(asked(&recording), expected.map(|(at, line)| (at, line.to_owned())));
    assert_eq!((recording.format(), recording.requests(), recording.different()), (Format::Log, 5, 4));
    assert_eq!(
        written(&recording)[0].1,
        "GET /a?x=1 HTTP/1.1\r\nHost: t:81\r\nReferer: http://r/\r\nUser-Agent: A \"B\" C\r\n\r\n"
    );
    assert!(written(&recording)[2].1.contains("User-Agent: flowlane\r\nContent-Length: 0\r\n"));
    let skipped = recording.skipped();
    for (reason, count) in [
        (Reason::Connect, 1),
        (Reason::NoRequest, 3),
        (Reason::NoPath, 1),
        (Reason::NotALine, 1),
        (Reason::Truncated, 0),
    ] {
        assert_eq!(skipped.of(reason), count, "{reason:?}");
    }
    let words = recording.words();
    assert!(words.contains("1 sent without the body") && words.contains("1 CONNECT"), "{words}");
}

#[test]
fn a_replay_is_as_fast_and_as_long_as_is_wished() {
    let of = |wishes: Wishes| {
        asked(&read(LOG.as_bytes(), &wishes).unwrap()).into_iter().map(|(at, _)| at).collect::<Vec<_>>()
    };
    assert_eq!(of(Wishes { speed: 2.0, ..Wishes::default() }), [0, 500, 625, 750, 875]);
    assert_eq!(of(Wishes { speed: 0.5, most: Some(2), ..Wishes::default() }), [0, 2000]);
    let short = Wishes { within: Some(Duration::from_millis(1500)), ..Wishes::default() };
    assert_eq!(of(short.clone()), [0, 1000, 1250]);
    assert_eq!(read(LOG.as_bytes(), &short).unwrap().skipped().of(Reason::Later), 2);
    let host = Wishes { host: Some("h".into()), ..Wishes::default() };
    assert_eq!(asked(&read(LOG.as_bytes(), &host).unwrap()), [(0, "GET /c".to_owned())]);
    let fields = vec![("user-agent".to_owned(), "mine".to_owned()), ("Host".to_owned(), "h".to_owned())];
    let given = read(LOG.as_bytes(), &Wishes { fields, ..Wishes::default() }).unwrap();
    let first = &written(&given)[0].1;
    assert_eq!(*first, "GET /a?x=1 HTTP/1.1\r\nReferer: http://r/\r\nuser-agent: mine\r\nHost: h\r\n\r\n");
    // From 1970 to 2261 is no time to wait.
    let ages = "a [01/Jan/1970:00:00:00 +0000] \"GET / HTTP/1.1\"\na [01/Jan/2261:00:00:00 +0000] \"GET / HTTP/1.1\"\n";
    assert!(read(ages.as_bytes(), &Wishes::default()).unwrap_err().contains("106286 days"));
    assert_eq!(read(ages.as_bytes(), &Wishes { most: Some(1), ..Wishes::default() }).unwrap().requests(), 1);
}

#[test]
fn hostile_logs_cost_nothing() {
    let line = |path: &str| format!("a [01/Mar/2026:12:00:00 +0100] \"GET {path} HTTP/1.1\" 200\n");
    let mut log = vec![b'x'; 3 << 20];
    log.extend_from_slice(b"\n\0\0\0\n");
    log.extend_from_slice(line(&format!("/{}", "y".repeat(60_000))).as_bytes());
    log.extend_from_slice(line(&format!("/{}", "y".repeat(70_000))).as_bytes());
    log.extend_from_slice(line("/\0").as_bytes());
    log.extend_from_slice(line("/\\x00").as_bytes());
    log.extend_from_slice(line("/\\x0d\\x0aX:y").as_bytes());
    log.extend_from_slice(&line("/last").as_bytes()[..50]);
    let recording = read(&log, &Wishes::default()).unwrap();
    assert_eq!(recording.requests(), 1);
    let skipped = recording.skipped();
    assert_eq!((skipped.of(Reason::LongLine), skipped.of(Reason::NotALine)), (2, 2));
    assert_eq!(skipped.of(Reason::NoPath), 3);
    // A file without any request is refused, with one of its lines.
    let wrong = read(b"hello\nworld\n", &Wishes::default()).unwrap_err();
    assert!(wrong.contains("\"hello\"") && !wrong.contains('\n'), "{wrong}");
    for (bytes, word) in [(&b""[..], "empty"), (b"\x1f\x8b\x08", "gunzip"), (b"\n\n", "no requests")] {
        let wrong = read(bytes, &Wishes::default()).unwrap_err();
        assert!(wrong.contains(word), "{wrong}");
    }
}

fn har(entries: &str) -> Vec<u8> {
    format!("\u{feff}{{\"log\": {{\"version\": \"1.2\", \"pages\": [{{}}], \"entries\": [{entries}], \"x\": null}}}}").into_bytes()
}

fn har_entry(at: &str, request: &str) -> String {
    format!(
        "{{\"startedDateTime\": \"{at}\", \"time\": 3, \"request\": {{{request}}}, \"response\": {{\"content\": {{\"text\": \"x\"}}}}}}"
    )
}

#[test]
fn a_har_is_replayed_with_its_fields_and_bodies() {
    let entries = [
        har_entry(
            "2026-03-01T12:00:00.250Z",
            r##""method": "POST", "url": "https://a.example/p?q#f", "httpVersion": "h2", "bodySize": 5, "postData": {"mimeType": "text/plain", "text": "hällo"},
            "headers": [{"name": ":method", "value": "POST"}, {"name": "Cookie", "value": "a=b"}, {"name": "Authorization", "value": "Basic x"}, {"name": "Connection", "value": "X-Hop, close"}, {"name": "x-hop", "value": "1"},
             {"name": "Host", "value": "a.example"}, {"name": "Content-Length", "value": "9"}, {"name": "Transfer-Encoding", "value": "chunked"}, {"name": "a b", "value": "no name"}, {"name": "bad", "value": "a\r\nb: c"}]"##,
        ),
        har_entry(
            "2026-03-01T13:00:00+01:00",
            r#""method": "GET", "url": "http://b.example", "headers": null, "bodySize": null, "postData": null"#,
        ),
        har_entry(
            "2026-03-01T12:00:01Z",
            r#""method": "PUT", "url": "http://a.example/b", "postData": {"text": "AAE=", "encoding": "base64"}"#,
        ),
        har_entry(
            "2026-03-01T12:00:01Z",
            r#""method": "PUT", "url": "http://a.example/c", "bodySize": 9, "postData": {"text": "short"}"#,
        ),
        har_entry("2026-03-01T12:00:01Z", r#""method": "PUT", "url": "http://a.example/d", "bodySize": 9"#),
        har_entry("2026-03-01T12:00:01Z", r#""method": "GET", "url": "wss://a.example/d""#),
        har_entry("2026-03-01T12:00:01Z", r#""method": "GET", "url": "data:text/plain,x""#),
        har_entry("2026-03-01T12:00:01Z", r#""method": "GET", "url": "chrome-extension://x/y""#),
        har_entry("yesterday", r#""method": "GET", "url": "http://a.example/""#),
    ];
    let cached = entries[1].replacen('{', "{\"_fromCache\": \"disk\", ", 1);
    let bytes = har(&[&entries.join(","), cached.as_str()].join(","));
    let recording = read(&bytes, &Wishes::default()).unwrap();
    let times: Vec<(u64, String)> = asked(&recording);
    assert_eq!(times, [(0, "GET /".to_owned()), (250, "POST /p?q".to_owned()), (1000, "PUT /b".to_owned())]);
    assert_eq!(
        written(&recording)[1].1,
        "POST /p?q HTTP/1.1\r\nHost: t:81\r\nUser-Agent: flowlane\r\nCookie: a=b\r\nAuthorization: Basic x\r\nContent-Length: 6\r\n\r\nhällo"
    );
    assert!(written(&recording)[2].1.ends_with("Content-Length: 2\r\n\r\n\0\u{1}"));
    for (reason, count) in [
        (Reason::CutBody, 1),
        (Reason::NoBody, 1),
        (Reason::Upgrade, 1),
        (Reason::NoPath, 1),
        (Reason::NotHttp, 1),
        (Reason::NoTime, 1),
        (Reason::FromCache, 1),
    ] {
        assert_eq!(recording.skipped().of(reason), count, "{reason:?}");
    }
    let only = Wishes { host: Some("B.example".into()), ..Wishes::default() };
    assert_eq!(read(&bytes, &only).unwrap().requests(), 1);
}

#[test]
fn what_is_no_har_is_refused_in_one_line() {
    let deep = ["{\"log\": {\"entries\": ", &"[".repeat(1 << 20)].concat();
    let deep_aside = ["{\"x\": ", &"[".repeat(1 << 20)].concat();
    for (text, word) in [
        ("{", "EOF"),
        ("{}", "no log"),
        ("{\"log\": 7}", "an object with 'entries'"),
        ("{\"log\": {\"entries\": {}}}", "a list of entries"),
        ("{\"log\": {\"entries\": [7]}}", "line 1"),
        ("{\"log\": {\"entries\": []}}", "no requests"),
        ("{\"log\": {\"entries\": []}} x", "trailing"),
        (&deep, "no HAR"),
        (&deep_aside, "EOF"),
    ] {
        let wrong = read(text.as_bytes(), &Wishes::default()).unwrap_err();
        assert!(wrong.contains(word) && wrong.len() < 200, "{wrong}");
    }
}

/// A capture file of these packets, each with its time in milliseconds.
fn pcap(link: u32, packets: &[(u64, Vec<u8>)]) -> Vec<u8> {
    let mut file =
        [0xa1b2_c3d4u32.to_le_bytes(), [2, 0, 4, 0], [0; 4], [0; 4], [0, 0, 4, 0], link.to_le_bytes()]
            .concat();
    for (ms, data) in packets {
        let length = (data.len() as u32).to_le_bytes();
        let time = [(ms / 1000) as u32, (ms % 1000) as u32 * 1000].map(u32::to_le_bytes).concat();
        file.extend([time, length.to_vec(), length.to_vec(), data.clone()].concat());
    }
    file
}

/// The same as pcapng of this byte order, with times of this resolution.
fn pcapng(big: bool, resolution: u8, packets: &[(u64, Vec<u8>)]) -> Vec<u8> {
    let four = |n: u32| if big { n.to_be_bytes() } else { n.to_le_bytes() };
    let two = |n: u16| if big { n.to_be_bytes() } else { n.to_le_bytes() };
    let block = |kind: u32, body: Vec<u8>| {
        let length = four(body.len() as u32 + 12);
        [four(kind).to_vec(), length.to_vec(), body, length.to_vec()].concat()
    };
    let section = [four(0x1a2b_3c4d).to_vec(), two(1).to_vec(), two(0).to_vec(), vec![0xff; 8]].concat();
    let option = [two(9), two(1), [resolution, 0], [0, 0], two(0), two(0)].concat();
    let interface = [two(1).to_vec(), two(0).to_vec(), four(0).to_vec(), option].concat();
    let mut file = [block(0x0a0d_0d0a, section), block(1, interface), block(5, vec![0; 16])].concat();
    for (ms, data) in packets {
        let units = ms * 10u64.pow(u32::from(resolution)) / 1000;
        let mut body =
            [0, (units >> 32) as u32, units as u32, data.len() as u32, data.len() as u32].map(four).concat();
        body.extend_from_slice(data);
        body.resize(body.len().next_multiple_of(4), 0);
        file.extend(block(6, body));
    }
    file
}

/// A segment in IPv4 in Ethernet, from client port `port` to port 80.
fn segment(port: u16, seq: u32, flags: u8, data: &[u8]) -> Vec<u8> {
    let mut frame = [&[0; 12][..], &[8, 0]].concat();
    let total = (40 + data.len()) as u16;
    frame.extend(
        [&[0x45, 0], &total.to_be_bytes()[..], &[0, 0, 0x40, 0, 64, 6, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]]
            .concat(),
    );
    frame.extend(
        [&port.to_be_bytes()[..], &80u16.to_be_bytes(), &seq.to_be_bytes(), &[0; 4], &[0x50, flags], &[0; 6]]
            .concat(),
    );
    frame.extend_from_slice(data);
    // Short frames are filled up.
    frame.resize(frame.len().max(60), 0);
    frame
}

const SYN: u8 = 2;
const ACK: u8 = 16;
const FIN: u8 = 17;

#[test]
fn a_capture_is_put_together_by_sequence_numbers() {
    let begin = u32::MAX - 10;
    let at = |n: u32| begin.wrapping_add(1 + n);
    let packets = vec![
        (1000, segment(1, begin, SYN, b"")),
        (1001, segment(1, at(0), ACK, b"POST /a HTTP/1.1\r\nHost: h\r\nContent-Length: 6\r\n\r\nab")),
        // Too early, twice, and partly known.
        (1003, segment(1, at(52), ACK, b"ef")),
        (1003, segment(1, at(52), ACK, b"ef")),
        (1004, segment(1, at(49), ACK, b"bcd")),
        (
            1100,
            segment(
                1,
                at(54),
                ACK,
                b"GET /b HTTP/1.1\r\nHost: h\r\nX: y\r\n\r\nGET /c HTTP/1.1\r\nHost: h\r\n\r\n",
            ),
        ),
        // Another connection begins before the capture does, and sends its body in chunks.
        (
            1200,
            segment(
                2,
                77,
                ACK,
                b"PUT /d HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
            ),
        ),
    ];
    let expected = [(0, "POST /a"), (99, "GET /b"), (99, "GET /c"), (199, "PUT /d")]
        .map(|(at, line)| (at, line.to_owned()));
    for file in
        [pcap(1, &packets), pcapng(false, 6, &packets), pcapng(true, 9, &packets), pcapng(true, 3, &packets)]
    {
        let recording = read(&file, &Wishes::default()).unwrap();
        assert_eq!(asked(&recording), expected);
        assert!(recording.skipped().is_empty(), "{}", recording.skipped());
        let all = written(&recording);
        assert!(
            all[0].1.ends_with("Content-Length: 6\r\n\r\nabcdef") && all[1].1.contains("X: y\r\n"),
            "{all:?}"
        );
        assert!(all[3].1.ends_with("Content-Length: 3\r\n\r\nabc") && !all[3].1.contains("chunked"));
        // Nothing is read behind the end of a file that is still written.
        for end in 0..file.len() {
            let _ = read(&file[..end], &Wishes::default());
        }
    }
}

#[test]
fn what_a_capture_does_not_have_is_counted() {
    let get = b"GET /whole HTTP/1.1\r\nHost: h\r\n\r\n";
    let hello = [&[0x16, 3, 1, 0, 9, 1][..], &[0; 9]].concat();
    let packets = vec![
        // A segment is missing, and the stream goes on behind it.
        (0, segment(1, 0, SYN, b"")),
        (1, segment(1, 1, ACK, b"GET /cut HTTP/1.1\r\nHo")),
        (2, segment(1, 40, ACK, b"t: h\r\n\r\n")),
        (2, segment(1, 48, ACK, get)),
        (3, segment(1, 48 + get.len() as u32, FIN, b"")),
        (4, segment(2, 0, SYN, b"")),
        (5, segment(2, 1, ACK, &hello)),
        (5, segment(2, 1 + hello.len() as u32, ACK, &[0x17, 3, 3, 0, 1, 0])),
        (6, segment(3, 1, ACK, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")),
        (7, segment(4, 1, SYN, b"")),
        (7, segment(4, 2, ACK, b"SSH-2.0-x\r\n")),
        (
            8,
            segment(
                5,
                1,
                ACK,
                b"GET /ws HTTP/1.1\r\nHost: h\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n",
            ),
        ),
        (8, segment(5, 71, ACK, b"\x81\x00")),
        (9, segment(6, 1, ACK, b"GET /bad HTTP/1.1\r\nHost: h\r\nNo colon\r\n\r\n")),
        (9, segment(7, 1, ACK, b"HTTP/1.1 200 OK\r\n\r\n")),
        (10, segment(8, 1, ACK, get)),
        (11, vec![0; 5]),
        (11, [&segment(9, 1, ACK, get)[..20], &[0x20, 0], &segment(9, 1, ACK, get)[22..]].concat()),
    ];
    let recording = read(&pcap(1, &packets), &Wishes::default()).unwrap();
    assert_eq!(asked(&recording), [(0, "GET /whole".to_owned()), (8, "GET /whole".to_owned())]);
    for (reason, count) in [
        (Reason::Truncated, 1),
        (Reason::Encrypted, 1),
        (Reason::Http2, 1),
        (Reason::OtherProtocol, 1),
        (Reason::Upgrade, 1),
        (Reason::Malformed, 1),
        (Reason::BadPacket, 1),
        (Reason::Fragments, 1),
    ] {
        assert_eq!(recording.skipped().of(reason), count, "{reason:?}: {}", recording.skipped());
    }
}

#[test]
fn damaged_captures_are_read_up_to_the_damage() {
    let get = b"GET /whole HTTP/1.1\r\nHost: h\r\n\r\n";
    let packets: Vec<(u64, Vec<u8>)> = (0..5).map(|n| (n, segment(n as u16, 1, ACK, get))).collect();
    let mut rng = flowlane_stack::rng::Rng::new(11);
    for file in [pcap(1, &packets), pcapng(false, 6, &packets), pcapng(true, 6, &packets)] {
        for _ in 0..20_000 {
            let mut damaged = file.clone();
            for _ in 0..=rng.below(4) {
                let place = rng.below(damaged.len() as u32) as usize;
                damaged[place] = rng.below(256) as u8;
            }
            // Whatever comes of it, it ends, and none of it is more than there was.
            if let Ok(recording) = read(&damaged, &Wishes::default()) {
                assert!(recording.requests() <= 10);
            }
        }
    }
    let huge = [&pcap(1, &packets)[..], &[0; 8], &[0xff; 8]].concat();
    let recording = read(&huge, &Wishes::default()).unwrap();
    assert_eq!((recording.requests(), recording.skipped().of(Reason::BadPacket)), (5, 1));
}
