//! Tunnels as they are configured: lookup, levels, mistakes.

use super::*;
use crate::route::Route;

fn link(addresses: &[&str], mtu: u16) -> InterfaceConfig {
    InterfaceConfig {
        mtu,
        ..InterfaceConfig::new(
            MacAddr([2, 0, 0, 0, 0, 1]),
            addresses.iter().map(|a| a.parse().unwrap()).collect(),
        )
    }
}

fn tunnel(kind: TunnelKind, local: &str, remote: &str, inside: &str) -> TunnelConfig {
    let mut t = TunnelConfig::new(kind, local.parse().unwrap(), remote.parse().unwrap());
    t.addresses.push(inside.parse().unwrap());
    t
}

#[test]
fn overheads_are_those_of_the_headers() {
    let overhead = |kind, v6| {
        let (a, b) = if v6 { ("fd00::1", "fd00::2") } else { ("10.0.0.1", "10.0.0.2") };
        tunnel(kind, a, b, "192.168.0.1/24").overhead()
    };
    assert_eq!(overhead(TunnelKind::IpInIp, false), 20);
    assert_eq!(overhead(TunnelKind::IpInIp, true), 40);
    assert_eq!(overhead(TunnelKind::Gre { key: None, ethernet: false }, false), 24);
    assert_eq!(overhead(TunnelKind::Gre { key: Some(1), ethernet: true }, false), 42);
    assert_eq!(overhead(TunnelKind::vxlan(7), false), 50);
    assert_eq!(overhead(TunnelKind::geneve(7), true), 70);
    let mut with = tunnel(TunnelKind::Gre { key: None, ethernet: false }, "::2", "::3", "fd01::1/64");
    with.checksum = Some(true);
    assert_eq!(with.overhead(), 48);
}

#[test]
fn a_tunnel_in_a_tunnel_is_smaller_and_higher_whatever_their_order() {
    let links = [link(&["10.0.0.1/24"], 1500)];
    let outer = tunnel(TunnelKind::vxlan(1), "10.0.0.1", "10.0.0.2", "10.1.0.1/24");
    let inner = tunnel(TunnelKind::IpInIp, "10.1.0.1", "10.1.0.2", "10.2.0.1/24");
    for swapped in [false, true] {
        let list = if swapped { [inner.clone(), outer.clone()] } else { [outer.clone(), inner.clone()] };
        assert_eq!(Tunnels::check(&links, &list, &[]), Ok(()));
        let (tunnels, interfaces) = Tunnels::new(&links, &list, &[]);
        let (o, i) = if swapped { (1, 0) } else { (0, 1) };
        assert_eq!((tunnels.all[o].level, tunnels.all[i].level), (1, 2));
        assert_eq!((interfaces[o].mtu, interfaces[i].mtu), (1450, 1430));
    }
    // Never below what IPv6 needs.
    let (_, small) = Tunnels::new(&[link(&["10.0.0.1/24"], 1300)], &[outer], &[]);
    assert_eq!(small[0].mtu, 1280);
}

#[test]
fn what_cannot_work_is_named() {
    let links = [link(&["10.0.0.1/24", "fd00::1/64"], 1500)];
    let good = tunnel(TunnelKind::vxlan(1), "10.0.0.1", "10.0.0.2", "10.1.0.1/24");
    let check = |list: &[TunnelConfig]| Tunnels::check(&links, list, &[]);
    let with = |change: &dyn Fn(&mut TunnelConfig)| {
        let mut t = good.clone();
        change(&mut t);
        check(&[t]).map_err(|(_, e)| e)
    };
    assert_eq!(check(std::slice::from_ref(&good)), Ok(()));
    assert_eq!(with(&|t| t.remote = "fd00::2".parse().unwrap()), Err(TunnelError::Addresses));
    assert_eq!(with(&|t| t.remote = t.local), Err(TunnelError::Addresses));
    assert_eq!(with(&|t| t.remote = "224.0.0.1".parse().unwrap()), Err(TunnelError::Addresses));
    assert_eq!(with(&|t| t.local = "10.0.0.9".parse().unwrap()), Err(TunnelError::NotOurAddress));
    assert_eq!(with(&|t| t.kind = TunnelKind::vxlan(1 << 24)), Err(TunnelError::Vni));
    assert_eq!(with(&|t| t.kind = TunnelKind::Vxlan { vni: 1, port: 0 }), Err(TunnelError::Port));
    assert_eq!(with(&|t| t.mtu = Some(1279)), Err(TunnelError::Mtu));
    assert_eq!(with(&|t| t.remote = "10.9.0.1".parse().unwrap()), Err(TunnelError::NoRoute));
    assert_eq!(with(&|t| t.addresses = vec!["10.0.0.77/28".parse().unwrap()]), Ok(()));
    // Its far side is inside of itself.
    let itself = |t: &mut TunnelConfig| t.addresses = vec!["10.0.0.1/28".parse().unwrap()];
    assert_eq!(with(&itself), Err(TunnelError::Nested));
    assert_eq!(check(&[good.clone(), good.clone()]), Err((1, TunnelError::Twice)));
    let mut other = good.clone();
    other.kind = TunnelKind::vxlan(2);
    assert_eq!(check(&[good.clone(), other]), Ok(()));
    // Five of them, each in the one before.
    let nested: Vec<TunnelConfig> = (0..5)
        .map(|i| {
            let a = |i: u8, host: u8, len: &str| format!("10.{i}.0.{host}{len}");
            let kind = TunnelKind::Gre { key: Some(9), ethernet: false };
            tunnel(kind, &a(i, 1, ""), &a(i, 2, ""), &a(i + 1, 1, "/24"))
        })
        .collect();
    assert_eq!(check(&nested[..4]), Ok(()));
    assert_eq!(check(&nested), Err((4, TunnelError::Nested)));
    let far = [Route { prefix: "10.9.0.0/16".parse().unwrap(), gateway: None, interface: 0 }];
    let mut there = good;
    there.remote = "10.9.0.1".parse().unwrap();
    assert_eq!(Tunnels::check(&links, &[there], &far), Ok(()));
}

#[test]
fn the_two_sides_make_different_ethernet_addresses() {
    let a = tunnel(TunnelKind::vxlan(1), "10.0.0.1", "10.0.0.2", "10.1.0.1/24");
    let b = tunnel(TunnelKind::vxlan(1), "10.0.0.2", "10.0.0.1", "10.1.0.2/24");
    assert_ne!(a.mac(), b.mac());
    assert!(a.mac().is_unicast() && a.mac().0[0] == 2);
}
