//! smoltcp on the work of `flowlane bench udp`: a 64-byte UDP datagram received, looked up, taken by the application,
//! sent back and put out, in memory, on one core, with checksums.
//!
//! `cargo bench -p flowlane-oracles --bench smoltcp_udp` prints million datagrams a second for smoltcp with one socket;
//! run `flowlane bench udp` beside it.

use std::time::{Duration, Instant as Clock};

use smoltcp::iface::{Config, Interface, SocketSet};
use smoltcp::phy::{Device, DeviceCapabilities, Medium, RxToken, TxToken};
use smoltcp::socket::udp;
use smoltcp::time::Instant;
use smoltcp::wire::{
    ArpOperation, ArpPacket, ArpRepr, EthernetAddress, EthernetFrame, EthernetProtocol, EthernetRepr,
    HardwareAddress, IpAddress, IpCidr, IpProtocol, Ipv4Address, Ipv4Packet, Ipv4Repr, UdpPacket, UdpRepr,
};

const SERVER: Ipv4Address = Ipv4Address::new(10, 0, 0, 1);
const CLIENT: Ipv4Address = Ipv4Address::new(10, 0, 0, 2);
const SERVER_MAC: EthernetAddress = EthernetAddress([2, 0, 0, 0, 0, 1]);
const CLIENT_MAC: EthernetAddress = EthernetAddress([2, 0, 0, 0, 0, 2]);
/// Datagrams between two looks of the application.
const BURST: usize = 64;

/// An inexhaustible card.
struct Source {
    frame: Vec<u8>,
    left: usize,
    sent: u64,
    out: Vec<u8>,
}

struct Rx(Vec<u8>);
struct Tx<'a>(&'a mut u64, &'a mut Vec<u8>);

impl RxToken for Rx {
    fn consume<R, F: FnOnce(&[u8]) -> R>(self, f: F) -> R {
        f(&self.0)
    }
}

impl TxToken for Tx<'_> {
    fn consume<R, F: FnOnce(&mut [u8]) -> R>(self, len: usize, f: F) -> R {
        *self.0 += 1;
        self.1.resize(len, 0);
        f(self.1)
    }
}

impl Device for Source {
    type RxToken<'a> = Rx;
    type TxToken<'a> = Tx<'a>;

    fn receive(&mut self, _: Instant) -> Option<(Rx, Tx<'_>)> {
        self.left = self.left.checked_sub(1)?;
        // A card's memory is filled for free; here it is one copy, as in our own bench.
        Some((Rx(self.frame.clone()), Tx(&mut self.sent, &mut self.out)))
    }

    fn transmit(&mut self, _: Instant) -> Option<Tx<'_>> {
        Some(Tx(&mut self.sent, &mut self.out))
    }

    fn capabilities(&self) -> DeviceCapabilities {
        let mut caps = DeviceCapabilities::default();
        caps.medium = Medium::Ethernet;
        caps.max_transmission_unit = 1514;
        caps
    }
}

fn ethernet(payload: usize, dst: EthernetAddress, ethertype: EthernetProtocol) -> Vec<u8> {
    let mut bytes = vec![0; 14 + payload];
    EthernetRepr { src_addr: CLIENT_MAC, dst_addr: dst, ethertype }
        .emit(&mut EthernetFrame::new_unchecked(&mut bytes));
    bytes
}

fn datagram() -> Vec<u8> {
    let udp = UdpRepr { src_port: 1024, dst_port: 7 };
    let ip = Ipv4Repr {
        src_addr: CLIENT,
        dst_addr: SERVER,
        next_header: IpProtocol::Udp,
        payload_len: 8 + 64,
        hop_limit: 64,
    };
    let mut bytes = ethernet(20 + 8 + 64, SERVER_MAC, EthernetProtocol::Ipv4);
    let checksums = smoltcp::phy::ChecksumCapabilities::default();
    ip.emit(&mut Ipv4Packet::new_unchecked(&mut bytes[14..]), &checksums);
    udp.emit(
        &mut UdpPacket::new_unchecked(&mut bytes[34..]),
        &IpAddress::Ipv4(CLIENT),
        &IpAddress::Ipv4(SERVER),
        64,
        |payload| payload.fill(0x5a),
        &checksums,
    );
    bytes
}

fn greeting() -> Vec<u8> {
    let mut bytes = ethernet(28, EthernetAddress::BROADCAST, EthernetProtocol::Arp);
    ArpRepr::EthernetIpv4 {
        operation: ArpOperation::Request,
        source_hardware_addr: CLIENT_MAC,
        source_protocol_addr: CLIENT,
        target_hardware_addr: EthernetAddress([0; 6]),
        target_protocol_addr: SERVER,
    }
    .emit(&mut ArpPacket::new_unchecked(&mut bytes[14..]));
    bytes
}

fn main() {
    let mut device = Source { frame: greeting(), left: 1, sent: 0, out: Vec::with_capacity(2048) };
    let config = Config::new(HardwareAddress::Ethernet(SERVER_MAC));
    let mut interface = Interface::new(config, &mut device, Instant::ZERO);
    interface.update_ip_addrs(|addresses| {
        let _ = addresses.push(IpCidr::new(IpAddress::Ipv4(SERVER), 24));
    });
    let buffer = || udp::PacketBuffer::new(vec![udp::PacketMetadata::EMPTY; 2 * BURST], vec![0; 1 << 16]);
    let mut socket = udp::Socket::new(buffer(), buffer());
    assert_eq!(socket.bind(7), Ok(()));
    let mut sockets = SocketSet::new(vec![]);
    let handle = sockets.add(socket);
    interface.poll(Instant::ZERO, &mut device, &mut sockets);
    device.frame = datagram();
    let mut rounds = Vec::new();
    for _ in 0..5 {
        let (before, begin) = (device.sent, Clock::now());
        while begin.elapsed() < Duration::from_millis(300) {
            device.left = BURST;
            interface.poll(Instant::from_millis(1), &mut device, &mut sockets);
            let socket = sockets.get_mut::<udp::Socket<'_>>(handle);
            let mut payload = [0; 2048];
            while let Ok((n, from)) = socket.recv_slice(&mut payload) {
                if socket.send_slice(&payload[..n], from).is_err() {
                    break;
                }
            }
            interface.poll(Instant::from_millis(1), &mut device, &mut sockets);
        }
        rounds.push((device.sent - before) as f64 / begin.elapsed().as_secs_f64() / 1e6);
    }
    rounds.sort_by(f64::total_cmp);
    println!("smoltcp, 1 flow, 64 bytes: {:.2} Mpps ({:.2} to {:.2})", rounds[2], rounds[0], rounds[4]);
}
