//! Receiving: answers, other datagrams, and ICMP errors.

use flowlane::{Datagram, SendError, SocketError};
use flowlane_stack::packet::IcmpErrorKind;

use super::Lane;
use crate::report::{ErrorKind, Sample};
use crate::run::clock;
use crate::udp::Pace;
use crate::udp::order::Arrival;
use crate::udp::payload::{Header, Parsed};

impl Lane {
    /// Handles received datagrams, without waiting.
    #[inline]
    pub(super) fn receive_now(&mut self) -> Result<(), String> {
        // The datagrams that ended a wait are there already.
        if self.came.is_empty() {
            let heard = self.ports.receive(&mut self.came);
            self.heard(heard)?;
        }
        if !self.came.is_empty() {
            self.take(clock());
        }
        Ok(())
    }

    /// Handles the result of receiving: ICMP errors and a lack of frames do not end the run.
    pub(super) fn heard(&mut self, heard: Result<(), SocketError>) -> Result<(), String> {
        match heard {
            Ok(()) | Err(SocketError::Send(SendError::NoFrame)) => Ok(()),
            Err(SocketError::Network(kind)) => {
                self.complain(kind);
                Ok(())
            }
            Err(e) => Err(format!("receiving: {e}")),
        }
    }

    /// Counts and times the received datagrams.
    pub(super) fn take(&mut self, now: u64) {
        let mut came = std::mem::take(&mut self.came);
        for datagram in came.drain(..) {
            let (long, sizes) = (datagram.len(), &self.common.config.sizes);
            match Header::read(datagram.payload(), long, self.common.run, |flow, number| {
                sizes.of(flow, number)
            }) {
                Parsed::Ours(header) if header.flow == Header::PROBE => self.counts.probes_answered += 1,
                Parsed::Ours(header) => self.answer(&header, &datagram, now),
                Parsed::Corrupt => self.corrupt(now),
                Parsed::Stray => self.stray(now),
            }
        }
        self.came = came;
    }

    #[inline]
    fn answer(&mut self, header: &Header, datagram: &Datagram, now: u64) {
        let target = self.common.config.target;
        let flow = match self.flows.get_mut(header.flow as usize) {
            Some(flow) if flow.client == datagram.destination && target == datagram.source => flow,
            // A datagram of another lane's flow that arrived here.
            _ => return self.stray(now),
        };
        match flow.order.came(header.sequence) {
            Arrival::Duplicate => {
                self.counts.duplicates += 1;
                self.recorder.tally(header.intended).named("duplicates", 1);
                return;
            }
            Arrival::NeverSent => return self.corrupt(now),
            Arrival::OutOfOrder => {
                self.counts.reordered += 1;
                self.recorder.tally(header.intended).named("reordered", 1);
            }
            Arrival::InOrder => {}
        }
        self.counts.received += 1;
        let intended = header.intended;
        let open_loop = matches!(self.common.config.pace, Pace::Rate { .. });
        let sent = if open_loop { intended.saturating_add(u64::from(header.slot)) } else { intended };
        self.recorder.answered(&Sample { intended, sent, first_byte: now, done: now, code: 0 });
        self.recorder.received(now, datagram.len() as u64);
        if now.saturating_sub(intended) > self.common.config.timeout.as_nanos() as u64 {
            self.counts.late += 1;
            self.recorder.tally(intended).named("late", 1);
        }
        self.window.answered(header.slot, header.flow, header.sequence);
    }

    fn corrupt(&mut self, now: u64) {
        self.counts.corrupt += 1;
        self.recorder.error(now, now, ErrorKind::Corrupt, || "an answer that is not what was sent");
    }

    fn stray(&mut self, now: u64) {
        self.counts.strays += 1;
        self.recorder.tally(now).named("strays", 1);
    }

    /// Handles an ICMP error for a datagram.
    pub(super) fn complain(&mut self, kind: IcmpErrorKind) {
        if self.measured == 0 {
            self.complaint = Some(kind);
            return;
        }
        let (now, port) = (clock(), kind == IcmpErrorKind::PortUnreachable);
        self.counts.refused += 1;
        let kind = if port { ErrorKind::Refused } else { ErrorKind::Unreachable };
        if self.common.config.discard {
            self.recorder.error(now, now, kind, || "the network said so of a datagram");
        } else {
            // The datagram also counts as lost; together they are one error.
            self.recorder.tally(now).named(kind.name(), 1);
        }
    }
}
