//! What each message of vhost-user does to a guest's device.

use std::os::fd::OwnedFd;

use shm::Bell;
use thiserror::Error;

use super::connection::{Connection, ConnectionError};
use super::guest::{Guest, PAIRS_MAX};
use super::memory::{Memory, MemoryError};
use super::message::{Message, MessageError, Request};

/// Features of virtio-net, of virtqueues and of vhost-user, by their bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Feature {
    Checksum = 0,
    GuestChecksum = 1,
    Mtu = 3,
    GuestTso4 = 7,
    GuestTso6 = 8,
    GuestEcn = 9,
    HostTso4 = 11,
    HostTso6 = 12,
    HostEcn = 13,
    MergeBuffers = 15,
    Status = 16,
    Queues = 22,
    AnyLayout = 27,
    Indirect = 28,
    EventIndex = 29,
    ProtocolFeatures = 30,
    Version1 = 32,
}

impl Feature {
    pub(super) fn bit(self) -> u64 {
        1 << self as u32
    }
}

const OFFERED: [Feature; 17] = [
    Feature::Checksum,
    Feature::GuestChecksum,
    Feature::Mtu,
    Feature::GuestTso4,
    Feature::GuestTso6,
    Feature::GuestEcn,
    Feature::HostTso4,
    Feature::HostTso6,
    Feature::HostEcn,
    Feature::MergeBuffers,
    Feature::Status,
    Feature::Queues,
    Feature::AnyLayout,
    Feature::Indirect,
    Feature::EventIndex,
    Feature::ProtocolFeatures,
    Feature::Version1,
];

pub(super) fn offered() -> u64 {
    OFFERED.iter().map(|feature| feature.bit()).sum()
}

/// `VHOST_USER_PROTOCOL_F_MQ`, `REPLY_ACK` and `NET_MTU`. Not `CONFIG`: QEMU warns of it, and what would be asked is known.
const REPLY_ACK: u64 = 1 << 3;
const PROTOCOL_FEATURES: u64 = 1 | REPLY_ACK | 1 << 4;

/// Why a hypervisor is not served any further.
#[derive(Debug, Error)]
pub(super) enum ProtocolError {
    #[error(transparent)]
    Connection(#[from] ConnectionError),
    #[error(transparent)]
    Memory(#[from] MemoryError),
    #[error("queue {0} of at most {max}", max = 2 * PAIRS_MAX)]
    Queue(u32),
    #[error("features {0:#x} that were not offered")]
    Features(u64),
    #[error("queue {0} without the descriptor by which it is kicked")]
    Kick(u32),
}

impl From<MessageError> for ProtocolError {
    fn from(error: MessageError) -> Self {
        ConnectionError::from(error).into()
    }
}

/// The configuration space of virtio-net: no MAC address, link up, pairs of queues, MTU.
fn config(offset: u32, bytes: u32) -> Vec<u8> {
    let mut space = vec![0; 256];
    space[6] = 1;
    space[8..10].copy_from_slice(&(PAIRS_MAX as u16).to_le_bytes());
    space[10..12].copy_from_slice(&65_535_u16.to_le_bytes());
    let part = space.get(offset as usize..).and_then(|rest| rest.get(..bytes as usize));
    part.map_or_else(Vec::new, <[u8]>::to_vec)
}

/// Does what a message asks, and answers where it is to be answered.
pub(super) fn handle(
    guest: &mut Guest,
    connection: &mut Connection,
    message: &Message,
    fds: Vec<OwnedFd>,
) -> Result<(), ProtocolError> {
    let answer = match &message.request {
        Request::GetFeatures => Some(offered().to_le_bytes().to_vec()),
        Request::GetProtocolFeatures => Some(PROTOCOL_FEATURES.to_le_bytes().to_vec()),
        Request::GetQueueNum => Some((PAIRS_MAX as u64).to_le_bytes().to_vec()),
        Request::GetConfig { offset, bytes } => {
            let head = [*offset, *bytes, 0].map(u32::to_le_bytes).concat();
            Some([head, config(*offset, *bytes)].concat())
        }
        Request::GetVringBase { queue } => {
            let vring = vring(guest, *queue)?;
            vring.stop();
            (vring.is_started, vring.kick, vring.call) = (false, None, None);
            let base = u32::from(vring.base);
            guest.settle(*queue as usize);
            Some([*queue, base].map(u32::to_le_bytes).concat())
        }
        request => {
            let understood = set(guest, request, fds)?;
            let asked = message.needs_reply && guest.protocol_features & REPLY_ACK != 0;
            asked.then(|| u64::from(!understood).to_le_bytes().to_vec())
        }
    };
    if let Some(payload) = answer {
        connection.send(&message.reply(&payload))?;
    }
    Ok(())
}

/// A request that changes something; false when it is not understood.
fn set(guest: &mut Guest, request: &Request, fds: Vec<OwnedFd>) -> Result<bool, ProtocolError> {
    match *request {
        Request::SetFeatures(features) => {
            if features & !offered() != 0 {
                return Err(ProtocolError::Features(features & !offered()));
            }
            guest.features = features;
            settle_all(guest);
        }
        Request::SetProtocolFeatures(features) => {
            if features & !PROTOCOL_FEATURES != 0 {
                return Err(ProtocolError::Features(features & !PROTOCOL_FEATURES));
            }
            guest.protocol_features = features;
        }
        Request::SetOwner | Request::NetSetMtu(_) | Request::SetConfig => {}
        Request::ResetOwner | Request::ResetDevice => {
            for vring in &mut guest.vrings {
                vring.stop();
                (vring.is_started, vring.is_enabled) = (false, false);
            }
            settle_all(guest);
        }
        Request::SetMemTable(ref entries) => {
            // The old one goes first: nothing may point into it any more.
            guest.vrings.iter_mut().for_each(|vring| vring.stop());
            guest.memory = Memory::default();
            guest.memory = Memory::map(entries, fds)?;
            settle_all(guest);
        }
        Request::SetVringNum { queue, size } => vring(guest, queue)?.size = size,
        Request::SetVringAddr { queue, addresses } => {
            vring(guest, queue)?.addresses = Some(addresses);
            if vring(guest, queue)?.queue.is_some() {
                guest.settle(queue as usize);
            }
        }
        Request::SetVringBase { queue, base } => {
            let vring = vring(guest, queue)?;
            vring.stop();
            vring.base = base as u16;
        }
        Request::SetVringKick { queue, has_fd } => {
            let bell = only(fds).filter(|_| has_fd).ok_or(ProtocolError::Kick(queue))?;
            let vring = vring(guest, queue)?;
            (vring.kick, vring.is_started) = (Some(bell), true);
            guest.settle(queue as usize);
        }
        Request::SetVringCall { queue, has_fd } => {
            vring(guest, queue)?.call = only(fds).filter(|_| has_fd);
        }
        Request::SetVringErr { queue, has_fd } => {
            vring(guest, queue)?.error = only(fds).filter(|_| has_fd);
        }
        Request::SetVringEnable { queue, enable } => {
            // QEMU 7.2 says this before it has said any features.
            vring(guest, queue)?.is_enabled = enable;
            guest.settle(queue as usize);
        }
        _ => return Ok(false),
    }
    Ok(true)
}

fn settle_all(guest: &mut Guest) {
    (0..guest.vrings.len()).for_each(|number| guest.settle(number));
}

fn only(mut fds: Vec<OwnedFd>) -> Option<Bell> {
    if fds.len() == 1 { fds.pop().map(Bell::from_fd) } else { None }
}

fn vring(guest: &mut Guest, queue: u32) -> Result<&mut super::vring::Vring, ProtocolError> {
    guest.vrings.get_mut(queue as usize).ok_or(ProtocolError::Queue(queue))
}
