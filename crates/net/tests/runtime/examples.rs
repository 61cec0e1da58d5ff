//! The examples end well, as people run them without arguments.

#[path = "../../examples/client.rs"]
mod client;
#[path = "../../examples/first.rs"]
#[allow(dead_code, reason = "its main serves for ever")]
mod first;
#[path = "../../examples/kernel.rs"]
mod kernel;
#[path = "../../examples/moving.rs"]
mod moving;
#[path = "../../examples/stalled.rs"]
mod stalled;
#[path = "../../examples/udp.rs"]
mod udp;

#[test]
fn udp_between_hosts() {
    udp::main().unwrap();
}

#[test]
fn a_client_with_many_connections() {
    client::main().unwrap();
}

#[test]
fn sockets_of_the_kernel() {
    kernel::main().unwrap();
}

#[test]
fn lanes_that_move_while_they_serve() {
    moving::main().unwrap();
}

#[test]
fn a_worker_that_stands_still() {
    stalled::main().unwrap();
}

/// The first program answers, and is the one that the documentation and the README show.
#[test]
fn the_first_program() {
    let runtime = first::start(1).unwrap();
    let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.set_read_timeout(Some(std::time::Duration::from_secs(10))).unwrap();
    socket.send_to(b"hello", "127.0.0.1:7007").unwrap();
    let mut answer = [0; 16];
    let n = socket.recv(&mut answer).unwrap();
    assert_eq!(&answer[..n], b"hello");
    drop(runtime.stop());

    let program = include_str!("../../examples/first.rs").replace("pub(crate) ", "");
    assert!(
        include_str!("../../../../docs/library.md").contains(&program),
        "docs/library.md has another program:\n{program}"
    );
    let words = |text: &str| -> Vec<String> {
        text.lines()
            .filter_map(|l| l.split("//").next())
            .flat_map(str::split_whitespace)
            .map(str::to_owned)
            .collect()
    };
    let readme = words(include_str!("../../../../README.md")).join(" ");
    let from = program.find("async fn echo").unwrap();
    let echo = &program[from..][..program[from..].find("\n}\n").unwrap() + 2];
    assert!(readme.contains(&words(echo).join(" ")), "the README has another loop");
}
