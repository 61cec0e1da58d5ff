//! The MTU of packets: by their interface, and by the known path MTU ([`PathMtus`]).

use core::net::IpAddr;

use super::Ip;
use crate::packet::Cx;
use crate::path_mtu::PathMtus;

impl Ip {
    /// Sets the MTU of an interface; tunnels over it follow. `false` if it is unchanged.
    pub(crate) fn set_mtu(&mut self, interface: u8, mtu: u16) -> bool {
        let known = self.interfaces.get_mut(usize::from(interface)).filter(|known| known.config.mtu != mtu);
        let Some(known) = known else { return false };
        known.config.mtu = mtu;
        self.fit_tunnels();
        true
    }

    /// A router says that packets to `to` may have no more than `mtu` bytes; 0 if it is too old to say.
    pub(crate) fn path_too_small(&mut self, cx: &mut Cx<'_>, to: IpAddr, mtu: u16) {
        let family = if to.is_ipv4() { &mut self.stats.ip } else { &mut self.stats.ip6 };
        family.path_mtu += 1;
        let mtu = PathMtus::at_least(to, mtu);
        let under = self.hop(to).and_then(|hop| self.interfaces.get(usize::from(hop.interface)));
        if under.is_some_and(|under| mtu < under.config.mtu) {
            cx.paths.learn(cx.now, to, mtu);
        }
    }

    /// Longest packet to `to` by an interface, whatever is known of the path behind that, bytes.
    #[inline]
    fn first_mtu_on(&self, paths: &PathMtus, interface: u8, to: IpAddr) -> u16 {
        let mtu = if self.tunnels.is_tunnel(interface) {
            self.interface_mtu(paths, interface)
        } else {
            self.interfaces[usize::from(interface)].config.mtu
        };
        if to.is_ipv6() { mtu.min(self.advertised_mtu(interface)) } else { mtu }
    }

    /// Longest packet to `to` by an interface, bytes.
    #[inline]
    pub(super) fn mtu_on(&self, paths: &PathMtus, interface: u8, to: IpAddr) -> u16 {
        let mtu = self.first_mtu_on(paths, interface, to);
        match paths.get(to) {
            Some(path) => path.min(mtu),
            None => mtu,
        }
    }

    /// Largest IP packet towards `dst`, bytes.
    pub(crate) fn mtu_to(&self, paths: &PathMtus, dst: IpAddr) -> Option<u16> {
        let hop = self.hop(dst).filter(|hop| usize::from(hop.interface) < self.interfaces.len())?;
        Some(self.mtu_on(paths, hop.interface, dst))
    }

    /// Largest IP packet that begins its way to `dst`, bytes, whatever is known of narrower paths. What TCP announces follows
    /// from it: the path back is another.
    pub(crate) fn first_mtu_to(&self, paths: &PathMtus, dst: IpAddr) -> Option<u16> {
        let hop = self.hop(dst).filter(|hop| usize::from(hop.interface) < self.interfaces.len())?;
        Some(self.first_mtu_on(paths, hop.interface, dst))
    }
}
