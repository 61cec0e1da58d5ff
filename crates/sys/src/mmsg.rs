//! Batches of datagrams on the kernel's own sockets: `recvmmsg` and `sendmmsg`.
//!
//! The fair peer of every figure: what a person would write by hand to get the most out of kernel UDP. One batch owns
//! its buffers; a receive fills it, a send sends what it holds to where each datagram's address says.

use std::io;
use std::net::UdpSocket;
use std::os::fd::AsRawFd;

/// Buffers, addresses and headers of a batch.
pub struct Batch {
    buffers: Vec<u8>,
    addresses: Vec<libc::sockaddr_storage>,
    iovecs: Vec<libc::iovec>,
    headers: Vec<libc::mmsghdr>,
    size: usize,
    filled: usize,
}

// SAFETY: the pointers in `iovecs` and `headers` point into the other vectors of the same batch, whose heap memory
// does not move with it.
unsafe impl Send for Batch {}

impl Batch {
    /// Room for `count` datagrams of up to `size` bytes.
    #[must_use]
    pub fn new(count: usize, size: usize) -> Self {
        let mut buffers = vec![0u8; count * size];
        // SAFETY: all zeros is a valid value of these plain C structures.
        let mut addresses: Vec<libc::sockaddr_storage> = vec![unsafe { std::mem::zeroed() }; count];
        let mut iovecs: Vec<libc::iovec> = buffers
            .chunks_exact_mut(size)
            .map(|b| libc::iovec { iov_base: b.as_mut_ptr().cast(), iov_len: size })
            .collect();
        let headers = iovecs
            .iter_mut()
            .zip(&mut addresses)
            .map(|(iovec, address)| {
                // SAFETY: as above.
                let mut header: libc::mmsghdr = unsafe { std::mem::zeroed() };
                header.msg_hdr.msg_iov = iovec;
                header.msg_hdr.msg_iovlen = 1;
                header.msg_hdr.msg_name = (address as *mut libc::sockaddr_storage).cast();
                header.msg_hdr.msg_namelen = size_of::<libc::sockaddr_storage>() as u32;
                header
            })
            .collect();
        Self { buffers, addresses, iovecs, headers, size, filled: 0 }
    }

    /// Fills the whole batch with copies of `payload` for a connected socket.
    pub fn fill(&mut self, payload: &[u8]) {
        let len = payload.len().min(self.size);
        for (buffer, (iovec, header)) in
            self.buffers.chunks_exact_mut(self.size).zip(self.iovecs.iter_mut().zip(&mut self.headers))
        {
            buffer[..len].copy_from_slice(&payload[..len]);
            iovec.iov_len = len;
            header.msg_hdr.msg_name = std::ptr::null_mut();
            header.msg_hdr.msg_namelen = 0;
        }
        self.filled = self.headers.len();
    }

    /// Receives what is there, waiting for the first datagram if the socket blocks. Returns how many came.
    ///
    /// # Errors
    /// The kernel's.
    pub fn receive(&mut self, socket: &UdpSocket) -> io::Result<usize> {
        for ((header, iovec), address) in
            self.headers.iter_mut().zip(&mut self.iovecs).zip(&mut self.addresses)
        {
            iovec.iov_len = self.size;
            header.msg_hdr.msg_name = (address as *mut libc::sockaddr_storage).cast();
            header.msg_hdr.msg_namelen = size_of::<libc::sockaddr_storage>() as u32;
        }
        // SAFETY: the headers point to buffers and addresses of this batch, alive and unshared during the call.
        let n = unsafe {
            libc::recvmmsg(
                socket.as_raw_fd(),
                self.headers.as_mut_ptr(),
                self.headers.len() as u32,
                libc::MSG_WAITFORONE as _,
                std::ptr::null_mut(),
            )
        };
        if n < 0 {
            return Err(io::Error::last_os_error());
        }
        self.filled = n as usize;
        for (header, iovec) in self.headers.iter().zip(&mut self.iovecs).take(self.filled) {
            iovec.iov_len = header.msg_len as usize;
        }
        Ok(self.filled)
    }

    /// Sends what the batch holds; returns how many datagrams the kernel took.
    ///
    /// # Errors
    /// The kernel's, if it took none.
    pub fn send(&mut self, socket: &UdpSocket) -> io::Result<usize> {
        // SAFETY: as in `receive`; the kernel only reads.
        let n =
            unsafe { libc::sendmmsg(socket.as_raw_fd(), self.headers.as_mut_ptr(), self.filled as u32, 0) };
        if n < 0 { Err(io::Error::last_os_error()) } else { Ok(n as usize) }
    }

    /// Payload of datagram `index` of the last receive.
    #[must_use]
    pub fn payload(&self, index: usize) -> Option<&[u8]> {
        let header = self.headers.get(index).filter(|_| index < self.filled)?;
        let start = index * self.size;
        self.buffers.get(start..start + (header.msg_len as usize).min(self.size))
    }
}

impl std::fmt::Debug for Batch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Batch").field("capacity", &self.headers.len()).field("filled", &self.filled).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_goes_there_and_comes_back() {
        let server = UdpSocket::bind("127.0.0.1:0").unwrap();
        let client = UdpSocket::bind("127.0.0.1:0").unwrap();
        client.connect(server.local_addr().unwrap()).unwrap();
        let (mut out, mut echo, mut back) = (Batch::new(8, 256), Batch::new(32, 256), Batch::new(32, 256));
        out.fill(b"hello");
        assert_eq!(out.send(&client).unwrap(), 8);
        let mut returned = 0;
        while returned < 8 {
            echo.receive(&server).unwrap();
            echo.send(&server).unwrap();
            let n = back.receive(&client).unwrap();
            assert!((0..n).all(|i| back.payload(i) == Some(b"hello")));
            assert_eq!(back.payload(n), None);
            returned += n;
        }
        assert_eq!(returned, 8);
    }
}
