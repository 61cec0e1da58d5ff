//! A receiver of pushed figures on loopback, which answers as it is told and keeps what came; and what came, decoded from its bytes by hand, so that
//! the structs of the sender are not what judges them.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

/// Answers to requests, by their number.
type Answers = Box<dyn Fn(usize) -> Answer + Send>;

/// What is answered.
pub(crate) enum Answer {
    /// A status, and more header lines.
    Status(u16, &'static str),
    /// Nothing, while the connection stays.
    Nothing,
}

/// A request that came.
#[derive(Clone)]
pub(crate) struct Push {
    pub(crate) path: String,
    /// Header lines in small letters.
    pub(crate) head: String,
    pub(crate) body: Vec<u8>,
}

pub(crate) struct Receiver {
    pub(crate) address: SocketAddr,
    pushes: Arc<Mutex<Vec<Push>>>,
}

impl Receiver {
    pub(crate) fn start(answers: impl Fn(usize) -> Answer + Send + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let pushes: Arc<Mutex<Vec<Push>>> = Arc::default();
        let (kept, answers): (_, Answers) = (pushes.clone(), Box::new(answers));
        std::thread::spawn(move || {
            let mut hanging = Vec::new();
            for stream in listener.incoming() {
                let stream = stream.unwrap();
                let Some(push) = read(&stream) else { continue };
                let number = {
                    let mut pushes = kept.lock().unwrap();
                    pushes.push(push);
                    pushes.len() - 1
                };
                match answers(number) {
                    Answer::Status(status, more) => {
                        let head =
                            format!("HTTP/1.1 {status} X\r\n{more}Content-Length: 9\r\n\r\nso it is\n");
                        let _ = (&stream).write_all(head.as_bytes());
                    }
                    Answer::Nothing => hanging.push(stream),
                }
            }
        });
        Self { address, pushes }
    }

    /// One that takes everything.
    pub(crate) fn glad() -> Self {
        Self::start(|_| Answer::Status(200, ""))
    }

    pub(crate) fn otlp(&self) -> String {
        format!("otlp=http://{}", self.address)
    }

    pub(crate) fn prometheus(&self) -> String {
        format!("prometheus=http://{}", self.address)
    }

    /// What has come so far.
    pub(crate) fn pushes(&self) -> Vec<Push> {
        self.pushes.lock().unwrap().clone()
    }

    /// The series of each push so far.
    pub(crate) fn series(&self) -> Vec<AllSeries> {
        self.pushes().iter().map(Push::series).collect()
    }
}

fn read(stream: &TcpStream) -> Option<Push> {
    let mut from = BufReader::new(stream);
    let (mut line, mut head) = (String::new(), String::new());
    from.read_line(&mut line).ok()?;
    let path = line.split(' ').nth(1)?.to_owned();
    loop {
        line.clear();
        from.read_line(&mut line).ok()?;
        if line.trim().is_empty() {
            break;
        }
        head.push_str(&line);
    }
    let length = head.to_ascii_lowercase();
    let length = length.lines().find_map(|line| line.strip_prefix("content-length:"))?.trim().parse().ok()?;
    let mut body = vec![0; length];
    from.read_exact(&mut body).ok()?;
    Some(Push { path, head, body })
}

/// Values by the name of their series, with its labels in order: `name{a="b"}`; a histogram has its buckets, sum and count as series.
pub(crate) type AllSeries = BTreeMap<String, f64>;

/// The sum of all series of a figure, by its name in Prometheus.
pub(crate) fn total(series: &AllSeries, name: &str) -> f64 {
    let of = |key: &str| key.split('{').next() == Some(name);
    series.iter().filter(|(key, _)| of(key)).map(|(_, value)| value).sum()
}

impl Push {
    fn series(&self) -> AllSeries {
        if self.path.ends_with("/v1/metrics") {
            return otlp(&self.body);
        }
        let body = snap::raw::Decoder::new().decompress_vec(&self.body).unwrap();
        remote_write(&body)
    }
}

/// A field of a message: its number, and its value.
enum Value<'a> {
    Number(u64),
    Bytes(&'a [u8]),
}

impl<'a> Value<'a> {
    fn number(&self) -> u64 {
        let Self::Number(number) = self else { panic!("bytes where a number belongs") };
        *number
    }

    fn bytes(&self) -> &'a [u8] {
        let Self::Bytes(bytes) = self else { panic!("a number where bytes belong") };
        bytes
    }

    fn text(&self) -> String {
        String::from_utf8(self.bytes().to_vec()).unwrap()
    }
}

fn varint(from: &mut &[u8]) -> u64 {
    let mut number = 0;
    for shift in (0..).step_by(7) {
        let byte = from[0];
        *from = &from[1..];
        number |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            break;
        }
    }
    number
}

/// The fields of a message, of protobuf's wire format.
fn fields(mut from: &[u8]) -> Vec<(u64, Value<'_>)> {
    let mut fields = Vec::new();
    while !from.is_empty() {
        let tag = varint(&mut from);
        let value = match tag & 7 {
            0 => Value::Number(varint(&mut from)),
            1 => {
                let (eight, rest) = from.split_at(8);
                from = rest;
                Value::Number(u64::from_le_bytes(eight.try_into().unwrap()))
            }
            2 => {
                let (bytes, rest) = {
                    let length = varint(&mut from) as usize;
                    from.split_at(length)
                };
                from = rest;
                Value::Bytes(bytes)
            }
            other => panic!("wire type {other}"),
        };
        fields.push((tag >> 3, value));
    }
    fields
}

/// The values of a field that may repeat.
fn all(message: &[u8], number: u64) -> Vec<Value<'_>> {
    fields(message).into_iter().filter(|(n, _)| *n == number).map(|(_, value)| value).collect()
}

fn text(message: &[u8], number: u64) -> String {
    all(message, number).last().map_or(String::new(), Value::text)
}

fn named(name: &str, labels: &BTreeMap<String, String>) -> String {
    let labels: Vec<String> = labels.iter().map(|(name, value)| format!("{name}=\"{value}\"")).collect();
    format!("{name}{{{}}}", labels.join(","))
}

fn remote_write(body: &[u8]) -> AllSeries {
    let mut found = AllSeries::new();
    for series in all(body, 1) {
        let pairs: Vec<(String, String)> = all(series.bytes(), 1)
            .iter()
            .map(|label| (text(label.bytes(), 1), text(label.bytes(), 2)))
            .collect();
        assert!(pairs.is_sorted(), "labels are sorted by name: {pairs:?}");
        let mut labels: BTreeMap<String, String> = pairs.into_iter().collect();
        let name = labels.remove("__name__").unwrap();
        let samples = all(series.bytes(), 2);
        assert_eq!(samples.len(), 1, "{name}");
        let value = all(samples[0].bytes(), 1).first().map_or(0, Value::number);
        let twice = found.insert(named(&name, &labels), f64::from_bits(value));
        assert_eq!(twice, None, "{name} {labels:?}");
    }
    found
}

/// OTLP with the names that Prometheus gives to what comes by it.
fn otlp(body: &[u8]) -> AllSeries {
    let mut found = AllSeries::new();
    let resource = &all(body, 1)[0];
    let attributes = &all(resource.bytes(), 1)[0];
    let pair = |pair: &Value<'_>| {
        let value = all(pair.bytes(), 2)[0].bytes();
        (text(pair.bytes(), 1), text(value, 1))
    };
    let of_run: BTreeMap<String, String> = all(attributes.bytes(), 1).iter().map(pair).collect();
    let of_run: BTreeMap<String, String> = of_run
        .into_iter()
        .filter(|(name, _)| name != "service.version")
        .map(|(name, value)| match name.as_str() {
            "service.name" => ("job".into(), value),
            "service.instance.id" => ("instance".into(), value),
            _ => (name, value),
        })
        .collect();
    let scope = &all(resource.bytes(), 2)[0];
    for metric in all(scope.bytes(), 2) {
        let metric = metric.bytes();
        let unit = match text(metric, 3).as_str() {
            "By" => "_bytes",
            "s" => "_seconds",
            _ => "",
        };
        let mut name = format!("{}{unit}", text(metric, 1));
        for sum in all(metric, 7) {
            assert_eq!(all(sum.bytes(), 2)[0].number(), 2, "cumulative");
            assert_eq!(all(sum.bytes(), 3)[0].number(), 1, "monotonic");
            name.push_str("_total");
        }
        let numbers = all(metric, 5).into_iter().chain(all(metric, 7)).chain(all(metric, 10));
        for point in numbers.flat_map(|data| all(data.bytes(), 1)) {
            let point = point.bytes();
            let is_histogram = !all(metric, 10).is_empty();
            let labels = if is_histogram { all(point, 1) } else { all(point, 7) };
            let mut labels: BTreeMap<String, String> = labels.iter().map(pair).collect();
            labels.extend(of_run.clone());
            let [start, at] = [2, 3].map(|field| all(point, field)[0].number());
            assert!(0 < start && start <= at, "{name}: {start} {at}");
            if is_histogram {
                let count = all(point, 4).first().map_or(0, Value::number);
                assert_eq!(buckets(point), count, "{name}");
                found.insert(named(&format!("{name}_count"), &labels), count as f64);
            } else {
                found.insert(named(&name, &labels), all(point, 6)[0].number() as f64);
            }
        }
    }
    found
}

/// The counts of all buckets of an exponential histogram.
fn buckets(point: &[u8]) -> u64 {
    let counts = all(point, 8);
    let packed = counts.iter().flat_map(|buckets| all(buckets.bytes(), 2));
    packed
        .map(|mut list| {
            let mut sum = 0;
            let Value::Bytes(bytes) = &mut list else { panic!("not packed") };
            while !bytes.is_empty() {
                sum += varint(bytes);
            }
            sum
        })
        .sum()
}
