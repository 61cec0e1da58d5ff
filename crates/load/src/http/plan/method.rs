//! The method of gRPC that a path names.

/// Service and method of a path, `/package.Service/Method`.
///
/// # Errors
/// It is none, in one line.
pub(in crate::http) fn method_of(path: &str) -> Result<(&str, &str), String> {
    let parts = path.strip_prefix('/').and_then(|rest| rest.split_once('/'));
    let name = |name: &str| {
        !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'.'))
    };
    match parts {
        Some((service, method)) if name(service) && name(method) && !method.contains('.') => {
            Ok((service, method))
        }
        _ => Err(format!("'{path}' names no method of gRPC: /package.Service/Method")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn methods_have_a_service() {
        assert_eq!(method_of("/shop.v1.Cart/Add"), Ok(("shop.v1.Cart", "Add")));
        for bad in ["", "/", "/a", "/a/", "//a", "/a/b/c", "a/b", "/a/b?x=1", "/a/b.c", "/é/b"] {
            assert!(method_of(bad).unwrap_err().contains("/package.Service/Method"), "{bad}");
        }
    }
}
