//! Redirecting calls that packetdrill makes to the C library, instead of to the table, to the object.
//!
//! Code blocks (`%{ }%`) call `getsockopt`, and scripts call `sendfile` and run commands. These calls go through the program's global
//! offset table, whose entries for these names are overwritten here with functions that handle the object's descriptors and pass all
//! others on. So a script needs no `LD_PRELOAD`. On machines with unknown table formats nothing is changed.

use std::ffi::{CStr, c_char, c_int, c_void};

use libc::{Elf64_Phdr, Elf64_Rela, Elf64_Sym, dl_phdr_info};

use super::data::{bytes_mut, send};
use super::entry::OBJECT;
use super::wait::get_option_of_any;
use std::sync::PoisonError;

/// Relocations that hold a function's address: of calls and of pointers to it.
const KINDS: [u32; 2] = match () {
    #[cfg(target_arch = "x86_64")]
    () => [7, 6],
    #[cfg(target_arch = "aarch64")]
    () => [1026, 1025],
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    () => [u32::MAX, u32::MAX],
};

// Tags of the dynamic section (System V ABI, "Dynamic Linking").
const PLTRELSZ: u64 = 2;
const STRTAB: u64 = 5;
const SYMTAB: u64 = 6;
const RELA: u64 = 7;
const RELASZ: u64 = 8;
const JMPREL: u64 = 23;

/// Leads the main program's calls of `getsockopt`, `sendfile` and `system` here; how many places that changed.
///
/// # Safety
/// No other thread is calling these functions, nor loading libraries.
pub unsafe fn divert_calls_of_the_program() -> usize {
    let mut changed = 0_usize;
    if KINDS[0] != u32::MAX && size_of::<usize>() == 8 {
        // SAFETY: the callback follows the loader's own description of what is loaded, and counts in `changed`.
        unsafe { libc::dl_iterate_phdr(Some(visit), (&raw mut changed).cast()) };
    }
    changed
}

/// The first of all is the program itself.
unsafe extern "C" fn visit(info: *mut dl_phdr_info, _size: usize, changed: *mut c_void) -> c_int {
    // SAFETY: the loader's description and the counter are valid during the call.
    unsafe {
        let Some(info) = info.as_ref() else { return 1 };
        *changed.cast::<usize>() = divert(info.dlpi_addr as u64, info.dlpi_phdr, info.dlpi_phnum as usize);
    }
    1
}

/// # Safety
/// The program headers are those of an object loaded at `base`.
unsafe fn divert(base: u64, headers: *const Elf64_Phdr, count: usize) -> usize {
    let mut changed = 0;
    // SAFETY: the headers are the loader's; the dynamic section ends with a zero tag; the tables that it names are mapped.
    unsafe {
        let headers = std::slice::from_raw_parts(headers, count);
        let Some(dynamic) = headers.iter().find(|h| h.p_type == libc::PT_DYNAMIC) else { return 0 };
        let mut entry = (base + dynamic.p_vaddr) as *const [u64; 2];
        let mut found = [0_u64; 32];
        while (*entry)[0] != 0 {
            if let Some(place) = found.get_mut((*entry)[0] as usize) {
                *place = (*entry)[1];
            }
            entry = entry.add(1);
        }
        // The C library puts addresses there; others leave them relative to the base.
        let at = |tag: u64| match found[tag as usize] {
            0 => 0,
            address if address < base => base + address,
            address => address,
        };
        let (symbols, names) = (at(SYMTAB) as *const Elf64_Sym, at(STRTAB) as *const c_char);
        if symbols.is_null() || names.is_null() {
            return 0;
        }
        for (table, size) in [(at(JMPREL), found[PLTRELSZ as usize]), (at(RELA), found[RELASZ as usize])] {
            if table == 0 {
                continue;
            }
            let list = std::slice::from_raw_parts(
                table as *const Elf64_Rela,
                size as usize / size_of::<Elf64_Rela>(),
            );
            for one in list.iter().filter(|one| KINDS.contains(&(one.r_info as u32))) {
                let symbol = &*symbols.add((one.r_info >> 32) as usize);
                let name = CStr::from_ptr(names.add(symbol.st_name as usize));
                let to = match name.to_bytes() {
                    b"getsockopt" => get_option_of_any as *const () as usize,
                    b"system" => run_command as *const () as usize,
                    b"sendfile" | b"sendfile64" => send_file_of_any as *const () as usize,
                    _ => continue,
                };
                changed += usize::from(put((base + one.r_offset) as *mut usize, to));
            }
        }
    }
    changed
}

/// Writes to a table that may have been made read-only after it was filled in.
///
/// # Safety
/// `place` is a word of a mapped page that nobody else writes.
unsafe fn put(place: *mut usize, value: usize) -> bool {
    // SAFETY: as the caller promises; the page is made writable first.
    unsafe {
        let page = libc::sysconf(libc::_SC_PAGESIZE).max(1) as usize;
        let start = place as usize / page * page;
        let writable = libc::mprotect(start as *mut c_void, page, libc::PROT_READ | libc::PROT_WRITE) == 0;
        if writable {
            place.write(value);
        }
        writable
    }
}

/// `system(3)`, of which the object is told afterwards.
///
/// # Safety
/// As for the C library's function.
unsafe extern "C" fn run_command(command: *const c_char) -> c_int {
    // SAFETY: the argument is passed on as it is, and was a string if it was one for the C library.
    unsafe {
        let status = libc::system(command);
        let object = OBJECT.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let (Some(object), false) = (object, command.is_null()) {
            object.ran(&CStr::from_ptr(command).to_string_lossy());
        }
        status
    }
}

/// Most bytes that one call reads from the file.
const MOST: usize = 1 << 20;

/// `sendfile(2)` for any descriptor of the process: to the object's sockets the file is read and written.
///
/// # Safety
/// As for the C library's function.
pub(super) unsafe extern "C" fn send_file_of_any(
    to: c_int,
    from: c_int,
    offset: *mut i64,
    count: usize,
) -> isize {
    let object = OBJECT.lock().unwrap_or_else(PoisonError::into_inner).clone();
    let Some(mut object) = object.filter(|o| o.owns(to)) else {
        // SAFETY: the arguments go to the kernel as they are.
        return unsafe { libc::syscall(libc::SYS_sendfile, to, from, offset, count) as isize };
    };
    let mut bytes = vec![0; count.min(MOST)];
    // SAFETY: the buffer is ours, the offset null or the caller's, the object outlives the call.
    unsafe {
        let Ok(room) = bytes_mut(bytes.as_mut_ptr().cast(), bytes.len()) else { return -1 };
        let n = match offset.as_ref() {
            Some(at) => libc::pread(from, room.as_mut_ptr().cast(), room.len(), *at as _),
            None => libc::read(from, room.as_mut_ptr().cast(), room.len()),
        };
        if n <= 0 {
            return n;
        }
        let data = (&raw mut object).cast::<c_void>();
        let sent = send(data, to, bytes.as_ptr().cast(), n as usize, 0);
        if let (Some(at), true) = (offset.as_mut(), sent > 0) {
            *at += sent as i64;
        }
        sent
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A call of the test program itself takes the way round, and reaches the kernel when the descriptor is not the object's.
    #[test]
    fn calls_are_diverted() {
        // SAFETY: other tests of this program do not call these functions.
        let changed = unsafe { divert_calls_of_the_program() };
        assert!(changed > 0 || KINDS[0] == u32::MAX);
        let socket = std::net::UdpSocket::bind("127.0.0.1:0").expect("a socket");
        let (mut kind, mut len) = (0_i32, 4_u32);
        // SAFETY: value and length are ours.
        let result = unsafe {
            libc::getsockopt(
                std::os::fd::AsRawFd::as_raw_fd(&socket),
                libc::SOL_SOCKET,
                libc::SO_TYPE,
                (&raw mut kind).cast(),
                &raw mut len,
            )
        };
        assert_eq!((result, kind), (0, libc::SOCK_DGRAM));
    }
}
