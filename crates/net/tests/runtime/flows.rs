//! Each connection of a host gives one record when it ends, while its lane moves and when the runtime stops.

use std::collections::HashSet;
use std::net::Shutdown;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use flowlane::{
    Bucket, FlowEnd, FlowRecord, FlowRecords, Host, Interface, Key, Runtime, TcpStream, UdpFields, UdpSocket,
    sleep, spawn,
};
use flowlane_stack::wire::IpProtocol;

use crate::streams::{echo, stream_of};
use crate::tcp::{BUCKETS, server};
use crate::traffic::{CLIENT, PATIENCE, SERVER, rss};

const STREAMS: usize = 5;
const EACH: usize = 20_000;

fn taken(records: &FlowRecords) -> Vec<FlowRecord> {
    std::iter::from_fn(|| records.try_next()).collect()
}

#[test]
fn one_record_for_each_connection_while_lanes_move_and_at_the_stop() {
    let (ours, theirs) = (FlowRecords::new(1000), FlowRecords::new(1000));
    let on = |address: &str| Interface { addresses: vec![address.parse().unwrap()], ..Interface::default() };
    let mut builder = Runtime::builder().workers(2).pin(false).seed(7).frames(32_768);
    let host = Host::new("server", rss(Key::MICROSOFT, BUCKETS, 2, UdpFields::Two), || echo(server()));
    assert_eq!(builder.host(host.interface(on("10.0.0.1/24")).flows(&theirs)), SERVER);
    let (say, said) = mpsc::channel();
    let host = Host::new("client", rss(Key::symmetric(), BUCKETS, 2, UdpFields::Two), move || {
        let say = say.clone();
        async move {
            for seed in 0..STREAMS as u64 {
                say.send(stream_of(server(), seed, EACH).await).unwrap();
            }
            // One stands until the end.
            let stream = TcpStream::connect(server()).await.unwrap();
            stream.write_all(b"hello").await.unwrap();
            stream.read(&mut [0; 5]).await.unwrap();
            say.send(Ok(0)).unwrap();
            spawn(async move {
                let _ = stream.read(&mut [0; 1]).await;
            })
            .unwrap();
        }
    });
    assert_eq!(builder.host(host.interface(on("10.0.0.2/24")).flows(&ours)), CLIENT);
    builder.pair((CLIENT, 0), (SERVER, 0), Default::default());
    let runtime = builder.start().unwrap();
    let handle = runtime.handle();
    for n in 0..BUCKETS * (STREAMS + 1) {
        said.recv_timeout(PATIENCE).unwrap().unwrap();
        let (host, bucket) = (if n % 2 == 0 { SERVER } else { CLIENT }, Bucket((n / 2 % BUCKETS) as u16));
        handle.move_lane(host, bucket, 1 - handle.worker_of(host, bucket).unwrap()).unwrap();
    }
    let report = runtime.stop();
    for (host, records) in [(SERVER, taken(&theirs)), (CLIENT, taken(&ours))] {
        let tcp = report.total(host).tcp;
        let flows: HashSet<_> = records.iter().map(|r| (r.local, r.remote, r.began)).collect();
        assert_eq!(
            (records.len(), flows.len()),
            (BUCKETS * (STREAMS + 1), BUCKETS * (STREAMS + 1)),
            "{records:?}"
        );
        let ended = records.iter().filter(|r| r.end == FlowEnd::Closed).count();
        let stood = records.iter().filter(|r| r.end == FlowEnd::LaneEnded).count();
        assert_eq!(ended + stood, records.len(), "{records:?}");
        assert!(stood >= BUCKETS);
        assert_eq!((tcp.flow_records, tcp.flow_records_lost), (ended as u64, 0));
        let sent: u64 = records.iter().map(|r| r.sent.bytes).sum();
        assert_eq!(sent, tcp.data_bytes_sent);
        assert_eq!(sent, (BUCKETS * (STREAMS * EACH + 5)) as u64);
        assert_eq!(sent, records.iter().map(|r| r.received.bytes).sum::<u64>());
        let again: u64 = records.iter().map(|r| u64::from(r.retransmitted)).sum();
        assert_eq!(again, tcp.packets_retransmitted);
        for record in &records {
            assert_eq!((record.active, record.interface, record.vlan), (host == CLIENT, Some(0), None));
            assert!(record.began <= record.ended);
        }
    }
    assert_eq!((ours.lost(), theirs.lost()), (0, 0));
}

/// With a short active timeout, and lanes that move all the while, the sums of the records of UDP and TCP are what the lanes counted: nothing is
/// missing and nothing twice.
#[test]
fn records_of_flows_that_stand_add_up_while_lanes_move() {
    const DATAGRAMS: usize = 400;
    const ACTIVE: Duration = Duration::from_millis(3);
    let records = || FlowRecords::new(100_000).active_timeout(ACTIVE);
    let (ours, theirs) = (records(), records());
    let on = |address: &str| Interface { addresses: vec![address.parse().unwrap()], ..Interface::default() };
    let mut builder = Runtime::builder().workers(2).pin(false).seed(7).frames(32_768);
    let main = || async {
        spawn(echo(server())).unwrap();
        let socket = UdpSocket::on_port(7).unwrap();
        let mut batch = Vec::new();
        while socket.recv_batch(&mut batch, 64).await.is_ok() && socket.reply_batch(&mut batch).await.is_ok()
        {
        }
    };
    let host = Host::new("server", rss(Key::MICROSOFT, BUCKETS, 2, UdpFields::Four), main);
    assert_eq!(builder.host(host.interface(on("10.0.0.1/24")).flows(&theirs)), SERVER);
    let (say, said) = mpsc::channel();
    let host = Host::new("client", rss(Key::symmetric(), BUCKETS, 2, UdpFields::Four), move || {
        let say = say.clone();
        async move {
            let echoed = say.clone();
            spawn(async move {
                let socket = UdpSocket::connect((server().ip(), 7).into()).unwrap();
                for n in 0..DATAGRAMS {
                    socket.send(&[7; 100]).await.unwrap();
                    socket.recv().await.unwrap();
                    // However fast the machine is, the flow stands for several active timeouts.
                    if n % 100 == 0 {
                        sleep(2 * ACTIVE).await;
                    }
                }
                echoed.send(Ok(DATAGRAMS as u64)).unwrap();
                // It stands until the end.
                let _ = socket.recv().await;
            })
            .unwrap();
            let stream = TcpStream::connect(server()).await.unwrap();
            let mut buffer = vec![0; EACH];
            for n in 0..10 {
                stream.write_all(&[n; EACH]).await.unwrap();
                let mut got = 0;
                while got < EACH {
                    got += stream.read(&mut buffer[got..]).await.unwrap();
                }
                assert_eq!(buffer, [n; EACH]);
                sleep(2 * ACTIVE).await;
            }
            stream.shutdown(Shutdown::Write).unwrap();
            assert_eq!(stream.read(&mut buffer).await.unwrap(), 0);
            say.send(Ok::<_, String>(10 * EACH as u64)).unwrap();
        }
    });
    assert_eq!(builder.host(host.interface(on("10.0.0.2/24")).flows(&ours)), CLIENT);
    builder.pair((CLIENT, 0), (SERVER, 0), Default::default());
    let runtime = builder.start().unwrap();
    let (handle, deadline) = (runtime.handle(), Instant::now() + PATIENCE);
    let (mut done, mut moves) = (0, 0);
    while done < 2 * BUCKETS {
        assert!(Instant::now() < deadline, "{done} done, {moves} moves");
        let (host, bucket) =
            (if moves % 2 == 0 { SERVER } else { CLIENT }, Bucket((moves / 2 % BUCKETS) as u16));
        handle.move_lane(host, bucket, 1 - handle.worker_of(host, bucket).unwrap()).unwrap();
        moves += 1;
        done += said.try_iter().map(Result::unwrap).count();
    }
    let report = runtime.stop();
    for (host, records) in [(SERVER, taken(&theirs)), (CLIENT, taken(&ours))] {
        let (tcp, udp) = (report.total(host).tcp, report.total(host).udp);
        let of = |protocol| records.iter().filter(move |record| record.protocol == protocol);
        let sent = of(IpProtocol::UDP).map(|record| record.sent.segments).sum::<u64>();
        let received = of(IpProtocol::UDP).map(|record| record.received.segments).sum::<u64>();
        assert_eq!((sent, received), (udp.sent, udp.received));
        assert_eq!(sent, (BUCKETS * DATAGRAMS) as u64);
        assert_eq!(of(IpProtocol::UDP).map(|record| record.sent.bytes).sum::<u64>(), sent * 100);
        assert_eq!(of(IpProtocol::TCP).map(|r| r.sent.bytes).sum::<u64>(), tcp.data_bytes_sent);
        assert_eq!(of(IpProtocol::TCP).map(|r| r.received.bytes).sum::<u64>(), (BUCKETS * 10 * EACH) as u64);
        assert_eq!((udp.flow_records_lost, tcp.flow_records_lost, udp.flow_records_no_room), (0, 0, 0));
        assert!(udp.flow_records_active > 0 && tcp.flow_records_active > 0, "{moves} moves");
    }
    assert_eq!((ours.lost(), theirs.lost()), (0, 0));
}
