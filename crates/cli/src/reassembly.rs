//! `--reassembly`: limits of reassembly in each lane, as in `datagrams=4096,fragments=8192,bytes=16Mi`.

use std::str::FromStr;

use flowlane::ReassemblyConfig;

use crate::units;

/// Limits of reassembly.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Limits(pub(crate) ReassemblyConfig);

const SETTINGS: &str = "datagrams, fragments, bytes, per-datagram, strangers";

impl FromStr for Limits {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut c = ReassemblyConfig::default();
        for setting in text.split(',') {
            let (name, value) =
                setting.split_once('=').ok_or_else(|| format!("'{setting}': NAME=N with {SETTINGS}"))?;
            let n = units::size(value).map_err(|e| format!("{setting}: {e}"))?;
            match name {
                "datagrams" => c.datagrams = n,
                "fragments" => c.fragments = n,
                "bytes" => c.bytes = n,
                "per-datagram" => c.per_datagram = n,
                "strangers" => {
                    c.strangers = u32::try_from(n).map_err(|_| format!("{setting}: at most 4 billion"))?;
                }
                _ => return Err(format!("'{name}': a limit is one of {SETTINGS}")),
            }
        }
        if c.datagrams > 1 << 20 || c.fragments > 1 << 20 {
            return Err("at most 1Mi datagrams and fragments a lane".into());
        }
        Ok(Self(c))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_understood_and_mistakes_named() {
        let Limits(c) = "datagrams=4096,bytes=16Mi,per-datagram=32".parse().unwrap();
        assert_eq!((c.datagrams, c.bytes, c.per_datagram, c.fragments), (4096, 16 << 20, 32, 1024));
        for bad in ["", "datagrams", "datagrams=x", "speed=9", "fragments=2Mi", "strangers=5Gi"] {
            let error = bad.parse::<Limits>().unwrap_err();
            assert!(!error.is_empty() && !error.contains('\n'), "{bad}");
        }
    }
}
