//! Dividing what there is among the lanes.

/// Divides any amount among lanes in whole numbers; the first takes the remainder.
#[must_use]
pub(crate) fn divide(amount: u64, lanes: usize) -> Vec<u64> {
    let n = lanes.max(1) as u64;
    let mut shares = vec![amount / n; lanes];
    if let Some(first) = shares.first_mut() {
        *first += amount % n;
    }
    shares
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_takes_the_remainder() {
        assert_eq!(divide(10, 4), [4, 2, 2, 2]);
        assert_eq!(divide(3, 4), [3, 0, 0, 0]);
        assert_eq!(divide(8, 1), [8]);
        assert!(divide(8, 0).is_empty());
    }
}
