//! Many datagrams per system call: `sendmmsg`, `recvmmsg`, and the kernel's own cutting (GSO,
//! `UDP_SEGMENT`) and joining (GRO, `UDP_GRO`) of datagrams.
//!
//! Called by the traffic engine. Batches own their memory and the kernel's descriptors of it, so
//! that what the kernel is told about addresses and lengths is true by construction.

use std::ffi::c_int;
use std::fmt;
use std::io;
use std::os::fd::{AsFd, AsRawFd};

use crate::SyscallError;
use crate::socket::set;

/// `UDP_SEGMENT` (kernel `include/uapi/linux/udp.h`).
const UDP_SEGMENT: c_int = 103;
/// `UDP_GRO` (kernel `include/uapi/linux/udp.h`).
const UDP_GRO: c_int = 104;

/// Most messages the kernel takes in one call (`UIO_MAXIOV`).
pub const BATCH_COUNT_MAX: usize = 1024;

/// What a message of a batch takes beside its bytes: header, vector, control messages.
pub const MESSAGE_OVERHEAD_BYTES: usize =
    size_of::<libc::mmsghdr>() + size_of::<libc::iovec>() + CONTROL_BYTES;

/// Room for the one control message asked for, `UDP_GRO`: a header of 16 bytes and an int, padded.
const CONTROL_BYTES: usize = 64;

/// From now on each send on this socket is cut by the kernel into datagrams of this many payload
/// bytes (`UDP_SEGMENT`, Linux 4.18); 0 switches it off.
///
/// # Errors
/// `setsockopt` failed: an older kernel, or more bytes than a datagram can have.
pub fn set_segment_bytes(fd: impl AsFd, bytes: u32) -> Result<(), SyscallError> {
    let value = c_int::try_from(bytes).unwrap_or(c_int::MAX);
    set(fd.as_fd(), libc::SOL_UDP, UDP_SEGMENT, &value, "setsockopt(UDP_SEGMENT)")
}

/// From now on the kernel may hand over several datagrams of one size joined (`UDP_GRO`, Linux 5.0).
///
/// # Errors
/// `setsockopt` failed: an older kernel.
pub fn set_joining(fd: impl AsFd, on: bool) -> Result<(), SyscallError> {
    set(fd.as_fd(), libc::SOL_UDP, UDP_GRO, &c_int::from(on), "setsockopt(UDP_GRO)")
}

/// Messages of one size, ready to be sent on a connected socket.
pub struct SendBatch {
    storage: Vec<u8>,
    message_bytes: usize,
    vectors: Vec<libc::iovec>,
    headers: Vec<libc::mmsghdr>,
}

// SAFETY: the raw pointers in `vectors` and `headers` lead into memory this value owns.
unsafe impl Send for SendBatch {}

impl SendBatch {
    /// `count` messages of `message_bytes` each, zeroed. At least one, at most
    /// [`BATCH_COUNT_MAX`].
    #[must_use]
    pub fn new(count: usize, message_bytes: usize) -> Self {
        let count = count.clamp(1, BATCH_COUNT_MAX);
        let mut storage = vec![0; count * message_bytes.max(1)];
        let mut vectors = vectors_over(&mut storage, message_bytes.max(1));
        let headers = headers_over(&mut vectors);
        Self { storage, message_bytes: message_bytes.max(1), vectors, headers }
    }

    /// Messages in the batch.
    #[must_use]
    pub fn count(&self) -> usize {
        self.headers.len()
    }

    /// The whole of a message, to be written to.
    ///
    /// # Panics
    /// There is no such message.
    pub fn message_mut(&mut self, index: usize) -> &mut [u8] {
        let start = index * self.message_bytes;
        &mut self.storage[start..start + self.message_bytes]
    }

    /// How much of a message is to be sent, at most all of it.
    ///
    /// # Panics
    /// There is no such message.
    pub fn set_length(&mut self, index: usize, bytes: usize) {
        self.vectors[index].iov_len = bytes.min(self.message_bytes);
    }

    /// Sends the messages of a range; says how many of them went.
    ///
    /// # Errors
    /// Not even the first one went (`sendmmsg(2)`).
    ///
    /// # Panics
    /// There are no such messages.
    pub fn send(&mut self, fd: impl AsFd, range: std::ops::Range<usize>) -> io::Result<usize> {
        let headers = &mut self.headers[range];
        let count = libc::c_uint::try_from(headers.len()).expect("at most BATCH_COUNT_MAX");
        let fd = fd.as_fd().as_raw_fd();
        // SAFETY: `headers` are `count` valid message headers; each leads to one vector of
        // `vectors`, and that to at most `message_bytes` of `storage`, none of which moves or is
        // freed while `self` is borrowed. The kernel writes `msg_len` only.
        let sent = unsafe { libc::sendmmsg(fd, headers.as_mut_ptr(), count, libc::MSG_NOSIGNAL) };
        usize::try_from(sent).map_err(|_negative| io::Error::last_os_error())
    }
}

impl fmt::Debug for SendBatch {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "SendBatch({} x {} bytes)", self.count(), self.message_bytes)
    }
}

/// Room for messages from a socket.
pub struct ReceiveBatch {
    storage: Vec<u8>,
    message_bytes: usize,
    controls: Vec<Control>,
    vectors: Vec<libc::iovec>,
    headers: Vec<libc::mmsghdr>,
}

/// Control messages are headed by a `size_t`.
#[derive(Clone, Copy)]
#[repr(C, align(8))]
struct Control([u8; CONTROL_BYTES]);

// SAFETY: the raw pointers in `vectors` and `headers` lead into memory this value owns.
unsafe impl Send for ReceiveBatch {}

/// One message out of a [`ReceiveBatch`].
#[derive(Debug, Clone, Copy)]
pub struct Received<'a> {
    /// The payload; one datagram, or several joined.
    pub payload: &'a [u8],
    /// Payload bytes of each joined datagram but the last, which may be shorter; of a datagram
    /// that came alone its own length.
    pub segment_bytes: usize,
}

impl ReceiveBatch {
    /// Room for `count` messages of at most `message_bytes`; longer ones are cut off.
    #[must_use]
    pub fn new(count: usize, message_bytes: usize) -> Self {
        let count = count.clamp(1, BATCH_COUNT_MAX);
        let message_bytes = message_bytes.max(1);
        let mut storage = vec![0; count * message_bytes];
        let mut controls = vec![Control([0; CONTROL_BYTES]); count];
        let mut vectors = vectors_over(&mut storage, message_bytes);
        let mut headers = headers_over(&mut vectors);
        for (header, control) in headers.iter_mut().zip(&mut controls) {
            header.msg_hdr.msg_control = control.0.as_mut_ptr().cast();
        }
        Self { storage, message_bytes, controls, vectors, headers }
    }

    /// Waits for one message and takes what else is there already; says how many came.
    ///
    /// # Errors
    /// None came (`recvmmsg(2)`): the socket's receive timeout is over, or it failed.
    pub fn receive(&mut self, fd: impl AsFd) -> io::Result<usize> {
        debug_assert_eq!(self.vectors.len(), self.headers.len());
        for header in &mut self.headers {
            header.msg_hdr.msg_controllen = CONTROL_BYTES;
        }
        let count = libc::c_uint::try_from(self.headers.len()).expect("at most BATCH_COUNT_MAX");
        let (fd, headers) = (fd.as_fd().as_raw_fd(), self.headers.as_mut_ptr());
        let flags = libc::MSG_WAITFORONE;
        // SAFETY: `headers` are `count` valid message headers, each with one vector over
        // `message_bytes` of `storage` and `CONTROL_BYTES` of `controls`; none of it moves or is
        // freed while `self` is borrowed. No timeout is given.
        let came = unsafe { libc::recvmmsg(fd, headers, count, flags, std::ptr::null_mut()) };
        usize::try_from(came).map_err(|_negative| io::Error::last_os_error())
    }

    /// A message of the last [`Self::receive`].
    ///
    /// # Panics
    /// There is no such message.
    #[must_use]
    pub fn message(&self, index: usize) -> Received<'_> {
        let header = &self.headers[index];
        let length = (header.msg_len as usize).min(self.message_bytes);
        let start = index * self.message_bytes;
        let payload = &self.storage[start..start + length];
        let control_length = header.msg_hdr.msg_controllen.min(CONTROL_BYTES);
        let joined = joined_bytes(&self.controls[index].0[..control_length]);
        Received { payload, segment_bytes: joined.unwrap_or(length).clamp(1, length.max(1)) }
    }
}

impl fmt::Debug for ReceiveBatch {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "ReceiveBatch({} x {} bytes)", self.headers.len(), self.message_bytes)
    }
}

/// The `UDP_GRO` figure among control messages: the only one ever asked for, so the first.
fn joined_bytes(control: &[u8]) -> Option<usize> {
    // `struct cmsghdr`: length (size_t), level (int), type (int), then the data.
    let word = |at: usize| Some(c_int::from_ne_bytes(control.get(at..at + 4)?.try_into().ok()?));
    if (word(8)?, word(12)?) != (libc::SOL_UDP, UDP_GRO) {
        return None;
    }
    usize::try_from(word(16)?).ok()
}

fn vectors_over(storage: &mut [u8], message_bytes: usize) -> Vec<libc::iovec> {
    storage
        .chunks_exact_mut(message_bytes)
        .map(|message| libc::iovec {
            iov_base: message.as_mut_ptr().cast(),
            iov_len: message_bytes,
        })
        .collect()
}

fn headers_over(vectors: &mut [libc::iovec]) -> Vec<libc::mmsghdr> {
    let header = |vector: &mut libc::iovec| {
        // SAFETY: all-zero is a valid `mmsghdr`: null pointers with lengths of 0.
        let mut header: libc::mmsghdr = unsafe { std::mem::zeroed() };
        header.msg_hdr.msg_iov = vector;
        header.msg_hdr.msg_iovlen = 1;
        header
    };
    vectors.iter_mut().map(header).collect()
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;

    use super::*;

    fn pair() -> (UdpSocket, UdpSocket) {
        let near = UdpSocket::bind("127.0.0.1:0").unwrap();
        let far = UdpSocket::bind("127.0.0.1:0").unwrap();
        near.connect(far.local_addr().unwrap()).unwrap();
        far.connect(near.local_addr().unwrap()).unwrap();
        (near, far)
    }

    #[test]
    fn a_batch_arrives_message_by_message() {
        let (near, far) = pair();
        let mut out = SendBatch::new(4, 100);
        for index in 0..4 {
            out.message_mut(index).fill(index as u8);
            out.set_length(index, 10 + index);
        }
        assert_eq!(out.send(&near, 1..4).unwrap(), 3);
        let mut into = ReceiveBatch::new(8, 12);
        assert_eq!(into.receive(&far).unwrap(), 3);
        for (index, length) in [(0, 11), (1, 12), (2, 12)] {
            let message = into.message(index);
            assert_eq!(message.payload, vec![index as u8 + 1; length], "cut off at 12");
            assert_eq!(message.segment_bytes, length);
        }
    }

    #[test]
    fn the_kernel_cuts_and_joins() {
        let (near, far) = pair();
        set_segment_bytes(&near, 100).unwrap();
        set_joining(&far, true).unwrap();
        let mut out = SendBatch::new(1, 1050);
        out.message_mut(0).iter_mut().enumerate().for_each(|(at, byte)| *byte = (at / 100) as u8);
        assert_eq!(out.send(&near, 0..1).unwrap(), 1);
        let mut into = ReceiveBatch::new(2, 65535);
        assert_eq!(into.receive(&far).unwrap(), 1);
        let message = into.message(0);
        assert_eq!((message.payload.len(), message.segment_bytes), (1050, 100));
        assert_eq!(message.payload[1000..], [10; 50]);

        set_joining(&far, false).unwrap();
        assert_eq!(out.send(&near, 0..1).unwrap(), 1);
        let mut into = ReceiveBatch::new(16, 65535);
        assert_eq!(into.receive(&far).unwrap(), 11, "cut, and not joined");
        assert_eq!(into.message(10).payload, [10; 50]);
    }

    #[test]
    fn control_messages_are_taken_apart_without_panic() {
        assert_eq!(joined_bytes(&[]), None);
        assert_eq!(joined_bytes(&[255; 19]), None);
        assert_eq!(joined_bytes(&[255; 64]), None);
    }
}
