//! The examples end well, as people run them without arguments.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on panics")]

#[path = "../examples/client.rs"]
mod client;
#[path = "../examples/kernel.rs"]
mod kernel;
#[path = "../examples/moving.rs"]
mod moving;
#[path = "../examples/stalled.rs"]
mod stalled;
#[path = "../examples/udp.rs"]
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
