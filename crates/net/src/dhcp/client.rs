//! The states of a client of DHCP (RFC 2131 section 4.4), without I/O: time, randomness and datagrams are arguments.
//!
//! ```text
//!   begin ──discover──▶ selecting ──offer: request──▶ requesting ──ack──▶ bound ──T1──▶ renewing ──T2──▶ rebinding ──end──▶ begin
//!     ▲                                                   │ nak            │ ▲             │ ack             │ ack, nak
//!     └───────────────────────────────────────────────────┘      duplicate: decline       └──── bound ◀─────┘
//! ```
//!
//! The first offer that can be used is taken. A repeated question comes after 4, 8, 16, 32 and then 64 seconds, one more or less (section
//! 4.1); renewals after half of what is left of their time, no sooner than a minute (section 4.4.5). An answer counts only with the number
//! of the last question, our Ethernet address, and, of a lease that one server gave, that server's identifier.

use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use flowlane_stack::address::Prefix;
use flowlane_stack::rng::Rng;
use flowlane_stack::time::Time;
use flowlane_stack::wire::MacAddr;

use super::message::{Answer, Kind, Question, is_host};

/// From a question to its first repetition, and to each of the last ones, seconds.
const FIRST: u32 = 4;
const LAST: u32 = 64;
/// Questions for an offered address, before another is looked for: half a minute.
const REQUESTS: u32 = 3;
/// Questions for the address of before, when the link is up again: without an answer it is used on.
const CONFIRMATIONS: u32 = 2;
/// After a refusal and after a conflict, before it all begins again (section 3.1, 5.), seconds.
const PAUSE: u64 = 10;
/// Renewals are no closer together.
const LEAST: Duration = Duration::from_secs(60);
/// A lease for ever.
const FOR_EVER: u32 = u32::MAX;

/// Who the client is.
#[derive(Debug, Clone)]
pub(crate) struct Identity {
    pub(crate) mac: MacAddr,
    /// The client's identifier (RFC 2132 section 9.14), with its type.
    pub(crate) client: Vec<u8>,
    pub(crate) name: Option<String>,
}

/// An address that a server gave.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Lease {
    pub(crate) prefix: Prefix,
    pub(crate) server: Ipv4Addr,
    pub(crate) router: Option<Ipv4Addr>,
    pub(crate) mtu: Option<u16>,
    pub(crate) renew: Time,
    pub(crate) rebind: Time,
    /// `Time::MAX` for ever.
    pub(crate) until: Time,
}

impl Lease {
    /// The lease of an answer to a question that was sent at `sent`: from then on it counts (section 4.4.5).
    fn of(answer: &Answer, sent: Time) -> Option<Self> {
        let server = answer.server?;
        // Guard: `*seconds > 0` as `true` fails dhcp::client::tests::lies_are_not_believed
        let lease = answer.lease.filter(|seconds| *seconds > 0)?;
        let len = answer.network.unwrap_or_else(|| class(answer.address));
        let prefix = Prefix::new(IpAddr::V4(answer.address), len)?;
        let network = prefix.network().address() == prefix.address();
        let end = len < 31 && (network || prefix.broadcast() == Some(answer.address));
        if !is_host(answer.address) || end {
            return None;
        }
        let after = |seconds: u32| sent + Duration::from_secs(seconds.into());
        let usual = ((u64::from(lease) / 2) as u32, (u64::from(lease) * 7 / 8) as u32);
        let said = (answer.renew.unwrap_or(usual.0), answer.rebind.unwrap_or(usual.1));
        let (renew, rebind) = if 0 < said.0 && said.0 < said.1 && said.1 < lease { said } else { usual };
        let (renew, rebind, until) = match lease {
            FOR_EVER => (Time::MAX, Time::MAX, Time::MAX),
            _ => (after(renew), after(rebind), after(lease)),
        };
        let router = answer.router.filter(|router| *router != answer.address);
        Some(Self { prefix, server, router, mtu: answer.mtu, renew, rebind, until })
    }

    /// The address alone.
    pub(crate) fn address(&self) -> Ipv4Addr {
        match self.prefix.address() {
            IpAddr::V4(address) => address,
            IpAddr::V6(_) => Ipv4Addr::UNSPECIFIED,
        }
    }
}

/// The network of an address of which nobody says it (RFC 791 section 3.2).
fn class(address: Ipv4Addr) -> u8 {
    match address.octets()[0] {
        0..128 => 8,
        128..192 => 16,
        _ => 24,
    }
}

/// Why an address is not used any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lost {
    /// Nobody renewed it.
    Expired,
    /// A server said so.
    Refused,
    /// Somebody else has it.
    Duplicate,
    /// The host is ending.
    Released,
}

/// What the client wants done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Action {
    /// Send a message; `None` for no source address, and for all on the link.
    Send { from: Option<Ipv4Addr>, to: Option<Ipv4Addr>, bytes: Vec<u8> },
    /// Use an address from now on, or longer.
    Give(Lease),
    /// Do not use an address any more.
    Take(Ipv4Addr, Lost),
}

#[derive(Debug, Clone, Copy)]
enum State {
    /// Waits before it begins.
    Begin,
    Selecting,
    Requesting(Lease),
    /// As renewing, but when the link was away: the network may be another.
    Confirming(Lease),
    Bound(Lease),
    Renewing(Lease),
    Rebinding(Lease),
    /// The host is ending.
    Over,
}

/// A client.
#[derive(Debug)]
pub(crate) struct Client {
    identity: Identity,
    rng: Rng,
    state: State,
    /// The number of the exchange.
    number: u32,
    /// When it began.
    began: Time,
    /// When the last question was sent, and how often it was.
    sent: Time,
    asked: u32,
    /// When the next thing is due.
    at: Time,
}

impl Client {
    /// A client that begins at once.
    pub(crate) fn new(now: Time, identity: Identity, seed: u64) -> Self {
        let mut rng = Rng::new(seed);
        let number = rng.next_u32();
        Self { identity, rng, state: State::Begin, number, began: now, sent: now, asked: 0, at: now }
    }

    /// When [`Client::due`] wants to be called.
    pub(crate) fn next(&self) -> Time {
        match self.state {
            State::Over => Time::MAX,
            State::Renewing(lease) | State::Rebinding(lease) | State::Confirming(lease) => {
                self.at.min(lease.until)
            }
            _ => self.at,
        }
    }

    /// The lease that is used.
    pub(crate) fn lease(&self) -> Option<&Lease> {
        match &self.state {
            State::Bound(lease)
            | State::Renewing(lease)
            | State::Rebinding(lease)
            | State::Confirming(lease) => Some(lease),
            _ => None,
        }
    }

    /// Does what is due.
    pub(crate) fn due(&mut self, now: Time, out: &mut Vec<Action>) {
        if now < self.next() {
            return;
        }
        if let Some(lease) = self.lease().copied().filter(|lease| lease.until <= now) {
            return self.lose(now, &lease, Lost::Expired, Duration::ZERO, out);
        }
        match self.state {
            State::Begin => {
                self.exchange(now);
                self.state = State::Selecting;
                self.ask(now, None, out);
            }
            State::Selecting => self.ask(now, None, out),
            State::Requesting(_) if self.asked >= REQUESTS => self.begin_again(now, Duration::ZERO),
            State::Requesting(lease) => self.ask(now, Some(&lease), out),
            State::Confirming(lease) if self.asked >= CONFIRMATIONS => self.bind(lease),
            State::Confirming(lease) => self.ask(now, Some(&lease), out),
            State::Bound(lease) => {
                self.exchange(now);
                self.state = State::Renewing(lease);
                self.renew(now, &lease, out);
            }
            State::Renewing(lease) if lease.rebind <= now => {
                self.exchange(now);
                self.state = State::Rebinding(lease);
                self.renew(now, &lease, out);
            }
            State::Renewing(lease) | State::Rebinding(lease) => self.renew(now, &lease, out),
            State::Over => {}
        }
    }

    /// Takes in a datagram. Whether it was an answer to the last question.
    pub(crate) fn datagram(&mut self, now: Time, bytes: &[u8], out: &mut Vec<Action>) -> bool {
        let Some(answer) = Answer::read(bytes) else { return false };
        // Guard: `answer.number != self.number || answer.mac != self.identity.mac` as `false` fails
        // dhcp::client::tests::lies_are_not_believed
        if answer.number != self.number || answer.mac != self.identity.mac {
            return false;
        }
        match (self.state, answer.kind) {
            (State::Selecting, Kind::Offer) => {
                let Some(lease) = Lease::of(&answer, now) else { return false };
                self.state = State::Requesting(lease);
                self.asked = 0;
                self.ask(now, Some(&lease), out);
            }
            (State::Requesting(offer), Kind::Ack) => {
                let Some(lease) = Lease::of(&answer, self.sent) else { return false };
                // Guard: `lease.server != offer.server || lease.address() != offer.address()` as `false`
                // fails dhcp::client::tests::lies_are_not_believed
                if lease.server != offer.server || lease.address() != offer.address() {
                    return false;
                }
                self.bind(lease);
                out.push(Action::Give(lease));
            }
            (State::Requesting(offer), Kind::Nak) => {
                if answer.server != Some(offer.server) {
                    return false;
                }
                self.begin_again(now, Duration::from_secs(PAUSE));
            }
            (State::Renewing(had) | State::Rebinding(had) | State::Confirming(had), Kind::Ack) => {
                let Some(lease) = Lease::of(&answer, self.sent) else { return false };
                let whose = !matches!(self.state, State::Renewing(_)) || lease.server == had.server;
                if !whose || lease.address() != had.address() {
                    return false;
                }
                self.bind(lease);
                out.push(Action::Give(lease));
            }
            (State::Renewing(had) | State::Rebinding(had) | State::Confirming(had), Kind::Nak) => {
                let whose = !matches!(self.state, State::Renewing(_)) || answer.server == Some(had.server);
                if !whose {
                    return false;
                }
                self.lose(now, &had, Lost::Refused, Duration::ZERO, out);
            }
            _ => return false,
        }
        true
    }

    /// Somebody else has the address (section 4.4.1, RFC 5227 section 2.1.1).
    pub(crate) fn duplicate(&mut self, now: Time, address: Ipv4Addr, out: &mut Vec<Action>) {
        let Some(lease) = self.lease().copied().filter(|lease| lease.address() == address) else { return };
        let decline = self.question(now, Kind::Decline, (None, Some(address), Some(lease.server)));
        out.push(Action::Send { from: None, to: None, bytes: decline });
        self.lose(now, &lease, Lost::Duplicate, Duration::from_secs(PAUSE), out);
    }

    /// The link is up again: the network may be another (section 3.2).
    pub(crate) fn link_up(&mut self, now: Time, out: &mut Vec<Action>) {
        match self.lease().copied() {
            Some(lease) => {
                self.exchange(now);
                self.state = State::Confirming(lease);
                self.ask(now, Some(&lease), out);
            }
            None if !matches!(self.state, State::Over) => self.begin_again(now, Duration::ZERO),
            None => {}
        }
    }

    /// The host is ending (section 4.4.6).
    pub(crate) fn release(&mut self, now: Time, out: &mut Vec<Action>) {
        if let Some(lease) = self.lease().copied() {
            self.exchange(now);
            let address = lease.address();
            let bytes = self.question(now, Kind::Release, (Some(address), None, Some(lease.server)));
            out.push(Action::Send { from: Some(address), to: Some(lease.server), bytes });
            out.push(Action::Take(address, Lost::Released));
        }
        self.state = State::Over;
    }

    fn bind(&mut self, lease: Lease) {
        self.state = State::Bound(lease);
        self.at = lease.renew;
    }

    fn lose(&mut self, now: Time, lease: &Lease, why: Lost, pause: Duration, out: &mut Vec<Action>) {
        out.push(Action::Take(lease.address(), why));
        self.begin_again(now, pause);
    }

    fn begin_again(&mut self, now: Time, pause: Duration) {
        self.state = State::Begin;
        self.at = now + pause;
    }

    /// Begins an exchange of messages, whose answers have a number of their own.
    fn exchange(&mut self, now: Time) {
        self.number = self.rng.next_u32();
        (self.began, self.asked) = (now, 0);
    }

    /// Asks for an offer, or for what was offered, and when to ask again.
    fn ask(&mut self, now: Time, lease: Option<&Lease>, out: &mut Vec<Action>) {
        let bytes = match lease {
            None => self.question(now, Kind::Discover, (None, None, None)),
            Some(lease) => {
                let server = matches!(self.state, State::Requesting(_)).then_some(lease.server);
                self.question(now, Kind::Request, (None, Some(lease.address()), server))
            }
        };
        out.push(Action::Send { from: None, to: None, bytes });
        let seconds = (FIRST << self.asked.min(8)).min(LAST);
        let jitter = Duration::from_millis(self.rng.below(2001).into());
        self.at = now + Duration::from_secs(u64::from(seconds) - 1) + jitter;
        (self.sent, self.asked) = (now, self.asked.saturating_add(1));
    }

    /// Asks for an address for longer, and when to ask again: its server, or, later, all of them.
    fn renew(&mut self, now: Time, lease: &Lease, out: &mut Vec<Action>) {
        let address = lease.address();
        let bytes = self.question(now, Kind::Request, (Some(address), None, None));
        let renews = matches!(self.state, State::Renewing(_));
        let to = renews.then_some(lease.server);
        out.push(Action::Send { from: Some(address), to, bytes });
        let end = if renews { lease.rebind } else { lease.until };
        let left = end.saturating_duration_since(now);
        self.at = (now + (left / 2).max(LEAST)).min(end);
        (self.sent, self.asked) = (now, self.asked.saturating_add(1));
    }

    fn question(
        &self,
        now: Time,
        kind: Kind,
        (has, about, server): (Option<Ipv4Addr>, Option<Ipv4Addr>, Option<Ipv4Addr>),
    ) -> Vec<u8> {
        let seconds = now.saturating_duration_since(self.began).as_secs();
        let Identity { mac, client, name } = &self.identity;
        Question {
            kind,
            number: self.number,
            mac: *mac,
            seconds: u16::try_from(seconds).unwrap_or(u16::MAX),
            has,
            about,
            server,
            client,
            name: name.as_deref(),
        }
        .write()
    }
}

#[cfg(test)]
mod tests;
