//! A client in virtual time, with a server that loses, delays and lies.

use super::*;

const MAC: MacAddr = MacAddr([2, 0, 0, 0, 0, 7]);
const SERVER: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
const OTHER: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);
const ADDRESS: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 50);

/// What the tests read of a client's message.
#[derive(Debug, Clone)]
struct Said {
    kind: u8,
    number: u32,
    has: Ipv4Addr,
    about: Option<Ipv4Addr>,
    server: Option<Ipv4Addr>,
    broadcast: bool,
    from: Option<Ipv4Addr>,
    to: Option<Ipv4Addr>,
}

fn options(bytes: &[u8]) -> Vec<(u8, Vec<u8>)> {
    let (mut all, mut at) = (Vec::new(), 240);
    while bytes[at] != 255 {
        let len = usize::from(bytes[at + 1]);
        all.push((bytes[at], bytes[at + 2..at + 2 + len].to_vec()));
        at += 2 + len;
    }
    all
}

fn said(actions: &mut Vec<Action>) -> Vec<Said> {
    let mut all = Vec::new();
    actions.retain(|action| {
        let Action::Send { from, to, bytes } = action else { return true };
        assert!(bytes.len() >= 300 && bytes[236..240] == [99, 130, 83, 99]);
        let options = options(bytes);
        let of = |kind| options.iter().find(|(k, _)| *k == kind).map(|(_, data)| data.clone());
        let ip = |data: Vec<u8>| Ipv4Addr::from(<[u8; 4]>::try_from(data).unwrap());
        assert_eq!(of(61).unwrap(), [0, b'a']);
        all.push(Said {
            kind: of(53).unwrap()[0],
            number: u32::from_be_bytes(bytes[4..8].try_into().unwrap()),
            has: Ipv4Addr::from(<[u8; 4]>::try_from(&bytes[12..16]).unwrap()),
            about: of(50).map(ip),
            server: of(54).map(ip),
            broadcast: bytes[10] & 0x80 != 0,
            from: *from,
            to: *to,
        });
        false
    });
    all
}

/// A server's message, with options after those that say what it is.
fn answer(kind: u8, number: u32, server: Ipv4Addr, more: &[(u8, &[u8])]) -> Vec<u8> {
    let mut bytes = vec![0; 240];
    bytes[..3].copy_from_slice(&[2, 1, 6]);
    bytes[4..8].copy_from_slice(&number.to_be_bytes());
    bytes[16..20].copy_from_slice(&ADDRESS.octets());
    bytes[28..34].copy_from_slice(&MAC.0);
    bytes[236..240].copy_from_slice(&[99, 130, 83, 99]);
    let mut put = |kind: u8, data: &[u8]| {
        bytes.extend([kind, data.len() as u8]);
        bytes.extend(data);
    };
    put(53, &[kind]);
    put(54, &server.octets());
    more.iter().for_each(|(kind, data)| put(*kind, data));
    bytes.push(255);
    bytes
}

fn lease(kind: u8, number: u32, server: Ipv4Addr, seconds: u32) -> Vec<u8> {
    answer(
        kind,
        number,
        server,
        &[(51, &seconds.to_be_bytes()), (1, &[255, 255, 255, 0]), (3, &[10, 0, 0, 254])],
    )
}

struct World {
    now: Time,
    client: Client,
    out: Vec<Action>,
}

impl World {
    fn new() -> Self {
        let identity = Identity { mac: MAC, client: vec![0, b'a'], name: None };
        let now = Time::from_secs(100);
        Self { now, client: Client::new(now, identity, 7), out: Vec::new() }
    }

    /// Lets time pass until something is said or done; how many seconds that took.
    fn pass(&mut self) -> u64 {
        let before = self.now;
        while self.out.is_empty() {
            assert_ne!(self.client.next(), Time::MAX, "{:?}", self.client);
            self.now = self.now.max(self.client.next());
            self.client.due(self.now, &mut self.out);
        }
        self.now.saturating_duration_since(before).as_secs()
    }

    fn says(&mut self) -> Said {
        self.pass();
        let mut all = said(&mut self.out);
        assert_eq!(all.len(), 1, "{:?}", self.out);
        all.remove(0)
    }

    fn hears(&mut self, bytes: &[u8]) -> bool {
        self.client.datagram(self.now, bytes, &mut self.out)
    }

    /// Up to a lease of so many seconds.
    fn bound(seconds: u32) -> Self {
        let mut world = Self::new();
        let discover = world.says();
        assert!(world.hears(&lease(2, discover.number, SERVER, seconds)));
        let request = world.says();
        assert!(world.hears(&lease(5, request.number, SERVER, seconds)));
        assert!(matches!(world.out.remove(0), Action::Give(lease) if lease.address() == ADDRESS));
        assert!(world.out.is_empty());
        world
    }
}

#[test]
fn discover_offer_request_ack() {
    let mut world = World::new();
    let discover = world.says();
    assert_eq!(
        (discover.kind, discover.has, discover.from, discover.to),
        (1, Ipv4Addr::UNSPECIFIED, None, None)
    );
    assert!(discover.broadcast, "nobody answers for the address yet");
    assert!(world.hears(&lease(2, discover.number, SERVER, 1000)));
    // A second server's offer comes too late.
    assert!(!world.hears(&lease(2, discover.number, OTHER, 1000)));
    let request = world.says();
    assert_eq!((request.kind, request.about, request.server), (3, Some(ADDRESS), Some(SERVER)));
    assert_eq!((request.number, request.from, request.to), (discover.number, None, None));
    assert!(world.hears(&lease(5, request.number, SERVER, 1000)));
    let Action::Give(lease) = world.out.remove(0) else { panic!("{:?}", world.out) };
    assert_eq!(lease.prefix, "10.0.0.50/24".parse().unwrap());
    assert_eq!(lease.router, Some(Ipv4Addr::new(10, 0, 0, 254)));
    let after = |at: Time| at.saturating_duration_since(world.now).as_secs();
    assert_eq!([lease.renew, lease.rebind, lease.until].map(after), [500, 875, 1000]);
}

/// RFC 2131 section 4.1.
#[test]
fn questions_without_an_answer_come_less_and_less_often() {
    let mut world = World::new();
    let first = world.says();
    for seconds in [4, 8, 16, 32, 64, 64, 64] {
        let took = world.pass();
        assert!((seconds - 1..=seconds + 1).contains(&took), "{took} for {seconds}");
        assert_eq!(said(&mut world.out)[0].number, first.number);
    }
    // The offered address is not waited for as long: another server may be better.
    assert!(world.hears(&lease(2, first.number, SERVER, 1000)));
    for _ in 0..REQUESTS {
        assert_eq!(world.says().kind, 3);
    }
    let again = world.says();
    assert_eq!(again.kind, 1);
    assert_ne!(again.number, first.number);
    assert!(!world.hears(&lease(5, first.number, SERVER, 1000)), "an answer to a question of before");
}

#[test]
fn lies_are_not_believed() {
    let mut world = World::new();
    let discover = world.says();
    let number = discover.number;
    let good = lease(2, number, SERVER, 1000);
    let changed = |at: usize, to: u8| {
        let mut bytes = good.clone();
        bytes[at] = to;
        bytes
    };
    for (what, bytes) in [
        ("another number", lease(2, number ^ 1, SERVER, 1000)),
        ("a lease of nothing", lease(2, number, SERVER, 0)),
        ("no lease", answer(2, number, SERVER, &[])),
        ("no server", answer(2, number, Ipv4Addr::UNSPECIFIED, &[(51, &[0, 0, 4, 0])])),
        ("another's", changed(33, 9)),
        ("a question", changed(0, 1)),
        ("no cookie", changed(236, 0)),
        ("another hardware", changed(1, 6)),
        ("a group", changed(16, 224)),
        ("this host", changed(16, 127)),
        ("nobody", changed(16, 0)),
        ("the network", changed(19, 0)),
        ("everybody", changed(19, 255)),
        ("an ack of nothing", lease(5, number, SERVER, 1000)),
        ("a nak of nothing", lease(6, number, SERVER, 1000)),
    ] {
        assert!(!world.hears(&bytes), "{what}");
        assert!(world.out.is_empty(), "{what}");
    }
    for len in 0..good.len() {
        // Without its end it may still be whole; what is read of it is never beyond it.
        if len < good.len() - 1 - 6 - 6 {
            assert!(!world.hears(&good[..len]), "{len} bytes");
        }
    }
    assert!(world.hears(&good));
    world.says();
    for (what, bytes) in [
        ("another server's ack", lease(5, number, OTHER, 1000)),
        ("another server's nak", lease(6, number, OTHER, 1000)),
        ("another address", {
            let mut b = lease(5, number, SERVER, 1000);
            b[19] = 51;
            b
        }),
    ] {
        assert!(!world.hears(&bytes), "{what}");
    }
    assert!(world.hears(&lease(5, number, SERVER, 1000)));
}

#[test]
fn odd_times_of_renewal_are_replaced() {
    for (renew, rebind) in [(0, 800), (900, 800), (500, 1000), (800, 800)] {
        let mut world = World::new();
        let number = world.says().number;
        assert!(world.hears(&lease(2, number, SERVER, 1000)));
        world.says();
        let more: [(u8, &[u8]); 3] =
            [(51, &1000u32.to_be_bytes()), (58, &u32::to_be_bytes(renew)), (59, &u32::to_be_bytes(rebind))];
        assert!(world.hears(&answer(5, number, SERVER, &more)));
        let Action::Give(lease) = world.out.remove(0) else { panic!("{:?}", world.out) };
        assert_eq!(lease.renew.saturating_duration_since(world.now).as_secs(), 500, "{renew} {rebind}");
        assert_eq!(lease.prefix.len(), 8, "without a mask: that of its class");
    }
}

#[test]
fn options_in_the_fields_of_names_and_in_parts() {
    let mut world = World::new();
    let number = world.says().number;
    // The lease in the file's name, the mask in the server's; the router in two parts, one of them there.
    let mut bytes = answer(2, number, SERVER, &[(52, &[3]), (3, &[10, 0])]);
    bytes[108..114].copy_from_slice(&[51, 4, 0, 0, 3, 232]);
    bytes[114..119].copy_from_slice(&[3, 2, 0, 9, 255]);
    bytes[44..51].copy_from_slice(&[1, 4, 255, 255, 0, 0, 255]);
    assert!(world.hears(&bytes));
    let State::Requesting(offer) = world.client.state else { panic!("{:?}", world.client) };
    assert_eq!((offer.prefix.len(), offer.router), (16, Some(Ipv4Addr::new(10, 0, 0, 9))));
    // An option without end, in a field without end.
    let mut world = World::new();
    let number = world.says().number;
    let mut bytes = answer(2, number, SERVER, &[(52, &[3])]);
    bytes[108..236].fill(51);
    bytes[44..108].fill(250);
    assert!(!world.hears(&bytes));
    let huge = vec![0xff_u8; 255];
    let many: Vec<(u8, &[u8])> = (0..200).map(|_| (43, &huge[..])).collect();
    assert!(!world.hears(&answer(2, number, SERVER, &many)));
}

#[test]
fn a_lease_is_renewed_then_asked_of_all_then_lost() {
    let mut world = World::bound(1000);
    assert_eq!(world.pass(), 500);
    let renew = world.says();
    assert_eq!((renew.kind, renew.has, renew.about, renew.server), (3, ADDRESS, None, None));
    assert_eq!((renew.from, renew.to), (Some(ADDRESS), Some(SERVER)));
    assert!(!renew.broadcast);
    assert!(!world.hears(&lease(5, renew.number, OTHER, 1000)), "another server has not given it");
    assert!(!world.hears(&lease(6, renew.number, OTHER, 1000)), "nor can it take it");
    assert!(world.hears(&lease(5, renew.number, SERVER, 1000)));
    assert!(matches!(world.out.remove(0), Action::Give(_)));
    assert_eq!(world.pass(), 500);
    world.says();
    // Half of what is left, no less than a minute.
    let mut waits = Vec::new();
    let rebind = loop {
        waits.push(world.pass());
        let said = world.says();
        if said.to.is_none() {
            break said;
        }
    };
    assert_eq!(waits, [187, 93, 60, 33]);
    assert_eq!((rebind.from, rebind.has), (Some(ADDRESS), ADDRESS));
    assert!(world.hears(&lease(5, rebind.number, OTHER, 1000)), "any server may answer");
    assert!(matches!(world.out.remove(0), Action::Give(lease) if lease.server == OTHER));
    // Nobody answers any more.
    loop {
        world.pass();
        said(&mut world.out);
        if let Some(action) = world.out.pop() {
            assert_eq!(action, Action::Take(ADDRESS, Lost::Expired));
            break;
        }
    }
    assert!(world.client.lease().is_none());
    assert_eq!(world.says().kind, 1);
}

#[test]
fn a_lease_for_ever_is_never_asked_for_again() {
    let world = World::bound(u32::MAX);
    assert_eq!(world.client.next(), Time::MAX);
    assert_eq!(world.client.lease().unwrap().until, Time::MAX);
}

#[test]
fn a_refusal_takes_the_address_and_another_is_asked_for() {
    let mut world = World::bound(1000);
    world.pass();
    let renew = world.says();
    assert!(world.hears(&lease(6, renew.number, SERVER, 0)));
    assert_eq!(world.out.remove(0), Action::Take(ADDRESS, Lost::Refused));
    let discover = world.says();
    assert_eq!((discover.kind, discover.has, discover.from), (1, Ipv4Addr::UNSPECIFIED, None));
    // Refused at once it waits: a server that offers and refuses would keep both busy.
    assert!(world.hears(&lease(2, discover.number, SERVER, 1000)));
    world.says();
    assert!(world.hears(&lease(6, discover.number, SERVER, 0)));
    assert_eq!(world.pass(), PAUSE);
}

/// RFC 2131 section 3.1, 5.
#[test]
fn a_duplicate_is_declined() {
    let mut world = World::bound(1000);
    world.client.duplicate(world.now, OTHER, &mut world.out);
    assert!(world.out.is_empty(), "not the address of the lease");
    world.client.duplicate(world.now, ADDRESS, &mut world.out);
    let decline = said(&mut world.out).remove(0);
    assert_eq!((decline.kind, decline.has), (4, Ipv4Addr::UNSPECIFIED));
    assert_eq!((decline.about, decline.server, decline.from), (Some(ADDRESS), Some(SERVER), None));
    assert_eq!(world.out.remove(0), Action::Take(ADDRESS, Lost::Duplicate));
    assert_eq!(world.pass(), PAUSE);
    assert_eq!(world.says().kind, 1);
}

#[test]
fn at_the_end_the_address_is_given_back() {
    let mut world = World::bound(1000);
    world.client.release(world.now, &mut world.out);
    let release = said(&mut world.out).remove(0);
    assert_eq!((release.kind, release.has, release.server), (7, ADDRESS, Some(SERVER)));
    assert_eq!((release.from, release.to), (Some(ADDRESS), Some(SERVER)));
    assert_eq!(world.out.remove(0), Action::Take(ADDRESS, Lost::Released));
    assert_eq!(world.client.next(), Time::MAX);
    world.client.link_up(world.now, &mut world.out);
    assert!(world.out.is_empty());
}

#[test]
fn when_the_link_is_up_again_the_address_is_confirmed() {
    let mut world = World::bound(1000);
    let until = world.client.lease().unwrap().until;
    world.client.link_up(world.now, &mut world.out);
    let confirm = world.says();
    assert_eq!((confirm.kind, confirm.about, confirm.server), (3, Some(ADDRESS), None));
    assert_eq!((confirm.has, confirm.from, confirm.to), (Ipv4Addr::UNSPECIFIED, None, None));
    // Nobody answers: it is used on, until it ends.
    assert_eq!(world.says().kind, 3);
    let renew = world.says();
    assert_eq!(renew.to, Some(SERVER));
    assert_eq!(world.client.lease().unwrap().until, until);
    // Another network: its server says so.
    world.client.link_up(world.now, &mut world.out);
    let confirm = world.says();
    assert!(world.hears(&lease(6, confirm.number, OTHER, 0)));
    assert_eq!(world.out.remove(0), Action::Take(ADDRESS, Lost::Refused));
}

#[test]
fn a_server_that_loses_and_delays_is_waited_for() {
    for seed in 0..200 {
        let identity = Identity { mac: MAC, client: vec![0, b'a'], name: None };
        let mut world = World {
            now: Time::from_secs(1),
            client: Client::new(Time::from_secs(1), identity, seed),
            out: Vec::new(),
        };
        let mut rng = Rng::new(seed);
        let mut on_the_way: Vec<(Time, Vec<u8>)> = Vec::new();
        let (mut given, end) = (0, Time::from_secs(20_000));
        while world.now < end {
            let next =
                on_the_way.iter().map(|(at, _)| *at).min().unwrap_or(Time::MAX).min(world.client.next());
            assert!(next < Time::MAX, "seed {seed}: {:?}", world.client);
            world.now = world.now.max(next);
            world.client.due(world.now, &mut world.out);
            if let Some(i) = on_the_way.iter().position(|(at, _)| *at <= world.now) {
                let (_, bytes) = on_the_way.swap_remove(i);
                world.hears(&bytes);
            }
            for said in said(&mut world.out) {
                if rng.below(10) < 4 {
                    continue;
                }
                let kind = if said.kind == 1 { 2 } else { 5 };
                let at = world.now + Duration::from_millis(rng.below(9000).into());
                on_the_way.push((at, lease(kind, said.number, SERVER, 600)));
            }
            for action in world.out.drain(..) {
                given += u32::from(matches!(action, Action::Give(_)));
            }
            if let Some(lease) = world.client.lease() {
                assert!(lease.until > world.now, "seed {seed}: a lease that has ended is used");
            }
        }
        assert!(given > 20, "seed {seed}: {given}");
    }
}
