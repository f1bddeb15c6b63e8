//! The calls of `ioctl` that a descriptor of `/dev/netmap` answers.

use std::os::fd::BorrowedFd;
use std::time::Duration;

use rustix::io::Errno;

use crate::abi::{self, port_info, register};
use crate::csb::Wiring;
use crate::descriptor::{Binding, Descriptor};
use crate::host::{Host, Wish};
use crate::legacy::{self, Legacy};
use crate::memory::{INTERFACE_BYTES, INTERFACES, Memory, RING_BYTES, RINGS, RINGS_OFFSET};
use crate::request::{CSB, KLOOP_EVENTFDS, Request};
use crate::switches;
use crate::user::{Fields, UserMemory};

/// Answers one.
///
/// # Errors
/// What the kernel's netmap answers; `ENOTTY` for a call that netmap has not.
pub fn ioctl(
    host: &Host,
    descriptor: &Descriptor,
    fd: BorrowedFd<'_>,
    request: u64,
    argument: u64,
    user: &dyn UserMemory,
) -> Result<(), Errno> {
    // Of the request the kernel sees 32 bits.
    match request & 0xffff_ffff {
        abi::TXSYNC => descriptor.sync(true, user),
        abi::RXSYNC => descriptor.sync(false, user),
        abi::CTRL => control(host, descriptor, fd, argument, user),
        abi::REGIF => {
            let mut old = Legacy::read(user, argument)?;
            if old.command() != 0 {
                return command(host, &mut old, user);
            }
            let mut body = old.to_register()?;
            descriptor.register(host, fd, &old.name, &mut body, &|_| Ok(()))?;
            old.answer(&body, user)
        }
        abi::GINFO => {
            let mut old = Legacy::read(user, argument)?;
            if old.command() != 0 {
                return command(host, &mut old, user);
            }
            let mut body = old.to_register()?;
            let info = port_information(host, &old.name, body.u16(register::MEM_ID))?;
            body.set_u64(register::MEMSIZE, info.u64(port_info::MEMSIZE));
            for slots in 0..2 {
                body.set_u32(
                    register::TX_SLOTS + 4 * slots,
                    info.u32(port_info::TX_SLOTS + 4 * slots),
                );
                body.set_u16(
                    register::TX_RINGS + 2 * slots,
                    info.u16(port_info::TX_RINGS + 2 * slots),
                );
            }
            body.set_u16(register::MEM_ID, info.u16(port_info::MEM_ID));
            old.answer(&body, user)
        }
        _ => Err(Errno::NOTTY),
    }
}

fn control(
    host: &Host,
    descriptor: &Descriptor,
    fd: BorrowedFd<'_>,
    argument: u64,
    user: &dyn UserMemory,
) -> Result<(), Errno> {
    let mut request = Request::read(user, argument)?;
    let name = request.name.clone();
    match request.kind {
        abi::REGISTER => {
            let csb = request.option(CSB).cloned();
            let prepare = |binding: &Binding| match &csb {
                Some(entries) => binding.enable_csb(entries, user),
                None => Ok(()),
            };
            descriptor.register(host, fd, &name, &mut request.body, &prepare)?;
        }
        abi::CSB_ENABLE => {
            let entries = request.option(CSB).ok_or(Errno::INVAL)?;
            descriptor.binding().ok_or(Errno::NXIO)?.enable_csb(entries, user)?;
        }
        abi::SYNC_KLOOP_START => {
            let binding = descriptor.binding().ok_or(Errno::NXIO)?;
            let csb = binding.csb().ok_or(Errno::INVAL)?;
            csb.run(&wiring(&request), user, &|| binding.attend())?;
        }
        abi::SYNC_KLOOP_STOP => {
            let binding = descriptor.binding().ok_or(Errno::NXIO)?;
            if let Some(csb) = binding.csb() {
                csb.stop();
            }
        }
        abi::PORT_INFO_GET => {
            request.body = port_information(host, &name, request.body.u16(port_info::MEM_ID))?;
        }
        abi::POOLS_INFO_GET => pools(host, &name, &mut request.body)?,
        abi::PORT_HDR_GET => {
            request.body.set_u32(0, switches::header_bytes(host, &name)?);
        }
        abi::PORT_HDR_SET => switches::set_header(host, &name, request.body.u32(0))?,
        abi::VALE_LIST => switches::list(&name, &mut request.body)?.write(user, argument)?,
        abi::VALE_NEWIF => switches::new_port(&name, &request.body)?,
        abi::VALE_DELIF => switches::delete_port(&name)?,
        abi::VALE_ATTACH => switches::attach(&name, &mut request.body)?,
        abi::VALE_DETACH => switches::detach(&name, &mut request.body)?,
        abi::POLLING_ENABLE => switches::poll_always(&name, &request.body, true)?,
        abi::POLLING_DISABLE => switches::poll_always(&name, &request.body, false)?,
        _ => return Err(Errno::OPNOTSUPP),
    }
    request.answer(user)
}

/// What older programs ask of switches.
fn command(host: &Host, old: &mut Legacy, user: &dyn UserMemory) -> Result<(), Errno> {
    let name = old.name.clone();
    match old.command() {
        legacy::ATTACH => {
            let mut body = old.to_attach();
            switches::attach(&name, &mut body)?;
        }
        legacy::DETACH => switches::detach(&name, &mut Fields(vec![0; 8]))?,
        legacy::NEW_PORT => switches::new_port(&name, &old.to_new_port())?,
        legacy::DELETE_PORT => switches::delete_port(&name)?,
        legacy::SET_HEADER => switches::set_header(host, &name, old.argument().into())?,
        legacy::GET_HEADER => {
            let bytes = switches::header_bytes(host, &name)?;
            old.set_argument(u16::try_from(bytes).unwrap_or(u16::MAX));
        }
        legacy::LIST => {
            let mut body = old.to_list();
            let named = switches::list(&name, &mut body)?;
            old.take_list(&body, named.name());
        }
        legacy::POLLING_ON => switches::poll_always(&name, &old.to_polling(), true)?,
        legacy::POLLING_OFF => switches::poll_always(&name, &old.to_polling(), false)?,
        _ => return Err(Errno::OPNOTSUPP),
    }
    old.write(user)
}

/// What [`abi::SYNC_KLOOP_START`] says.
fn wiring(request: &Request) -> Wiring {
    let mut wiring =
        Wiring { sleep: Duration::from_micros(request.body.u32(0).into()), ..Wiring::default() };
    // Who serves which side makes no difference here: the loop serves both.
    for pair in request.option(KLOOP_EVENTFDS).map_or(&[][..], |list| &list.0).chunks_exact(8) {
        let pair = Fields(pair.to_vec());
        wiring.kicks.push(pair.u32(0).cast_signed());
        wiring.interrupts.push(pair.u32(4).cast_signed());
    }
    wiring
}

/// Answers [`abi::PORT_INFO_GET`].
fn port_information(host: &Host, name: &str, memory: u16) -> Result<Fields, Errno> {
    let mut body = Fields(vec![0; 32]);
    let adapter =
        if name.is_empty() { None } else { Some(host.open(name, Wish { memory, slots: 0 })?) };
    let memory = match &adapter {
        Some(adapter) => {
            let [tx_slots, rx_slots] = adapter.slots();
            body.set_u32(port_info::TX_SLOTS, tx_slots);
            body.set_u32(port_info::RX_SLOTS, rx_slots);
            for count in 0..4 {
                body.set_u16(port_info::TX_RINGS + 2 * count, 1);
            }
            adapter.memory().clone()
        }
        None => host.memory(memory)?,
    };
    body.set_u64(port_info::MEMSIZE, memory.length_bytes() as u64);
    body.set_u16(port_info::MEM_ID, memory.id());
    Ok(body)
}

/// Answers [`abi::POOLS_INFO_GET`].
fn pools(host: &Host, name: &str, body: &mut Fields) -> Result<(), Errno> {
    const MEM_ID: usize = 8;
    if name.is_empty() {
        return Err(Errno::INVAL);
    }
    // What holds the port must stay until the answer is written.
    let adapter = host.open(name, Wish::default())?;
    let memory = adapter.memory();
    body.set_u64(0, memory.length_bytes() as u64);
    body.set_u16(MEM_ID, memory.id());
    write_pools(body, memory);
    Ok(())
}

fn write_pools(body: &mut Fields, memory: &Memory) {
    let buffers = memory.buffers();
    let small = |value: usize| u32::try_from(value).unwrap_or(u32::MAX);
    let pools = [
        (0, INTERFACES, INTERFACE_BYTES),
        (RINGS_OFFSET, RINGS, RING_BYTES),
        (memory.buffers_offset(), buffers.count() as usize, buffers.buffer_bytes()),
    ];
    for (index, (offset, count, bytes)) in pools.into_iter().enumerate() {
        let at = 16 + 16 * index;
        body.set_u64(at, offset as u64);
        body.set_u32(at + 8, small(count));
        body.set_u32(at + 12, small(bytes));
    }
}
