//! What a program chooses by name.

use std::ffi::CStr;

use flowlane::{Algorithm, Ecn};

use crate::error::Error;

/// The one of `all` that has this name.
fn one_of<T: Copy>(all: &[T], name: impl Fn(T) -> &'static str, text: &str, what: &str) -> Result<T, Error> {
    // Guard: `name(*one) == text` as `true` fails capi/every_function
    all.iter().copied().find(|one| name(*one) == text).ok_or_else(|| {
        let names: Vec<&str> = all.iter().map(|one| name(*one)).collect();
        // Guard: `names.join(", ")` as `String::new()` fails capi/every_function
        Error::invalid(format!("'{text}' is no {what}: there are {}", names.join(", ")))
    })
}

pub(crate) fn algorithm(text: &str) -> Result<Algorithm, Error> {
    one_of(&Algorithm::ALL, Algorithm::name, text, "congestion control")
}

pub(crate) fn ecn(text: &str) -> Result<Ecn, Error> {
    one_of(&Ecn::ALL, Ecn::name, text, "explicit congestion notification")
}

/// [`Algorithm::name`] as C has it.
pub(crate) fn c_name(algorithm: Algorithm) -> Option<&'static CStr> {
    let names = [
        (Algorithm::Cubic, c"cubic"),
        (Algorithm::NewReno, c"newreno"),
        (Algorithm::Bbr, c"bbr"),
        (Algorithm::Prague, c"prague"),
    ];
    names.into_iter().find(|(one, _)| *one == algorithm).map(|(_, name)| name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_in_c_are_ours() {
        for algorithm in Algorithm::ALL {
            assert_eq!(c_name(algorithm).unwrap().to_str().unwrap(), algorithm.name());
        }
    }
}
