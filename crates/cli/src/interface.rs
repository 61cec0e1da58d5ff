//! Interfaces as arguments name them: by their own name or by an alternative one (`ip link property add dev eth0 altname wan`).
//!
//! A name is looked up once, when the argument is read. From then on the interface goes by its own name, which is the one in `/sys`, in
//! messages and in files.

use flowlane_sys::netdev::Interface;

/// The interface's own name. A text by which no interface is found stays: whoever opens it says so, or makes it.
pub(crate) fn named(text: &str) -> Result<String, std::convert::Infallible> {
    Ok(Interface::find(text).map_or_else(|_| text.to_owned(), |found| found.name().to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_nobody_has_stays() {
        assert_eq!(named("lo").as_deref(), Ok("lo"));
        assert_eq!(named("nosuch0").as_deref(), Ok("nosuch0"));
        assert_eq!(named("").as_deref(), Ok(""));
    }
}
