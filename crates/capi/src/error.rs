//! Errors: a code for each kind, a text for each code, and for each thread the words of the last error.
//!
//! A code says what a program can do about it; the words say what was wrong this time. [`FLOWLANE_ERR_AGAIN`] is an everyday answer and
//! leaves no words.

use std::cell::RefCell;
use std::ffi::{CStr, CString, c_char};
use std::panic::{AssertUnwindSafe, catch_unwind};

use flowlane::{BindError, ConnectError, Failure, MoveError, SendError, SocketError, SpawnError, StartError};

/// It worked.
pub const FLOWLANE_OK: i32 = 0;
/// An argument makes no sense: a null pointer, a number out of range, a text that cannot be read.
pub const FLOWLANE_ERR_INVALID: i32 = -1;
/// The library panicked in this call, which did not do what it should: a fault of the library.
pub const FLOWLANE_ERR_PANIC: i32 = -2;
/// Called elsewhere than in a callback of the lane that has the object.
pub const FLOWLANE_ERR_WRONG_LANE: i32 = -3;
/// Nothing is there, or there is no room; a callback follows when that has changed.
pub const FLOWLANE_ERR_AGAIN: i32 = -4;
/// The socket is closed, or shut down for writing.
pub const FLOWLANE_ERR_CLOSED: i32 = -5;
/// Address and port are in use.
pub const FLOWLANE_ERR_IN_USE: i32 = -6;
/// The address is none of the host's.
pub const FLOWLANE_ERR_NOT_OUR_ADDRESS: i32 = -7;
/// There is no route, or no source address, for the destination.
pub const FLOWLANE_ERR_NO_ROUTE: i32 = -8;
/// No port is free.
pub const FLOWLANE_ERR_NO_PORT: i32 = -9;
/// Replies would arrive in another lane of the host.
pub const FLOWLANE_ERR_OTHER_LANE: i32 = -10;
/// A limit is reached: sockets, connections, descriptors.
pub const FLOWLANE_ERR_TOO_MANY: i32 = -11;
/// The datagram is longer than it may be on its way.
pub const FLOWLANE_ERR_TOO_LONG: i32 = -12;
/// The peer has reset the connection.
pub const FLOWLANE_ERR_RESET: i32 = -13;
/// Nobody listens there.
pub const FLOWLANE_ERR_REFUSED: i32 = -14;
/// There was no answer in time.
pub const FLOWLANE_ERR_TIMED_OUT: i32 = -15;
/// The network says that the peer cannot be reached.
pub const FLOWLANE_ERR_UNREACHABLE: i32 = -16;
/// No frame is free.
pub const FLOWLANE_ERR_NO_FRAME: i32 = -17;
/// The runtime could not be started.
pub const FLOWLANE_ERR_START: i32 = -18;
/// The runtime has ended.
pub const FLOWLANE_ERR_STOPPED: i32 = -19;
/// There is no such host, bucket or worker.
pub const FLOWLANE_ERR_NO_SUCH: i32 = -20;
/// Sockets of this kind cannot do this.
pub const FLOWLANE_ERR_UNSUPPORTED: i32 = -21;
/// The kernel refused for another reason; the words say which.
pub const FLOWLANE_ERR_SYSTEM: i32 = -22;
/// A lane failed; the words say which and how.
pub const FLOWLANE_ERR_LANE_FAILED: i32 = -23;
/// The lane is being moved already.
pub const FLOWLANE_ERR_MOVING: i32 = -24;

/// The codes and their texts.
const TEXTS: &[(i32, &CStr)] = &[
    (FLOWLANE_OK, c"no error"),
    (FLOWLANE_ERR_INVALID, c"an argument makes no sense"),
    (FLOWLANE_ERR_PANIC, c"the library panicked"),
    (FLOWLANE_ERR_WRONG_LANE, c"called elsewhere than in a callback of the lane"),
    (FLOWLANE_ERR_AGAIN, c"not now"),
    (FLOWLANE_ERR_CLOSED, c"the socket is closed"),
    (FLOWLANE_ERR_IN_USE, c"the address and port are in use"),
    (FLOWLANE_ERR_NOT_OUR_ADDRESS, c"the address is not one of ours"),
    (FLOWLANE_ERR_NO_ROUTE, c"no route to the destination"),
    (FLOWLANE_ERR_NO_PORT, c"no port is free"),
    (FLOWLANE_ERR_OTHER_LANE, c"replies would arrive in another lane"),
    (FLOWLANE_ERR_TOO_MANY, c"a limit is reached"),
    (FLOWLANE_ERR_TOO_LONG, c"the datagram is too long"),
    (FLOWLANE_ERR_RESET, c"connection reset by the peer"),
    (FLOWLANE_ERR_REFUSED, c"connection refused by the peer"),
    (FLOWLANE_ERR_TIMED_OUT, c"no answer in time"),
    (FLOWLANE_ERR_UNREACHABLE, c"the peer cannot be reached"),
    (FLOWLANE_ERR_NO_FRAME, c"no frame is free"),
    (FLOWLANE_ERR_START, c"the runtime could not be started"),
    (FLOWLANE_ERR_STOPPED, c"the runtime has ended"),
    (FLOWLANE_ERR_NO_SUCH, c"no such host, bucket or worker"),
    (FLOWLANE_ERR_UNSUPPORTED, c"sockets of this kind cannot do this"),
    (FLOWLANE_ERR_SYSTEM, c"the kernel refused"),
    (FLOWLANE_ERR_LANE_FAILED, c"a lane failed"),
    (FLOWLANE_ERR_MOVING, c"the lane is being moved already"),
];

/// An error on its way to C.
#[derive(Debug)]
pub(crate) struct Error {
    code: i32,
    /// `None`: the text of the code says all.
    words: Option<String>,
}

impl Error {
    pub(crate) const AGAIN: Self = Self::plain(FLOWLANE_ERR_AGAIN);

    pub(crate) const fn plain(code: i32) -> Self {
        Self { code, words: None }
    }

    #[expect(clippy::needless_pass_by_value, reason = "as `map_err` hands it on")]
    pub(crate) fn new(code: i32, words: impl ToString) -> Self {
        Self { code, words: Some(words.to_string()) }
    }

    pub(crate) fn invalid(words: impl ToString) -> Self {
        Self::new(FLOWLANE_ERR_INVALID, words)
    }
}

thread_local! {
    /// The words of this thread's last error; `None` before the first.
    static LAST: RefCell<Option<CString>> = const { RefCell::new(None) };
}

/// Runs a function of the library: its error becomes a code and the thread's last words, and so does a panic.
pub(crate) fn guarded(f: impl FnOnce() -> Result<(), Error>) -> i32 {
    // What the closure had under way is not looked at again: objects are whole or not reached any more.
    match catch_unwind(AssertUnwindSafe(f)) {
        Ok(Ok(())) => FLOWLANE_OK,
        Ok(Err(Error { code: FLOWLANE_ERR_AGAIN, .. })) => FLOWLANE_ERR_AGAIN,
        Ok(Err(error)) => keep(error),
        Err(payload) => {
            let words = payload.downcast_ref::<String>().map(String::as_str);
            let words = words.or_else(|| payload.downcast_ref::<&str>().copied()).unwrap_or("no words");
            keep(Error::new(FLOWLANE_ERR_PANIC, format!("the library panicked: {words}")))
        }
    }
}

#[cold]
fn keep(error: Error) -> i32 {
    let words = error.words.unwrap_or_else(|| text(error.code).to_string_lossy().into_owned());
    let words = CString::new(words.replace('\0', " ")).unwrap_or_default();
    LAST.with_borrow_mut(|last| *last = Some(words));
    error.code
}

fn text(code: i32) -> &'static CStr {
    TEXTS.iter().find(|(known, _)| *known == code).map_or(c"no such code", |(_, text)| text)
}

/// The text of a code. It is valid for ever.
#[unsafe(no_mangle)]
pub extern "C" fn flowlane_strerror(code: i32) -> *const c_char {
    text(code).as_ptr()
}

/// The words of this thread's last error other than FLOWLANE_ERR_AGAIN, an empty text before the first. Valid until this thread's next
/// error.
#[unsafe(no_mangle)]
pub extern "C" fn flowlane_last_error() -> *const c_char {
    LAST.with_borrow(|last| last.as_ref().map_or(c"".as_ptr(), |words| words.as_ptr()))
}

/// Version of the library that runs: major * 1000000 + minor * 1000 + patch.
#[unsafe(no_mangle)]
pub extern "C" fn flowlane_version() -> u32 {
    let part = |text: &str| text.parse::<u32>().unwrap_or(0);
    part(env!("CARGO_PKG_VERSION_MAJOR")) * 1_000_000
        + part(env!("CARGO_PKG_VERSION_MINOR")) * 1_000
        + part(env!("CARGO_PKG_VERSION_PATCH"))
}

impl From<SocketError> for Error {
    fn from(error: SocketError) -> Self {
        let code = match error {
            SocketError::Send(SendError::Full) => return Self::AGAIN,
            SocketError::WrongLane => FLOWLANE_ERR_WRONG_LANE,
            SocketError::Closed | SocketError::ShutDown => FLOWLANE_ERR_CLOSED,
            SocketError::Bind(error) => of_bind(error),
            SocketError::Send(error) => of_send(error),
            SocketError::Connect(error) => of_connect(error),
            SocketError::Connection(error) => of_failure(error),
            SocketError::Listen(error) => of_kind(std::io::Error::from(error).kind()),
            SocketError::Network(_) => of_kind(std::io::Error::from(error).kind()),
            SocketError::NoSuchBucket(_) => FLOWLANE_ERR_NO_SUCH,
            SocketError::NoDescriptor => FLOWLANE_ERR_TOO_MANY,
            SocketError::Unsupported(_) => FLOWLANE_ERR_UNSUPPORTED,
            _ => FLOWLANE_ERR_SYSTEM,
        };
        Self::new(code, error)
    }
}

fn of_bind(error: BindError) -> i32 {
    match error {
        BindError::InUse => FLOWLANE_ERR_IN_USE,
        BindError::NotOurAddress => FLOWLANE_ERR_NOT_OUR_ADDRESS,
        BindError::NoPort => FLOWLANE_ERR_NO_PORT,
        BindError::NoRoute => FLOWLANE_ERR_NO_ROUTE,
        BindError::OtherLane(_) => FLOWLANE_ERR_OTHER_LANE,
        _ => FLOWLANE_ERR_TOO_MANY,
    }
}

fn of_send(error: SendError) -> i32 {
    match error {
        SendError::NoRoute | SendError::NoSource => FLOWLANE_ERR_NO_ROUTE,
        SendError::TooBig(_) | SendError::TooLong => FLOWLANE_ERR_TOO_LONG,
        SendError::NoFrame => FLOWLANE_ERR_NO_FRAME,
        SendError::Closed => FLOWLANE_ERR_CLOSED,
        SendError::NoDestination | SendError::Unspecified => FLOWLANE_ERR_INVALID,
        _ => FLOWLANE_ERR_SYSTEM,
    }
}

fn of_connect(error: ConnectError) -> i32 {
    match error {
        ConnectError::InUse => FLOWLANE_ERR_IN_USE,
        ConnectError::BadAddress => FLOWLANE_ERR_INVALID,
        ConnectError::TooMany => FLOWLANE_ERR_TOO_MANY,
        ConnectError::NoRoute => FLOWLANE_ERR_NO_ROUTE,
        ConnectError::NotOurAddress => FLOWLANE_ERR_NOT_OUR_ADDRESS,
        ConnectError::NoPort => FLOWLANE_ERR_NO_PORT,
        ConnectError::OtherLane(_) => FLOWLANE_ERR_OTHER_LANE,
        _ => FLOWLANE_ERR_SYSTEM,
    }
}

fn of_failure(failure: Failure) -> i32 {
    match failure {
        Failure::Reset => FLOWLANE_ERR_RESET,
        Failure::Refused => FLOWLANE_ERR_REFUSED,
        Failure::TimedOut => FLOWLANE_ERR_TIMED_OUT,
        Failure::Unreachable => FLOWLANE_ERR_UNREACHABLE,
        _ => FLOWLANE_ERR_CLOSED,
    }
}

fn of_kind(kind: std::io::ErrorKind) -> i32 {
    use std::io::ErrorKind;
    match kind {
        ErrorKind::AddrInUse => FLOWLANE_ERR_IN_USE,
        ErrorKind::AddrNotAvailable => FLOWLANE_ERR_NOT_OUR_ADDRESS,
        ErrorKind::ConnectionRefused => FLOWLANE_ERR_REFUSED,
        ErrorKind::HostUnreachable | ErrorKind::NetworkUnreachable => FLOWLANE_ERR_UNREACHABLE,
        ErrorKind::InvalidInput => FLOWLANE_ERR_INVALID,
        _ => FLOWLANE_ERR_SYSTEM,
    }
}

impl From<StartError> for Error {
    fn from(error: StartError) -> Self {
        Self::new(FLOWLANE_ERR_START, error)
    }
}

impl From<SpawnError> for Error {
    fn from(error: SpawnError) -> Self {
        let code = match error {
            SpawnError::Stopped => FLOWLANE_ERR_STOPPED,
            _ => FLOWLANE_ERR_NO_SUCH,
        };
        Self::new(code, error)
    }
}

impl From<MoveError> for Error {
    fn from(error: MoveError) -> Self {
        let code = match error {
            MoveError::NoSuchLane | MoveError::NoSuchWorker => FLOWLANE_ERR_NO_SUCH,
            MoveError::OnWorker => FLOWLANE_ERR_WRONG_LANE,
            MoveError::Moving => FLOWLANE_ERR_MOVING,
            MoveError::Stopped => FLOWLANE_ERR_STOPPED,
            _ => FLOWLANE_ERR_TIMED_OUT,
        };
        Self::new(code, error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_has_a_text_of_its_own() {
        for (n, (code, text)) in TEXTS.iter().enumerate() {
            assert_eq!(*code, -(n as i32), "codes are consecutive, so that none is forgotten here");
            assert_eq!(TEXTS.iter().filter(|(_, other)| other == text).count(), 1, "{text:?}");
        }
        assert_eq!(text(-1000), c"no such code");
        assert_eq!(text(1), c"no such code");
    }

    #[test]
    fn a_panic_ends_the_call_and_is_told() {
        let last = || {
            // SAFETY: the pointer is of this thread's last words, which stay until its next error.
            unsafe { CStr::from_ptr(flowlane_last_error()) }.to_str().unwrap().to_owned()
        };
        assert_eq!(guarded(|| panic!("of the {}", "test")), FLOWLANE_ERR_PANIC);
        assert_eq!(last(), "the library panicked: of the test");
        assert_eq!(guarded(|| Err(Error::AGAIN)), FLOWLANE_ERR_AGAIN);
        assert_eq!(last(), "the library panicked: of the test", "an everyday answer leaves no words");
        assert_eq!(guarded(|| Err(Error::plain(FLOWLANE_ERR_MOVING))), FLOWLANE_ERR_MOVING);
        assert_eq!(last(), "the lane is being moved already");
    }
}
