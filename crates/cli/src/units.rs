//! Numbers with units in arguments: parsers for clap, and the words to show them. The generator's thresholds
//! understand the same units, so they live with it.

pub(crate) use flowlane_load::units::{
    count, duration, frequency, rate, show_count, show_frequency, show_nanos, size,
};
