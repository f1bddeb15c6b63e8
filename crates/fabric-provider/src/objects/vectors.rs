//! Address vectors: peers by number. Both kinds, map and table, give numbers that count up.

use std::ffi::{c_char, c_int, c_void};
use std::sync::Arc;

use super::{expected_count, fid, hand_over, no_control, operations};
use crate::abi::{self, AvAttr, AvOps, Fid, FidAv, FidDomain, FidOps, unserved};
use crate::fence::{Object, State, answer_int, keep};
use crate::info::copy_name;
use crate::name::{NAME_BYTES, Name, socket_address};

static FID: FidOps = operations(close, super::bind_nothing, no_control);
static OPS: AvOps = AvOps {
    size: size_of::<AvOps>(),
    insert,
    insertsvc: unserved,
    insertsym: unserved,
    remove,
    lookup,
    straddr,
    av_set: unserved,
};

pub(super) unsafe extern "C" fn open(
    domain: *mut FidDomain,
    attr: *mut AvAttr,
    vector: *mut *mut FidAv,
    context: *mut c_void,
) -> c_int {
    answer_int(|| {
        // SAFETY: a domain of this provider's.
        let shared = Arc::clone(&unsafe { Object::of(domain) }.shared);
        // SAFETY: C's structure, or null.
        let count = unsafe { expected_count(attr) };
        let names = Vec::with_capacity(count.min(1 << 16));
        let index = keep(&mut shared.lock()?.vectors, names);
        let new = FidAv { fid: fid(abi::CLASS_AV, context, &FID), ops: &OPS };
        // SAFETY: C gives room for a pointer.
        unsafe { hand_over(vector, Object::give(new, shared, index)) };
        Ok(())
    })
}

unsafe extern "C" fn close(fid: *mut Fid) -> c_int {
    // SAFETY: an address vector that C closes, once.
    let object = unsafe { Object::<FidAv>::take_back(fid.cast()) };
    if let Ok(mut state) = object.shared.lock() {
        state.vectors[object.index] = None;
    }
    0
}

/// Answers with the number of addresses that were good.
unsafe extern "C" fn insert(
    vector: *mut FidAv,
    names: *const c_void,
    count: usize,
    addresses: *mut u64,
    _flags: u64,
    _context: *mut c_void,
) -> c_int {
    let mut good: c_int = 0;
    let outcome = answer_int(|| {
        if names.is_null() {
            return Err(libc::EINVAL);
        }
        // SAFETY: an address vector of this provider's.
        let object = unsafe { Object::of(vector) };
        let mut state = object.shared.lock()?;
        let State { endpoints, vectors, .. } = &mut *state;
        for index in 0..count {
            let at = names.cast::<[u8; NAME_BYTES]>().wrapping_add(index);
            // SAFETY: C gives `count` names, each as `fi_getname` gave it.
            let name = Name::parse(&unsafe { at.read_unaligned() });
            let known = vectors[object.index].as_mut().ok_or(libc::EINVAL)?;
            let address = known.len() as u64;
            if let Some(name) = &name {
                known.push(Some(*name));
                let bound = endpoints.iter_mut().flatten();
                for endpoint in bound.filter(|one| one.binding.vector == Some(object.index)) {
                    endpoint.introduce(address, name)?;
                }
                good += 1;
            }
            if !addresses.is_null() {
                let to = addresses.wrapping_add(index);
                // SAFETY: C gives room for `count` addresses.
                unsafe { to.write(if name.is_some() { address } else { abi::ADDR_UNSPEC }) };
            }
        }
        Ok(())
    });
    if outcome < 0 { outcome } else { good }
}

unsafe extern "C" fn remove(
    vector: *mut FidAv,
    addresses: *mut u64,
    count: usize,
    _flags: u64,
) -> c_int {
    answer_int(|| {
        // SAFETY: an address vector of this provider's.
        let object = unsafe { Object::of(vector) };
        let mut state = object.shared.lock()?;
        let known = state.vectors[object.index].as_mut().ok_or(libc::EINVAL)?;
        for index in 0..count {
            let at = addresses.wrapping_add(index);
            // SAFETY: C gives `count` addresses.
            let address = unsafe { at.read() };
            if let Some(name) = known.get_mut(address as usize) {
                *name = None;
            }
        }
        Ok(())
    })
}

unsafe extern "C" fn lookup(
    vector: *mut FidAv,
    address: u64,
    to: *mut c_void,
    length: *mut usize,
) -> c_int {
    answer_int(|| {
        // SAFETY: an address vector of this provider's.
        let object = unsafe { Object::of(vector) };
        let state = object.shared.lock()?;
        let known = state.vectors[object.index].as_ref().ok_or(libc::EINVAL)?;
        let name = known.get(address as usize).copied().flatten().ok_or(libc::EINVAL)?;
        // SAFETY: C gives the room and its length. A name that is too long for it is cut.
        unsafe { copy_name(&name.to_bytes(), to, length) }.or(Ok(()))
    })
}

/// A name as text: without its key.
unsafe extern "C" fn straddr(
    _vector: *mut FidAv,
    name: *const c_void,
    to: *mut c_char,
    length: *mut usize,
) -> *const c_char {
    // SAFETY: C gives a name as `fi_getname` gave it.
    let name = Name::parse(&unsafe { name.cast::<[u8; NAME_BYTES]>().read_unaligned() });
    let place = name.and_then(|name| socket_address(&name.address));
    let text = place.map_or_else(|| "none".to_owned(), |place| place.to_string());
    // SAFETY: C gives the room's length.
    let room = unsafe { length.read() };
    let count = text.len().min(room.saturating_sub(1));
    if room > 0 {
        // SAFETY: room for `count` bytes and a 0.
        unsafe { std::ptr::copy_nonoverlapping(text.as_ptr(), to.cast(), count) };
        // SAFETY: the same.
        unsafe { to.wrapping_add(count).write(0) };
    }
    // SAFETY: C's own number.
    unsafe { length.write(text.len() + 1) };
    to
}
