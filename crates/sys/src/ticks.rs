//! A counter of the processor that runs on at a constant rate: for comparing times where reading the clock would cost too much.
//!
//! The rate is not said, and differs between machines; two processors of one machine may differ by an offset. So only differences on one thread
//! mean anything, in proportion to one another. A thread that changed its processor may read less than before: subtract saturating.

/// The counter now. x86-64: TSC; 64-bit ARM: the virtual counter; elsewhere nanoseconds of the monotonic clock, which cost a call.
#[inline(always)]
#[must_use]
pub fn now() -> u64 {
    counter()
}

#[cfg(all(target_arch = "x86_64", not(miri)))]
#[inline(always)]
fn counter() -> u64 {
    // SAFETY: RDTSC reads a register and changes nothing. Linux leaves it to user programs, unless a process forbids it to itself
    // (PR_SET_TSC), which nothing here does.
    unsafe { core::arch::x86_64::_rdtsc() }
}

#[cfg(all(target_arch = "aarch64", not(miri)))]
#[inline(always)]
fn counter() -> u64 {
    let ticks: u64;
    // SAFETY: reads a register that Linux leaves to user programs, and changes nothing.
    unsafe {
        core::arch::asm!("mrs {}, cntvct_el0", out(reg) ticks, options(nomem, nostack, preserves_flags));
    }
    ticks
}

#[cfg(any(miri, not(any(target_arch = "x86_64", target_arch = "aarch64"))))]
fn counter() -> u64 {
    use std::sync::OnceLock;
    use std::time::Instant;
    static BEGAN: OnceLock<Instant> = OnceLock::new();
    BEGAN.get_or_init(Instant::now).elapsed().as_nanos() as u64
}

#[cfg(test)]
mod tests {
    #[test]
    fn it_runs_on() {
        let first = super::now();
        while super::now() <= first {
            std::hint::spin_loop();
        }
    }
}
