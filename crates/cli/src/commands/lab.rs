//! `flowlane lab`: a network namespace and a veth pair to try real links on, on any machine.
//!
//! ```text
//!   here                                     namespace NAME
//!   flowlane serve --link af-xdp:NAME0  ═══  NAME1, the kernel: 10.11.2.2, fd00:11:2::2
//! ```
//!
//! The two ends are a veth pair. A small program on the kernel's egress steers each packet to the queue that a card with our key and
//! table would choose, so NAME0 behaves as a card with exact RSS. Interfaces, namespace and program stay after the command ends. `down`
//! removes them all, even after an `up` that failed halfway, and says so if nothing is there. Interfaces and namespaces with other names
//! are not touched.

use crate::exit::Missed;
use crate::lab_card;
use crate::stdout;
use anyhow::bail;
use flowlane_sys::bpf::steer::SteeringRules;
use flowlane_sys::privilege;
use flowlane_sys::words::counted;
use flowlane_testnet::{Card, CardConfig, Hook, ip};
use std::io::{self, Write};
use std::net::IpAddr;
use std::path::{Path, PathBuf};

/// Addresses of the kernel's side; ours end in 1.
const FAR_V4: [u8; 4] = [10, 11, 2, 2];
const FAR_V6: [u16; 8] = [0xfd00, 0x11, 2, 0, 0, 0, 0, 2];
/// Longest name of a lab: interface names have at most 15 letters, and ours are the name and a digit.
const NAME: usize = 14;

/// Subcommands.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Lab {
    /// Create the network, and print the commands to run on either side.
    Up {
        /// Queues of the card, 1 to 16.
        #[arg(long, value_name = "N", default_value_t = 2)]
        queues: u32,
        #[command(flatten)]
        lab: Named,
    },
    /// Remove the network, even if it is incomplete.
    Down {
        #[command(flatten)]
        lab: Named,
    },
    /// Show whether the network exists.
    Status {
        #[command(flatten)]
        lab: Named,
    },
}

/// The name of a lab.
#[derive(Debug, clap::Args)]
pub(crate) struct Named {
    /// Name of the namespace; the interfaces are NAME0 and NAME1.
    #[arg(long, default_value = "flowlane")]
    name: String,
}

/// State of a lab.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Absent,
    /// Incomplete: an `up` or a `down` was interrupted.
    Half,
    Up {
        queues: u32,
    },
}

impl Lab {
    pub(crate) fn run(self) -> anyhow::Result<()> {
        let (Self::Up { lab, .. } | Self::Down { lab } | Self::Status { lab }) = &self;
        lab.check()?;
        match &self {
            Self::Up { queues, lab } => lab.up(*queues),
            Self::Down { lab } => lab.down(),
            Self::Status { lab } => lab.status(),
        }
    }
}

impl Named {
    fn check(&self) -> anyhow::Result<()> {
        let plain = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
        if self.name.is_empty() || self.name.len() > NAME || !self.name.chars().all(plain) {
            bail!("--name '{}': must be 1 to {NAME} letters, digits, '-' or '_'", self.name);
        }
        for (capability, name) in
            [(privilege::CAP_SYS_ADMIN, "CAP_SYS_ADMIN"), (privilege::CAP_NET_ADMIN, "CAP_NET_ADMIN")]
        {
            if !privilege::has(capability) {
                bail!("a lab is made of network namespaces, which needs {name}: run this as root");
            }
        }
        Ok(())
    }

    fn near(&self) -> String {
        format!("{}0", self.name)
    }

    fn far(&self) -> String {
        format!("{}1", self.name)
    }

    fn state(&self) -> State {
        let queues = std::fs::read_dir(Path::new("/sys/class/net").join(self.near()).join("queues"))
            .map(|dir| dir.flatten().filter(|e| e.file_name().to_string_lossy().starts_with("rx-")).count());
        let namespace = Path::new("/run/netns").join(&self.name).exists();
        // Addresses are set last, and the IPv6 address after all others.
        let complete = || {
            let shown = std::process::Command::new("ip")
                .args(["-n", &self.name, "-6", "-o", "addr", "show", "dev", &self.far()])
                .output();
            shown
                .is_ok_and(|o| String::from_utf8_lossy(&o.stdout).contains(&IpAddr::from(FAR_V6).to_string()))
        };
        match (queues, namespace) {
            (Err(_), false) => State::Absent,
            (Ok(queues), true) if complete() => State::Up { queues: queues as u32 },
            _ => State::Half,
        }
    }

    fn up(&self, queues: u32) -> anyhow::Result<()> {
        if !(1..=lab_card::MOST_QUEUES).contains(&queues) {
            bail!("--queues {queues}: must be from 1 to {}", lab_card::MOST_QUEUES);
        }
        match self.state() {
            State::Up { queues: there } if there == queues => return Ok(self.explain(queues)?),
            State::Up { queues: there } => {
                bail!("lab '{}' is up with {there} queues: first 'flowlane lab down'", self.name);
            }
            State::Half => self.remove()?,
            State::Absent => {}
        }
        let config = CardConfig {
            near: None,
            far: self.name.clone(),
            near_interface: self.near(),
            far_interface: self.far(),
            queues,
            addresses: vec![(IpAddr::from(FAR_V4), 24), (IpAddr::from(FAR_V6), 64)],
            mtu: 1500,
            rules: SteeringRules {
                key: lab_card::KEY.as_bytes().to_vec(),
                table: lab_card::table(queues),
                udp_ports: true,
            },
            lasting: true,
            hook: Hook::Best,
        };
        let card = Card::new(&config)?;
        ip(&format!("link set {} alias {}", self.near(), lab_card::alias(queues)))?;
        card.keep();
        Ok(self.explain(queues)?)
    }

    fn explain(&self, queues: u32) -> io::Result<()> {
        let (name, near) = (&self.name, self.near());
        let (v4, v6) = (IpAddr::from(FAR_V4), IpAddr::from(FAR_V6));
        let mut out = stdout::lock();
        let with = counted(queues as usize, "queue");
        writeln!(out, "lab '{name}' is up: {near} is a card with {with} and RSS (key 'microsoft', UDP with")?;
        writeln!(out, "ports); behind it, in namespace {name}, the kernel has {v4} and {v6}.\n")?;
        writeln!(out, "Here:")?;
        writeln!(
            out,
            "  flowlane serve udp-echo --link af-xdp:{near} --addr 10.11.2.1/24,fd00:11:2::1/64 \\"
        )?;
        writeln!(out, "      --workers {queues} --key microsoft --udp-4tuple --interval --control")?;
        writeln!(out, "  flowlane stat -s -s                        (in another window)\n")?;
        writeln!(out, "There:")?;
        writeln!(out, "  ip netns exec {name} ping -c 3 10.11.2.1")?;
        writeln!(out, "  ip netns exec {name} ping -c 3 fd00:11:2::1")?;
        writeln!(out, "  echo hello | ip netns exec {name} nc -u -w 1 10.11.2.1 8080\n")?;
        writeln!(out, "What the card does with packets:")?;
        writeln!(out, "  flowlane rss show {near}")?;
        writeln!(out, "  flowlane rss why {v4}:5000 10.11.2.1:8080 {near} --udp")?;
        writeln!(out, "  flowlane rss check {near}                  (while packets come)\n")?;
        let other = if name == "flowlane" { String::new() } else { format!(" --name {name}") };
        writeln!(out, "In the end:\n  flowlane lab down{other}")
    }

    fn down(&self) -> anyhow::Result<()> {
        let before = self.state();
        self.remove()?;
        let mut out = stdout::lock();
        match before {
            State::Absent => writeln!(out, "lab '{}' is not there", self.name)?,
            State::Half | State::Up { .. } => writeln!(out, "lab '{}' is removed", self.name)?,
        }
        Ok(())
    }

    /// Removes what is there. Removing the near end removes the far end and the program as well. If the namespace is removed first, the
    /// kernel may remove the near end a moment later; the error of removing it is then ignored.
    fn remove(&self) -> anyhow::Result<()> {
        let gone = |what: PathBuf, command: String| match what.exists().then(|| ip(&command)) {
            Some(Err(e)) if what.exists() => Err(e),
            _ => Ok(()),
        };
        gone(Path::new("/sys/class/net").join(self.near()), format!("link del {}", self.near()))?;
        gone(Path::new("/run/netns").join(&self.name), format!("netns del {}", self.name))?;
        Ok(())
    }

    fn status(&self) -> anyhow::Result<()> {
        let mut out = stdout::lock();
        match self.state() {
            State::Up { queues } => {
                let queues = counted(queues as usize, "queue");
                writeln!(out, "lab '{}' is up: {} with {queues}", self.name, self.near())?;
                Ok(())
            }
            State::Half => {
                Err(Missed(format!("lab '{}' is half made: 'flowlane lab down' cleans up", self.name)).into())
            }
            State::Absent => Err(Missed(format!("lab '{}' is not there", self.name)).into()),
        }
    }
}
