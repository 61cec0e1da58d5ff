//! Clients that other people wrote, before our server: gomemcache for programs in Go, and the crate `memcache`. libmemcached's tools are asked in the
//! command's tests.

use std::collections::HashMap;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use flowlane_memcached::server::{Options, Placement};

use crate::kit::{among_moving_lanes, figure};

/// The program in `tests/gomemcache`, if it is there or can be made: FLOWLANE_GOMEMCACHE names it, or Go builds it.
fn gomemcache() -> Option<PathBuf> {
    if let Some(program) = std::env::var_os("FLOWLANE_GOMEMCACHE") {
        return Some(program.into());
    }
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/gomemcache");
    let go = |arguments: &[&str]| {
        let mut command = Command::new("go");
        command.args(arguments).current_dir(source).env("GOFLAGS", "-mod=readonly").stdin(Stdio::null());
        command.output()
    };
    match go(&["mod", "download"]) {
        Err(_) => {
            flowlane_testnet::skipped("skipped, because there is no go");
            return None;
        }
        Ok(output) if !output.status.success() => {
            flowlane_testnet::skipped("skipped, because gomemcache cannot be downloaded");
            return None;
        }
        Ok(_) => {}
    }
    let program = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("gomemcache");
    let built = go(&["build", "-o", &program.to_string_lossy(), "."]).unwrap();
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    Some(program)
}

#[test]
fn gomemcache_gets_what_it_expects() {
    let Some(program) = gomemcache() else { return };
    for placement in [Placement::Route, Placement::Move] {
        let options = Options { placement, ..Options::default() };
        let (said, report) = among_moving_lanes(options, 4, |port| {
            let output = Command::new(&program).arg(format!("127.0.0.1:{port}")).output().unwrap();
            String::from_utf8_lossy(&output.stdout).into_owned()
        });
        assert_eq!(said, format!("{} right\n", 30 + 8 * 400 * 3), "{placement:?}");
        assert_eq!(figure(&report, "moved-connections") > 0, placement == Placement::Move);
    }
}

/// The crate `memcache` over TCP. Over UDP it does not send some of its requests, to whatever server.
#[test]
fn the_crate_memcache_gets_what_it_expects() {
    for placement in [Placement::Route, Placement::Move] {
        let options = Options { placement, ..Options::default() };
        let ((), report) = among_moving_lanes(options, 4, |port| {
            let url = format!("memcache://127.0.0.1:{port}?timeout=60&protocol=ascii");
            let client = memcache::Client::with_pool_size(url, 1).unwrap();
            asks(&client);
            for round in 0..300 {
                client.set("mine", round, 0).unwrap();
                assert_eq!(client.get::<u32>("mine").unwrap(), Some(round));
            }
        });
        assert!(figure(&report, "get-hits") >= 300);
    }
}

/// Each call, and what it has to return.
fn asks(client: &memcache::Client) {
    assert!(client.version().unwrap()[0].1.starts_with("1.6.18-flowlane"));
    client.flush().unwrap();
    assert_eq!(client.get::<String>("none").unwrap(), None);
    client.set("key", "value", 60).unwrap();
    assert_eq!(client.get::<String>("key").unwrap().as_deref(), Some("value"));
    // Neither of these is an error for this client.
    client.add("key", "x", 0).unwrap();
    client.replace("none", "x", 0).unwrap();
    assert_eq!(client.get::<String>("key").unwrap().as_deref(), Some("value"));
    assert_eq!(client.get::<String>("none").unwrap(), None);
    client.add("other", "b", 0).unwrap();
    client.append("other", "c").unwrap();
    client.prepend("other", "a").unwrap();
    assert_eq!(client.get::<String>("other").unwrap().as_deref(), Some("abc"));
    client.replace("key", "changed", 0).unwrap();
    let several: HashMap<String, (Vec<u8>, u32, Option<u64>)> = client.gets(&["key"]).unwrap();
    let (value, _, cas) = several.get("key").unwrap();
    assert_eq!(value, b"changed");
    assert!(client.cas("key", "swapped", 0, cas.unwrap()).unwrap());
    assert!(!client.cas("key", "again", 0, cas.unwrap()).unwrap(), "what has changed");
    client.set("number", 41, 0).unwrap();
    assert_eq!(client.increment("number", 2).unwrap(), 43);
    assert_eq!(client.decrement("number", 50).unwrap(), 0);
    assert!(client.touch("key", 60).unwrap() && !client.touch("none", 60).unwrap());
    assert!(client.delete("key").unwrap() && !client.delete("key").unwrap());
}
