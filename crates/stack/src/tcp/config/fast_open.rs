//! What sockets and listeners are told about Fast Open (RFC 7413).

/// Use of Fast Open when connecting.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum FastOpen {
    /// Nothing: a plain SYN.
    #[default]
    Off,
    /// Send the peer's cookie with data; request a cookie if none is known.
    Cookie,
    /// Sends data without a cookie, to peers of which it is known that they want none (as in closed networks).
    NoCookie,
}

/// The secret keys of cookies. A cookie of the previous key is still valid, and is answered with a new one.
///
/// All lanes that listen on one address must have the same keys, since a peer's next connection may arrive in any of them.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct FastOpenKeys {
    primary: [u8; 16],
    former: Option<[u8; 16]>,
}

impl FastOpenKeys {
    /// Cookies are made with `primary`.
    #[must_use]
    pub const fn new(primary: [u8; 16]) -> Self {
        Self { primary, former: None }
    }

    /// Cookies of `former` are good, too.
    #[must_use]
    pub const fn with_former(self, former: [u8; 16]) -> Self {
        Self { former: Some(former), ..self }
    }

    /// The keys after this one's time: `next` makes cookies, the primary of before is the former one.
    #[must_use]
    pub const fn rotate(self, next: [u8; 16]) -> Self {
        Self { primary: next, former: Some(self.primary) }
    }

    /// The primary key and the former one.
    #[must_use]
    pub const fn bytes(&self) -> ([u8; 16], Option<[u8; 16]>) {
        (self.primary, self.former)
    }
}

impl core::fmt::Debug for FastOpenKeys {
    /// Does not show the keys.
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("FastOpenKeys").field("former", &self.former.is_some()).finish_non_exhaustive()
    }
}

/// Fast Open at a listener.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FastOpenListen {
    /// Connections that may be used before their handshake is over (`TCP_FASTOPEN`, `PendingFastOpenRequests` of RFC 7413
    /// §5.1); beyond them a SYN's data is not taken. Resets by peers count for a minute.
    pub pending: u32,
    /// Accept data without a cookie as well. This allows requests from forged addresses: for closed networks only.
    pub no_cookie: bool,
    /// Keys of this listener, if not the lane's.
    pub keys: Option<FastOpenKeys>,
}

impl Default for FastOpenListen {
    fn default() -> Self {
        Self { pending: 256, no_cookie: false, keys: None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_rotate_and_are_not_shown() {
        let keys = FastOpenKeys::new([7; 16]);
        assert_eq!(keys.rotate([8; 16]).bytes(), ([8; 16], Some([7; 16])));
        assert_eq!(format!("{keys:?}"), "FastOpenKeys { former: false, .. }");
    }
}
