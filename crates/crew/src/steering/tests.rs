use results::{Core, Interrupt, NapiThread, ReceiveQueue};

use super::*;
use crate::placement::{EndpointPlace, even_ranks};

/// So many cores in one package.
fn machine(cores: u32, nic: Nic) -> Machine {
    let core = |core: u32| Core {
        core,
        package: Some(0),
        physical_core: Some(core),
        is_online: true,
        is_usable: true,
        ..Core::default()
    };
    Machine { cores: (0..cores).map(core).collect(), nics: vec![nic], ..Machine::default() }
}

/// A card whose queue *i* interrupts core *i* of two.
fn nic(queues: u32) -> Nic {
    let interrupt = |queue: u32| Interrupt {
        irq: 40 + queue,
        queue: Some(queue),
        serves_receive: true,
        effective_cores: vec![queue % 2],
        ..Interrupt::default()
    };
    Nic { interrupts: (0..queues).map(interrupt).collect(), ..virtual_nic(queues) }
}

/// A device without interrupts, such as veth.
fn virtual_nic(queues: u32) -> Nic {
    let queue = |queue| ReceiveQueue { queue, ..ReceiveQueue::default() };
    Nic {
        name: "eth0".to_owned(),
        receive_queues: (0..queues).map(queue).collect(),
        ..Nic::default()
    }
}

fn wishes(rules: FlowRules) -> Wishes {
    Wishes { binder: Binder::Plan, unsteered: None, rules, first_port: 61_008 }
}

fn missing() -> FlowRules {
    FlowRules::Missing("Operation not supported".to_owned())
}

fn planned(machine: &Machine, ranks: u32, hosts: &[&str], wishes: &Wishes) -> JobPlan {
    let hosts: Vec<String> = hosts.iter().map(|&host| host.to_owned()).collect();
    of_ranks(machine, &even_ranks(ranks, &hosts), wishes)
}

fn of_ranks(machine: &Machine, ranks: &[MappedRank], wishes: &Wishes) -> JobPlan {
    let names = ["here".to_owned()];
    let endpoint =
        EndpointPlace { interface: "eth0".to_owned(), ip: "10.0.0.1".parse().expect("an address") };
    let here = HereView { names: &names, machine, endpoint: &endpoint };
    plan_job(ranks, true, here, wishes)
}

fn changes(plan: &JobPlan) -> Vec<String> {
    plan.changes.iter().map(|change| format!("{} {}", change.key, change.to)).collect()
}

fn cores(plan: &JobPlan) -> Vec<Vec<u32>> {
    plan.ranks.iter().filter(|rank| rank.is_here).map(|rank| rank.cores.clone()).collect()
}

#[test]
fn a_card_with_rules_gives_each_endpoint_a_queue_whose_interrupt_is_on_the_ranks_core() {
    let machine = machine(4, nic(2));
    let plan = planned(&machine, 4, &["here", "far"], &wishes(FlowRules::On));
    assert_eq!(cores(&plan), [[0], [1]], "where the interrupts are already");
    assert_eq!(changes(&plan), ["eth0/udp4-61008/queue 0", "eth0/udp4-61009/queue 1"]);
    assert_eq!(plan.changes[0].from.as_deref(), Some("-"), "nobody's rule is replaced");
    assert_eq!((plan.first_port, plan.unsteered), (Some(61_008), None));
    let receiver = plan.ranks[1].receiver.as_ref().expect("a rank of this host");
    assert_eq!((receiver.queue_choice, receiver.queues.as_slice()), (QueueChoice::Rule, &[1][..]));
    assert_eq!((receiver.port, receiver.cores.as_slice()), (Some(61_009), &[1][..]));
    assert_eq!(receiver.distance, Some(Proximity::SameCore));
    assert_eq!(receiver.interrupts.iter().map(|one| one.irq).collect::<Vec<_>>(), [41]);
}

#[test]
fn programs_give_each_endpoint_a_queue_without_rules() {
    let machine = machine(4, virtual_nic(2));
    let plan = planned(&machine, 4, &["here", "far"], &wishes(FlowRules::Programs));
    assert_eq!((plan.first_port, &plan.no_rules), (Some(61_008), &None));
    let receivers = plan.ranks.iter().filter_map(|rank| rank.receiver.as_ref());
    let chosen: Vec<_> =
        receivers.map(|one| (one.queue_choice, one.queues.clone(), one.port)).collect();
    let queue =
        |number: u16| (QueueChoice::Program, vec![u32::from(number)], Some(61_008 + number));
    assert_eq!(chosen, [queue(0), queue(1)]);
    let changed = changes(&plan);
    assert!(changed.iter().all(|change| change.contains("rps_cpus")), "{changed:?}");
}

#[test]
fn interrupts_move_to_ranks_that_cannot_be_where_they_are() {
    let machine = machine(4, nic(4));
    let plan = planned(&machine, 8, &["here", "far"], &wishes(FlowRules::Off));
    // Interrupts 2 and 3 share the cores of 0 and 1, which ranks 0 and 1 have.
    assert_eq!(cores(&plan), [[0], [1], [2], [3]]);
    let expected = [
        "eth0/feature-rx-ntuple-filter on",
        "eth0/udp4-61008/queue 0",
        "eth0/udp4-61009/queue 1",
        "eth0/udp4-61010/queue 2",
        "eth0/udp4-61011/queue 3",
        "irq:42/affinity 2",
        "irq:43/affinity 3",
    ];
    assert_eq!(changes(&plan), expected);
}

#[test]
fn ranks_that_share_a_queue_have_its_packets_spread_over_their_cores() {
    let machine = machine(4, nic(2));
    let plan = planned(&machine, 8, &["here", "far"], &wishes(FlowRules::On));
    let expected = ["eth0/rx-0/rps_cpus 5", "eth0/rx-1/rps_cpus a"];
    assert_eq!(changes(&plan)[4..], expected);
    assert_eq!(changes(&plan)[2..4], ["eth0/udp4-61010/queue 0", "eth0/udp4-61011/queue 1"]);
}

#[test]
fn a_device_without_rules_keeps_its_hash_and_says_why() {
    let machine = machine(2, virtual_nic(2));
    let plan = planned(&machine, 4, &["here", "far"], &wishes(missing()));
    assert_eq!(plan.no_rules.as_deref(), Some("Operation not supported"));
    assert_eq!(changes(&plan), ["eth0/rx-0/rps_cpus 1", "eth0/rx-1/rps_cpus 2"]);
    assert_eq!(plan.first_port, None);
    let receiver = plan.ranks[0].receiver.as_ref().expect("here");
    assert_eq!((receiver.queue_choice, receiver.cores.len()), (QueueChoice::DeviceHash, 2));
    // One rank: no queue stays with a core that has none.
    let one = planned(&machine, 2, &["here", "far"], &wishes(missing()));
    assert_eq!(changes(&one), ["eth0/rx-0/rps_cpus 1", "eth0/rx-1/rps_cpus 1"]);
}

#[test]
fn one_queue_serves_one_rank_by_its_interrupt_and_several_by_software() {
    let machine = machine(2, nic(1));
    let one = planned(&machine, 2, &["here", "far"], &wishes(missing()));
    assert_eq!((cores(&one), changes(&one)), (vec![vec![0]], vec![]), "it is there already");
    let two = planned(&machine, 4, &["here", "far"], &wishes(missing()));
    assert_eq!(changes(&two), ["eth0/rx-0/rps_cpus 3"]);
    assert_eq!(two.no_rules, None, "there is nothing to choose");
}

#[test]
fn the_thread_of_threaded_napi_moves_instead_of_the_interrupt() {
    let thread = NapiThread {
        name: "napi/eth0-8193".to_owned(),
        queue: Some(0),
        allowed_cores: vec![0, 1],
        ..NapiThread::default()
    };
    let machine = machine(2, Nic { napi_threads: vec![thread], ..nic(1) });
    let plan = planned(&machine, 2, &["here", "far"], &wishes(missing()));
    assert_eq!(changes(&plan), ["thread:napi/eth0-8193/affinity 0"]);
}

#[test]
fn more_ranks_than_cores_are_bound_and_steered_nowhere() {
    let machine = machine(1, nic(1));
    let plan = planned(&machine, 4, &["here", "far"], &wishes(missing()));
    assert!(plan.ranks[..2].iter().all(|rank| rank.core_choice == CoreChoice::TooFewCores));
    assert_eq!((plan.unsteered, changes(&plan).len()), (Some(Unsteered::NoCores), 0));
    let one = planned(&machine, 2, &["here", "far"], &wishes(missing()));
    assert_eq!(cores(&one), [[0]], "one rank has the one core");
}

#[test]
fn only_cores_that_are_online_and_allowed_are_given() {
    let mut machine = machine(4, nic(2));
    machine.cores[0].is_usable = false;
    machine.cores[1].is_online = false;
    let plan = planned(&machine, 4, &["here", "far"], &wishes(FlowRules::On));
    assert_eq!(cores(&plan), [[2], [3]]);
    assert_eq!(changes(&plan)[2..], ["irq:40/affinity 2", "irq:41/affinity 3"]);
    let none = planned(&machine, 6, &["here", "far"], &wishes(FlowRules::On));
    assert_eq!(none.unsteered, Some(Unsteered::NoCores));
}

#[test]
fn ranks_that_the_launcher_binds_stay_and_their_packets_come_to_them() {
    let machine = machine(4, nic(2));
    let rank = |rank, core, host: &str| MappedRank {
        rank,
        host: host.to_owned(),
        bound: vec![crate::BoundThread { core, thread: 0 }],
    };
    let ranks = [rank(0, 3, "here"), rank(1, 0, "far"), rank(2, 2, "here")];
    let wishes = Wishes { binder: Binder::Launcher, ..wishes(FlowRules::On) };
    let plan = of_ranks(&machine, &ranks, &wishes);
    assert_eq!(cores(&plan), [[3], [2]]);
    assert_eq!(plan.ranks[0].core_choice, CoreChoice::Launcher);
    assert_eq!(changes(&plan)[2..], ["irq:40/affinity 3", "irq:41/affinity 2"]);
    let unbound = [MappedRank { bound: Vec::new(), ..ranks[0].clone() }, ranks[1].clone()];
    let plan = of_ranks(&machine, &unbound, &wishes);
    assert_eq!(plan.unsteered, Some(Unsteered::NoCores));
}

#[test]
fn ranks_of_one_host_are_bound_and_nothing_is_steered() {
    let machine = machine(2, nic(2));
    let plan = planned(&machine, 2, &["here"], &wishes(FlowRules::On));
    assert_eq!((cores(&plan), plan.unsteered), (vec![vec![0], vec![1]], Some(Unsteered::OneHost)));
    assert!(plan.changes.is_empty() && plan.first_port.is_none());
    let asked = Wishes { unsteered: Some(Unsteered::Asked), ..wishes(FlowRules::On) };
    let plan = planned(&machine, 4, &["here", "far"], &asked);
    assert_eq!((plan.changes.len(), plan.unsteered), (0, Some(Unsteered::Asked)));
    assert_eq!(
        plan.ranks[0].core_choice,
        CoreChoice::Queue,
        "bound next to the queue all the same"
    );
}

#[test]
fn an_interface_that_shows_no_queue_is_left_alone() {
    let machine = machine(2, virtual_nic(0));
    let plan = planned(&machine, 4, &["here", "far"], &wishes(missing()));
    assert_eq!((plan.unsteered, plan.changes.len()), (Some(Unsteered::NoQueues), 0));
    assert_eq!(cores(&plan), [[0], [1]]);
}
