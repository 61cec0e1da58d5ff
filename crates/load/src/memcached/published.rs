//! Sizes that were published as tables: those of the values of ETC and of the keys of USR ([`Workload`](super::Workload) says where).

use super::laws::pareto;

/// Shares of values of 0 to 14 bytes in ETC (table 5 of the paper).
pub(super) const ETC_SMALL: [f64; 15] = [
    0.00536, 0.00047, 0.17820, 0.09239, 0.00018, 0.02740, 0.00065, 0.00606, 0.00023, 0.00837, 0.00837,
    0.08989, 0.00092, 0.00326, 0.01980,
];
/// The two lengths of keys of USR, bytes.
pub(super) const USR_KEYS: (u32, u32) = (16, 21);

/// The length of a value of ETC for a number from (0, 1] that is as often any.
pub(super) fn etc_value(u: f64) -> f64 {
    let mut left = u;
    for (len, share) in ETC_SMALL.iter().enumerate() {
        if left <= *share {
            return len as f64;
        }
        left -= share;
    }
    let rest = 1.0 - ETC_SMALL.iter().sum::<f64>();
    // From (0, 1] again; below 15 there is the table.
    pareto(15.0, 214.476, 0.348_238, (left / rest).clamp(f64::MIN_POSITIVE, 1.0))
}

/// The length of a key of USR for such a number.
pub(super) fn usr_key(u: f64) -> f64 {
    f64::from(if u <= 0.5 { USR_KEYS.0 } else { USR_KEYS.1 })
}
