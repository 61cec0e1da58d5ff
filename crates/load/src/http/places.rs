//! The addresses of a target, and which of them are used.
//!
//! A name may have addresses that nobody listens on. Clients try the next one (RFC 6724, RFC 8305) and stay with what answers: here an
//! address is given up when its first connection fails, as long as there is another, and that failure is none of the run's. Addresses that
//! answer are used in turn. An address that has answered is never given up: what fails there later is the run's.

use std::net::SocketAddr;

use crate::report::ErrorKind;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Standing {
    Untried,
    Answers,
    GivenUp,
}

/// The addresses of one target.
#[derive(Debug)]
pub(super) struct Place(Vec<(SocketAddr, Standing)>);

impl Place {
    pub(super) fn new(addresses: &[SocketAddr]) -> Self {
        let most = addresses.len().min(usize::from(u8::MAX));
        Self(addresses[..most].iter().map(|address| (*address, Standing::Untried)).collect())
    }

    /// The address for the `turn`-th connection, with its number.
    pub(super) fn next(&self, turn: usize) -> (u8, SocketAddr) {
        let usable = || self.0.iter().enumerate().filter(|(_, (_, s))| *s != Standing::GivenUp);
        let n = usable().count();
        let (i, (address, _)) = match usable().nth(turn.checked_rem(n).unwrap_or(0)) {
            Some(found) => found,
            // All are given up: the target is tried all the same.
            None => (turn % self.0.len(), &self.0[turn % self.0.len()]),
        };
        (i as u8, *address)
    }

    /// A connection to this address stands.
    pub(super) fn stands(&mut self, address: u8) {
        if let Some((_, standing)) = self.0.get_mut(usize::from(address)) {
            *standing = Standing::Answers;
        }
    }

    /// A connection to this address failed; whether another address is to be tried in its place.
    pub(super) fn failed(&mut self, address: u8, kind: ErrorKind) -> bool {
        let of_address =
            matches!(kind, ErrorKind::Refused | ErrorKind::Unreachable | ErrorKind::ConnectTimeout);
        let others = self.others(address);
        let Some((_, standing)) = self.0.get_mut(usize::from(address)) else { return false };
        // What does not answer may still do so, unless there is something better.
        if !of_address || *standing == Standing::Answers || (!others && kind != ErrorKind::Refused) {
            return false;
        }
        *standing = Standing::GivenUp;
        others
    }

    /// Whether an address that has answered nothing yet is worth no more waiting: another one answers.
    pub(super) fn is_slower(&self, address: u8) -> bool {
        let untried = self.0.get(usize::from(address)).is_some_and(|(_, s)| *s == Standing::Untried);
        untried && self.0.iter().any(|(_, s)| *s == Standing::Answers)
    }

    /// Whether all addresses are given up.
    pub(super) fn is_given_up(&self) -> bool {
        self.0.iter().all(|(_, s)| *s == Standing::GivenUp)
    }

    /// All addresses.
    pub(super) fn addresses(&self) -> impl Iterator<Item = SocketAddr> {
        self.0.iter().map(|(address, _)| *address)
    }

    /// Whether there are others that are not given up.
    fn others(&self, address: u8) -> bool {
        let usable = |(i, (_, s)): (usize, &(SocketAddr, Standing))| {
            i != usize::from(address) && *s != Standing::GivenUp
        };
        self.0.iter().enumerate().any(usable)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(n: u8) -> Place {
        let all: Vec<_> = (1..=n).map(|i| SocketAddr::from(([10, 0, 0, i], 80))).collect();
        Place::new(&all)
    }

    fn used(place: &Place) -> Vec<u8> {
        (0..4).map(|turn| place.next(turn).0).collect()
    }

    #[test]
    fn what_fails_first_is_given_up_and_what_answers_stays() {
        let mut three = place(3);
        assert_eq!(used(&three), [0, 1, 2, 0]);
        three.stands(1);
        assert!(three.failed(0, ErrorKind::Refused), "another one is tried");
        assert!(three.failed(2, ErrorKind::ConnectTimeout));
        assert_eq!(used(&three), [1, 1, 1, 1]);
        // An attempt that was on its way to what is given up moves, too; what fails where something has answered is a failure.
        assert!(three.failed(0, ErrorKind::Refused));
        assert!(!three.failed(1, ErrorKind::Refused));
        assert!(!three.is_given_up());
    }

    #[test]
    fn where_all_refuse_the_last_one_fails() {
        let mut two = place(2);
        assert!(two.failed(0, ErrorKind::Refused));
        assert!(!two.is_given_up());
        assert!(!two.failed(1, ErrorKind::Refused));
        assert!(two.is_given_up());
        assert_eq!(used(&two), [0, 1, 0, 1], "a run with other targets goes on trying");
        // The only address is given up by a refusal, not by silence; what is ours is nobody's refusal.
        let mut one = place(1);
        assert!(!one.failed(0, ErrorKind::ConnectTimeout) && !one.failed(0, ErrorKind::Local));
        assert!(!one.is_given_up());
        assert!(!one.failed(0, ErrorKind::Refused) && one.is_given_up());
    }

    #[test]
    fn nobody_waits_long_for_an_address_beside_one_that_answers() {
        let mut two = place(2);
        assert!(!two.is_slower(0));
        two.stands(1);
        assert!(two.is_slower(0) && !two.is_slower(1));
    }
}
