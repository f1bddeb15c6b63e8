//! Where each rank of a job over our messages runs, and what receives its packets: core, endpoint, receive queue and
//! interrupt, each with the reason. Pure: a host is what [`Machine`] says of it.

use std::collections::BTreeMap;
use std::net::IpAddr;

use results::{Core, Interrupt, Machine, Nic, Proximity};

use crate::bind;
use crate::job_map::{BoundThread, MappedRank};

/// This host, as far as a plan needs it.
#[derive(Debug, Clone, Copy)]
pub struct HereView<'a> {
    /// Names that launchers call it.
    pub names: &'a [String],
    /// Its parts.
    pub machine: &'a Machine,
    /// Where its endpoints are reached from other hosts.
    pub endpoint: &'a EndpointPlace,
}

/// Where endpoints of a host are reached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EndpointPlace {
    /// `eth0`.
    pub interface: String,
    /// Its address. The kernel chooses the port when a rank starts.
    pub ip: IpAddr,
}

/// A rank, where it runs and what receives for it.
#[derive(Debug, Clone, PartialEq)]
pub struct RankPlacement {
    /// Its number in the job.
    pub rank: u32,
    /// The host's name, as the launcher knows it.
    pub host: String,
    /// Whether that is this host; nothing more is known of others.
    pub is_here: bool,
    /// Cores that it may run on; empty: any, or not known.
    pub cores: Vec<u32>,
    /// Who chose them.
    pub core_choice: CoreChoice,
    /// Cores that the launcher lets it run on; empty: any, or not known.
    pub given_cores: Vec<u32>,
    /// Its packets from other hosts; `None` for a rank of another host.
    pub receiver: Option<Receiver>,
    /// Other ranks of its host: messages of these go through shared memory, without packet, queue and interrupt.
    pub beside_count: u64,
    /// Ranks of other hosts.
    pub away_count: u64,
}

/// Why a rank runs where it does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CoreChoice {
    /// The launcher binds it.
    Launcher,
    /// Nobody binds it: the scheduler moves it.
    Nobody,
    /// An own order: physical cores before their siblings, packages in turn.
    Order,
    /// It is the core that processes the packets of the rank's receive queue, or the nearest one that is free.
    Queue,
    /// There are more ranks than cores.
    TooFewCores,
    /// The rank is on another host, whose cores are not known here.
    OtherHost,
}

/// What receives a rank's packets.
#[derive(Debug, Clone, PartialEq)]
pub struct Receiver {
    /// Receive queues that may get them; empty where the interface has none.
    pub queues: Vec<u32>,
    /// Who chooses among them.
    pub queue_choice: QueueChoice,
    /// Interrupts of these queues.
    pub interrupts: Vec<Interrupt>,
    /// Cores on which the kernel may process them; empty: any, or the sender's.
    pub cores: Vec<u32>,
    /// UDP port of its endpoint, where it is known before the rank starts.
    pub port: Option<u16>,
    /// How far the rank is from that core, where it is one core and the rank has one core.
    pub distance: Option<Proximity>,
}

/// Who chooses the receive queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum QueueChoice {
    /// The loopback has none: the sender's core does the work.
    Loopback,
    /// The interface has one.
    OnlyOne,
    /// The device, by a hash of addresses and ports; the port is not known before the rank starts.
    DeviceHash,
    /// A rule of the device for the endpoint's UDP port.
    Rule,
    /// BPF programs, by the endpoint's UDP port modulo the queues.
    Program,
    /// What the interface has is not known.
    Unknown,
}

/// So many ranks on these hosts, in blocks, as many on each.
#[must_use]
pub fn even_ranks(ranks_count: u32, hosts: &[String]) -> Vec<MappedRank> {
    let each = ranks_count.div_ceil(u32::try_from(hosts.len()).unwrap_or(u32::MAX).max(1)).max(1);
    let host = |rank: u32| hosts.get((rank / each) as usize).cloned().unwrap_or_default();
    (0..ranks_count).map(|rank| MappedRank { rank, host: host(rank), bound: Vec::new() }).collect()
}

/// Where each rank runs and what receives for it. `is_launched`: the ranks come from a launcher's own map; otherwise
/// cores are given to them in [`bind::cores`]'s order.
#[must_use]
pub(crate) fn place(
    ranks: &[MappedRank],
    is_launched: bool,
    here: HereView<'_>,
) -> Vec<RankPlacement> {
    let is_here = |rank: &MappedRank| here.names.contains(&rank.host);
    let here_count = ranks.iter().filter(|rank| is_here(rank)).count();
    let mut ordered = bind::cores(here.machine, here_count).into_iter();
    let physical = physical_cores(here.machine);
    let mut of_host: BTreeMap<&str, u64> = BTreeMap::new();
    ranks.iter().for_each(|rank| *of_host.entry(&rank.host).or_default() += 1);
    let placed = ranks.iter().map(|rank| {
        let (cores, core_choice) = if !is_here(rank) {
            (Vec::new(), CoreChoice::OtherHost)
        } else if is_launched && rank.bound.is_empty() {
            (Vec::new(), CoreChoice::Nobody)
        } else if is_launched {
            (numbers(&physical, &rank.bound), CoreChoice::Launcher)
        } else {
            match ordered.next() {
                Some(core) => (vec![core], CoreChoice::Order),
                None => (Vec::new(), CoreChoice::TooFewCores),
            }
        };
        let receiver = is_here(rank).then(|| receiver(here, &cores));
        let given_cores = if is_here(rank) { numbers(&physical, &rank.bound) } else { Vec::new() };
        let same_host = of_host.get(rank.host.as_str()).copied().unwrap_or(0);
        RankPlacement {
            rank: rank.rank,
            host: rank.host.clone(),
            is_here: is_here(rank),
            cores,
            core_choice,
            given_cores,
            receiver,
            beside_count: same_host.saturating_sub(1),
            away_count: (ranks.len() as u64).saturating_sub(same_host),
        }
    });
    placed.collect()
}

/// What receives packets for a rank on these cores.
fn receiver(here: HereView<'_>, cores: &[u32]) -> Receiver {
    let interface = &here.endpoint.interface;
    let none = |queue_choice| Receiver {
        queues: Vec::new(),
        queue_choice,
        interrupts: Vec::new(),
        cores: Vec::new(),
        port: None,
        distance: None,
    };
    if here.endpoint.ip.is_loopback() {
        return none(QueueChoice::Loopback);
    }
    let Some(nic) = here.machine.nic(interface) else { return none(QueueChoice::Unknown) };
    let queues: Vec<u32> = nic.receive_queues.iter().map(|queue| queue.queue).collect();
    let queue_choice = match queues.len() {
        0 => return none(QueueChoice::Unknown),
        1 => QueueChoice::OnlyOne,
        _ => QueueChoice::DeviceHash,
    };
    let interrupts: Vec<Interrupt> =
        nic.interrupts.iter().filter(|interrupt| interrupt.serves_receive).cloned().collect();
    let receives_on = receives_on(nic, &interrupts);
    let distance = match (cores, receives_on.as_slice()) {
        (&[core], &[other]) => here.machine.proximity(core, other),
        _ => None,
    };
    Receiver { queues, queue_choice, interrupts, cores: receives_on, port: None, distance }
}

/// The cores on which the kernel processes what an interface received: those that receive packet steering names, else
/// those of its NAPI threads, else those that its interrupts are delivered to.
pub(crate) fn receives_on(nic: &Nic, interrupts: &[Interrupt]) -> Vec<u32> {
    let steered = nic.receive_queues.iter().flat_map(|queue| &queue.rps_cores);
    let threads = nic.napi_threads.iter().flat_map(|thread| &thread.allowed_cores);
    let delivered = interrupts.iter().flat_map(|one| {
        if one.effective_cores.is_empty() { &one.allowed_cores } else { &one.effective_cores }
    });
    let sorted = |cores: Vec<u32>| {
        let mut cores = cores;
        cores.sort_unstable();
        cores.dedup();
        (!cores.is_empty()).then_some(cores)
    };
    let steered = sorted(steered.copied().collect());
    let threads = || sorted(threads.copied().collect());
    steered.or_else(threads).or_else(|| sorted(delivered.copied().collect())).unwrap_or_default()
}

/// Physical cores that are online: the slots that Open MPI's launcher gives a host of its own accord.
#[must_use]
pub fn physical_cores_count(machine: &Machine) -> usize {
    physical_cores(machine).len()
}

/// The kernel's numbers of hardware threads, by physical core. Launchers count these by package, last-level cache and
/// core, each in the order of its first hardware thread (hwloc's logical order).
fn physical_cores(machine: &Machine) -> Vec<Vec<u32>> {
    let online = || machine.cores.iter().filter(|core| core.is_online);
    let first_where = |is_it: &dyn Fn(&Core) -> bool| {
        online().filter(|core| is_it(core)).map(|core| core.core).min()
    };
    let first_sharing = |core: u32| {
        let shared = machine.caches.iter().filter(|cache| cache.cores.contains(&core));
        let last = shared.max_by_key(|cache| cache.level);
        last.and_then(|cache| cache.cores.iter().min().copied()).unwrap_or(core)
    };
    let mut found: BTreeMap<(Option<u32>, u32, u32), Vec<u32>> = BTreeMap::new();
    for core in online() {
        let package = first_where(&|other| other.package == core.package);
        let of_physical = first_where(&|other| {
            core.physical_core.is_some()
                && (other.package, other.die, other.physical_core)
                    == (core.package, core.die, core.physical_core)
        });
        let key = (package, first_sharing(core.core), of_physical.unwrap_or(core.core));
        found.entry(key).or_default().push(core.core);
    }
    found.into_values().collect()
}

/// The kernel's numbers of a launcher's hardware threads.
fn numbers(physical: &[Vec<u32>], bound: &[BoundThread]) -> Vec<u32> {
    let number =
        |one: &BoundThread| physical.get(one.core as usize)?.get(one.thread as usize).copied();
    let mut cores: Vec<u32> = bound.iter().filter_map(number).collect();
    cores.sort_unstable();
    cores
}

#[cfg(test)]
mod tests {
    use results::{Cache, ReceiveQueue};

    use super::*;

    /// Two packages of two physical cores with two threads each; the second threads are numbered behind.
    fn machine() -> Machine {
        let core = |core: u32| Core {
            core,
            package: Some(core / 2 % 2),
            physical_core: Some(core % 2),
            is_online: true,
            is_usable: true,
            ..Core::default()
        };
        let cache = |cores: [u32; 4]| Cache {
            level: 3,
            kind: "Unified".to_owned(),
            size_bytes: None,
            cores: cores.into(),
        };
        Machine {
            cores: (0..8).map(core).collect(),
            caches: vec![cache([0, 1, 4, 5]), cache([2, 3, 6, 7])],
            ..Machine::default()
        }
    }

    fn nic(queues: u32) -> Nic {
        let queue = |queue| ReceiveQueue { queue, ..ReceiveQueue::default() };
        let interrupt = |queue: u32| Interrupt {
            irq: 40 + queue,
            queue: Some(queue),
            serves_receive: true,
            allowed_cores: (0..8).collect(),
            effective_cores: vec![queue],
            ..Interrupt::default()
        };
        Nic {
            name: "eth0".to_owned(),
            receive_queues: (0..queues).map(queue).collect(),
            interrupts: (0..queues).map(interrupt).collect(),
            ..Nic::default()
        }
    }

    fn placed(
        machine: &Machine,
        ranks: &[MappedRank],
        is_launched: bool,
        ip: &str,
    ) -> Vec<RankPlacement> {
        let names = ["here".to_owned()];
        let endpoint =
            EndpointPlace { interface: "eth0".to_owned(), ip: ip.parse().expect("an address") };
        place(ranks, is_launched, HereView { names: &names, machine, endpoint: &endpoint })
    }

    fn bound(rank: u32, core: u32, thread: u32) -> MappedRank {
        let bound = vec![BoundThread { core, thread }];
        MappedRank { rank, host: "here".to_owned(), bound }
    }

    #[test]
    fn a_launchers_core_numbers_become_the_kernels() {
        let machine = machine();
        let ranks =
            [bound(0, 0, 0), bound(1, 1, 1), bound(2, 2, 0), bound(3, 3, 1), bound(4, 9, 0)];
        let cores: Vec<Vec<u32>> =
            placed(&machine, &ranks, true, "10.0.0.1").into_iter().map(|one| one.cores).collect();
        assert_eq!(cores, [vec![0], vec![5], vec![2], vec![7], vec![]]);
    }

    #[test]
    fn one_queue_receives_for_all_and_the_distance_to_its_interrupt_is_told() {
        let machine = Machine { nics: vec![nic(1)], ..machine() };
        let ranks = [bound(0, 0, 0), bound(1, 0, 1), bound(2, 1, 0), bound(3, 2, 0)];
        let placed = placed(&machine, &ranks, true, "10.0.0.1");
        let distances: Vec<Option<Proximity>> = placed
            .iter()
            .map(|one| {
                let receiver = one.receiver.as_ref().expect("a rank of this host");
                assert_eq!(
                    (receiver.queue_choice, &receiver.queues[..]),
                    (QueueChoice::OnlyOne, &[0][..])
                );
                assert_eq!(receiver.cores, [0]);
                receiver.distance
            })
            .collect();
        let expected = [
            Proximity::SameCore,
            Proximity::SmtSibling,
            Proximity::SharedCache,
            Proximity::OtherNode,
        ];
        assert_eq!(distances, expected.map(Some));
        assert_eq!((placed[1].beside_count, placed[1].away_count), (3, 0));
    }

    #[test]
    fn a_device_with_many_queues_chooses_by_its_hash_and_no_distance_is_claimed() {
        let machine = Machine { nics: vec![nic(4)], ..machine() };
        let receiver =
            placed(&machine, &[bound(0, 0, 0)], true, "10.0.0.1").remove(0).receiver.expect("here");
        assert_eq!(receiver.queue_choice, QueueChoice::DeviceHash);
        assert_eq!((receiver.cores.len(), receiver.distance), (4, None));
        assert_eq!(receiver.interrupts.len(), 4);
    }

    #[test]
    fn steering_in_software_decides_the_core_before_interrupts_do() {
        let mut nic = nic(1);
        nic.receive_queues[0].rps_cores = vec![3];
        let machine = Machine { nics: vec![nic], ..machine() };
        let receiver =
            placed(&machine, &[bound(0, 0, 0)], true, "10.0.0.1").remove(0).receiver.expect("here");
        assert_eq!(receiver.cores, [3]);
    }

    #[test]
    fn ranks_without_a_launcher_get_cores_in_order_unless_there_are_too_few() {
        let machine = machine();
        let hosts = ["here".to_owned(), "far".to_owned()];
        let all = placed(&machine, &even_ranks(3, &hosts), false, "127.0.0.1");
        let told: Vec<_> = all.iter().map(|one| (one.host.as_str(), one.core_choice)).collect();
        let expected = [
            ("here", CoreChoice::Order),
            ("here", CoreChoice::Order),
            ("far", CoreChoice::OtherHost),
        ];
        assert_eq!(told, expected);
        assert_eq!((all[0].cores.clone(), all[1].cores.clone()), (vec![0], vec![2]));
        assert_eq!((all[0].beside_count, all[0].away_count), (1, 1));
        let receiver = all[0].receiver.as_ref().expect("here");
        assert_eq!(receiver.queue_choice, QueueChoice::Loopback);
        assert_eq!(all[2].receiver, None);
        let many = placed(&machine, &even_ranks(9, &hosts[..1]), false, "127.0.0.1");
        assert!(many.iter().all(|one| one.core_choice == CoreChoice::TooFewCores));
    }

    #[test]
    fn a_rank_that_nobody_binds_is_told_so() {
        let rank = MappedRank { rank: 0, host: "here".to_owned(), bound: Vec::new() };
        let placed = placed(&machine(), &[rank], true, "10.0.0.1");
        assert_eq!(placed[0].core_choice, CoreChoice::Nobody);
        let receiver = placed[0].receiver.as_ref().expect("here");
        assert_eq!(receiver.queue_choice, QueueChoice::Unknown, "an interface that is not known");
    }
}
