//! What tuning reads and sets on an interface besides its addresses: MTU, transmit queue length and
//! the queueing discipline at its root.

use std::io;

use rustix::net::{RecvFlags, SendFlags};

use super::{LinkBody, LinkSettings, Message, NLM_F_CREATE, NLMSG_ERROR, RTM_NEWLINK, RouteSocket};
use crate::SyscallError;

const RTM_GETLINK: u16 = 18;
const RTM_NEWQDISC: u16 = 36;
const RTM_DELQDISC: u16 = 37;
const RTM_GETQDISC: u16 = 38;
const NLM_F_REPLACE: u16 = 0x100;
const NLM_F_DUMP: u16 = 0x300;
const NLM_F_ACK: u16 = 4;
const NLMSG_DONE: u16 = 3;
const IFLA_MTU: u16 = 4;
const IFLA_TXQLEN: u16 = 13;
const TCA_KIND: u16 = 1;
/// `TC_H_ROOT`.
const ROOT: u32 = u32::MAX;
const HEADER_BYTES: usize = 16;
const IFINFOMSG_BYTES: usize = 16;
const TCMSG_BYTES: usize = 20;
/// Answers to a dump read before giving up.
const ANSWERS_COUNT_MAX: usize = 4096;

/// What stands at an interface's root.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RootQdisc {
    /// `fq_codel`, `mq`, `noqueue`.
    pub kind: String,
    /// Put there by somebody; otherwise the kernel's own choice, which comes back when a qdisc
    /// somebody put there is deleted.
    pub is_configured: bool,
}

impl RouteSocket {
    /// MTU in bytes and length of the transmit queue in packets.
    ///
    /// # Errors
    /// No such interface.
    pub fn mtu_and_queue(&mut self, name: &str) -> Result<(u32, u32), SyscallError> {
        let refused = |error: io::Error| SyscallError::new("rtnetlink getlink", name, error);
        let index = self.index(name)?;
        let mut message = Message::new(RTM_GETLINK, 0);
        message.bytes(&LinkBody { index, ..LinkBody::default() }.encode());
        let mut found = (None, None);
        self.ask(message, false, &mut |kind, body| {
            if kind != RTM_NEWLINK || word(body, 4) != Some(index) {
                return;
            }
            let attributes = body.get(IFINFOMSG_BYTES..).unwrap_or(&[]);
            let number = |wanted| attribute(attributes, wanted).and_then(|value| word(value, 0));
            found = (number(IFLA_MTU), number(IFLA_TXQLEN));
        })
        .map_err(refused)?;
        match found {
            (Some(mtu_bytes), Some(pkts)) => Ok((mtu_bytes, pkts)),
            _ => Err(refused(io::ErrorKind::InvalidData.into())),
        }
    }

    /// Sets the MTU.
    ///
    /// # Errors
    /// No `CAP_NET_ADMIN`, or a value the device refuses.
    pub fn set_mtu(&mut self, name: &str, bytes: u32) -> Result<(), SyscallError> {
        self.set_link(name, LinkSettings { mtu_bytes: Some(bytes), ..LinkSettings::default() })
    }

    /// Sets the length of the transmit queue.
    ///
    /// # Errors
    /// No `CAP_NET_ADMIN`, or a value the kernel refuses.
    pub fn set_tx_queue(&mut self, name: &str, pkts: u32) -> Result<(), SyscallError> {
        self.set_link(name, LinkSettings { tx_queue_pkts: Some(pkts), ..LinkSettings::default() })
    }

    /// The queueing discipline at the root.
    ///
    /// # Errors
    /// No such interface, or the kernel lists no qdisc of it.
    pub fn root_qdisc(&mut self, name: &str) -> Result<RootQdisc, SyscallError> {
        let refused = |error: io::Error| SyscallError::new("rtnetlink getqdisc", name, error);
        let index = self.index(name)?;
        let mut message = Message::new(RTM_GETQDISC, NLM_F_DUMP);
        message.bytes(&traffic_body(index, 0, 0));
        let mut found = None;
        self.ask(message, true, &mut |kind, body| {
            let is_root = kind == RTM_NEWQDISC
                && word(body, 4) == Some(index)
                && word(body, 12) == Some(ROOT);
            if let (true, Some(attributes)) = (is_root, body.get(TCMSG_BYTES..)) {
                let name = attribute(attributes, TCA_KIND).unwrap_or(&[]);
                let name = name.split(|&byte| byte == 0).next().unwrap_or(&[]);
                found = Some(RootQdisc {
                    kind: String::from_utf8_lossy(name).into_owned(),
                    is_configured: word(body, 8).is_some_and(|handle| handle != 0),
                });
            }
        })
        .map_err(refused)?;
        found.ok_or_else(|| refused(io::ErrorKind::NotFound.into()))
    }

    /// Puts a qdisc of this kind, with the kernel's defaults, at the root.
    ///
    /// # Errors
    /// No `CAP_NET_ADMIN`, or a kind this kernel does not have.
    pub fn replace_root_qdisc(&mut self, name: &str, kind: &str) -> Result<(), SyscallError> {
        let index = self.index(name)?;
        let mut message = Message::new(RTM_NEWQDISC, NLM_F_CREATE | NLM_F_REPLACE);
        message.bytes(&traffic_body(index, 0, ROOT));
        message.text(TCA_KIND, kind);
        self.request(message).map_err(|error| {
            SyscallError::new("rtnetlink newqdisc", format!("{kind} on {name}"), error)
        })
    }

    /// Deletes the qdisc somebody put at the root; the kernel puts its own choice there.
    ///
    /// # Errors
    /// No `CAP_NET_ADMIN`, or what stands there is the kernel's own.
    pub fn delete_root_qdisc(&mut self, name: &str) -> Result<(), SyscallError> {
        let index = self.index(name)?;
        let mut message = Message::new(RTM_DELQDISC, 0);
        message.bytes(&traffic_body(index, 0, ROOT));
        self.request(message).map_err(|error| SyscallError::new("rtnetlink delqdisc", name, error))
    }

    /// Sends a question and hands every message of the answer to `each`, until the dump or the
    /// acknowledgement ends it.
    fn ask(
        &mut self,
        message: Message,
        is_dump: bool,
        each: &mut dyn FnMut(u16, &[u8]),
    ) -> io::Result<()> {
        self.sequence += 1;
        let sequence = self.sequence;
        let mut request = message.finish(sequence);
        if is_dump {
            // A dump ends with NLMSG_DONE; an acknowledgement would only follow it.
            let flags = u16::from_ne_bytes([request[6], request[7]]) & !NLM_F_ACK;
            request[6..8].copy_from_slice(&flags.to_ne_bytes());
        }
        rustix::net::send(&self.socket, &request, SendFlags::empty())?;
        let mut buffer = vec![0_u8; 32 << 10];
        for _answer in 0..ANSWERS_COUNT_MAX {
            let (len, _) = rustix::net::recv(&self.socket, &mut buffer[..], RecvFlags::empty())?;
            let mut rest = &buffer[..len.min(buffer.len())];
            while let Some((kind, their_sequence, body, after)) = next_message(rest) {
                rest = after;
                match kind {
                    _ if their_sequence != sequence => {}
                    NLMSG_DONE => return Ok(()),
                    NLMSG_ERROR => {
                        let code = word(body, 0).unwrap_or(0).cast_signed();
                        return if code == 0 {
                            Ok(())
                        } else {
                            Err(io::Error::from_raw_os_error(code.wrapping_neg()))
                        };
                    }
                    kind => each(kind, body),
                }
            }
        }
        Err(io::ErrorKind::TimedOut.into())
    }
}

/// `struct tcmsg`.
fn traffic_body(index: u32, handle: u32, parent: u32) -> [u8; TCMSG_BYTES] {
    let mut bytes = [0; TCMSG_BYTES];
    bytes[4..8].copy_from_slice(&index.to_ne_bytes());
    bytes[8..12].copy_from_slice(&handle.to_ne_bytes());
    bytes[12..16].copy_from_slice(&parent.to_ne_bytes());
    bytes
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

fn half(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

/// Kind, sequence, body and what follows of the first message; `None` at the end or a cut.
fn next_message(bytes: &[u8]) -> Option<(u16, u32, &[u8], &[u8])> {
    let length = word(bytes, 0)? as usize;
    let body = bytes.get(HEADER_BYTES..length)?;
    let after = bytes.get(length.next_multiple_of(4)..).unwrap_or(&[]);
    Some((half(bytes, 4)?, word(bytes, 8)?, body, after))
}

/// The value of the first attribute of a kind.
fn attribute(mut bytes: &[u8], wanted: u16) -> Option<&[u8]> {
    loop {
        let length = usize::from(half(bytes, 0)?);
        let value = bytes.get(4..length)?;
        if half(bytes, 2)? & 0x3fff == wanted {
            return Some(value);
        }
        bytes = bytes.get(length.next_multiple_of(4)..)?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loopback_device_is_read() {
        let mut socket = RouteSocket::open().unwrap();
        let (mtu_bytes, _) = socket.mtu_and_queue("lo").unwrap();
        assert_eq!(mtu_bytes, 65_536);
        assert_eq!(
            socket.root_qdisc("lo").unwrap(),
            RootQdisc { kind: "noqueue".to_owned(), is_configured: false }
        );
        assert!(socket.root_qdisc("no-such-dev").is_err());
    }

    #[test]
    fn any_answer_is_taken_apart_without_panic() {
        bolero::check!().for_each(|bytes: &[u8]| {
            let mut rest = bytes;
            while let Some((_, _, body, after)) = next_message(rest) {
                attribute(body, TCA_KIND);
                assert!(after.len() < rest.len());
                rest = after;
            }
        });
    }
}
