//! A number is given to another port: nothing of the port before is taken for its own.

use std::sync::mpsc::channel;

use flowlane_switch::config::PortConfig;
use flowlane_switch::{Change, Config, PortId};

use super::over;
use crate::link::Queue;
use crate::runtime::relay::relay;
use crate::switch::ask::Ask;
use crate::switch::bench::{Bench, Fake};
use crate::switch::egress::Egress;

fn port(n: usize) -> PortId {
    PortId::new(n).unwrap()
}

/// Asks both workers, in their order.
fn ask(bench: &mut Bench, of: impl Fn(usize) -> Ask) {
    for (n, post) in bench.posts.iter().enumerate() {
        post.ask(of(n));
    }
}

/// Takes a port from both workers, as `remove_port` does, with what they have of it. `turns`: they do it at once.
fn remove(bench: &mut Bench, n: usize, turns: &[usize]) -> Config {
    let config = bench.workers[0].switch.config().without_port(port(n)).unwrap();
    let (done, _) = channel();
    ask(bench, |_| Ask::Change(Change { config: config.clone(), flush: Vec::new() }, done.clone()));
    let (give, given) = channel();
    ask(bench, |_| Ask::Detach(port(n), give.clone()));
    turns.iter().for_each(|worker| bench.turn(*worker));
    assert_eq!(given.try_iter().count(), turns.len());
    config
}

/// Gives both workers a port that has the number, as `add_port` does; its queue is on the worker of its number.
fn add(bench: &mut Bench, n: usize, config: &Config) -> Fake {
    let (config, number) = config.with_port("next", "plug", 1500).unwrap();
    assert_eq!(number, port(n));
    let (done, _) = channel();
    ask(bench, |_| Ask::Change(Change { config: config.clone(), flush: Vec::new() }, done.clone()));
    let wire = Fake::default();
    wire.0.lock().unwrap().takes = true;
    let (near, far) = relay(bench.posts[n].wake.clone());
    let queues = vec![Box::new(wire.clone()) as Box<dyn Queue>];
    bench.posts[n].ask(Ask::Attach(number, Egress::new(queues, None, vec![far])));
    bench.posts[1 - n].ask(Ask::Attach(number, Egress::new(Vec::new(), Some(near), Vec::new())));
    ask(bench, |_| Ask::Link(number, true));
    wire
}

#[test]
fn what_waits_for_a_port_does_not_leave_by_the_next_one() {
    let mut bench = Bench::new();
    // At the worker that has the queue, and in the ring to it.
    bench.come(0..3);
    bench.turn(0);
    bench.turn(1);
    bench.come(3..6);
    bench.turn(0);
    let config = remove(&mut bench, 1, &[0, 1]);
    let next = add(&mut bench, 1, &config);
    for worker in [0, 1, 0, 1] {
        bench.turn(worker);
    }
    assert_eq!((bench.sent(), next.0.lock().unwrap().sent.len()), (Vec::new(), 0));
    bench.come(6..9);
    for worker in [0, 1, 0, 1] {
        bench.turn(worker);
    }
    assert_eq!((bench.sent(), next.0.lock().unwrap().sent.clone()), (Vec::new(), vec![6, 7, 8]));
}

#[test]
fn what_was_learnt_of_a_port_is_not_known_of_the_next_one() {
    let mut bench = Bench::new();
    bench.come(0..1);
    bench.turn(0);
    assert_eq!(bench.workers[0].switch.known(Some(port(0))), 1);
    // The other worker has been told, and looks at it late.
    let config = remove(&mut bench, 0, &[0]);
    let next = add(&mut bench, 0, &config);
    for worker in [1, 0, 1, 0] {
        bench.turn(worker);
    }
    assert_eq!([0, 1].map(|worker| bench.workers[worker].switch.known(Some(port(0)))), [0, 0]);
    drop(next);
}

#[test]
fn an_interface_is_that_of_one_port() {
    let mut ports = vec![PortConfig::new("a"), PortConfig::new("b")];
    ports[0].link = "af-packet:e1".to_owned();
    ports[1].link = "plug".to_owned();
    let config = Config::new(ports);
    let found = |link: &str| over(&config, &link.parse().unwrap()).map(str::to_owned);
    for link in ["af-packet:e1", "af-xdp:e1,queues=0-1", "tap:e1"] {
        assert_eq!(found(link), Some("a".to_owned()), "{link}");
    }
    for link in ["af-xdp:e2", "plug", "host:10.9.0.9/24"] {
        assert_eq!(found(link), None, "{link}");
    }
}
