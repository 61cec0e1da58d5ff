//! `--push` and `--metrics` of a run that agents make: whoever conducts it pushes, and is asked.

use flowlane_testnet::{Program, eventually};

use crate::load_push::fetched::{fetch, said, value};
use crate::load_push::receiver::{Receiver, total};
use crate::load_push::{agrees, report};

use super::kit::{Nats, server};

#[test]
fn whoever_conducts_a_run_pushes_its_figures() {
    let Some(nats) = Nats::start(&[]) else { return };
    let (address, _) = server();
    let _agents = ["a", "b"].map(|name| nats.agent(name, &["--", "--workers", "1"]));
    let receiver = Receiver::glad();
    let (url, to) = (format!("http://{address}/"), receiver.prometheus());
    let run = [&url, "--agents", "lab:2", "-c", "4", "-r", "200", "-d", "2s", "--json", "--quiet"];
    let push = ["--push", &to, "--push-every", "100ms", "--slip-budget", "1h"];
    let said = report(&nats.load(&[&run[..], &push].concat()).output().unwrap());
    let series = receiver.series();
    agrees(series.last().unwrap(), &said);
    assert_eq!(said["pushes"].as_array().unwrap().len(), 1, "{said}");
    // While it goes on, what agents tell is known.
    let sent = |name: &str| {
        series[..series.len() - 1].iter().any(|series| (1.0..400.0).contains(&total(series, name)))
    };
    assert!(sent("flowlane_load_requests_answered_total"), "{series:#?}");
    assert!(sent("flowlane_load_latency_seconds_count"), "{series:#?}");
    assert_eq!(total(series.last().unwrap(), "flowlane_load_requests_sent_total"), 400.0);
}

#[test]
fn whoever_conducts_a_run_is_asked_for_its_figures() {
    let Some(nats) = Nats::start(&[]) else { return };
    let (address, _) = server();
    let _agents = ["a", "b"].map(|name| nats.agent(name, &["--", "--workers", "1"]));
    let url = format!("http://{address}/");
    let run = [
        &url,
        "--agents",
        "lab:2",
        "-c",
        "4",
        "-r",
        "200",
        "-d",
        "2s",
        "--slip-budget",
        "1h",
        "--metrics",
        "0",
    ];
    let mut load = Program::start(nats.load(&run));
    let at = said(&mut load);
    eventually("what both have had answered is seen", || {
        value(&fetch(&at), "flowlane_load_requests_answered_total{pool=\"all\"}") >= 100.0
    });
    assert_eq!(load.end().status.code(), Some(0));
}
