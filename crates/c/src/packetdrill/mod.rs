//! A network stack as a shared object for packetdrill: the table of C functions, and nothing of the stack.
//!
//! packetdrill loads a library, finds `packetdrill_interface_init` in it and has it fill a table of 32 function pointers. The
//! functions here turn what C hands over (pointers, lengths, `errno`) into safe calls of a [`SharedObject`] and back, end
//! every panic at the boundary, and answer null pointers with `EFAULT`.
//!
//! ```text
//!   packetdrill ─▶ Table ─▶ entry, data, wait (pointers, errno, panics) ─▶ dyn SharedObject   (the stack: no unsafe line)
//!   a test      ─▶ Caller ──┘                                                         through the same table
//! ```
//!
//! The layout of the table is packetdrill's ABI, written down from its description.
#![allow(clippy::unnecessary_cast, reason = "how wide C's integers are depends on the machine")]

mod address;
mod caller;
mod data;
mod entry;
mod linkage;
mod object;
mod place;
mod table;
mod wait;

pub use caller::Caller;
pub use entry::init;
pub use linkage::divert_calls_of_the_program;
pub use object::{
    Address, Answer, ControlMessage, Errno, Interest, Make, PollEntry, Received, SendCall, SharedObject,
};
pub use place::{close_place, open_pipe_places, open_place};
pub use table::Table;
pub use wait::get_option_of_any;

/// Defines the functions that packetdrill, and a program that preloads the library, look for. `$make` is a function from
/// the text of `--so_flags`, if any, to an object or a line that says what is wrong with the text.
#[macro_export]
macro_rules! export_packetdrill {
    ($make:path) => {
        /// What packetdrill calls once, after loading the library.
        ///
        /// # Safety
        /// `flags` is null or a C string; `table` points to a zeroed table.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn packetdrill_interface_init(
            flags: *const ::std::ffi::c_char,
            table: *mut $crate::packetdrill::Table,
        ) {
            // SAFETY: as the caller promises; packetdrill has one thread when it loads the library.
            unsafe {
                let _ = $crate::packetdrill::divert_calls_of_the_program();
                $crate::packetdrill::init(flags, table, $make);
            }
        }

        /// `getsockopt(2)` for programs that preload this library: packetdrill's code blocks (`%{ }%`) ask the C library
        /// about sockets, not the table. Descriptors that are not the object's go to the kernel as before.
        ///
        /// # Safety
        /// As for the C library's function.
        #[cfg(not(test))]
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn getsockopt(
            fd: ::std::ffi::c_int,
            level: ::std::ffi::c_int,
            name: ::std::ffi::c_int,
            value: *mut ::std::ffi::c_void,
            len: *mut u32,
        ) -> ::std::ffi::c_int {
            // SAFETY: as the caller promises.
            unsafe { $crate::packetdrill::get_option_of_any(fd, level, name, value, len) }
        }
    };
}
