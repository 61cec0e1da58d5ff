//! What commands show of kernel sockets: what is known of them, and nothing in place of what is not. What a new user meets first.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::Command;

use flowlane_testnet::{Program, free_port};

fn flowlane(arguments: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_flowlane"));
    command.args(arguments.split_whitespace());
    command
}

fn text(arguments: &str) -> String {
    let output = flowlane(arguments).output().unwrap();
    assert!(output.status.success(), "{arguments}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// Kernel sockets are the default of every service. Open connections are open in every view, and no view says what the kernel alone knows.
#[test]
fn views_of_kernel_sockets() {
    let control = std::env::temp_dir().join(format!("flowlane-views-{}.sock", std::process::id()));
    let (port, at) = (free_port(), control.display());
    let serve = format!("serve tcp-echo --port {port} --workers 2 --no-pin --control {at}");
    let server = Program::ready(flowlane(&serve), " port ");
    let streams: Vec<TcpStream> = (0..3)
        .map(|_| {
            let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
            stream.write_all(b"x").unwrap();
            stream.read_exact(&mut [0]).unwrap();
            stream
        })
        .collect();
    let overview = text(&format!("stat --control {at}"));
    assert!(overview.contains("server: kernel sockets, 3 connections accepted\n"), "{overview}");
    assert!(!overview.contains("alignment") && !overview.contains("0 frames"), "{overview}");
    assert!(text(&format!("stat -a --control {at}")).contains(" 3 ESTABLISHED\n"));
    let protocols = text(&format!("stat -s --control {at}"));
    assert!(protocols.starts_with("tcp:\n\t3 connection accepts\n"), "{protocols}");
    assert!(
        !protocols.contains("\nip:") && protocols.contains("\nkernel:\n\t3 connections accepted\n"),
        "{protocols}"
    );
    assert!(text(&format!("stat -p ip --control {at}")).contains("nstat"));
    let metrics = text(&format!("stat --open-metrics --control {at}"));
    let standing = "flowlane_tcp_connections{host=\"server\",state=\"ESTABLISHED\"} 3\n";
    assert!(metrics.contains(standing), "{metrics}");
    for unknown in ["flowlane_ip_", "flowlane_ethernet_", "flowlane_steering_", "flowlane_tcp_rtt_seconds"] {
        assert!(!metrics.contains(unknown), "{unknown}");
    }
    drop(streams);
    server.signal(rustix::process::Signal::INT);
    drop(server.end());
    assert!(!control.exists(), "{at} is left");
}

/// Somebody else has the port.
#[test]
fn a_port_in_use_is_named() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    let output = flowlane(&format!("serve http --addr 127.0.0.1 --port {port}")).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains(&format!("--port {port}: another program has it")), "{said}");
}

#[test]
fn manual_pages_tell_exit_codes() {
    let directory = std::env::temp_dir().join(format!("flowlane-man-{}", std::process::id()));
    text(&format!("man {}", directory.display()));
    for page in ["flowlane.1", "flowlane-load-http.1", "flowlane-rss-check.1"] {
        let page = std::fs::read_to_string(directory.join(page)).unwrap();
        assert!(page.contains(".SH \"EXIT STATUS\"\n.TP\n0\n"), "{page}");
    }
    std::fs::remove_dir_all(directory).unwrap();
}

/// Nothing is made of a command's name with a letter wrong; a directory is one if it is there, or is typed like one.
#[test]
fn a_mistyped_command_is_no_directory_of_pages() {
    let dir = flowlane_testnet::Scratch::new("man-mistyped");
    std::fs::create_dir_all(dir.path("there")).unwrap();
    let man = |word: &str| flowlane(&format!("man {word}")).current_dir(dir.path("")).output().unwrap();
    let output = man("laod");
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert_eq!(said.lines().count(), 1, "{said}");
    assert!(said.contains("there is no command 'laod'") && said.contains("./laod"), "{said}");
    assert!(!Path::new(&dir.path("laod")).exists());
    for word in ["there", "./new", "newer/"] {
        assert!(man(word).status.success(), "{word}");
        assert!(Path::new(&dir.path(word)).join("flowlane.1").exists(), "{word}");
    }
}

/// An address that no interface has is named, and where to look.
#[test]
fn an_address_that_is_not_ours_is_named() {
    for service in ["http", "udp-echo"] {
        let output = flowlane(&format!("serve {service} --addr 192.0.2.77 --port 8080")).output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{service}: {said}");
        assert!(
            said.contains("--addr 192.0.2.77: no interface here") && said.contains("'ip addr'"),
            "{said}"
        );
    }
}
