//! Memory of a NUMA node, as long as that has some. Where the kernel does not know the node or the calls, memory comes from anywhere.

use std::ptr::{NonNull, null_mut};

/// Of a set of nodes, for as many as the kernel knows at most.
const WORDS: usize = 16;
const BITS: usize = libc::c_ulong::BITS as usize;

type Nodes = [libc::c_ulong; WORDS];

fn only(node: u32) -> Option<Nodes> {
    let mut nodes = [0; WORDS];
    *nodes.get_mut(node as usize / BITS)? = 1 << (node as usize % BITS);
    Some(nodes)
}

/// Has pages of a mapping that nobody has touched yet come from a node (mbind(2)).
pub(crate) fn prefer(base: NonNull<u8>, bytes: usize, node: u32) {
    let Some(nodes) = only(node) else { return };
    if !cfg!(miri) {
        // SAFETY: the range is our own mapping, and the set has as many bits as is said.
        unsafe {
            libc::syscall(
                libc::SYS_mbind,
                base.as_ptr(),
                bytes,
                libc::MPOL_PREFERRED,
                nodes.as_ptr(),
                WORDS * BITS,
                0_usize,
            )
        };
    }
}

/// What the kernel allocates for this thread comes from one node until this is dropped (set_mempolicy(2)), such as the rings of a socket.
#[derive(Debug)]
pub(crate) struct Preferred {
    before: Option<(libc::c_int, Nodes)>,
}

impl Preferred {
    /// `None`: nothing changes.
    pub(crate) fn node(node: Option<u32>) -> Self {
        let Some(nodes) = node.and_then(only) else { return Self { before: None } };
        let before = policy().filter(|_| set(libc::MPOL_PREFERRED, &nodes));
        Self { before }
    }
}

impl Drop for Preferred {
    fn drop(&mut self) {
        if let Some((mode, nodes)) = self.before.take() {
            set(mode, &nodes);
        }
    }
}

/// The calling thread's policy; `None` where the kernel has none, or does not tell.
fn policy() -> Option<(libc::c_int, Nodes)> {
    let (mut mode, mut nodes): (libc::c_int, Nodes) = (0, [0; WORDS]);
    // SAFETY: mode and set are writable, and the set has as many bits as is said; no address is asked about.
    let known = unsafe {
        libc::syscall(
            libc::SYS_get_mempolicy,
            &raw mut mode,
            nodes.as_mut_ptr(),
            WORDS * BITS,
            null_mut::<libc::c_void>(),
            0_usize,
        )
    };
    (known == 0).then_some((mode, nodes))
}

fn set(mode: libc::c_int, nodes: &Nodes) -> bool {
    // SAFETY: the set has as many bits as is said.
    unsafe { libc::syscall(libc::SYS_set_mempolicy, mode, nodes.as_ptr(), WORDS * BITS) == 0 }
}

#[cfg(all(test, not(miri)))]
mod tests {
    use super::*;

    #[test]
    fn a_node_is_preferred_for_a_while() {
        let Some(before) = policy() else {
            return crate::skipped("skipped, because the kernel tells this process no NUMA policy");
        };
        let preferred = Preferred::node(Some(0));
        assert_eq!(policy(), Some((libc::MPOL_PREFERRED, only(0).unwrap())));
        drop(preferred);
        assert_eq!(policy(), Some(before));
        drop(Preferred::node(None));
        drop(Preferred::node(Some(u32::MAX)));
        assert_eq!(policy(), Some(before));
    }
}
