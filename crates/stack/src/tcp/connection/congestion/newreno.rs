//! The additive increase and multiplicative decrease of RFC 5681.

/// RFC 5681 §3.1, equation 3 by bytes: one segment for every window acknowledged.
pub(super) fn bytes_per_segment(cwnd: u32) -> u32 {
    cwnd
}

/// RFC 5681 §3.1, equation 4.
pub(super) fn reduce(in_flight: u32) -> u32 {
    in_flight / 2
}
