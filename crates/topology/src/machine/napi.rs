//! What the kernel says of its NAPI instances: which queue each polls, from which interrupt or in
//! which thread (generic netlink family `netdev`, Linux 6.8; kernel
//! `Documentation/netlink/specs/netdev.yaml`).

use netlink::{
    attribute, family_number, family_question, generic_attributes, generic_dump, u32_of,
};
use results::{NapiThread, Nic};
use sys::netlink_socket::{NetlinkError, NetlinkSocket};

use super::threads;
use crate::HostFiles;

const QUEUE_GET: u8 = 10;
const NAPI_GET: u8 = 11;

/// The NAPI instances of the calling thread's namespace.
#[derive(Debug, Default)]
pub(super) struct Instances {
    polled: Vec<Instance>,
    queues: Vec<Queue>,
    /// The kernel has no such family.
    pub(super) is_unknown: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Instance {
    interface: u32,
    id: u32,
    irq: Option<u32>,
    pid: Option<u32>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Queue {
    interface: u32,
    number: u32,
    receives: bool,
    napi_id: Option<u32>,
}

impl Instances {
    /// Asks the kernel; `has_queues`: an interface is up, so that there is something to tell.
    pub(super) fn read(has_queues: bool) -> Self {
        let Ok((mut socket, family)) = open() else {
            return Self { is_unknown: true, ..Self::default() };
        };
        let mut list = |command| socket.dump(&generic_dump(family, command)).unwrap_or_default();
        let (napis, queues) = (list(NAPI_GET), list(QUEUE_GET));
        let attributes = |body| generic_attributes(body).ok();
        Self {
            polled: napis.iter().filter_map(|body| Instance::parse(attributes(body)?)).collect(),
            queues: queues.iter().filter_map(|body| Queue::parse(attributes(body)?)).collect(),
            // Linux 6.7 has the family, not the questions.
            is_unknown: has_queues && napis.is_empty() && queues.is_empty(),
        }
    }

    /// Lays what the kernel says over what names and files said of an interface.
    pub(super) fn lay_over(&self, files: &HostFiles, index: u32, nic: &mut Nic) {
        let queues = || self.queues.iter().filter(|queue| queue.interface == index);
        for queue in queues().filter(|queue| queue.napi_id.is_some()) {
            if queue.receives {
                let same = nic.receive_queues.iter_mut().find(|at| at.queue == queue.number);
                same.into_iter().for_each(|at| at.napi_id = queue.napi_id);
            } else {
                let same = nic.transmit_queues.iter_mut().find(|at| at.queue == queue.number);
                same.into_iter().for_each(|at| at.napi_id = queue.napi_id);
            }
        }
        let polled = || self.polled.iter().filter(|instance| instance.interface == index);
        for instance in polled() {
            let of_instance = |receives: bool| {
                queues()
                    .find(|at| at.napi_id == Some(instance.id) && at.receives == receives)
                    .map(|at| at.number)
            };
            let (receive, transmit) = (of_instance(true), of_instance(false));
            for interrupt in &mut nic.interrupts {
                let is_it = instance.irq == Some(interrupt.irq);
                if is_it && (receive.is_some() || transmit.is_some()) {
                    interrupt.queue = receive.or(transmit);
                    interrupt.serves_receive = receive.is_some();
                    interrupt.serves_transmit = transmit.is_some();
                }
            }
        }
        let threads: Vec<NapiThread> = polled()
            .filter_map(|instance| {
                let queue = queues()
                    .filter(|at| at.napi_id == Some(instance.id))
                    .min_by_key(|at| !at.receives)
                    .map(|at| at.number);
                thread(files, instance, queue, &nic.name)
            })
            .collect();
        if !threads.is_empty() {
            // Of this namespace for certain; names alone may be another's.
            nic.napi_threads = threads;
            nic.is_napi_threaded.get_or_insert(true);
        } else if !self.is_unknown && nic.is_napi_threaded != Some(true) {
            nic.napi_threads.clear();
        }
        nic.napi_threads.sort_by_key(|thread| (thread.queue, thread.napi_id, thread.pid));
    }
}

/// A socket to ask with, and the number of the family.
fn open() -> Result<(NetlinkSocket, u16), NetlinkError> {
    let mut socket = NetlinkSocket::open_generic()?;
    let family = family_number(&socket.get(&family_question("netdev"))?)?;
    Ok((socket, family))
}

/// The thread of an instance. The kernel counts process ids as the first namespace does, so the
/// name is looked at too.
fn thread(
    files: &HostFiles,
    instance: &Instance,
    queue: Option<u32>,
    interface: &str,
) -> Option<NapiThread> {
    let pid = instance.pid?;
    let comm = files.proc(&format!("{pid}/comm"))?;
    let name = comm.trim_end();
    let _is_its = threads::napi_id(name, interface)?;
    Some(NapiThread { napi_id: Some(instance.id), queue, ..threads::describe(files, pid, name) })
}

impl Instance {
    fn parse(attributes: &[u8]) -> Option<Self> {
        let find = |kind| attribute(attributes, kind).and_then(u32_of);
        Some(Self { interface: find(1)?, id: find(2)?, irq: find(3), pid: find(4) })
    }
}

impl Queue {
    fn parse(attributes: &[u8]) -> Option<Self> {
        let find = |kind| attribute(attributes, kind).and_then(u32_of);
        let receives = find(3)? == 0;
        Some(Self { number: find(1)?, interface: find(2)?, receives, napi_id: find(4) })
    }
}

#[cfg(test)]
mod tests {
    use results::{Interrupt, ReceiveQueue, TransmitQueue};

    use super::*;

    fn attributes(values: &[(u16, u32)]) -> Vec<u8> {
        let one = |&(kind, value): &(u16, u32)| {
            [8u16.to_ne_bytes(), kind.to_ne_bytes()]
                .concat()
                .into_iter()
                .chain(value.to_ne_bytes())
                .collect::<Vec<u8>>()
        };
        values.iter().flat_map(one).collect()
    }

    #[test]
    fn the_kernel_s_word_goes_over_the_driver_s_names() {
        let polled = Instance::parse(&attributes(&[(2, 257), (1, 4), (3, 38)])).unwrap();
        let queue = |kind, number| {
            Queue::parse(&attributes(&[(1, number), (3, kind), (2, 4), (4, 257)])).unwrap()
        };
        let instances = Instances {
            polled: vec![polled],
            queues: vec![queue(0, 2), queue(1, 5)],
            is_unknown: false,
        };
        let mut nic = Nic {
            receive_queues: vec![ReceiveQueue { queue: 2, ..ReceiveQueue::default() }],
            transmit_queues: vec![TransmitQueue { queue: 5, ..TransmitQueue::default() }],
            interrupts: vec![
                Interrupt { irq: 38, queue: Some(0), ..Interrupt::default() },
                Interrupt { irq: 39, queue: Some(1), ..Interrupt::default() },
            ],
            ..Nic::default()
        };
        instances.lay_over(&HostFiles::default(), 4, &mut nic);
        assert_eq!(nic.receive_queues[0].napi_id, Some(257));
        assert_eq!(nic.transmit_queues[0].napi_id, Some(257));
        let first = &nic.interrupts[0];
        assert_eq!(
            (first.queue, first.serves_receive, first.serves_transmit),
            (Some(2), true, true)
        );
        assert_eq!(nic.interrupts[1].queue, Some(1));
    }

    #[test]
    fn any_answer_is_read_or_refused() {
        bolero::check!().for_each(|bytes: &[u8]| {
            Instance::parse(bytes);
            Queue::parse(bytes);
        });
    }
}
