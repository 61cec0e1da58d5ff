//! Whether the kernel has TCP Fast Open for its own sockets: a sysctl of the network namespace.

use anyhow::bail;

/// Which end of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    Client,
    Server,
}

const SYSCTL: &str = "/proc/sys/net/ipv4/tcp_fastopen";

/// Refuses `--fast-open` on kernel sockets where it would have no effect.
pub(crate) fn check_kernel(end: End) -> anyhow::Result<()> {
    // Where there is no such file, sockets say what is wrong.
    let Ok(text) = std::fs::read_to_string(SYSCTL) else { return Ok(()) };
    check(end, text.trim())
}

fn check(end: End, value: &str) -> anyhow::Result<()> {
    // Bits 0 and 1, in Linux' Documentation/networking/ip-sysctl.rst. Kernels may write other bits in hexadecimal or decimal.
    let bits = value.strip_prefix("0x").map_or_else(|| value.parse(), |hex| u32::from_str_radix(hex, 16));
    let (bit, does) = match end {
        End::Client => (1, "sends no data in SYNs"),
        End::Server => (2, "takes no data from SYNs"),
    };
    // Guard: `bits.is_ok_and(|bits| bits & bit == 0)` as `false` fails fast_open::tests::each_end
    if bits.is_ok_and(|bits| bits & bit == 0) {
        bail!("--fast-open: the kernel {does} here; as root: sysctl net.ipv4.tcp_fastopen=3");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_end_has_its_bit() {
        for (value, client, server) in [
            ("0", false, false),
            ("1", true, false),
            ("2", false, true),
            ("3", true, true),
            ("0x402", false, true),
        ] {
            assert_eq!(check(End::Client, value).is_ok(), client, "{value}");
            assert_eq!(check(End::Server, value).is_ok(), server, "{value}");
        }
        assert!(check(End::Server, "1").unwrap_err().to_string().contains("tcp_fastopen=3"));
        assert!(check(End::Server, "what").is_ok());
    }
}
