//! Processors for the workers: `--no-pin` and `--cpus`.

use std::str::FromStr;

use flowlane::Builder;

/// Processors by number: `2-5`, `0,2,4-7`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Cpus(Vec<usize>);

impl FromStr for Cpus {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("'{text}' is not a list of processors, such as 2-5 or 0,2,4-7");
        let mut cpus = Vec::new();
        for part in text.split(',') {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let (Ok(first), Ok(last)) = (first.parse::<u16>(), last.parse::<u16>()) else {
                return Err(wrong());
            };
            if first > last {
                return Err(wrong());
            }
            cpus.extend((first..=last).map(usize::from));
        }
        let mut sorted = cpus.clone();
        sorted.sort_unstable();
        if sorted.windows(2).any(|two| two[0] == two[1]) {
            return Err(format!("'{text}' names a processor twice"));
        }
        Ok(Self(cpus))
    }
}

impl Cpus {
    /// Their numbers, in the order in which they were given.
    pub(crate) fn list(&self) -> Vec<u32> {
        self.0.iter().map(|&cpu| cpu as u32).collect()
    }
}

/// Which processors workers are bound to.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Pinning {
    /// Do not bind workers to processors: the kernel schedules them.
    #[arg(long)]
    no_pin: bool,
    /// Processors for the workers, the first for worker 0: 2-5 or 0,2,4 [default: processors that no other instance uses].
    #[arg(long, value_name = "LIST", conflicts_with = "no_pin")]
    cpus: Option<Cpus>,
}

impl Pinning {
    /// The number of listed processors: the most workers that a default without `--workers` may be.
    pub(crate) fn most(&self) -> Option<usize> {
        self.cpus.as_ref().map(|cpus| cpus.0.len())
    }

    /// Whether workers may be bound.
    pub(crate) fn is_on(&self) -> bool {
        !self.no_pin
    }

    /// Applies it to a runtime's workers.
    pub(crate) fn apply(&self, builder: Builder) -> Builder {
        let builder = builder.pin(!self.no_pin);
        match &self.cpus {
            Some(cpus) => builder.cpus(cpus.0.clone()),
            None => builder,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_processors() {
        let list = |text: &str| text.parse::<Cpus>().map(|cpus| cpus.0).ok();
        assert_eq!(list("2-5"), Some(vec![2, 3, 4, 5]));
        assert_eq!(list("7,0,2-3"), Some(vec![7, 0, 2, 3]));
        for wrong in ["", "a", "3-1", "0,0", "0-2,1", "-1", "0,", "70000"] {
            assert_eq!(list(wrong), None, "{wrong}");
        }
    }
}
