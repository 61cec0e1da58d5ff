//! `flowlane load http`: what it refuses, and runs over kernel sockets and over the pair link.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Command, Output, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use flowlane::control;
use flowlane_testnet::{Scratch, eventually};
use serde_json::Value;

fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_flowlane"));
    command.args(["load", "http"]).args(arguments);
    command
}

fn load(arguments: &[&str]) -> Output {
    command(arguments).output().unwrap()
}

fn refused(arguments: &[&str], word: &str) {
    let output = load(arguments);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{arguments:?}: {stderr}");
    assert_eq!(stderr.lines().count(), 1, "{arguments:?}: {stderr}");
    assert!(stderr.contains(word), "{arguments:?}: '{word}' in {stderr}");
    assert!(output.stdout.is_empty(), "{arguments:?}");
}

/// A server on the kernel's loopback, a thread for each connection: how many requests it heard.
fn server() -> (SocketAddr, Arc<AtomicU64>) {
    server_that_waits(|_| Duration::ZERO)
}

/// The same: each answer waits as long as `wait` says of the time since the start.
fn server_that_waits(wait: fn(Duration) -> Duration) -> (SocketAddr, Arc<AtomicU64>) {
    let begin = Instant::now();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let heard = Arc::new(AtomicU64::new(0));
    let count = heard.clone();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let (count, stream) = (count.clone(), stream.unwrap());
            std::thread::spawn(move || answer(stream, &count, || wait(begin.elapsed())));
        }
    });
    (address, heard)
}

fn answer(mut stream: TcpStream, heard: &AtomicU64, wait: impl Fn() -> Duration) {
    stream.set_nodelay(true).unwrap();
    let (mut held, mut buffer) = (Vec::new(), [0; 4096]);
    loop {
        match stream.read(&mut buffer) {
            Ok(n) if n > 0 => held.extend_from_slice(&buffer[..n]),
            _ => return,
        }
        while let Some(end) = held.windows(4).position(|w| w == b"\r\n\r\n") {
            let close = String::from_utf8_lossy(&held[..end]).contains("Connection: close");
            held.drain(..end + 4);
            heard.fetch_add(1, Ordering::Relaxed);
            let pause = wait();
            if !pause.is_zero() {
                // A server that takes its time is the situation: nothing is waited for.
                std::thread::sleep(pause);
            }
            if stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello").is_err() || close {
                return;
            }
        }
    }
}

fn report(output: &Output) -> Value {
    let stderr = String::from_utf8_lossy(&output.stderr);
    // A machine with other things to do makes the generator late, and it says so.
    let late = stderr.lines().count() == 1 && stderr.contains("the schedule was not kept");
    assert!(output.status.success() || (output.status.code() == Some(3) && late), "{stderr}");
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    flowlane_schema::check("load-run", &report);
    assert_eq!(report["ok"], output.status.success());
    report
}

#[test]
fn bad_arguments_get_one_line_and_2() {
    let url = "http://127.0.0.1:9/";
    for (arguments, word) in [
        (&["ftp://a/"][..], "http://"),
        (&["http://no-such-host.invalid/"], "resolved"),
        (&[url, "-c", "0"], "at least 1"),
        (&[url, "--rate", "0"], "rate"),
        (&[url, "--poisson"], "--rate"),
        (&[url, "--duration", "0s"], "time"),
        (&[url, "--timeout", "0s"], "timeout"),
        (&[url, "--think", "soon"], "soon"),
        (&[url, "--think", "1s", "--rate", "5"], "--think"),
        (&[url, "-H", "nonsense"], "Name: value"),
        (&[url, "-H", "a b: c"], "no header"),
        (&[url, "-X", "GE T"], "no method"),
        (&[url, "--body-file", "/no/such/file"], "/no/such/file"),
        (&[url, "--body-file", "/dev/zero"], "--body-file /dev/zero: neither a file nor a pipe"),
        (&[url, "--body-file", "/"], "--body-file /: is a directory"),
        (&[url, "--expect-status", "20"], "statuses"),
        (&[url, "--expect-sha256", "abc"], "SHA-256"),
        (&[url, "--pipeline", "0"], "0"),
        (&[url, "--pipeline", "4", "--body", "x"], "without a body"),
        (&[url, "--http2", "10", "--read-rate", "5"], "HTTP/1.1"),
        (&[url, "--syn-only", "--rate", "10"], "link of ours"),
        (&[url, "--addr", "10.0.0.1/8"], "--link"),
        (&[url, "--link", "wifi:x"], "wifi"),
        (&[url, "--link", "tap:x"], "--addr"),
        (&["http://10.9.0.1/", "--link", "tap:x", "--addr", "10.8.0.1/16"], "--gateway"),
        (&["http://10.8.0.1/", "--link", "tap:x", "--addr", "10.8.0.1/16"], "our own"),
        (
            &["http://10.8.0.2/", "--link", "tap:x", "--addr", "10.8.0.1/16", "--clients", "10.8.0.0/24"],
            "target",
        ),
        (
            &["http://10.8.0.2/", "--link", "tap:x", "--addr", "10.8.0.1/16", "--clients", "10.9.0.0/24"],
            "--routed",
        ),
        (&[url, "--clients", "fd00::/64"], "family"),
        (&[url, "--aim", "even"], "--target-key"),
        (&[url, "--aim", "odd", "--target-key", "microsoft"], "zipf"),
        (&[url, "--aim", "one:9", "--target-key", "microsoft"], "8 buckets"),
        (&[url, "--target-key", "microsoft", "--target-buckets", "3"], "--target-buckets"),
        (&[url, "--workers", "0"], "--workers"),
        (&[url, "--fail", "speed > 3"], "speed"),
        (&[url, "--save", "/no/such/dir/x.json"], "/no/such/dir"),
        (&["--scenario", "/no/such/file"], "/no/such/file"),
        (&["--scenario", "/dev/zero"], "larger than 16 MiB"),
        (&[url, "--scenario", "x", "--poisson", "--rate", "5"], "--poisson"),
        (&["https://127.0.0.1/", "--ca", "/no/such/file"], "/no/such/file"),
    ] {
        refused(arguments, word);
    }
}

/// A body is kept in memory: what is too large is refused, whether its length is known before or not.
#[test]
fn a_body_of_a_file_has_an_end() {
    let url = "http://127.0.0.1:9/";
    let dir = Scratch::new("load-http-body");
    let long = dir.path("long");
    // Nothing is written, so it takes no room.
    std::fs::File::create(&long).unwrap().set_len((1 << 30) + 1).unwrap();
    refused(&[url, "--body-file", &long], "larger than 1 GiB");
    let scenario = dir.path("long.toml");
    let pool =
        format!("[[pool]]\ntarget = [{{ url = \"{url}\" }}]\nrequest = [{{ body-file = \"long\" }}]\n");
    std::fs::write(&scenario, &pool).unwrap();
    refused(&["--scenario", &scenario], "line 3, column 26");
    std::fs::write(&scenario, pool.replace("long", "/dev/zero")).unwrap();
    refused(&["--scenario", &scenario], "neither a file nor a pipe");
}

#[test]
fn a_run_over_kernel_sockets_agrees_with_the_server() {
    for more in
        [&["-c", "5"][..], &["-c", "5", "--rate", "500"], &["-c", "5", "--no-keepalive", "--rate", "200"]]
    {
        let (address, heard) = server();
        let url = format!("http://{address}/");
        let fixed = [&url[..], "-d", "500ms", "--json", "-q", "--no-pin"];
        let report = report(&load(&[&fixed[..], more].concat()));
        let counts = &report["total"]["counts"];
        assert_eq!(counts["sent"], heard.load(Ordering::Relaxed), "{counts}");
        assert_eq!(counts["answered"], counts["sent"]);
        assert_eq!(counts["codes"]["200"], counts["sent"]);
        assert!(counts["sent"].as_u64().unwrap() >= 90, "{counts}");
        assert_eq!(report["setup"]["link"], "kernel");
    }
}

#[test]
fn a_run_in_one_process() {
    let arguments =
        ["http://10.0.0.1/", "--link", "pair", "-c", "20", "-d", "300ms", "--json", "-q", "--no-pin"];
    let many = ["--clients", "10.64.0.0/10", "--no-keepalive"];
    for more in [&[][..], &["--pipeline", "4"], &many] {
        let report = report(&load(&[&arguments[..], more].concat()));
        let counts = &report["total"]["counts"];
        assert!(counts["answered"].as_u64().unwrap() > 100, "{counts}");
        assert_eq!(counts["failed"], 0, "{counts}");
    }
}

/// `--control`, `--top-flows` and `--capture`: flows are listed while it runs, and what was captured is in the file.
#[test]
fn a_run_that_is_looked_at() {
    let dir = std::env::temp_dir().join(format!("flowlane-load-looked-at-{}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    let (control, file) = (dir.join("control"), dir.join("frames.pcapng"));
    let capture = format!("{},max=1M", file.display());
    let kernel = ["http://127.0.0.1:9/", "--capture", &capture];
    refused(&kernel, "the kernel's");
    refused(&["http://10.0.0.1/", "--link", "pair", "--top-flows"], "needs --control");
    refused(&["http://127.0.0.1/", "--link", "pair"], "loopback");
    refused(&["http://[fe80::1]/"], "is link-local");
    refused(&["http://10.0.0.1/", "--link", "pair", "--capture", "/nowhere/a"], "/nowhere/a");
    assert!(!file.exists());
    let mut child =
        command(&["http://10.0.0.1/", "--link", "pair", "-c", "20", "-d", "90s", "-q", "--no-pin"])
            .args(["--top-flows", "64", "--capture", &capture, "--control"])
            .arg(&control)
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
    let begun = Instant::now();
    loop {
        assert!(child.try_wait().unwrap().is_none(), "it has ended");
        assert!(begun.elapsed() < Duration::from_secs(60), "no flow is listed");
        let flows = control::get::<control::FlowsView>(&control, "/v1/flows?n=10");
        let file_grows = std::fs::metadata(&file).is_ok_and(|m| m.len() > 100_000);
        if file_grows && flows.is_ok_and(|flows| !flows.flows.is_empty()) {
            break;
        }
    }
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    let mut said = String::new();
    child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(130), "{said}");
    let bytes = std::fs::metadata(&file).unwrap().len();
    let line = said.lines().find(|line| line.contains("flowlane: capture ")).unwrap();
    assert!(line.contains(&format!(", {bytes} bytes")) && !line.contains(": 0 frames"), "{said}");
    assert!(!control.exists(), "the socket is gone");
    std::fs::remove_dir_all(&dir).unwrap();
}

#[test]
fn a_scenario_file_with_another_target() {
    let (address, heard) = server();
    let file = format!("{}/../../scenarios/quick.toml", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(file).unwrap().replace("10s", "300ms").replace("1s", "100ms");
    let path = std::env::temp_dir().join(format!("flowlane-scenario-{}.toml", std::process::id()));
    std::fs::write(&path, text).unwrap();
    let url = format!("http://{address}/");
    let named = path.to_str().unwrap();
    let output = load(&["--scenario", named, &url, "--json", "-q", "--no-pin", "--fail", "slip-p99.9 > 10s"]);
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let both = |name: &str| {
        let part = &report["total"];
        part["counts"][name].as_u64().unwrap() + part["unmeasured"][name].as_u64().unwrap()
    };
    assert_eq!(both("answered"), heard.load(Ordering::Relaxed));
    assert_eq!(report["pools"][0]["name"], "clients");
    // Figures of the command line stand in the place of the file's, and the head says so.
    let before = heard.load(Ordering::Relaxed);
    let page = path.with_extension("html");
    let instead = ["-d", "400ms", "-c", "3", "-r", "100", "--fail", "slip-p99.9 > 10s", "-q", "--no-pin"];
    let more = ["--slip-budget", "10s", "--html", page.to_str().unwrap()];
    let output = load(&[&["--scenario", named, &url][..], &instead, &more].concat());
    let table = String::from_utf8_lossy(&output.stdout).replace("\n    ", " ");
    assert!(output.status.success(), "{table}{}", String::from_utf8_lossy(&output.stderr));
    for words in [
        "for 0.5 s (0.4 s measured): constant 100/s, 3 connections",
        &format!("scenario 'quick' ({named}): Ten seconds of an even load"),
        "in the place of the scenario's: duration 400 ms (300 ms), connections 3 (50), rate 100/s (2 000/s)",
        "(warm-up)",
    ] {
        assert!(table.contains(words), "{words} in\n{table}");
    }
    // Six in the tenth of a second of the warm-up, which grows from 20 to 100 a second, and maybe one on its end.
    let sent = heard.load(Ordering::Relaxed) - before;
    assert!((46..=47).contains(&sent), "{sent}");
    let html = std::fs::read_to_string(&page).unwrap();
    for words in [
        "constant 100/s, 3 connections over kernel",
        "<td class=\"text\">20 to 100/s, not measured</td>",
        "Ten seconds of an even load",
    ] {
        assert!(html.contains(words), "{words} in {html}");
    }
    std::fs::remove_file(&page).unwrap();
    std::fs::write(&path, "[[pool]]\nrate = 5\n").unwrap();
    refused(&["--scenario", named], "line 2, column 8");

    // A run that measures nothing has no figures.
    let unmeasured = "[[phase]]\nname = 'warm-up'\nduration = '1s'\n\
        [[pool]]\nname = 'all'\nconnections = 1\ntarget = [{ url = 'http://127.0.0.1:9/' }]\nrequest = [{ path = '/' }]\n";
    std::fs::write(&path, unmeasured).unwrap();
    refused(&["--scenario", named], "no phase is measured");
    std::fs::remove_file(&path).unwrap();
}

/// More connections than there may be descriptors: said at once, and nobody hears of it. A soft limit below the hard one is
/// raised.
#[test]
fn descriptors_are_looked_at_before_anything_is_sent() {
    // Without this capability the hard limit is a limit for root, too.
    let keep = ["--bounding-set", "-sys_resource", "--inh-caps", "-sys_resource"];
    let mut limited = Command::new("setpriv");
    limited.args(if rustix::process::geteuid().is_root() { &keep[..] } else { &[] });
    let may = limited.args(["sh", "-c", "ulimit -Sn 80 && ulimit -Hn 200 && exec \"$@\"", "sh"]);
    if !Command::new("setpriv").arg("--version").stdout(Stdio::null()).status().is_ok_and(|s| s.success()) {
        flowlane_testnet::skipped("skipped, because the program setpriv is not there");
        return;
    }
    let (address, heard) = server();
    let url = format!("http://{address}/");
    let fixed = ["load", "http", &url, "-q", "--no-pin", "-n", "300", "-c"];
    may.arg(env!("CARGO_BIN_EXE_flowlane")).args(fixed);
    let output = may.arg("500").output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!((output.status.code(), stderr.lines().count()), (Some(2), 1), "{stderr}");
    assert!(
        stderr.contains("564 descriptors are needed and 200 allowed") && stderr.contains("ulimit -n"),
        "{stderr}"
    );
    assert_eq!(heard.load(Ordering::Relaxed), 0);
    let arguments: Vec<_> = may.get_args().map(std::ffi::OsStr::to_owned).collect();
    let (_, all_but_last) = arguments.split_last().unwrap();
    let mut fewer = Command::new("setpriv");
    let output = fewer.args(all_but_last).arg("120").output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(heard.load(Ordering::Relaxed), 300);
}

/// Nobody accepts the handshakes: until the run begins, what is shown is how many connections stand.
#[test]
fn progress_while_connecting() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("https://{}/", listener.local_addr().unwrap());
    let mut child = command(&[&url, "-k", "-c", "3", "-d", "1s", "--lines", "--no-pin"])
        .stderr(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let mut line = String::new();
    std::io::BufRead::read_line(&mut std::io::BufReader::new(child.stderr.take().unwrap()), &mut line)
        .unwrap();
    assert!(line.starts_with("connecting: 0 of 3 open after 1."), "{line}");
    child.kill().unwrap();
    child.wait().unwrap();
}

/// What other programs have as options is no target: `-q 100` would send to 0.0.0.100.
#[test]
fn only_what_was_meant_as_a_target_is_one() {
    let (address, heard) = server();
    let url = format!("http://{address}/");
    for (more, words) in [
        (&["-q", "100"][..], "no URL"),
        (&["http://100/"], "is a number"),
        (&["127.0.0.1:80"], "http://127.0.0.1:80"),
        (&["--fail", "p99 > 20"], "no unit"),
        (&["-d", "5"], "no unit"),
        (&["-H", "Transfer-Encoding: chunked", "--body", "x"], "with their length"),
    ] {
        let output = load(&[&[&*url], more].concat());
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!((output.status.code(), stderr.lines().count()), (Some(2), 1), "{more:?}: {stderr}");
        assert!(stderr.contains(words), "{more:?}: {stderr}");
    }
    assert_eq!(heard.load(Ordering::Relaxed), 0, "nothing was sent");
}

/// The server listens on one of the addresses of `localhost`.
#[test]
fn a_name_of_which_one_address_answers_has_no_failures() {
    let (address, _) = server();
    let url = format!("http://localhost:{}/", address.port());
    let output = load(&[&url, "-c", "4", "-n", "100", "-q", "--no-pin", "--json"]);
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let counts = &report["total"]["counts"];
    assert_eq!(
        (output.status.code(), &counts["answered"], &counts["failed"]),
        (Some(0), &100.into(), &0.into()),
        "{counts}"
    );
}

#[test]
fn nobody_there_fails_and_a_threshold_too() {
    // A port that was free a moment ago.
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let output = load(&[&format!("http://{free}/"), "-q", "--no-pin"]);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    assert!(stderr.contains("refused"), "{stderr}");
    let (address, _) = server();
    let url = format!("http://{address}/");
    let output = load(&[&url, "-c", "2", "-d", "200ms", "-q", "--no-pin", "--fail", "p50 > 1ns"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).contains("p50 > 1ns"));
}

#[test]
fn an_interrupt_ends_it_with_the_report_so_far() {
    let (address, heard) = server();
    let url = format!("http://{address}/");
    let mut child = command(&[&url, "-c", "2", "-d", "60s", "--json", "-q", "--no-pin"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    eventually("something is asked", || heard.load(Ordering::Relaxed) >= 100);
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    let mut text = String::new();
    child.stdout.take().unwrap().read_to_string(&mut text).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(130));
    let report: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(report["ended"], "interrupted");
    assert_eq!(report["total"]["counts"]["sent"], heard.load(Ordering::Relaxed));
}

/// A server that does nothing in the first six of every 33 milliseconds: the report says so, in words, drawn, and on the page.
// Long: a run of five seconds, since a period is told by how often it comes.
#[test]
fn a_server_that_pauses_regularly_is_told() {
    // The pause is planted: 33 ms is how long packets waited for a wake-up that was lost, in the fault this search is for. Neither the
    // generator nor the kernel has a period near it.
    let (address, _) = server_that_waits(|since: Duration| {
        let phase = Duration::from_nanos((since.as_nanos() % 33_000_000) as u64);
        Duration::from_millis(6).saturating_sub(phase)
    });
    let page = std::env::temp_dir().join(format!("flowlane-period-{}.html", std::process::id()));
    let url = format!("http://{address}/");
    let common = [url.as_str(), "-c", "32", "-r", "1000", "-d", "5s", "--no-pin", "--slip-budget", "1s"];
    let output = load(&[&common[..], &["--json", "--html", page.to_str().unwrap()]].concat());
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    flowlane_schema::check("load-run", &report);
    let latency = report["periods"].as_array().unwrap().iter().find(|p| p["of"] == "latency").unwrap();
    let period = latency["period-ns"].as_u64().unwrap();
    assert!(period.abs_diff(33_000_000) < 330_000, "{latency}");
    let html = std::fs::read_to_string(&page).unwrap();
    std::fs::remove_file(&page).unwrap();
    assert!(html.contains("Latency over one period") && html.contains("every 33"), "{latency}");
}
