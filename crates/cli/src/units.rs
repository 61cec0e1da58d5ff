//! Numbers with units in arguments: parsers for clap, and formatting. They are in `flowlane_load`, whose thresholds use the same
//! units.

pub(crate) use flowlane_load::units::{
    count, duration, frequency, rate, show_count, show_frequency, show_nanos, size,
};
