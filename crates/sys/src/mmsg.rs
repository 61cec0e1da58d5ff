//! Batches of datagrams on kernel sockets: `recvmmsg` and `sendmmsg`.
//!
//! The baseline of benchmarks: hand-written code for the best performance of kernel UDP. A batch owns its buffers; a receive fills it, a
//! send sends each datagram to its address.

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

// SAFETY: the pointers in `iovecs` and `headers` are set anew before every call of the kernel and not used otherwise.
unsafe impl Send for Batch {}

impl Batch {
    /// Room for `count` datagrams of up to `size` bytes.
    #[must_use]
    pub fn new(count: usize, size: usize) -> Self {
        // SAFETY: all zeros is a valid value of these plain C structures.
        let (address, part, header) = unsafe { (std::mem::zeroed(), std::mem::zeroed(), std::mem::zeroed()) };
        Self {
            buffers: vec![0u8; count * size],
            addresses: vec![address; count],
            iovecs: vec![part; count],
            headers: vec![header; count],
            size,
            filled: 0,
        }
    }

    /// Makes every header point to its buffer and its address, whose lengths stay as they are. To be done before each call of
    /// the kernel: reading and writing the buffers in between ends the right to use pointers made before.
    fn point(&mut self) {
        let buffers = self.buffers.chunks_exact_mut(self.size.max(1));
        let headers = self.headers.iter_mut().zip(&mut self.addresses);
        for (((header, address), part), buffer) in headers.zip(&mut self.iovecs).zip(buffers) {
            part.iov_base = buffer.as_mut_ptr().cast();
            header.msg_hdr.msg_iov = part;
            header.msg_hdr.msg_iovlen = 1;
            header.msg_hdr.msg_name = match header.msg_hdr.msg_namelen {
                0 => std::ptr::null_mut(),
                _ => (&raw mut *address).cast(),
            };
        }
    }

    /// Fills the whole batch with copies of `payload` for a connected socket.
    pub fn fill(&mut self, payload: &[u8]) {
        let len = payload.len().min(self.size);
        for (buffer, (iovec, header)) in
            self.buffers.chunks_exact_mut(self.size.max(1)).zip(self.iovecs.iter_mut().zip(&mut self.headers))
        {
            buffer[..len].copy_from_slice(&payload[..len]);
            iovec.iov_len = len;
            header.msg_hdr.msg_namelen = 0;
        }
        self.filled = self.headers.len();
    }

    /// Receives available datagrams; a blocking socket waits for the first. Returns their number.
    ///
    /// # Errors
    /// The kernel's.
    pub fn receive(&mut self, socket: &UdpSocket) -> io::Result<usize> {
        for (header, iovec) in self.headers.iter_mut().zip(&mut self.iovecs) {
            iovec.iov_len = self.size;
            header.msg_hdr.msg_namelen = size_of::<libc::sockaddr_storage>() as u32;
        }
        self.point();
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
        self.point();
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

    /// As the kernel uses the headers, for Miri to look at: a receive, a look at what came, and the way back.
    #[test]
    fn every_pointer_may_be_used_when_all_stand() {
        let mut batch = Batch::new(4, 16);
        batch.fill(b"hello");
        batch.point();
        for header in &batch.headers {
            // SAFETY: one part, as `point` made it; nobody else uses it.
            unsafe {
                assert!(header.msg_hdr.msg_name.is_null());
                let part = &*header.msg_hdr.msg_iov;
                assert_eq!(std::slice::from_raw_parts(part.iov_base.cast::<u8>(), part.iov_len), b"hello");
                part.iov_base.cast::<u8>().write(b'j');
            }
        }
        batch.headers.iter_mut().for_each(|header| header.msg_len = 5);
        assert_eq!(batch.payload(3), Some(&b"jello"[..]));
        batch.point();
        // SAFETY: as above.
        assert_eq!(unsafe { (*batch.headers[0].msg_hdr.msg_iov).iov_base.cast::<u8>().read() }, b'j');
    }

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
