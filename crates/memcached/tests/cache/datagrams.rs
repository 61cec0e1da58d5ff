//! Requests in datagrams: as memcached answers them, over several lanes, in several datagrams, and those that are no requests.

use std::collections::HashMap;
use std::net::{Ipv4Addr, UdpSocket};

use flowlane_memcached::server::Options;

use crate::beside::{bytes, memcached};
use crate::kit::{Client, PATIENCE, SERVER, beside, figure, on_kernel_sockets};

/// A request, or what shall be none.
fn datagram(number: u16, text: &[u8]) -> Vec<u8> {
    [&number.to_be_bytes()[..], &[0, 0, 0, 1, 0, 0], text].concat()
}

/// The answers to all requests whose numbers were asked for: pieces by number, put together by their sequence.
#[derive(Default)]
struct Answers(HashMap<u16, Vec<Option<Vec<u8>>>>);

impl Answers {
    fn take(&mut self, datagram: &[u8]) {
        let number = |at: usize| u16::from_be_bytes([datagram[at], datagram[at + 1]]);
        let (request, sequence, datagrams) = (number(0), usize::from(number(2)), usize::from(number(4)));
        assert_eq!(number(6), 0, "reserved");
        assert!(sequence < datagrams && datagram.len() <= 1400, "{sequence} of {datagrams}");
        let pieces = self.0.entry(request).or_insert_with(|| vec![None; datagrams]);
        assert_eq!(pieces.len(), datagrams);
        assert!(sequence + 1 == datagrams || datagram.len() == 1400, "only the last one is shorter");
        assert!(pieces[sequence].replace(datagram[8..].to_vec()).is_none(), "{sequence} twice");
    }

    /// The answer, if it is whole.
    fn whole(&self, number: u16) -> Option<Vec<u8>> {
        let pieces: Option<Vec<&[u8]>> = self.0.get(&number)?.iter().map(Option::as_deref).collect();
        pieces.map(|pieces| pieces.concat())
    }
}

/// Sends a datagram to a server of this machine, and others that are answered; what the first one was answered with, if with anything.
fn said(port: u16, sent: &[u8]) -> Option<Vec<u8>> {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    socket.connect((Ipv4Addr::LOCALHOST, port)).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    socket.send(sent).unwrap();
    let (mut answers, mut buffer) = (Answers::default(), vec![0; 1 << 16]);
    // The first mark may overtake the answer, for they came together. The second one comes when both have been answered.
    for mark in [0xfffe, 0xffff] {
        socket.send(&datagram(mark, b"mn\r\n")).unwrap();
        while answers.whole(mark).is_none() {
            let n = socket.recv(&mut buffer).expect("no answer");
            answers.take(&buffer[..n]);
        }
    }
    let number = sent.first_chunk::<2>().map_or(0, |number| u16::from_be_bytes(*number));
    answers.whole(number)
}

/// Requests with one answer: those with several, as a `get` of several keys, memcached answers with several of one number.
const ALONE: &[&str] = &[
    "set a 5 0 5\\r\\nhello\\r\\n",
    "get a\\r\\n",
    "get none\\r\\n",
    "append a 0 0 1\\r\\n!\\r\\n",
    "gets a\\r\\n",
    "incr a 1\\r\\n",
    "mg a v f\\r\\n",
    "ms b 2\\r\\nhi\\r\\n",
    "mn\\r\\n",
    "touch a 100\\r\\n",
    "delete a\\r\\n",
    "delete a\\r\\n",
    "nonsense\\r\\n",
    "\\r\\n",
    "verbosity 1\\r\\n",
    "set c 0 0 1 noreply\\r\\nx\\r\\n",
    "get c",
    "set e 0 0 x\\r\\n",
    "flush_all\\r\\n",
    "get c\\r\\n",
];

#[test]
fn answers_are_those_of_memcached() {
    for lanes in [1, 4] {
        let Some(peer) = memcached() else { return };
        on_kernel_sockets(Options::default(), lanes, |port| {
            let same = |sent: &[u8]| {
                let (theirs, ours) = (said(peer.1, sent), said(port, sent));
                let text = |said: &Option<Vec<u8>>| {
                    said.as_ref().map(|said| String::from_utf8_lossy(said).into_owned())
                };
                assert_eq!(text(&theirs), text(&ours), "{lanes} lanes, {:?}", String::from_utf8_lossy(sent));
            };
            for (n, line) in ALONE.iter().enumerate() {
                // Numbers for comparison are each lane's own.
                if lanes == 1 || !line.starts_with("gets") {
                    same(&datagram(n as u16 + 513, &bytes(line)));
                }
            }
            for len in [1300, 1392, 1400, 20_000] {
                let set = format!("set big 0 0 {len}\r\n{}\r\n", "v".repeat(len));
                same(&datagram(7, set.as_bytes()));
                same(&datagram(8, b"get big\r\n"));
            }
            // No requests: too short, a part of a longer one, of none; and what is reserved, and the number of the only datagram.
            let whole = datagram(9, b"get big\r\n");
            (0..=8).for_each(|len| same(&whole[..len]));
            for (at, byte) in [(5, 0), (5, 2), (4, 1), (3, 1), (6, 77), (7, 77)] {
                let mut other = whole.clone();
                other[at] = byte;
                same(&other);
            }
        });
    }
}

/// Sends all of them from a lane of the client's host, a few at a time; the answers of those that have one.
async fn ask(requests: Vec<(u16, Vec<u8>)>, without: usize) -> Answers {
    let socket = flowlane::UdpSocket::connect(SERVER.parse().unwrap()).unwrap();
    let (mut answers, wanted) = (Answers::default(), requests.len() - without);
    let (mut done, mut sent) = (0, 0);
    let mut requests = requests.into_iter();
    while done < wanted {
        while sent < done + 50 + without {
            let Some((number, text)) = requests.next() else { break };
            socket.send(&datagram(number, &text)).await.unwrap();
            sent += 1;
        }
        let came = socket.recv().await.unwrap();
        answers.take(came.payload());
        let number = u16::from_be_bytes([came.payload()[0], came.payload()[1]]);
        done += usize::from(answers.whole(number).is_some());
    }
    answers
}

#[test]
fn keys_of_other_lanes_and_many_requests_at_once() {
    for lanes in [1, 2, 4] {
        let ((), report) = beside(Options::default(), lanes, || async {
            let sets = (0..500u16).map(|n| (n, format!("set key{n} {n} 0 4\r\n{n:04}\r\n").into_bytes()));
            let stored = ask(sets.collect(), 0).await;
            assert!((0..500).all(|n| stored.whole(n).unwrap() == b"STORED\r\n"));
            // Several requests in one datagram have one answer, in their order; and answers of others do not come in between.
            let value = |n: u16| format!("VALUE key{n} {n} 4\r\n{n:04}\r\n");
            let mixed = |n: u16| match n % 4 {
                0 => (format!("get key{n}\r\n"), format!("{}END\r\n", value(n))),
                1 => (
                    format!("get key{n} none key{}\r\nmn\r\nincr key{n} 0\r\n", n - 1),
                    format!("{}{}END\r\nMN\r\n{n}\r\n", value(n), value(n - 1)),
                ),
                2 => {
                    let keys: String = (0..100).map(|i| format!(" key{}", 4 * i)).collect();
                    let values: String = (0..100).map(|i| value(4 * i)).collect();
                    (format!("get{keys}\r\n"), format!("{values}END\r\n"))
                }
                _ => (format!("set key{n} 0 0 4 noreply\r\nabcd\r\n"), String::new()),
            };
            let asked = (0..400).map(|n| (n, mixed(n).0.into_bytes()));
            // The last one is answered behind the others, some of which have no answer.
            let answers = ask(asked.chain([(400, b"mn\r\n".to_vec())]).collect(), 100).await;
            for n in (0..400).filter(|n| n % 4 < 3) {
                assert_eq!(String::from_utf8(answers.whole(n).unwrap()).unwrap(), mixed(n).1, "{n}");
            }
        });
        let over = figure(&report, "handed-over");
        assert_eq!(over, figure(&report, "taken-over"));
        assert_eq!(lanes > 1, over > 500, "{lanes} lanes, {over} handed over");
        assert!(figure(&report, "batches") < over.max(1) / 2 + 1, "they go in batches");
        assert_eq!(figure(&report, "udp-requests"), 901);
    }
}

#[test]
fn long_answers_and_those_that_are_too_long() {
    for lanes in [1, 4] {
        let ((), report) = beside(Options::default(), lanes, || async {
            let value = |n: usize| char::from(b'a' + n as u8).to_string().repeat(500_000);
            let mut client = Client::connect().await;
            for n in 0..4 {
                client.says(&format!("set key{n} 0 0 500000\r\n{}\r\n", value(n)), "STORED\r\n").await;
            }
            let long = (1, b"get key0 key1\r\n".to_vec());
            let too_long = (2, b"get key0 key1 key2 key3\r\n".to_vec());
            let short = (3, b"get none\r\n".to_vec());
            let answers = ask(vec![long, too_long, short], 0).await;
            let expected: String =
                (0..2).map(|n| format!("VALUE key{n} 0 500000\r\n{}\r\n", value(n))).collect();
            assert!(answers.whole(1).unwrap() == (expected + "END\r\n").as_bytes());
            let refused = b"SERVER_ERROR out of memory writing get response\r\n";
            assert_eq!(answers.whole(2).unwrap(), refused);
            assert_eq!(answers.whole(3).unwrap(), b"END\r\n");
        });
        assert_eq!(figure(&report, "udp-too-long"), 1, "{lanes} lanes");
    }
}

#[test]
fn what_is_no_request_is_counted() {
    let ((), report) = beside(Options::default(), 2, || async {
        let socket = flowlane::UdpSocket::connect(SERVER.parse().unwrap()).unwrap();
        let mut part = datagram(1, b"get key\r\n");
        part[5] = 2;
        let others = [
            &[][..],
            b"short",
            &datagram(1, b""),
            &part,
            &datagram(1, b"get k"),
            &datagram(1, b"set k 0 0 9\r\nx"),
        ];
        for other in others {
            socket.send(other).await.unwrap();
        }
        socket.send(&datagram(2, b"quit\r\nget key\r\n")).await.unwrap();
        socket.send(&datagram(3, b"mn\r\n")).await.unwrap();
        assert_eq!(socket.recv().await.unwrap().payload(), datagram(3, b"MN\r\n"));
    });
    let counted =
        ["udp-bad", "udp-parts", "udp-incomplete", "udp-requests"].map(|name| figure(&report, name));
    assert_eq!(counted, [3, 1, 2, 4]);
}
