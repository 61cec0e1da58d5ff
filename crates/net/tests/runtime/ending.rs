//! A runtime that is stopped with a grace ends its connections: what was written arrives, then the end; who stays is reset.

use std::sync::mpsc;
use std::time::Duration;

use flowlane::{
    Host, Interface, Key, ListenOptions, Runtime, SocketOptions, TcpListener, TcpStream, UdpFields,
};

use crate::traffic::{PATIENCE, rss};

fn runtime<F, R>(address: &str, main: F) -> (flowlane::Builder, usize)
where
    F: Fn() -> R + Send + Sync + 'static,
    R: Future<Output = ()> + Send + 'static,
{
    let mut builder = Runtime::builder().pin(false).seed(1).frames(8192);
    let interface = Interface { addresses: vec![address.parse().unwrap()], ..Interface::default() };
    let host = Host::new("host", rss(Key::MICROSOFT, 1, 1, UdpFields::Two), main).interface(interface);
    let host = builder.host(host);
    (builder, host)
}

/// Client and server are hosts of one worker: both end. The client reads to the end of what was written, and then sees it.
#[test]
fn what_was_written_arrives_and_then_the_end_or_a_reset() {
    for reads in [true, false] {
        let (say, said) = mpsc::channel();
        let wrote = say.clone();
        let (mut builder, a) = runtime("10.0.0.1/24", move || {
            let say = say.clone();
            async move {
                let stream = TcpStream::connect("10.0.0.2:7".parse().unwrap()).await.unwrap();
                let (mut buffer, mut got) = (vec![0; 1 << 16], 0);
                loop {
                    if !reads {
                        flowlane::sleep(PATIENCE * 60).await;
                    }
                    match stream.read(&mut buffer).await {
                        Ok(0) => break say.send(Ok(got)).unwrap(),
                        Ok(n) => got += n,
                        Err(e) => break say.send(Err(e.to_string())).unwrap(),
                    }
                }
            }
        });
        let interface = Interface { addresses: vec!["10.0.0.2/24".parse().unwrap()], ..Interface::default() };
        let server = Host::new("server", rss(Key::symmetric(), 1, 1, UdpFields::Two), move || {
            let wrote = wrote.clone();
            async move {
                let listener = TcpListener::bind(None, 7, ListenOptions::default()).unwrap();
                let stream = listener.accept().await.unwrap();
                // More than a peer takes who does not read, all of it in our buffer.
                let written = if reads { 10_000 } else { 1 << 20 };
                let send_buffer = Some(4 << 20);
                let options = SocketOptions { send_buffer, ..SocketOptions::default() };
                stream.set_options(&options).unwrap();
                stream.write_all(&vec![5; written]).await.unwrap();
                wrote.send(Ok(0)).unwrap();
                flowlane::sleep(PATIENCE * 60).await;
                drop((stream, listener));
            }
        });
        let b = builder.host(server.interface(interface));
        builder.pair((a, 0), (b, 0), Default::default());
        let runtime = builder.start().unwrap();
        assert_eq!(said.recv_timeout(PATIENCE).unwrap(), Ok(0));
        let grace = if reads { PATIENCE } else { Duration::from_millis(200) };
        let report = runtime.stop_within(grace);
        if reads {
            assert_eq!(said.recv_timeout(PATIENCE).unwrap(), Ok(10_000));
        }
        // Both ends have told one another, or one was told by a reset.
        let left = report.lanes(a).iter().chain(&report.lanes(b)).map(|l| l.counts.connections).sum::<u64>();
        assert_eq!(
            report.total(a).tcp.resets_sent + report.total(b).tcp.resets_sent > 0,
            !reads,
            "{left} left"
        );
    }
}
