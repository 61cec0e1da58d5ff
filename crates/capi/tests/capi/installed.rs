//! What is installed, as others find it: pkg-config, the exported names, the static library, Python.

use std::net::UdpSocket;
use std::process::Command;

use flowlane_testnet::{PATIENCE, Program, free_port, skipped};
use rustix::process::Signal;

use crate::folder;
use crate::library::{installed, run};

/// Whether a program is there and does what it is asked.
fn there(command: &mut Command) -> bool {
    command.output().is_ok_and(|output| output.status.success())
}

/// Exactly the names of the version script are exported, each with its version, and the object's name has the version of its interface.
#[test]
fn exported_names_have_versions() {
    let object = installed().join("lib/libflowlane.so");
    let names = run(Command::new("nm").args(["-D", "--defined-only"]).arg(&object));
    let mut exported: Vec<&str> = names.lines().filter_map(|line| line.rsplit(' ').next()).collect();
    exported.sort_unstable();
    let script = std::fs::read_to_string(folder().join("flowlane.map")).unwrap();
    let wanted = script
        .lines()
        .filter_map(|line| line.trim().strip_suffix(';'))
        .filter(|name| name.starts_with("flowlane_"));
    let mut wanted: Vec<String> = wanted.map(|name| format!("{name}@@FLOWLANE_0.1")).collect();
    wanted.push("FLOWLANE_0.1".into());
    wanted.sort_unstable();
    assert_eq!(exported, wanted);
    let about = run(Command::new("readelf").arg("-d").arg(&object));
    assert!(about.contains("Library soname: [libflowlane.so.0]"), "{about}");
}

/// pkg-config's words are all that a compiler needs, for either library.
#[test]
fn pkg_config() {
    let mut ask = Command::new("pkg-config");
    ask.env("PKG_CONFIG_PATH", installed().join("lib/pkgconfig"));
    if !there(Command::new("pkg-config").arg("--version")) {
        return skipped("skipped, because there is no pkg-config");
    }
    assert_eq!(
        run(Command::new("pkg-config")
            .arg("--modversion")
            .arg(installed().join("lib/pkgconfig/flowlane.pc")))
        .trim(),
        env!("CARGO_PKG_VERSION")
    );
    let words = run(ask.args(["--cflags", "--libs", "--static", "flowlane"]));
    let program = installed().join("hash-static");
    // With the archive in place of -lflowlane, which the linker would find as a shared object.
    let archive = installed().join("lib/libflowlane.a");
    let words = words
        .split_whitespace()
        .map(|word| if word == "-lflowlane" { archive.to_str().unwrap() } else { word });
    let mut compile = Command::new("cc");
    compile.arg(folder().join("examples/hash.c")).arg("-o").arg(&program).args(words);
    run(&mut compile);
    assert_eq!(run(&mut Command::new(program)), "8 of 8 vectors\n");
}

/// A program in Python by cffi: callbacks of the library's threads are functions of Python.
#[test]
fn python() {
    if !there(Command::new("python3").args(["-c", "import cffi"])) {
        return skipped("skipped, because there is no python3 with cffi");
    }
    let address = format!("127.0.0.1:{}", free_port());
    let mut command = Command::new("python3");
    command.arg(folder().join("examples/echo.py")).arg(installed().join("include/flowlane.h"));
    command.arg(installed().join("lib/libflowlane.so.0")).arg(&address);
    let server = Program::ready(command, "receives at");
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    socket.connect(&address).unwrap();
    for words in ["hello", "", "lanes and buckets"] {
        socket.send(words.as_bytes()).unwrap();
        let mut came = [0; 64];
        let len = socket.recv(&mut came).unwrap();
        assert_eq!(&came[..len], words.to_uppercase().as_bytes());
    }
    server.signal(Signal::TERM);
    let ended = server.end();
    assert!(ended.status.success() && ended.said.len() == 1, "{ended:?}");
}
