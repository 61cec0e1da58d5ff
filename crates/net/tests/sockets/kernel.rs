//! What only sockets of the kernel have.
