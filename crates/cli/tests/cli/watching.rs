//! `serve --watchdog`, `--task-budget` and `--perf-events`, and what `stat` says of them.

use flowlane_testnet::{Program, Scratch, free_port};
use serde_json::Value;
use std::process::{Command, Output, Stdio};

fn flowlane(arguments: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_flowlane"));
    command.args(arguments.split_whitespace()).stdin(Stdio::null()).env_remove("RUST_LOG");
    command
}

/// A service with all of it on.
struct Service {
    _program: Program,
    scratch: Scratch,
}

impl Service {
    fn start(more: &str) -> Self {
        let port = free_port();
        let scratch = Scratch::new(&format!("watching-{port}"));
        let control = scratch.path("control.sock");
        let arguments =
            format!("serve http --link kernel --workers 2 --no-pin --port {port} --control {control} {more}");
        Self { _program: Program::ready(flowlane(&arguments), " port "), scratch }
    }

    fn stat(&self, letters: &str) -> String {
        let output = flowlane(&format!("stat {letters} --control {}", self.scratch.path("control.sock")))
            .output()
            .unwrap();
        assert!(output.status.success(), "{letters}: {}", String::from_utf8_lossy(&output.stderr));
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(
            letters.contains("json")
                || letters.contains("metrics")
                || text.lines().all(|line| line.chars().count() <= 80),
            "{text}"
        );
        text
    }
}

#[test]
fn stat_says_what_is_watched() {
    let service = Service::start("--watchdog 5s --task-budget 1h --perf-events");
    let overview = service.stat("");
    assert!(overview.contains("Watchdog (5.00 s): 0 stalls\n"), "{overview}");
    let perf = service.stat("--perf");
    assert!(perf.contains("Events of the kernel:") && perf.contains("page faults"), "{perf}");
    // Of each kind there are counts, or the reason why not.
    let report: Value = serde_json::from_str(&service.stat("--perf --json")).unwrap();
    for worker in report["workers"]["workers"].as_array().unwrap() {
        let (perf, missing) = (&worker["perf"], worker["perf"]["missing"].to_string());
        for count in
            ["task-clock-nanos", "page-faults", "cycles", "instructions", "stalled-cycles", "cache-misses"]
        {
            assert!(
                perf[count].is_u64() || missing.contains("not available here, because"),
                "{count}: {perf}"
            );
        }
        assert_eq!(worker["long-tasks"]["budget-nanos"], 3_600_000_000_000u64);
    }
    let metrics = service.stat("--open-metrics");
    for name in ["worker_stalls_total", "worker_starved_total", "worker_long_tasks_total", "worker_needed_by"]
    {
        assert!(metrics.contains(&format!("flowlane_{name}{{worker=\"1\"}} 0\n")), "{name}: {metrics}");
    }
}

/// What is off is not there.
#[test]
fn nothing_is_watched_unless_asked_for() {
    let service = Service::start("");
    assert!(!service.stat("").contains("Watchdog"));
    assert!(
        service.stat("--perf").starts_with("no events are counted: start the instance with --perf-events")
    );
    let metrics = service.stat("--open-metrics");
    assert!(!metrics.contains("worker_stalls") && !metrics.contains("page_faults"), "{metrics}");
}

#[test]
fn bad_arguments() {
    for (arguments, words) in [
        ("--watchdog 9ms", "--watchdog: must be between 10ms and 1h"),
        ("--watchdog 2h", "--watchdog: must be between 10ms and 1h"),
        ("--watchdog soon", "'soon'"),
        ("--watchdog-ends", "--watchdog"),
        ("--task-budget soon", "--task-budget"),
    ] {
        let Output { status, stderr, .. } = flowlane(&format!("serve http {arguments}")).output().unwrap();
        let said = String::from_utf8(stderr).unwrap();
        assert_eq!((status.code(), said.lines().count()), (Some(2), 1), "{arguments}: {said}");
        assert!(said.contains(words), "{arguments}: {said}");
    }
}
