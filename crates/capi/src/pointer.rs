//! Pointers of C, read and written: null is an error, everything else is what the program says it is.

use std::ffi::{CStr, c_char, c_void};
use std::sync::atomic::{AtomicPtr, Ordering};

use crate::error::Error;

/// What a pointer points to.
///
/// # Safety
/// The pointer is null, or valid for reads for as long as the caller uses the result.
pub(crate) unsafe fn borrowed<'a, T>(pointer: *const T, what: &str) -> Result<&'a T, Error> {
    // SAFETY: the caller's.
    unsafe { pointer.as_ref() }.ok_or_else(|| null(what))
}

/// As [`borrowed`], to change it.
///
/// # Safety
/// As [`borrowed`], and nobody else uses it meanwhile.
pub(crate) unsafe fn changed<'a, T>(pointer: *mut T, what: &str) -> Result<&'a mut T, Error> {
    // SAFETY: the caller's.
    unsafe { pointer.as_mut() }.ok_or_else(|| null(what))
}

/// Writes a result where an argument says.
///
/// # Safety
/// The pointer is null or valid for a write; what is there is not read.
pub(crate) unsafe fn give<T>(to: *mut T, value: T, what: &str) -> Result<(), Error> {
    if to.is_null() {
        return Err(null(what));
    }
    // SAFETY: not null, and so valid, as the caller says.
    unsafe { to.write(value) };
    Ok(())
}

/// `len` bytes from a pointer, which may be null if there are none.
///
/// # Safety
/// The pointer is valid for reads of `len` bytes, which nobody writes while the caller uses the result.
pub(crate) unsafe fn bytes<'a>(pointer: *const c_void, len: usize, what: &str) -> Result<&'a [u8], Error> {
    // SAFETY: the caller's.
    unsafe { elements(pointer.cast(), len, what) }
}

/// `len` values from a pointer, which may be null if there are none.
///
/// # Safety
/// As [`bytes`].
pub(crate) unsafe fn elements<'a, T>(pointer: *const T, len: usize, what: &str) -> Result<&'a [T], Error> {
    match len {
        0 => Ok(&[]),
        _ if pointer.is_null() => Err(null(what)),
        // SAFETY: not null; the length is the caller's.
        _ => Ok(unsafe { std::slice::from_raw_parts(pointer, len) }),
    }
}

/// As [`elements`], to write into.
///
/// # Safety
/// The pointer is valid for writes of `len` initialised values that nobody else uses meanwhile.
pub(crate) unsafe fn room<'a, T>(pointer: *mut T, len: usize, what: &str) -> Result<&'a mut [T], Error> {
    match len {
        0 => Ok(&mut []),
        _ if pointer.is_null() => Err(null(what)),
        // SAFETY: not null; the length is the caller's.
        _ => Ok(unsafe { std::slice::from_raw_parts_mut(pointer, len) }),
    }
}

/// A text of C.
///
/// # Safety
/// The pointer is null, or of a text that ends with a zero byte and that nobody writes while the caller uses the result.
pub(crate) unsafe fn text<'a>(pointer: *const c_char, what: &str) -> Result<&'a str, Error> {
    if pointer.is_null() {
        return Err(null(what));
    }
    // SAFETY: not null; the rest is the caller's.
    let text = unsafe { CStr::from_ptr(pointer) };
    text.to_str().map_err(|_| Error::invalid(format!("{what} is not UTF-8")))
}

/// A struct of C that begins with its own size, as the program was compiled with it: later versions of the library may know more fields at its end,
/// which are then as `T::default()` has them.
///
/// # Safety
/// The pointer is null, or valid for reads of as many bytes as the first field says. All bits zero is a valid `T`, and so is any prefix of
/// one.
pub(crate) unsafe fn sized<T: Copy + Default>(
    pointer: *const T,
    least: usize,
    what: &str,
) -> Result<T, Error> {
    if pointer.is_null() {
        return Err(null(what));
    }
    // SAFETY: its first field is its size.
    let size = unsafe { pointer.cast::<usize>().read() };
    // Guard: `size < least || size > size_of::<T>()` as `false` fails capi/every_function
    if size < least || size > size_of::<T>() {
        let known = size_of::<T>();
        return Err(Error::invalid(format!(
            "{what} of {size} bytes: set its size to sizeof, here {least} to {known}"
        )));
    }
    let mut value = T::default();
    // SAFETY: both are valid for `size` bytes, at most those of `T`, and are two places.
    unsafe { std::ptr::copy_nonoverlapping(pointer.cast::<u8>(), (&raw mut value).cast::<u8>(), size) };
    Ok(value)
}

#[cold]
fn null(what: &str) -> Error {
    Error::invalid(format!("{what} is a null pointer"))
}

/// A pointer of the program's, which is given back in callbacks and never followed.
#[derive(Debug)]
pub(crate) struct User(AtomicPtr<c_void>);

impl User {
    pub(crate) fn new(pointer: *mut c_void) -> Self {
        Self(AtomicPtr::new(pointer))
    }

    pub(crate) fn get(&self) -> *mut c_void {
        self.0.load(Ordering::Relaxed)
    }

    pub(crate) fn set(&self, pointer: *mut c_void) {
        self.0.store(pointer, Ordering::Relaxed);
    }
}
