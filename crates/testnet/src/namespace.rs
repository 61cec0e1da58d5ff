//! One network namespace, made and removed with `ip netns`.

use crate::{Error, eventually, ip};
use flowlane_sys::netns::{self, Entered};
use std::net::IpAddr;
use std::path::PathBuf;
use std::process::Command;

/// A network namespace with its loopback up. Removed on drop.
#[derive(Debug)]
pub struct Namespace {
    name: String,
    keep: bool,
}

impl Namespace {
    /// Makes the namespace `name`.
    ///
    /// # Errors
    /// It exists already, or privileges are missing.
    pub fn new(name: &str) -> Result<Self, Error> {
        ip(&format!("netns add {name}"))?;
        let namespace = Self { name: name.to_owned(), keep: false };
        namespace.ip("link set lo up")?;
        Ok(namespace)
    }

    /// The name under which it exists already, to be removed on drop.
    #[must_use]
    pub fn adopt(name: &str) -> Self {
        Self { name: name.to_owned(), keep: false }
    }

    /// Its name, as `ip netns exec` wants it.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Runs `ip` inside it.
    ///
    /// # Errors
    /// As [`ip`].
    pub fn ip(&self, arguments: &str) -> Result<(), Error> {
        ip(&format!("-n {} {arguments}", self.name))
    }

    /// Waits until the kernel takes this address for its own, on an interface that is up.
    ///
    /// The route that says so comes a moment after `addr add`. Until then a packet for an IPv6 address is dropped, or the address is asked for
    /// on the link.
    ///
    /// # Panics
    /// If it does not.
    pub fn owns(&self, address: IpAddr) {
        let family = if address.is_ipv4() { "-4" } else { "-6" };
        let words = ["-n", &self.name, family, "route", "show", "table", "local"];
        let own = format!("local {address} ");
        eventually(&format!("{address} is an address of {}", self.name), || {
            let shown = Command::new("ip").args(words).output().expect("ip is there");
            String::from_utf8_lossy(&shown.stdout).lines().any(|line| line.starts_with(&own))
        });
    }

    /// A command that runs a program inside it.
    #[must_use]
    pub fn command(&self, program: &str) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.name, program]);
        command
    }

    /// Moves this thread into it until the guard is dropped.
    ///
    /// # Errors
    /// Privileges are missing, or the namespace has gone.
    pub fn enter(&self) -> Result<Entered, Error> {
        Ok(netns::enter_path(&PathBuf::from("/run/netns").join(&self.name))?)
    }

    /// Runs `work` on a thread of its own inside the namespace and waits for it.
    ///
    /// # Errors
    /// As [`Namespace::enter`].
    ///
    /// # Panics
    /// When `work` does.
    pub fn run<R: Send>(&self, work: impl FnOnce() -> R + Send) -> Result<R, Error> {
        std::thread::scope(|scope| {
            let worker = scope.spawn(|| {
                let _inside = self.enter()?;
                Ok(work())
            });
            worker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }

    /// Leaves the namespace behind when this value goes.
    pub fn keep(&mut self) {
        self.keep = true;
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        if !self.keep {
            // Nothing can be done about a failure here; the name tells whose it was.
            let _ = ip(&format!("netns del {}", self.name));
        }
    }
}
