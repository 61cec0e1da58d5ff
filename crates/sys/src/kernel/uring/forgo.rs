//! Doing without `io_uring`, as where an administrator or a container refuses it: for tests of what happens then.

use std::io;

/// Has the kernel refuse `io_uring_setup` with this error to the calling thread, and to all threads and processes that it starts from now on
/// (`seccomp(2)`). There is no way back.
///
/// # Errors
/// The kernel's: it has no filters.
pub fn forgo(error: i32) -> io::Result<()> {
    let load = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16;
    let equal = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
    let end = (libc::BPF_RET | libc::BPF_K) as u16;
    let code = |code, jt, k| libc::sock_filter { code, jt, jf: 0, k };
    let mut program = [
        // The number of the call is the first word of `seccomp_data`.
        code(load, 0, 0),
        code(equal, 1, libc::SYS_io_uring_setup as u32),
        code(end, 0, libc::SECCOMP_RET_ALLOW),
        code(end, 0, libc::SECCOMP_RET_ERRNO | error as u32 & libc::SECCOMP_RET_DATA),
    ];
    let filter = libc::sock_fprog { len: program.len() as u16, filter: program.as_mut_ptr() };
    // SAFETY: the program is valid for the calls and only read; the filter changes what one system call does in this thread, and no memory.
    unsafe {
        if libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0
            || libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const filter) < 0
        {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}
