//! Packet filters: lists of one moment, and transactions.

use std::os::fd::AsFd;

use netlink::{Answer, CreateError, Family, FilterTable, Frames, Message, flag};
use rustix::net::SendFlags;

use super::{ANSWERS_COUNT_MAX, DUMPS_COUNT_MAX, NetlinkError, NetlinkSocket};
use crate::{SyscallError, socket};

/// What one transaction may take: 256 rules of some 400 bytes, and much room.
const TRANSACTION_BYTES_MAX: u64 = 1 << 20;
/// As kernels without netfilter's netlink, without nf_tables, and without a part of it answer.
const LACKS: [i32; 4] = [libc::EPROTONOSUPPORT, libc::EAFNOSUPPORT, libc::EOPNOTSUPP, libc::EINVAL];

impl NetlinkSocket {
    /// About packet filters (nf_tables).
    ///
    /// # Errors
    /// The kernel has none ([`is_lacking`](NetlinkError::is_lacking)), or `CAP_NET_ADMIN` is missing.
    pub fn open_filters() -> Result<Self, NetlinkError> {
        let mut opened = Self::open_for(Some(rustix::net::netlink::NETFILTER))?;
        // Long transactions are sent at once. A smaller buffer is reported when one does not fit.
        let (level, option) = (libc::SOL_SOCKET, libc::SO_SNDBUFFORCE);
        let bytes = libc::c_int::try_from(TRANSACTION_BYTES_MAX).unwrap_or(libc::c_int::MAX);
        socket::set(opened.as_fd(), level, option, &bytes, "setsockopt(SO_SNDBUFFORCE)").ok();
        opened.filter_generation()?;
        Ok(opened)
    }

    /// The number of the present ruleset.
    fn filter_generation(&mut self) -> Result<u32, NetlinkError> {
        let answer = self.get(&netlink::generation_question())?;
        Ok(netlink::generation_of(&answer)?)
    }

    /// The tables of a family whose names `is_wanted` admits, all of one moment.
    ///
    /// # Errors
    /// The kernel refuses, or the ruleset keeps changing.
    pub fn filter_tables(
        &mut self,
        family: Family,
        is_wanted: impl Fn(&str) -> bool,
    ) -> Result<Vec<FilterTable>, NetlinkError> {
        Ok(self.filter_tables_of_now(family, &is_wanted)?.1)
    }

    /// The same with the number of the ruleset that they are of.
    fn filter_tables_of_now(
        &mut self,
        family: Family,
        is_wanted: &dyn Fn(&str) -> bool,
    ) -> Result<(u32, Vec<FilterTable>), NetlinkError> {
        for _attempt in 0..DUMPS_COUNT_MAX {
            let generation = self.filter_generation()?;
            let mut lists = [const { Vec::new() }; 4];
            for (list, question) in lists.iter_mut().zip(FilterTable::dumps(family)) {
                *list = self.dump(&question)?;
            }
            if self.filter_generation()? == generation {
                let lists = lists.each_ref().map(Vec::as_slice);
                return Ok((generation, FilterTable::assemble(lists, is_wanted)?));
            }
        }
        Err(NetlinkError::Changing)
    }

    /// Puts a table in the place of the one of its name, or takes that away, at one moment: packets see the one or the
    /// other, and a process that ends meanwhile leaves the one or the other.
    ///
    /// # Errors
    /// The kernel's first refusal; nothing has changed then.
    pub fn set_filter_table(
        &mut self,
        family: Family,
        name: &str,
        table: Option<&FilterTable>,
    ) -> Result<(), NetlinkError> {
        for _attempt in 0..DUMPS_COUNT_MAX {
            let is_it = |other: &str| other == name;
            let (generation, there) = self.filter_tables_of_now(family, &is_it)?;
            let mut requests = Vec::new();
            if !there.is_empty() {
                requests.push(FilterTable::delete(family, name).map_err(CreateError::from)?);
            }
            if let Some(table) = table {
                requests.extend(table.create().map_err(CreateError::from)?);
            }
            match self.change_filters(generation, requests) {
                // Somebody has changed the ruleset since.
                Err(error) if error.errno() == Some(libc::ERESTART) => {}
                done => return done,
            }
        }
        Err(NetlinkError::Changing)
    }

    /// Has the kernel make changes of packet filters at one moment: all, or none if it refuses one of them or if the
    /// ruleset is no longer that of this number.
    fn change_filters(
        &mut self,
        generation: u32,
        mut requests: Vec<Message>,
    ) -> Result<(), NetlinkError> {
        // Refusals are reported in any case, success only of what asks for it: the last one.
        let Some(last) = requests.last_mut() else { return Ok(()) };
        last.flags |= flag::ACKNOWLEDGE;
        let messages = netlink::transaction(generation, requests);
        let first = self.sequence.wrapping_add(1);
        let mut bytes = Vec::with_capacity(messages.iter().map(Message::length_bytes).sum());
        for message in &messages {
            self.sequence = self.sequence.wrapping_add(1);
            message.write(self.sequence, flag::REQUEST, &mut bytes);
        }
        // The last request stands before the mark of the end.
        let last = self.sequence.wrapping_sub(1);
        rustix::io::retry_on_intr(|| rustix::net::send(&self.socket, &bytes, SendFlags::empty()))
            .map_err(|error| SyscallError::new("send", "netlink", error))?;
        let mut refusal = None;
        for _answer in 0..ANSWERS_COUNT_MAX {
            let length = self.receive()?;
            for frame in Frames::new(&self.buffer[..length]) {
                let frame = frame?;
                let sequence = frame.sequence;
                if last.wrapping_sub(sequence) > last.wrapping_sub(first) {
                    continue;
                }
                match frame.answer()? {
                    // About the transaction as a whole: nothing else follows.
                    Answer::Refused(error) if sequence == first => return Err(error.into()),
                    Answer::Refused(error) => {
                        refusal.get_or_insert(error);
                    }
                    Answer::Acknowledged => {}
                    Answer::Overrun => return Err(NetlinkError::Lost),
                    _other => continue,
                }
                if sequence == last {
                    return refusal.map_or(Ok(()), |error| Err(error.into()));
                }
            }
        }
        Err(NetlinkError::TooLong)
    }
}

impl NetlinkError {
    /// Whether this is how a kernel answers that has no packet filters at all.
    #[must_use]
    pub fn is_lacking(&self) -> bool {
        self.errno().is_some_and(|errno| LACKS.contains(&errno))
    }
}
