//! What a runtime tells `tracing` of the moves of its lanes.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on panics")]

use std::fmt::{Debug, Write};
use std::sync::{Arc, Mutex};

use flowlane::{Bucket, Host, Key, MoveError, Rss, Runtime, block_on};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

/// Writes every event of `flowlane::lane` down.
#[derive(Clone, Default)]
struct Notes(Arc<Mutex<Vec<String>>>);

struct Line(String);

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        write!(self.0, " {}={value:?}", field.name()).unwrap();
    }
}

impl Subscriber for Notes {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target() == "flowlane::lane"
    }

    fn event(&self, event: &Event<'_>) {
        let mut line = Line(String::new());
        event.record(&mut line);
        self.0.lock().unwrap().push(line.0);
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

#[test]
fn moves_are_told_from_beginning_to_end() {
    let notes = Notes::default();
    tracing::subscriber::set_global_default(notes.clone()).unwrap();
    let mut builder = Runtime::builder().workers(2).pin(false);
    let rss = Arc::new(Rss::new(Key::MICROSOFT, 2));
    let host = builder.host(Host::kernel("host", rss, std::future::pending::<()>));
    let runtime = builder.start().unwrap();
    let handle = runtime.handle();
    let from = handle.worker_of(host, Bucket(1)).unwrap();
    let to = 1 - from;
    handle.move_lane(host, Bucket(1), to).unwrap();
    let mut expected = vec![
        format!(" message=move begun lane=1 from={from} to={to}"),
        format!(" message=sent lane=1 from={from} to={to} held=0"),
        format!(" message=arrived lane=1 to={to}"),
    ];
    assert_eq!(*notes.0.lock().unwrap(), expected);
    // Back again, and given up: unless the workers were faster.
    let back = handle.begin_move(host, Bucket(1), from).unwrap();
    if back.give_up() {
        expected.push(format!(" message=move begun lane=1 from={to} to={from}"));
        expected.push(format!(" message=move given up lane=1 from={to} to={from}"));
        assert_eq!(*notes.0.lock().unwrap(), expected);
        // And a new one takes it there.
        match handle.begin_move(host, Bucket(1), from) {
            Ok(back) => block_on(back).unwrap(),
            Err(e) => assert!(matches!(e, MoveError::Moving), "{e}"),
        }
    }
    let _ = runtime.stop();
    let notes = notes.0.lock().unwrap();
    let count = |word: &str| notes.iter().filter(|l| l.contains(word)).count();
    assert_eq!(count("begun"), count("arrived") + count("given up"), "{notes:?}");
}
