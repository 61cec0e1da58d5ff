//! Threads and processors.

use std::io;

/// The processors that this thread may run on, lowest first.
#[must_use]
pub fn allowed_cpus() -> Vec<usize> {
    // SAFETY: `cpu_set_t` is plain data for which all zeros is a value; the call writes at most its size.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        if libc::sched_getaffinity(0, size_of::<libc::cpu_set_t>(), &raw mut set) != 0 {
            return Vec::new();
        }
        (0..libc::CPU_SETSIZE as usize).filter(|&cpu| libc::CPU_ISSET(cpu, &set)).collect()
    }
}

/// Binds this thread to one processor.
///
/// # Errors
/// There is no such processor, or this process may not use it.
pub fn pin_to(cpu: usize) -> io::Result<()> {
    if cpu >= libc::CPU_SETSIZE as usize {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    // SAFETY: `cpu` is inside the set; the call reads the set.
    let result = unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(cpu, &mut set);
        libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &raw const set)
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// The processor on which this thread runs at this moment; `None` if the system does not say.
#[must_use]
pub fn current_cpu() -> Option<u32> {
    // SAFETY: no memory is involved.
    u32::try_from(unsafe { libc::sched_getcpu() }).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_can_be_pinned_to_each_allowed_processor_and_no_other() {
        std::thread::spawn(|| {
            let allowed = allowed_cpus();
            assert!(!allowed.is_empty());
            pin_to(allowed[0]).unwrap();
            assert_eq!(allowed_cpus(), [allowed[0]]);
            assert_eq!(current_cpu(), Some(allowed[0] as u32));
            assert!(pin_to(100_000).is_err());
        })
        .join()
        .unwrap();
    }
}
