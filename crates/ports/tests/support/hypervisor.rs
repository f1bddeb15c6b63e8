//! A hypervisor and the driver of its guest, played in the plainest way: for tests of whoever serves them.

use std::io::{IoSlice, Read};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags};
use shm::{Bell, Buffers, Region};

pub(crate) const MEMORY_BYTES: usize = 4 << 20;
/// Where the guest and the hypervisor have it.
pub(crate) const GUEST_AT: u64 = 0x10_0000;
pub(crate) const USER_AT: u64 = 0x7f00_0000_0000;
pub(crate) const SIZE: usize = 8;
/// Within the memory: an area of 4 KiB a queue, and its buffers of 128 KiB behind.
pub(crate) const BUFFERS_AT: usize = 1 << 20;
pub(crate) const BUFFER_BYTES: usize = 128 << 10;

pub(crate) const NEXT: u16 = 1;
pub(crate) const WRITE: u16 = 2;
/// Checksums, segmentation both ways, merged buffers, indirect tables, event indexes, vhost-user's own, version 1.
pub(crate) const FEATURES: u64 =
    1 | 1 << 1 | 1 << 7 | 1 << 11 | 1 << 15 | 1 << 28 | 1 << 30 | 1 << 32;

/// A hypervisor and the driver in its guest.
pub(crate) struct Played {
    pub(crate) socket: UnixStream,
    pub(crate) region: Arc<Region>,
    pub(crate) memory: Buffers,
    pub(crate) kicks: Vec<Bell>,
    pub(crate) calls: Vec<Bell>,
    /// Of each queue: entries made available.
    pub(crate) available: [u16; 2],
}

impl Played {
    pub(crate) fn connect(path: &Path) -> Self {
        let region = Region::create("guest", MEMORY_BYTES as u64).unwrap();
        let memory = Buffers::new(&region, 0, MEMORY_BYTES, 1).unwrap();
        let bells = || (0..2).map(|_| Bell::new().unwrap()).collect();
        let socket = UnixStream::connect(path).unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        Self { socket, region, memory, kicks: bells(), calls: bells(), available: [0; 2] }
    }

    pub(crate) fn say(&self, request: u32, payload: &[u8], fds: &[BorrowedFd<'_>]) {
        let header = [request, 1, payload.len() as u32].map(u32::to_le_bytes).concat();
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(8))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        assert!(fds.is_empty() || control.push(SendAncillaryMessage::ScmRights(fds)));
        let parts = [IoSlice::new(&header), IoSlice::new(payload)];
        rustix::net::sendmsg(&self.socket, &parts, &mut control, SendFlags::empty()).unwrap();
    }

    pub(crate) fn ask(
        &mut self,
        attend: &mut dyn FnMut(),
        request: u32,
        payload: &[u8],
    ) -> Vec<u8> {
        self.say(request, payload, &[]);
        attend();
        let mut header = [0; 12];
        self.socket.read_exact(&mut header).unwrap();
        let mut answer = vec![0; header[8].into()];
        self.socket.read_exact(&mut answer).unwrap();
        answer
    }

    pub(crate) fn pair(first: u32, second: u32) -> Vec<u8> {
        [first, second].map(u32::to_le_bytes).concat()
    }

    /// In the order of QEMU 7.2, which enables queues before it says the features.
    pub(crate) fn begin(&mut self, attend: &mut dyn FnMut(), features: u64) {
        let offered = u64::from_le_bytes(self.ask(attend, 1, &[]).try_into().unwrap());
        assert_eq!(offered & features, features);
        self.say(16, &1_u64.to_le_bytes(), &[]);
        (0..2).for_each(|queue| self.say(18, &Self::pair(queue, 1), &[]));
        self.say(2, &features.to_le_bytes(), &[]);
        self.share(&[(GUEST_AT, MEMORY_BYTES as u64, USER_AT, 0)]);
        self.start();
        attend();
    }

    pub(crate) fn share(&self, regions: &[(u64, u64, u64, u64)]) {
        let mut table = u64::to_le_bytes(regions.len() as u64).to_vec();
        for (guest, bytes, user, offset) in regions {
            table.extend([guest, bytes, user, offset].map(|word| word.to_le_bytes()).concat());
        }
        let fds: Vec<_> = regions.iter().map(|_| self.region.fd().unwrap()).collect();
        self.say(5, &table, &fds);
    }

    pub(crate) fn start(&mut self) {
        for queue in 0..2_u32 {
            let at = USER_AT + 4096 * u64::from(queue);
            self.say(8, &Self::pair(queue, SIZE as u32), &[]);
            let base = self.available[queue as usize].into();
            self.say(10, &Self::pair(queue, base), &[]);
            let areas = [at, at + 1024, at + 512, 0].map(u64::to_le_bytes).concat();
            self.say(9, &[Self::pair(queue, 0), areas].concat(), &[]);
            let number = u64::from(queue).to_le_bytes();
            self.say(13, &number, &[self.calls[queue as usize].as_fd()]);
            self.say(12, &number, &[self.kicks[queue as usize].as_fd()]);
        }
    }

    pub(crate) fn write(&self, at: usize, bytes: &[u8]) {
        assert!(self.memory.get(0).unwrap().write(at, bytes));
    }

    pub(crate) fn read(&self, at: usize, count: usize) -> Vec<u8> {
        let mut bytes = vec![0; count];
        assert!(self.memory.get(0).unwrap().read(at, &mut bytes));
        bytes
    }

    pub(crate) fn word(&self, at: usize) -> u16 {
        u16::from_le_bytes(self.read(at, 2).try_into().unwrap())
    }

    /// Writes descriptor `number` of a queue: bytes at a place of the memory.
    pub(crate) fn describe(
        &self,
        queue: usize,
        number: usize,
        (at, bytes): (u64, u32),
        flags: u16,
    ) {
        let next = number as u16 + 1;
        let words = [at.to_le_bytes().to_vec(), bytes.to_le_bytes().to_vec()].concat();
        let rest = [flags, next].map(u16::to_le_bytes).concat();
        self.write(queue * 4096 + number * 16, &[words, rest].concat());
    }

    /// Makes the chain from `head` on available.
    pub(crate) fn post(&mut self, queue: usize, head: usize) {
        let index = self.available[queue];
        let ring = queue * 4096 + 512;
        self.write(ring + 4 + usize::from(index) % SIZE * 2, &(head as u16).to_le_bytes());
        self.available[queue] = index.wrapping_add(1);
        self.write(ring + 2, &self.available[queue].to_le_bytes());
        self.kicks[queue].ring().unwrap();
    }

    /// Where buffer `number` of a queue is.
    pub(crate) fn place(queue: usize, number: usize) -> usize {
        BUFFERS_AT + (queue * SIZE + number) * BUFFER_BYTES
    }

    pub(crate) fn guest_place(queue: usize, number: usize) -> u64 {
        GUEST_AT + Self::place(queue, number) as u64
    }

    /// Sends a frame with an empty header of 12 bytes, in two segments of which the first ends in the header.
    pub(crate) fn send(&mut self, frame: &[u8]) {
        let packet = [&[0; 12], frame].concat();
        self.write(Self::place(1, 0), &packet);
        let at = Self::guest_place(1, 0);
        self.describe(1, 0, (at, 11), NEXT);
        self.describe(1, 1, (at + 11, packet.len() as u32 - 11), 0);
        self.post(1, 0);
    }

    /// Has buffers of so many bytes to receive in.
    pub(crate) fn make_room(&mut self, buffers: usize, bytes: u32) {
        for number in 0..buffers {
            self.describe(0, number, (Self::guest_place(0, number), bytes), WRITE);
            self.post(0, number);
        }
    }

    /// How many entries of a queue are used, and how many bytes were written into the first ones.
    pub(crate) fn used(&self, queue: usize) -> (u16, Vec<usize>) {
        let ring = queue * 4096 + 1024;
        let count = self.word(ring + 2);
        let bytes = (0..usize::from(count).min(SIZE)).map(|entry| {
            let word = self.read(ring + 4 + entry * 8 + 4, 4);
            u32::from_le_bytes(word.try_into().unwrap()) as usize
        });
        (count, bytes.collect())
    }
}
