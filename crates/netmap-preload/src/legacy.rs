//! `struct nmreq`, the argument of `NIOCREGIF` and `NIOCGINFO` in programs written before API 13, turned
//! into a request of today and its answer back.

use rustix::io::Errno;

use crate::abi::{self, register};
use crate::request::terminated;
use crate::user::{Fields, UserMemory};

const BYTES: usize = 60;
const NAME_BYTES: usize = 16;
const VERSION: usize = 16;
const OFFSET: usize = 20;
const MEMSIZE: usize = 24;
const TX_SLOTS: usize = 28;
const TX_RINGS: usize = 36;
const RING_ID: usize = 40;
const COMMAND: usize = 42;
const ARGUMENT: usize = 44;
const MEM_ID: usize = 46;
const EXTRA_BUFS: usize = 48;
const FLAGS: usize = 52;

/// `NETMAP_BDG_ATTACH` of `nr_cmd`.
pub const ATTACH: u16 = 1;
/// `NETMAP_BDG_DETACH`.
pub const DETACH: u16 = 2;
/// `NETMAP_BDG_LIST`.
pub const LIST: u16 = 4;
/// `NETMAP_BDG_VNET_HDR`.
pub const SET_HEADER: u16 = 5;
/// `NETMAP_BDG_NEWIF`.
pub const NEW_PORT: u16 = 6;
/// `NETMAP_BDG_DELIF`.
pub const DELETE_PORT: u16 = 7;
/// `NETMAP_BDG_POLLING_ON`.
pub const POLLING_ON: u16 = 10;
/// `NETMAP_BDG_POLLING_OFF`.
pub const POLLING_OFF: u16 = 11;
/// `NETMAP_VNET_HDR_GET`.
pub const GET_HEADER: u16 = 12;

/// `NETMAP_BDG_HOST` of `nr_arg1`: with the host's rings.
const WITH_HOST: u16 = 1;

/// `NETMAP_HW_RING` of `nr_ringid`.
const HW_RING: u16 = 0x4000;
/// `NETMAP_SW_RING`.
const SW_RING: u16 = 0x2000;
/// `NETMAP_NO_TX_POLL`.
const NO_TX_POLL: u16 = 0x1000;
/// `NETMAP_DO_RX_POLL`.
const DO_RX_POLL: u16 = 0x8000;
/// `NETMAP_RING_MASK`.
const RING_MASK: u16 = 0x0fff;
/// `NR_REG_MASK` of `nr_flags`.
const MODE_MASK: u32 = 0xf;

/// An older request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Legacy {
    /// The port's name, with the pipe's end that old programs say by mode.
    pub name: String,
    fields: Fields,
    address: u64,
}

impl Legacy {
    /// Reads it.
    ///
    /// # Errors
    /// `EFAULT`, or `EINVAL` for a version or name that does not exist.
    pub fn read(memory: &dyn UserMemory, address: u64) -> Result<Self, Errno> {
        let mut fields = Fields(vec![0; BYTES]);
        memory.read(address, &mut fields.0)?;
        if !abi::LEGACY_API_RANGE.contains(&fields.u32(VERSION)) {
            return Err(Errno::INVAL);
        }
        let mut name = terminated(&fields.0[..NAME_BYTES]).ok_or(Errno::INVAL)?;
        let end = match fields.u32(FLAGS) & MODE_MASK {
            abi::PIPE_MASTER => "{",
            abi::PIPE_SLAVE => "}",
            _ => "",
        };
        if !end.is_empty() {
            name += &format!("{end}{}", fields.u16(RING_ID) & RING_MASK);
        }
        Ok(Self { name, fields, address })
    }

    /// What goes beyond binding a port: the old way of asking for switches and headers.
    #[must_use]
    pub fn command(&self) -> u16 {
        self.fields.u16(COMMAND)
    }

    /// `nr_arg1`, the length of a header.
    #[must_use]
    pub fn argument(&self) -> u16 {
        self.fields.u16(ARGUMENT)
    }

    /// The answer in the same place.
    pub fn set_argument(&mut self, value: u16) {
        self.fields.set_u16(ARGUMENT, value);
    }

    /// As a body of [`abi::VALE_ATTACH`].
    #[must_use]
    pub fn to_attach(&self) -> Fields {
        let mut body = Fields(vec![0; 64]);
        let with_host = self.argument() & WITH_HOST != 0;
        body.set_u32(register::MODE, if with_host { abi::NIC_SW } else { abi::ALL_NIC });
        body
    }

    /// As a body of [`abi::VALE_NEWIF`].
    #[must_use]
    pub fn to_new_port(&self) -> Fields {
        let mut body = Fields(vec![0; 16]);
        for slots in 0..2 {
            body.set_u32(4 * slots, self.fields.u32(TX_SLOTS + 4 * slots));
        }
        body
    }

    /// As a body of [`abi::VALE_LIST`].
    #[must_use]
    pub fn to_list(&self) -> Fields {
        let mut body = Fields(vec![0; 8]);
        body.set_u16(0, self.argument());
        body.set_u32(4, self.fields.u16(MEM_ID).into());
        body
    }

    /// What [`abi::VALE_LIST`] answered.
    pub fn take_list(&mut self, body: &Fields, name: Option<&str>) {
        self.set_argument(body.u16(0));
        self.fields.set_u16(MEM_ID, u16::try_from(body.u32(4)).unwrap_or(u16::MAX));
        if let Some(name) = name {
            let end = NAME_BYTES - 1;
            self.fields.0[..NAME_BYTES].fill(0);
            self.fields.0[..end].iter_mut().zip(name.bytes()).for_each(|(to, from)| *to = from);
        }
    }

    /// As a body of [`abi::POLLING_ENABLE`].
    #[must_use]
    pub fn to_polling(&self) -> Fields {
        let mut body = Fields(vec![0; 16]);
        let mode = match self.fields.u32(FLAGS) & MODE_MASK {
            abi::ALL_NIC => 1,
            abi::ONE_NIC => 2,
            _ => 0,
        };
        body.set_u32(0, mode);
        body.set_u32(4, (self.fields.u16(RING_ID) & RING_MASK).into());
        body.set_u32(8, self.argument().into());
        body
    }

    /// Writes it back.
    ///
    /// # Errors
    /// `EFAULT`: it is not there any more.
    pub fn write(&self, memory: &dyn UserMemory) -> Result<(), Errno> {
        memory.write(self.address, &self.fields.0)
    }

    /// The same as a body of [`abi::REGISTER`].
    ///
    /// # Errors
    /// `EINVAL`: a mode that does not exist.
    pub fn to_register(&self) -> Result<Fields, Errno> {
        let (old, ring) = (&self.fields, self.fields.u16(RING_ID));
        let mut body = Fields(vec![0; 56]);
        for slots in 0..2 {
            body.set_u32(register::TX_SLOTS + 4 * slots, old.u32(TX_SLOTS + 4 * slots));
            body.set_u16(register::TX_RINGS + 2 * slots, old.u16(TX_RINGS + 2 * slots));
        }
        body.set_u16(register::MEM_ID, old.u16(MEM_ID));
        body.set_u32(register::EXTRA_BUFS, old.u32(EXTRA_BUFS));
        let mut mode = old.u32(FLAGS) & MODE_MASK;
        if mode == 0 {
            // Before modes there were bits of the ring's number.
            mode = match ring & (HW_RING | SW_RING) {
                0 => abi::ALL_NIC,
                HW_RING => abi::ONE_NIC,
                SW_RING => abi::SW,
                _ => return Err(Errno::INVAL),
            };
        }
        let is_pipe = matches!(mode, abi::PIPE_MASTER | abi::PIPE_SLAVE);
        body.set_u32(register::MODE, if is_pipe { abi::ALL_NIC } else { mode });
        body.set_u16(register::RING_ID, if is_pipe { 0 } else { ring & RING_MASK });
        let mut flags = u64::from(old.u32(FLAGS) & !MODE_MASK);
        flags |= if ring & NO_TX_POLL == 0 { 0 } else { abi::NO_TX_POLL };
        flags |= if ring & DO_RX_POLL == 0 { 0 } else { abi::DO_RX_POLL };
        body.set_u64(register::FLAGS, flags);
        Ok(body)
    }

    /// Writes back what [`abi::REGISTER`] answered.
    ///
    /// # Errors
    /// `EFAULT`: the request is not there any more.
    pub fn answer(&mut self, body: &Fields, memory: &dyn UserMemory) -> Result<(), Errno> {
        let narrow = |value: u64| u32::try_from(value).unwrap_or(u32::MAX);
        self.fields.set_u32(OFFSET, narrow(body.u64(register::OFFSET)));
        self.fields.set_u32(MEMSIZE, narrow(body.u64(register::MEMSIZE)));
        for slots in 0..2 {
            self.fields.set_u32(TX_SLOTS + 4 * slots, body.u32(register::TX_SLOTS + 4 * slots));
            self.fields.set_u16(TX_RINGS + 2 * slots, body.u16(register::TX_RINGS + 2 * slots));
        }
        self.fields.set_u16(MEM_ID, body.u16(register::MEM_ID));
        self.fields.set_u32(EXTRA_BUFS, body.u32(register::EXTRA_BUFS));
        self.write(memory)
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    /// One request at address 0, and nothing else.
    struct One(RefCell<Vec<u8>>);

    impl UserMemory for One {
        fn read(&self, address: u64, out: &mut [u8]) -> Result<(), Errno> {
            let bytes = self.0.borrow();
            let there = bytes.get(..out.len()).filter(|_| address == 0).ok_or(Errno::FAULT)?;
            out.copy_from_slice(there);
            Ok(())
        }

        fn write(&self, _: u64, bytes: &[u8]) -> Result<(), Errno> {
            let mut place = self.0.borrow_mut();
            place.get_mut(..bytes.len()).ok_or(Errno::FAULT)?.copy_from_slice(bytes);
            Ok(())
        }
    }

    #[test]
    fn commands_are_requests_of_today() {
        let mut fields = Fields(vec![0; BYTES]);
        fields.0[..7].copy_from_slice(b"vale0:a");
        fields.set_u32(VERSION, 14);
        fields.set_u16(COMMAND, ATTACH);
        fields.set_u16(ARGUMENT, WITH_HOST);
        fields.set_u32(FLAGS, abi::ONE_NIC);
        fields.set_u16(RING_ID, 3);
        let memory = One(RefCell::new(fields.0));
        let mut old = Legacy::read(&memory, 0).unwrap();
        assert_eq!((old.name.as_str(), old.command()), ("vale0:a", ATTACH));
        assert_eq!(old.to_attach().u32(register::MODE), abi::NIC_SW);
        let polling = old.to_polling();
        assert_eq!((polling.u32(0), polling.u32(4), polling.u32(8)), (2, 3, 1));
        old.take_list(&Fields(vec![5, 0, 0, 0, 7, 0, 0, 0]), Some("vale1:a-longer-name"));
        old.write(&memory).unwrap();
        let again = Legacy::read(&memory, 0).unwrap();
        assert_eq!((again.name.as_str(), again.argument()), ("vale1:a-longer-", 5));
        assert_eq!(again.to_list().u32(4), 7);
    }

    #[test]
    fn any_bytes_are_read_without_harm() {
        bolero::check!().with_type::<Vec<u8>>().for_each(|bytes| {
            let mut bytes = bytes.clone();
            if let Some(version) = bytes.get_mut(VERSION..VERSION + 4) {
                // Mostly a version that there is, so that the fields behind it are reached too.
                version.copy_from_slice(&[14, 0, 0, 0]);
            }
            let memory = One(RefCell::new(bytes));
            let Ok(mut old) = Legacy::read(&memory, 0) else { return };
            let name = old.name.clone();
            old.take_list(&old.to_list(), Some(&name));
            let parts = (old.to_attach(), old.to_new_port(), old.to_polling());
            assert_eq!((parts.0.0.len(), parts.1.0.len(), parts.2.0.len()), (64, 16, 16));
            if let Ok(body) = old.to_register() {
                old.answer(&body, &memory).unwrap();
            }
        });
    }
}
