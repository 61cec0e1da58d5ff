//! The network namespace's settings, read when a socket needs them.
//!
//! Scripts set them by shell commands, which run after the library has been initialised, so they are read late: whenever a
//! socket is made, listens or connects. What cannot be read keeps Linux's default.

use std::path::{Path, PathBuf};
use std::time::Duration;

use flowlane_stack::tcp::{Algorithm, BufferSize, Ecn, FastOpenKeys, Keepalive, SynCookies, TcpConfig};

/// What the settings say.
#[derive(Debug, Clone)]
pub(crate) struct Settings {
    /// For the lane's TCP.
    pub(crate) tcp: TcpConfig,
    /// For sockets that turn keep-alive on.
    pub(crate) keepalive: Keepalive,
    /// `tcp_notsent_lowat`.
    pub(crate) notsent_lowat: u32,
    /// `somaxconn`.
    pub(crate) somaxconn: u32,
    /// `tcp_rmem` and `tcp_wmem`, middle value: what `SO_RCVBUF` and `SO_SNDBUF` say first.
    pub(crate) rcvbuf: u32,
    pub(crate) sndbuf: u32,
    /// `tcp_wmem`, last value.
    pub(crate) sndbuf_max: u32,
    /// Name of the congestion control.
    pub(crate) congestion: String,
    /// `tcp_fastopen`: bits of Fast Open.
    pub(crate) fast_open: u32,
}

/// Bits of `tcp_fastopen` (`include/net/tcp.h`): who connects may, who listens may, data without a cookie for the one and the
/// other, and listeners take it without being told.
pub(crate) const TFO_CLIENT: u32 = 1;
pub(crate) const TFO_SERVER: u32 = 2;
pub(crate) const TFO_CLIENT_NO_COOKIE: u32 = 4;
pub(crate) const TFO_SERVER_NO_COOKIE: u32 = 0x200;
pub(crate) const TFO_EVERY_LISTENER: u32 = 0x400;

/// Bytes that the lane itself takes from one connection.
const LANE_SEND_BUFFER: u32 = 16 << 20;

/// Where the settings are.
#[derive(Debug, Clone)]
pub(crate) struct Source {
    root: PathBuf,
    /// In place of `net.ipv4.tcp_ecn`.
    ecn: Option<u64>,
}

impl Default for Source {
    fn default() -> Self {
        Self { root: PathBuf::from("/proc/sys/net"), ecn: None }
    }
}

impl Source {
    /// The namespace's, but for this `net.ipv4.tcp_ecn` if there is one.
    pub(crate) fn with_ecn(ecn: Option<u64>) -> Self {
        Self { ecn, ..Self::default() }
    }

    #[cfg(test)]
    pub(crate) fn at(root: &Path) -> Self {
        Self { root: root.into(), ecn: None }
    }

    fn text(&self, name: &str) -> Option<String> {
        std::fs::read_to_string(self.root.join(Path::new(name))).ok()
    }

    fn numbers(&self, name: &str) -> Vec<u64> {
        let text = self.text(name).unwrap_or_default();
        text.split_whitespace().filter_map(|word| word.parse().ok()).collect()
    }

    fn number(&self, name: &str) -> Option<u64> {
        self.numbers(name).first().copied()
    }

    fn is_on(&self, name: &str, default: bool) -> bool {
        self.number(name).map_or(default, |n| n != 0)
    }

    fn small(&self, name: &str, default: u8) -> u8 {
        self.number(name).map_or(default, |n| n.min(255) as u8)
    }

    fn seconds(&self, name: &str, default: u64) -> Duration {
        Duration::from_secs(self.number(name).unwrap_or(default).min(1 << 20))
    }

    /// `tcp_fastopen_key`: one or two keys of four words each.
    fn fast_open_keys(&self) -> Option<FastOpenKeys> {
        let text = self.text("ipv4/tcp_fastopen_key")?;
        let mut keys = text.trim().split(',').map(|key| {
            let words: Option<Vec<u32>> =
                key.split('-').map(|word| u32::from_str_radix(word.trim(), 16).ok()).collect();
            let bytes: Vec<u8> = words?.into_iter().flat_map(u32::to_le_bytes).collect();
            <[u8; 16]>::try_from(bytes).ok()
        });
        let primary = FastOpenKeys::new(keys.next()??);
        Some(match keys.next() {
            Some(former) => primary.with_former(former?),
            None => primary,
        })
    }

    /// Least, initial and greatest size of a buffer.
    fn buffer(&self, name: &str, default: [u64; 3]) -> [u32; 3] {
        let found = self.numbers(name);
        let all = if found.len() == 3 { [found[0], found[1], found[2]] } else { default };
        all.map(|n| n.min(1 << 30) as u32)
    }

    /// Reads everything.
    pub(crate) fn read(&self) -> Settings {
        let rmem = self.buffer("ipv4/tcp_rmem", [4096, 131_072, 6 << 20]);
        let wmem = self.buffer("ipv4/tcp_wmem", [4096, 16_384, 4 << 20]);
        let congestion = self.text("ipv4/tcp_congestion_control").unwrap_or_else(|| "cubic".into());
        let congestion = congestion.trim().to_owned();
        let defaults = TcpConfig::default();
        let tcp = TcpConfig {
            timestamps: self.is_on("ipv4/tcp_timestamps", true),
            sack: self.is_on("ipv4/tcp_sack", true),
            window_scaling: self.is_on("ipv4/tcp_window_scaling", true),
            ecn: match self.ecn.or_else(|| self.number("ipv4/tcp_ecn")).unwrap_or(2) {
                0 => Ecn::Off,
                1 => Ecn::Request,
                3 => Ecn::Accurate,
                4 => Ecn::AccurateRequest,
                5 => Ecn::AccurateAccept,
                _ => Ecn::Accept,
            },
            accecn_option: self.number("ipv4/tcp_ecn_option").unwrap_or(2) != 0,
            congestion: algorithm(&congestion).unwrap_or_default(),
            slow_start_after_idle: self.is_on("ipv4/tcp_slow_start_after_idle", true),
            // Linux gives half of the memory to bookkeeping (`tcp_adv_win_scale` of 1).
            recv_buffer: BufferSize { initial: (rmem[1] / 2).max(65_535), max: rmem[2] },
            // How much a write takes is modelled in `queue`; the lane takes all that it lets through.
            send_buffer: BufferSize { initial: LANE_SEND_BUFFER, max: LANE_SEND_BUFFER },
            max_unsent: LANE_SEND_BUFFER,
            syn_retries: self.small("ipv4/tcp_syn_retries", 6),
            synack_retries: self.small("ipv4/tcp_synack_retries", 5),
            retries: self.small("ipv4/tcp_retries2", 15),
            least_burst: self.small("ipv4/tcp_min_tso_segs", 2),
            min_rto: self.number("ipv4/tcp_rto_min_us").map_or(defaults.min_rto, Duration::from_micros),
            max_rto: self.number("ipv4/tcp_rto_max_ms").map_or(defaults.max_rto, Duration::from_millis),
            fin_wait_2: self.seconds("ipv4/tcp_fin_timeout", 60),
            syn_cookies: match self.number("ipv4/tcp_syncookies").unwrap_or(1) {
                0 => SynCookies::Off,
                2 => SynCookies::Always,
                _ => SynCookies::WhenFull,
            },
            fast_open_keys: self.fast_open_keys(),
            fast_open_pause: self.seconds("ipv4/tcp_fastopen_blackhole_timeout_sec", 0),
            max_connections: 4096,
            max_time_wait: 1024,
            max_memory: 64 << 20,
            ..defaults
        };
        Settings {
            tcp,
            keepalive: Keepalive {
                idle: self.seconds("ipv4/tcp_keepalive_time", 7200),
                interval: self.seconds("ipv4/tcp_keepalive_intvl", 75),
                probes: self.small("ipv4/tcp_keepalive_probes", 9),
            },
            notsent_lowat: self
                .number("ipv4/tcp_notsent_lowat")
                .map_or(u32::MAX, |n| n.min(u64::from(u32::MAX)) as u32),
            somaxconn: self.number("core/somaxconn").map_or(4096, |n| n.min(65_535) as u32),
            rcvbuf: rmem[1],
            sndbuf: wmem[1],
            sndbuf_max: wmem[2],
            congestion,
            fast_open: self.number("ipv4/tcp_fastopen").map_or(TFO_CLIENT, |n| n as u32),
        }
    }
}

/// A congestion control by name; for those that we do not have, the one that is nearest.
pub(crate) fn algorithm(name: &str) -> Option<Algorithm> {
    match name {
        "cubic" => Some(Algorithm::Cubic),
        "reno" => Some(Algorithm::NewReno),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_of_the_namespace_and_defaults() {
        let dir = std::env::temp_dir().join(format!("flowlane-sysctl-{}", std::process::id()));
        std::fs::create_dir_all(dir.join("ipv4")).unwrap();
        let put = |name: &str, value: &str| std::fs::write(dir.join("ipv4").join(name), value).unwrap();
        put("tcp_timestamps", "0\n");
        put("tcp_ecn", "1\n");
        put("tcp_rmem", "4096\t540000\t15728640\n");
        put("tcp_congestion_control", "reno\n");
        put("tcp_sack", "gibberish\n");
        put("tcp_rto_max_ms", "1000\n");
        put("tcp_fastopen_key", "03020100-07060504-0b0a0908-0f0e0d0c,00000001-00000000-00000000-00000000\n");
        let settings = Source::at(&dir).read();
        std::fs::remove_dir_all(&dir).unwrap();
        assert!(!settings.tcp.timestamps);
        assert!(settings.tcp.sack, "what is no number is as if it were not there");
        assert_eq!(settings.tcp.ecn, Ecn::Request);
        assert_eq!(settings.tcp.congestion, Algorithm::NewReno);
        assert_eq!(settings.tcp.recv_buffer, BufferSize { initial: 270_000, max: 15 << 20 });
        assert_eq!(settings.rcvbuf, 540_000);
        assert_eq!((settings.tcp.max_rto, settings.tcp.min_rto.as_millis()), (Duration::from_secs(1), 200));
        let mut former = [0; 16];
        former[0] = 1;
        let key = std::array::from_fn(|n| n as u8);
        assert_eq!(settings.tcp.fast_open_keys, Some(FastOpenKeys::new(key).with_former(former)));
        let settings = Source::at(Path::new("/nowhere")).read();
        assert_eq!((settings.tcp.fast_open_keys, settings.fast_open), (None, TFO_CLIENT));
        assert!(settings.tcp.timestamps && settings.tcp.window_scaling);
        assert_eq!(settings.tcp.ecn, Ecn::Accept);
        assert_eq!(settings.keepalive, Keepalive::default());
    }
}
