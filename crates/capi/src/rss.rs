//! Hashes and plans: which hash, bucket and worker a packet has, and which ports lead to a bucket. All of it is arithmetic, on any thread.

use std::ffi::c_void;
use std::net::SocketAddr;

use flowlane::{Bucket, Flow, HashConfig, Key, Protocol, Rss, UdpFields, Worker};
use flowlane_rss::{BucketMap, HomePorts, Indirection, Toeplitz, default_buckets};

use crate::address::Address;
use crate::error::{Error, FLOWLANE_ERR_NO_SUCH, guarded};
use crate::pointer::{borrowed, bytes, changed, give, room};

/// Steering: a key, the hashed fields, a table, and which worker has which bucket.
#[derive(Debug)]
pub struct RssHandle(Rss);

impl RssHandle {
    pub(crate) fn rss(&self) -> &Rss {
        &self.0
    }
}

/// A packet as the hash sees it: who sent it to whom, as it arrives.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct RssFlow {
    /// Who sent it.
    pub source: Address,
    /// To whom.
    pub destination: Address,
    /// IP's number of the protocol: 6 for TCP, 17 for UDP.
    pub protocol: u8,
    /// 1 for a fragment, which has no ports for the hash; otherwise 0.
    pub fragment: u8,
}

/// Where a packet goes.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct RssSteered {
    /// The hash; 0 if packets of the kind are not hashed.
    pub hash: u32,
    /// What the hash covers, by FreeBSD's numbers: 0x81 IPv4, 0x82 TCP over IPv4, 0x83 IPv6, 0x84 TCP over IPv6, 0x87 and 0x89 UDP over
    /// IPv4 and IPv6; 0 for nothing.
    pub hash_type: u32,
    /// Slot of the indirection table.
    pub slot: u32,
    /// Bucket in that slot.
    pub bucket: u32,
    /// Worker that has the bucket, unless lanes have moved.
    pub worker: u32,
}

/// Steering by a key, for so many workers; 0 buckets for the usual number of them.
pub(crate) fn steering(key: Key, workers: usize, buckets: usize, udp: UdpFields) -> Result<Rss, Error> {
    if workers == 0 || workers > 64 {
        return Err(Error::invalid(format!("{workers} workers: must be from 1 to 64")));
    }
    let count = if buckets == 0 { default_buckets(workers) } else { buckets };
    let map = BucketMap::new(count, workers).map_err(Error::invalid)?;
    let table = Indirection::new(Indirection::DEFAULT_SLOTS.max(count), count).map_err(Error::invalid)?;
    Ok(Rss::from_parts(Toeplitz::new(&key), HashConfig::with_udp(udp), table, map))
}

fn key_of(bytes: &[u8]) -> Result<Key, Error> {
    if bytes.is_empty() { Ok(Key::MICROSOFT) } else { Key::new(bytes).map_err(Error::invalid) }
}

/// Makes steering for so many workers: by a key of 16 to 52 bytes, or with a null pointer and length 0 by Microsoft's, which everyone knows.
/// buckets is a power of two, at least that of the workers, or 0 for the usual number. udp_ports: UDP is hashed on ports, too. Free
/// it with flowlane_rss_free.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn flowlane_rss_new(
    key: *const u8,
    key_len: usize,
    workers: u32,
    buckets: u32,
    udp_ports: bool,
    rss: *mut *mut RssHandle,
) -> i32 {
    guarded(|| {
        // SAFETY: the program's key.
        let key = key_of(unsafe { bytes(key.cast(), key_len, "the key") }?)?;
        if rss.is_null() {
            return Err(Error::invalid("the place for the steering is a null pointer"));
        }
        let udp = if udp_ports { UdpFields::Four } else { UdpFields::Two };
        let made = RssHandle(steering(key, workers as usize, buckets as usize, udp)?);
        // SAFETY: the program's place for a result.
        unsafe { give(rss, Box::into_raw(Box::new(made)), "the steering") }
    })
}

/// Frees it. A null pointer is ignored.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn flowlane_rss_free(rss: *mut RssHandle) {
    guarded(|| {
        if !rss.is_null() {
            // SAFETY: made by flowlane_rss_new, and freed once.
            drop(unsafe { Box::from_raw(rss) });
        }
        Ok(())
    });
}

/// Number of buckets; a null pointer has none.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn flowlane_rss_buckets(rss: *const RssHandle) -> u32 {
    // SAFETY: the program's handle.
    unsafe { rss.as_ref() }.map_or(0, |rss| rss.0.buckets.len() as u32)
}

fn bucket_of(rss: &Rss, bucket: u32) -> Result<Bucket, Error> {
    match u16::try_from(bucket) {
        Ok(number) if usize::from(number) < rss.buckets.len() => Ok(Bucket(number)),
        _ => Err(Error::new(
            FLOWLANE_ERR_NO_SUCH,
            format!("there are {} buckets, none is {bucket}", rss.buckets.len()),
        )),
    }
}

/// Gives a bucket to a worker, before a host is made of it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn flowlane_rss_assign(rss: *mut RssHandle, bucket: u32, worker: u32) -> i32 {
    guarded(|| {
        // SAFETY: the program's handle.
        let rss = unsafe { changed(rss, "the steering") }?;
        let bucket = bucket_of(&rss.0, bucket)?;
        let worker = u16::try_from(worker).ok().filter(|worker| *worker < 64);
        let worker = worker.ok_or_else(|| Error::invalid("workers are numbered from 0 to 63"))?;
        rss.0.buckets.assign(bucket, Worker(worker));
        Ok(())
    })
}

/// The worker of a bucket.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn flowlane_rss_worker_of(rss: *const RssHandle, bucket: u32, worker: *mut u32) -> i32 {
    guarded(|| {
        // SAFETY: the program's handle and place for a result.
        unsafe {
            let rss = borrowed(rss, "the steering")?;
            let Worker(found) = rss.0.buckets.worker_of(bucket_of(&rss.0, bucket)?);
            give(worker, u32::from(found), "the worker")
        }
    })
}

impl RssFlow {
    fn flow(&self) -> Result<Flow, Error> {
        let (from, to) = (self.source.socket("the source")?, self.destination.socket("the destination")?);
        if from.is_ipv4() != to.is_ipv4() {
            return Err(Error::invalid("source and destination are of different families"));
        }
        Ok(Flow { fragment: self.fragment != 0, ..Flow::new(from, to, Protocol(self.protocol)) })
    }
}

/// Where a packet goes: its hash, and what follows from that.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn flowlane_rss_steer(
    rss: *const RssHandle,
    flow: *const RssFlow,
    steered: *mut RssSteered,
) -> i32 {
    guarded(|| {
        // SAFETY: the program's handle, struct and place for a result.
        unsafe {
            let found = borrowed(rss, "the steering")?.0.steer(&borrowed(flow, "the flow")?.flow()?);
            let made = RssSteered {
                hash: found.hash,
                hash_type: u32::from(found.hash_type.as_u8()),
                slot: found.slot as u32,
                bucket: u32::from(found.bucket.0),
                worker: u32::from(found.worker.0),
            };
            give(steered, made, "the result")
        }
    })
}

/// The Toeplitz hash of bytes under a key of 16 to 52 bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn flowlane_toeplitz(
    key: *const u8,
    key_len: usize,
    data: *const c_void,
    len: usize,
    hash: *mut u32,
) -> i32 {
    guarded(|| {
        // SAFETY: the program's bytes and place for a result.
        unsafe {
            let key = Key::new(bytes(key.cast(), key_len, "the key")?).map_err(Error::invalid)?;
            let made = Toeplitz::new(&key).hash(bytes(data, len, "the data")?);
            give(hash, made, "the hash")
        }
    })
}

/// Ports of `local` from which a connection to `remote` has its replies come to a bucket of ours: its home ports, from 1024 on. They are computed, not
/// searched. At most `size` are written to `ports`, and to `count` how many were.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn flowlane_rss_reply_ports(
    rss: *const RssHandle,
    bucket: u32,
    local: *const Address,
    remote: *const Address,
    protocol: u8,
    ports: *mut u16,
    size: usize,
    count: *mut usize,
) -> i32 {
    guarded(|| {
        // SAFETY: the program's handles, addresses and places for results.
        unsafe {
            let rss = &borrowed(rss, "the steering")?.0;
            let slots = rss.slots_of_bucket(bucket_of(rss, bucket)?);
            let local = borrowed(local, "the local address")?.socket("the local end")?;
            let remote = borrowed(remote, "the remote address")?.socket("the remote end")?;
            let home = HomePorts::new(rss, &slots);
            let found = home.to(local.ip(), remote, Protocol(protocol)).map_err(Error::invalid)?;
            let to = room(ports, size, "the list of ports")?;
            let written = fill(to, found.iter().filter(|port| *port >= 1024));
            give(count, written, "the number of ports")
        }
    })
}

/// Ports of a sender from which its packets reach a bucket of the receiver whose steering this is, from 1024 on. At most `size` are written to
/// `ports`, and to `count` how many were.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn flowlane_rss_source_ports(
    rss: *const RssHandle,
    bucket: u32,
    source: *const Address,
    destination: *const Address,
    protocol: u8,
    ports: *mut u16,
    size: usize,
    count: *mut usize,
) -> i32 {
    guarded(|| {
        // SAFETY: the program's handles, addresses and places for results.
        unsafe {
            let rss = &borrowed(rss, "the steering")?.0;
            let bucket = bucket_of(rss, bucket)?;
            let source = borrowed(source, "the source")?.socket("the source")?;
            let destination = borrowed(destination, "the destination")?.socket("the destination")?;
            if source.is_ipv4() != destination.is_ipv4() {
                return Err(Error::invalid("source and destination are of different families"));
            }
            let reaches = |port: &u16| {
                let from = SocketAddr::new(source.ip(), *port);
                rss.steer(&Flow::new(from, destination, Protocol(protocol))).bucket == bucket
            };
            let to = room(ports, size, "the list of ports")?;
            let written = fill(to, (1024..=u16::MAX).filter(reaches));
            give(count, written, "the number of ports")
        }
    })
}

/// Writes as many as fit; how many.
fn fill(to: &mut [u16], ports: impl Iterator<Item = u16>) -> usize {
    to.iter_mut().zip(ports).map(|(to, port)| *to = port).count()
}
