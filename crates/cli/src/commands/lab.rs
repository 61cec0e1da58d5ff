//! `flowlane lab`: a network to try the real links on, in a minute, on any machine.
//!
//! ```text
//!   here                                     namespace NAME
//!   flowlane serve --link af-xdp:NAME0  ═══  NAME1, the kernel: 10.11.2.2, fd00:11:2::2
//! ```
//!
//! The two ends are one veth pair. What the kernel sends is steered by a small program on its egress to the queue that
//! a card with our key and table would have chosen, so NAME0 is a card with exact RSS. Everything outlives this
//! command, the program too; `down` removes all of it, whatever `up` got done, and says so if there is nothing.
//! Names tell what is ours: nothing else is touched.

use crate::exit::Missed;
use anyhow::bail;
use flowlane_rss::{Key, Rss, Worker};
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
/// Interface names have 15 letters; ours are the lab's name and a digit.
const NAME: usize = 14;

/// Subcommands.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Lab {
    /// Make it, and say what to run on either side.
    Up {
        /// Queues of the card, 1 to 16.
        #[arg(long, value_name = "N", default_value_t = 2)]
        queues: u32,
        #[command(flatten)]
        lab: Named,
    },
    /// Remove it, however much of it is there.
    Down {
        #[command(flatten)]
        lab: Named,
    },
    /// Say whether it is there.
    Status {
        #[command(flatten)]
        lab: Named,
    },
}

/// Which lab.
#[derive(Debug, clap::Args)]
pub(crate) struct Named {
    /// Name of the namespace; the interfaces are NAME0 and NAME1.
    #[arg(long, default_value = "flowlane")]
    name: String,
}

/// How much of a lab is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Absent,
    /// An `up` or a `down` did not get to its end.
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
        // The addresses come last, that of IPv6 at the very end.
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
        if !(1..=16).contains(&queues) {
            bail!("--queues {queues}: must be from 1 to 16");
        }
        match self.state() {
            State::Up { queues: there } if there == queues => return Ok(self.explain(queues)?),
            State::Up { queues: there } => {
                bail!("lab '{}' is up with {there} queues: first 'flowlane lab down'", self.name);
            }
            State::Half => self.remove()?,
            State::Absent => {}
        }
        let rss = Rss::new(Key::MICROSOFT, queues as usize);
        let queue = |bucket: &flowlane_rss::Bucket| {
            let Worker(worker) = rss.buckets.worker_of(*bucket);
            worker
        };
        let config = CardConfig {
            near: None,
            far: self.name.clone(),
            near_interface: self.near(),
            far_interface: self.far(),
            queues,
            addresses: vec![(IpAddr::from(FAR_V4), 24), (IpAddr::from(FAR_V6), 64)],
            mtu: 1500,
            rules: SteeringRules {
                key: Key::MICROSOFT.as_bytes().to_vec(),
                table: rss.table.slots().iter().map(queue).collect(),
                udp_ports: true,
            },
            lasting: true,
            hook: Hook::Best,
        };
        Card::new(&config)?.keep();
        Ok(self.explain(queues)?)
    }

    fn explain(&self, queues: u32) -> io::Result<()> {
        let (name, near) = (&self.name, self.near());
        let (v4, v6) = (IpAddr::from(FAR_V4), IpAddr::from(FAR_V6));
        let mut out = io::stdout().lock();
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
        let other = if name == "flowlane" { String::new() } else { format!(" --name {name}") };
        writeln!(out, "In the end:\n  flowlane lab down{other}")
    }

    fn down(&self) -> anyhow::Result<()> {
        let before = self.state();
        self.remove()?;
        let mut out = io::stdout().lock();
        match before {
            State::Absent => writeln!(out, "lab '{}' is not there", self.name)?,
            State::Half | State::Up { .. } => writeln!(out, "lab '{}' is removed", self.name)?,
        }
        Ok(())
    }

    /// Removes what is there. The far end and the program go with the near end; and where the namespace went first, the
    /// kernel may take the near end away a moment later, in which case it is no matter that we cannot.
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
        let mut out = io::stdout().lock();
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
