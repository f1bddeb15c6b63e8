//! Messages without tags. Each function is the slot of its name in libfabric's table; C's promises are those of its
//! manual page: the endpoint is open, buffers are lent until the completion.

use messaging::Channel;

use super::{
    Context, Desc, Ep, Many, Receiving, Sending, data, inject as give, pieces, receive,
    send as put, whole,
};
use crate::abi::{Buffer, Msg, MsgOps, Vector};

pub(super) const OPS: MsgOps = MsgOps {
    size: size_of::<MsgOps>(),
    recv,
    recvv,
    recvmsg,
    send,
    sendv,
    sendmsg,
    inject,
    senddata,
    injectdata,
};

unsafe extern "C" fn recv(
    ep: Ep,
    buffer: Buffer,
    length: usize,
    _desc: Desc,
    from: u64,
    context: Context,
) -> isize {
    let receiving =
        Receiving { from, channel: Channel::Plain, tag: 0, ignore: 0, context, flags: None };
    // SAFETY: an endpoint of this provider's.
    unsafe { receive(ep, receiving, whole(buffer, length)) }
}

unsafe extern "C" fn recvv(
    ep: Ep,
    vectors: Vector,
    _desc: Many,
    count: usize,
    from: u64,
    context: Context,
) -> isize {
    let receiving =
        Receiving { from, channel: Channel::Plain, tag: 0, ignore: 0, context, flags: None };
    // SAFETY: an endpoint of this provider's.
    unsafe { receive(ep, receiving, pieces(vectors, count)) }
}

unsafe extern "C" fn recvmsg(ep: Ep, msg: *const Msg, flags: u64) -> isize {
    // SAFETY: C's structure.
    let msg = unsafe { &*msg };
    let receiving = Receiving {
        from: msg.addr,
        channel: Channel::Plain,
        tag: 0,
        ignore: 0,
        context: msg.context,
        flags: Some(flags),
    };
    // SAFETY: an endpoint of this provider's.
    unsafe { receive(ep, receiving, pieces(msg.iov, msg.iov_count)) }
}

unsafe extern "C" fn send(
    ep: Ep,
    buffer: Buffer,
    length: usize,
    _desc: Desc,
    to: u64,
    context: Context,
) -> isize {
    let sending = Sending { to, channel: Channel::Plain, tag: 0, data: None, context, flags: None };
    // SAFETY: an endpoint of this provider's.
    unsafe { put(ep, sending, whole(buffer, length)) }
}

unsafe extern "C" fn sendv(
    ep: Ep,
    vectors: Vector,
    _desc: Many,
    count: usize,
    to: u64,
    context: Context,
) -> isize {
    let sending = Sending { to, channel: Channel::Plain, tag: 0, data: None, context, flags: None };
    // SAFETY: an endpoint of this provider's.
    unsafe { put(ep, sending, pieces(vectors, count)) }
}

unsafe extern "C" fn sendmsg(ep: Ep, msg: *const Msg, flags: u64) -> isize {
    // SAFETY: C's structure.
    let msg = unsafe { &*msg };
    let sending = Sending {
        to: msg.addr,
        channel: Channel::Plain,
        tag: 0,
        data: data(flags, msg.data),
        context: msg.context,
        flags: Some(flags),
    };
    // SAFETY: an endpoint of this provider's.
    unsafe { put(ep, sending, pieces(msg.iov, msg.iov_count)) }
}

unsafe extern "C" fn inject(ep: Ep, buffer: Buffer, length: usize, to: u64) -> isize {
    let context = std::ptr::null_mut();
    let sending = Sending { to, channel: Channel::Plain, tag: 0, data: None, context, flags: None };
    // SAFETY: an endpoint of this provider's.
    unsafe { give(ep, sending, whole(buffer, length)) }
}

unsafe extern "C" fn senddata(
    ep: Ep,
    buffer: Buffer,
    length: usize,
    _desc: Desc,
    data: u64,
    to: u64,
    context: Context,
) -> isize {
    let sending =
        Sending { to, channel: Channel::Plain, tag: 0, data: Some(data), context, flags: None };
    // SAFETY: an endpoint of this provider's.
    unsafe { put(ep, sending, whole(buffer, length)) }
}

unsafe extern "C" fn injectdata(
    ep: Ep,
    buffer: Buffer,
    length: usize,
    data: u64,
    to: u64,
) -> isize {
    let context = std::ptr::null_mut();
    let sending =
        Sending { to, channel: Channel::Plain, tag: 0, data: Some(data), context, flags: None };
    // SAFETY: an endpoint of this provider's.
    unsafe { give(ep, sending, whole(buffer, length)) }
}
