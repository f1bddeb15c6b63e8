//! `clearstream mpi plan`: which rank runs on which core, and which queue and interrupt receive for it.

use std::ffi::OsString;
use std::fmt::Write as _;
use std::io::Write;

use crew::{
    CoreChoice, EndpointPlace, MappedRank, QueueChoice, RankPlacement, Receiver, Unsteered,
    even_ranks,
};
use results::Proximity;
use serde_json::{Value, json};
use settings::command;
use sys::own_address::Reason;

use super::placed::{self, LauncherBinding, Placed, PlacementArgs, launcher_binding, placed};
use super::{
    Carrier, LauncherError, OneSided, SharedMemory, TransportArgs, carrier, check_launcher, port,
    refuse_other_ways, shared_memory,
};
use crate::VerbResult;
use crate::exit::{Exit, VerbError, not_run};
use crate::placement::cores_text;

/// Most ranks of `--ranks`.
const RANKS_MAX: u32 = 100_000;

/// Options of `mpi plan`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  \
    clearstream mpi plan -- mpirun -n 4 ./job\n  \
    clearstream mpi plan --interface eth1 -- mpirun --host a:2,b:2 -n 4 ./job\n  \
    clearstream mpi plan --ranks 4\n\n\
    With a launcher, Open MPI itself reports where it would start each rank, and where it would bind\n\
    those that are left to it. `clearstream mpi` carries out the same plan. Without --hosts, --ranks\n\
    are all on this host. Only the interfaces and cores of this host are known.")]
pub(super) struct PlanArgs {
    #[command(flatten)]
    transport: TransportArgs,
    #[command(flatten)]
    placement: PlacementArgs,
    /// Plan for this many ranks, without a launcher.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=i64::from(RANKS_MAX)),
          conflicts_with = "launcher")]
    ranks: Option<u32>,
    /// Hosts for --ranks, with the same number of ranks on each [default: this host].
    #[arg(long, value_name = "LIST", value_delimiter = ',', requires = "ranks")]
    hosts: Vec<String>,
    /// The launcher and its arguments.
    #[arg(required_unless_present = "ranks", last = true, value_name = "LAUNCHER")]
    launcher: Vec<OsString>,
}

pub(super) fn run(args: &PlanArgs, json: bool) -> VerbResult {
    let shared_memory = shared_memory(args.transport.shared_memory)?;
    let port = port(args.transport.port.as_deref())?;
    let carrier = carrier(args.transport.transport, port.as_deref())?;
    let own = placed::own_name();
    let (ranks, binding) = match args.ranks {
        Some(count) if args.hosts.is_empty() => {
            (even_ranks(count, std::slice::from_ref(&own)), None)
        }
        Some(count) => (even_ranks(count, &args.hosts), None),
        None => match launched(&args.launcher, args.transport.one_sided)? {
            Ok(ranks) => {
                let words = args.launcher.get(1..).unwrap_or_default();
                (ranks, Some(launcher_binding(words, |name| std::env::var(name).ok())))
            }
            Err(exit) => return Ok(exit),
        },
    };
    let interface = args.transport.interface.as_deref();
    let placed = placed(&ranks, binding, interface, port.as_deref(), carrier, &args.placement)?;
    let plan = Plan { placed: &placed, shared_memory, carrier };
    let mut out = crate::out::stdout();
    if json {
        writeln!(out, "{}", plan.json())?;
    } else {
        write!(out, "{}", plan.text())?;
    }
    Ok(Exit::Ok)
}

/// The ranks as the launcher would start them; an exit where it cannot be run.
fn launched(
    launcher: &[OsString],
    one_sided: Option<OneSided>,
) -> Result<Result<Vec<MappedRank>, Exit>, VerbError> {
    let [program, arguments @ ..] = launcher else {
        return Err(VerbError::usage("name a launcher after --, such as mpirun, or give --ranks"));
    };
    refuse_other_ways(arguments, one_sided)?;
    match check_launcher(program) {
        Ok(release) => {
            OneSided::chosen(one_sided, release)?;
        }
        Err(LauncherError::NotRun(error)) => return Ok(Err(not_run(program, &error))),
        Err(LauncherError::Unfit(line)) => return Err(VerbError::missing(line)),
    }
    let map = crew::job_map(program, arguments, super::local_slots(arguments))?;
    if map.ranks.is_empty() {
        return Err(VerbError::failed(unmapped(&program.display().to_string(), &map.complaint)));
    }
    Ok(Ok(map.ranks))
}

/// A launcher that names no ranks: why, as it says, and what to do.
fn unmapped(launcher: &str, complaint: &str) -> String {
    let complaint = complaint.trim_end_matches([':', ' ', '.']);
    // Open MPI starts no more ranks than there are cores, unless it is told to.
    let way_out = if complaint.contains("slots") {
        format!("start fewer ranks, or let them share cores: {launcher} --oversubscribe …")
    } else if complaint.contains("run as root") {
        format!("run it as another user, or allow root: {launcher} --allow-run-as-root …")
    } else {
        "give --ranks and --hosts instead".to_owned()
    };
    let why = if complaint.is_empty() { "no reason given" } else { complaint };
    format!("{launcher} does not tell where it would start the ranks: {why}; {way_out}")
}

/// What is shown.
struct Plan<'a> {
    placed: &'a Placed,
    shared_memory: SharedMemory,
    carrier: Carrier,
}

/// Something that is left as it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Unbound {
    Rank,
    TooFewCores,
    Queue,
    Interrupt,
    SharedMemory,
    OtherHosts,
    /// Why packets are not steered.
    Steering(Unsteered),
}

impl Unbound {
    fn code(self) -> &'static str {
        match self {
            Self::Rank => "rank",
            Self::TooFewCores => "too_few_cores",
            Self::Queue => "receive_queue",
            Self::Interrupt => "interrupt",
            Self::SharedMemory => "shared_memory",
            Self::OtherHosts => "other_hosts",
            Self::Steering(_) => "steering",
        }
    }

    fn why(self) -> &'static str {
        match self {
            Self::Rank => {
                "ranks: not bound, as the options ask; leave out --bind-to none and --no-bind to \
                 have them bound"
            }
            Self::TooFewCores => {
                "ranks: there are more ranks than usable cores, so they share cores"
            }
            Self::Queue => {
                "receive queue: messages are UDP datagrams, and the device's hash of addresses and ports chooses the queue; \
                 no rule steers it"
            }
            Self::Interrupt => "interrupts: unchanged",
            Self::SharedMemory => {
                "ranks of one host: their messages go through shared memory, which the receiver polls; there is no \
                 packet, no queue and no interrupt"
            }
            Self::OtherHosts => {
                "ranks of other hosts: their cores, queues and interrupts are not known here, and nothing is changed there"
            }
            Self::Steering(why) => match why {
                Unsteered::Asked => "packets: not steered, as requested (--no-steer)",
                Unsteered::OneHost => {
                    "packets: there is nothing to steer, because no rank is on another host"
                }
                Unsteered::SwitchPort => {
                    "packets: there is nothing to steer, because endpoints have ports of a packet switch"
                }
                Unsteered::NoQueues => "packets: the interface shows no receive queue here",
                Unsteered::NoCores => {
                    "packets: not steered, because the ranks are not bound to cores"
                }
            },
        }
    }
}

impl Plan<'_> {
    /// What is bound to nothing, in the order of a packet's way from rank to device.
    fn unbound(&self) -> Vec<Unbound> {
        let ranks = &self.placed.plan.ranks;
        let any = |is_it: &dyn Fn(&RankPlacement) -> bool| ranks.iter().any(is_it);
        let receivers = || ranks.iter().filter_map(|rank| rank.receiver.as_ref());
        let mut found = Vec::new();
        let mut note = |is_it: bool, what| found.extend(is_it.then_some(what));
        note(any(&|rank| rank.core_choice == CoreChoice::Nobody), Unbound::Rank);
        note(any(&|rank| rank.core_choice == CoreChoice::TooFewCores), Unbound::TooFewCores);
        let shares = self.shared_memory != SharedMemory::Off;
        note(shares && any(&|rank| rank.beside_count > 0), Unbound::SharedMemory);
        let by_hash = |one: &Receiver| one.queue_choice == QueueChoice::DeviceHash;
        note(receivers().any(by_hash), Unbound::Queue);
        let plan = &self.placed.plan;
        let has_interrupts = receivers().any(|one| !one.interrupts.is_empty());
        note(has_interrupts && plan.changes.is_empty(), Unbound::Interrupt);
        note(any(&|rank| !rank.is_here), Unbound::OtherHosts);
        found.extend(plan.unsteered.map(Unbound::Steering));
        found
    }

    fn text(&self) -> String {
        let mut text = String::new();
        let ranks = &self.placed.plan.ranks;
        let EndpointPlace { interface, ip } = &self.placed.endpoint;
        let hosts: std::collections::BTreeSet<&str> =
            ranks.iter().map(|rank| rank.host.as_str()).collect();
        // Writing to a String cannot fail.
        let mut line = |line: std::fmt::Arguments<'_>| writeln!(text, "{line}").unwrap_or(());
        line(format_args!(
            "{} on {}; endpoints of this host on {interface}, {ip}: {}\n",
            units::count_of(ranks.len() as u64, "rank"),
            units::count_of(hosts.len() as u64, "host"),
            why_there(self.placed.reason),
        ));
        let wide = hosts.iter().map(|host| host.len()).max().unwrap_or(0).max(4);
        line(format_args!("rank  {:wide$}  core", "host"));
        for rank in ranks {
            let core = core_text(rank, self.placed.binding);
            line(format_args!("{:<4}  {:wide$}  {core}", rank.rank, rank.host));
        }
        for (ranks, receiver) in self.receivers() {
            line(format_args!(
                "\nreceives for {} {ranks}",
                if ranks.contains(['-', ',']) { "ranks" } else { "rank" }
            ));
            let port = receiver.port.map_or_else(
                || "the kernel chooses the port".to_owned(),
                |port| format!("port {port}"),
            );
            line(format_args!("  endpoint   {} on {interface}, {ip}; {port}", self.carrier.name()));
            line(format_args!("  queue      {}", queue_text(receiver, interface)));
            let interrupt = interrupt_text(receiver, interface);
            line(format_args!("  interrupt  {interrupt}"));
            line(format_args!("  core       {}", self.core_of(receiver)));
        }
        if !self.placed.plan.changes.is_empty() {
            line(format_args!("\nchanged while the job runs, with the reason"));
        }
        for change in &self.placed.plan.changes {
            let made_by = command(&change.key, &change.to);
            line(format_args!("  {made_by}  # {}", change.why));
        }
        line(format_args!("\n{}", self.shared_memory.line(None, self.carrier)));
        line(format_args!("\nnot bound"));
        for what in self.unbound() {
            line(format_args!("  {}", what.why()));
        }
        text
    }

    /// Receivers that differ, with their ranks as text.
    fn receivers(&self) -> Vec<(String, &Receiver)> {
        let mut found: Vec<(Vec<u32>, &Receiver)> = Vec::new();
        for rank in &self.placed.plan.ranks {
            let Some(receiver) = &rank.receiver else { continue };
            match found.iter_mut().find(|(_, other)| *other == receiver) {
                Some((ranks, _)) => ranks.push(rank.rank),
                None => found.push((vec![rank.rank], receiver)),
            }
        }
        found.into_iter().map(|(ranks, receiver)| (cores_text(&ranks), receiver)).collect()
    }

    /// Where the kernel does the receiving.
    fn core_of(&self, receiver: &Receiver) -> String {
        if receiver.cores.is_empty() {
            return match receiver.queue_choice {
                QueueChoice::Unknown => "not known".to_owned(),
                _ => "the sender's: no interrupt is raised and no core is named".to_owned(),
            };
        }
        let moves =
            if self.placed.machine.irqbalance_runs { "; irqbalance may move it" } else { "" };
        let distance = receiver.distance.map(|distance| format!(", {}", distance_text(distance)));
        format!("{}{}{moves}", cores_text(&receiver.cores), distance.unwrap_or_default())
    }

    fn json(&self) -> Value {
        let rank = |one: &RankPlacement| {
            let by_memory =
                if self.shared_memory == SharedMemory::Off { 0 } else { one.beside_count };
            json!({
                "rank": one.rank,
                "host": one.host,
                "is_here": one.is_here,
                "cores": one.cores,
                "core_choice": core_code(one.core_choice),
                "receiver": one.receiver.as_ref().map(receiver_json),
                "shared_memory_ranks_count": by_memory,
                "udp_ranks_count": one.beside_count + one.away_count - by_memory,
            })
        };
        let unbound = self.unbound().into_iter();
        let unbound = unbound.map(|one| json!({ "what": one.code(), "why": one.why() }));
        json!({
            "endpoint": {
                "interface": self.placed.endpoint.interface,
                "ip": self.placed.endpoint.ip,
                "reason": reason_code(self.placed.reason),
            },
            "shared_memory": self.shared_memory.value(),
            "transport": self.carrier.value(),
            "irqbalance_runs": self.placed.machine.irqbalance_runs,
            "ranks": self.placed.plan.ranks.iter().map(rank).collect::<Vec<Value>>(),
            "changes": self.placed.plan.changes.iter().map(|change| json!({
                "key": change.key,
                "to": change.to,
                "why": change.why,
                "command": command(&change.key, &change.to),
            })).collect::<Vec<Value>>(),
            "not_bound": unbound.collect::<Vec<Value>>(),
        })
    }
}

fn receiver_json(receiver: &Receiver) -> Value {
    json!({
        "queues": receiver.queues,
        "queue_choice": queue_code(receiver.queue_choice),
        "interrupts": receiver.interrupts.iter().map(|one| json!({
            "irq": one.irq,
            "name": one.name,
            "queue": one.queue,
            "allowed_cores": one.allowed_cores,
            "effective_cores": one.effective_cores,
        })).collect::<Vec<Value>>(),
        "cores": receiver.cores,
        "udp_port": receiver.port,
        "distance": receiver.distance,
    })
}

fn why_there(reason: Reason) -> &'static str {
    match reason {
        Reason::Asked => "as asked for",
        Reason::Routed => "packets to far hosts leave there",
        Reason::Up => "no route leads to far hosts, and this interface is up",
        Reason::Loopback => "no other interface is up",
    }
}

fn reason_code(reason: Reason) -> &'static str {
    match reason {
        Reason::Asked => "asked",
        Reason::Routed => "routed",
        Reason::Up => "up",
        Reason::Loopback => "loopback",
    }
}

fn core_text(rank: &RankPlacement, binding: LauncherBinding) -> String {
    let cores = cores_text(&rank.cores);
    match rank.core_choice {
        CoreChoice::Launcher if rank.cores.is_empty() => {
            "bound by Open MPI, to cores not known here".to_owned()
        }
        CoreChoice::Launcher if binding == LauncherBinding::Chosen => {
            format!("{cores}: bound by Open MPI, as its options say")
        }
        CoreChoice::Launcher => format!("{cores}: bound by Open MPI"),
        CoreChoice::Nobody => "any: Open MPI binds it to none".to_owned(),
        CoreChoice::Order => format!("{cores}: next in order, physical cores first"),
        CoreChoice::Queue => format!("{cores}: next to its receive queue"),
        CoreChoice::TooFewCores => "any: more ranks than usable cores".to_owned(),
        CoreChoice::OtherHost => "not known: another host".to_owned(),
    }
}

fn core_code(choice: CoreChoice) -> &'static str {
    match choice {
        CoreChoice::Launcher => "launcher",
        CoreChoice::Nobody => "nobody",
        CoreChoice::Order => "order",
        CoreChoice::Queue => "queue",
        CoreChoice::TooFewCores => "too_few_cores",
        CoreChoice::OtherHost => "other_host",
    }
}

fn queue_code(choice: QueueChoice) -> &'static str {
    match choice {
        QueueChoice::Loopback => "loopback",
        QueueChoice::OnlyOne => "only_one",
        QueueChoice::DeviceHash => "device_hash",
        QueueChoice::Rule => "rule",
        QueueChoice::Program => "program",
        QueueChoice::Unknown => "unknown",
    }
}

fn queue_text(receiver: &Receiver, interface: &str) -> String {
    let queues = cores_text(&receiver.queues);
    match receiver.queue_choice {
        QueueChoice::Loopback => "none: the loopback has no receive queue".to_owned(),
        QueueChoice::OnlyOne => format!("{interface} rx-{queues}: its only one"),
        QueueChoice::DeviceHash => {
            format!("one of {interface} rx-{queues}: by the device's hash of addresses and ports")
        }
        QueueChoice::Rule => format!("{interface} rx-{queues}: a rule for the endpoint's port"),
        QueueChoice::Program => {
            format!(
                "{interface} rx-{queues}: BPF programs, by the endpoint's port modulo the queues"
            )
        }
        QueueChoice::Unknown => format!("not known: {interface} shows no queues here"),
    }
}

fn interrupt_text(receiver: &Receiver, interface: &str) -> String {
    if receiver.interrupts.is_empty() {
        return format!("none that {interface} is known to raise for received packets");
    }
    let one = |interrupt: &results::Interrupt| {
        let on = if interrupt.effective_cores.is_empty() {
            &interrupt.allowed_cores
        } else {
            &interrupt.effective_cores
        };
        format!("{} ({}) on {}", interrupt.irq, interrupt.name, cores_text(on))
    };
    receiver.interrupts.iter().map(one).collect::<Vec<_>>().join(", ")
}

fn distance_text(distance: Proximity) -> &'static str {
    match distance {
        Proximity::SameCore => "the rank's own core",
        Proximity::SmtSibling => "the other thread of the rank's core",
        Proximity::SharedCache => "a core that shares a cache with the rank's",
        Proximity::SameNode => "a core of the same node, without a shared cache",
        Proximity::OtherNode => "a core of another node or package",
    }
}

#[cfg(test)]
mod tests {
    use crew::{Binder, FlowRules, HereView, Wishes, plan_job};
    use results::{Core, Interrupt, Machine, Nic, ReceiveQueue};

    use super::*;

    fn machine(queues: u32) -> Machine {
        let core = |core: u32| Core {
            core,
            physical_core: Some(core),
            package: Some(0),
            is_online: true,
            is_usable: true,
            ..Core::default()
        };
        let interrupt = |queue: u32| Interrupt {
            irq: 30 + queue,
            name: format!("eth0-rx-{queue}"),
            queue: Some(queue),
            serves_receive: true,
            effective_cores: vec![queue],
            ..Interrupt::default()
        };
        let nic = Nic {
            name: "eth0".to_owned(),
            receive_queues: (0..queues)
                .map(|queue| ReceiveQueue { queue, ..ReceiveQueue::default() })
                .collect(),
            interrupts: (0..queues).map(interrupt).collect(),
            ..Nic::default()
        };
        Machine { cores: vec![core(0), core(1)], nics: vec![nic], ..Machine::default() }
    }

    fn placed(machine: &Machine, hosts: &[&str], count: u32) -> Placed {
        let hosts: Vec<String> = hosts.iter().map(|&host| host.to_owned()).collect();
        let endpoint =
            EndpointPlace { interface: "eth0".to_owned(), ip: "10.0.0.1".parse().expect("one") };
        let names = placed::names_of("here.example");
        let here = HereView { names: &names, machine, endpoint: &endpoint };
        let wishes = Wishes {
            binder: Binder::Plan,
            unsteered: None,
            rules: FlowRules::On,
            first_port: 61_008,
        };
        Placed {
            plan: plan_job(&even_ranks(count, &hosts), false, here, &wishes),
            endpoint,
            reason: Reason::Routed,
            machine: machine.clone(),
            binding: LauncherBinding::Default,
            host: "here.example".to_owned(),
        }
    }

    #[test]
    fn a_launcher_without_slots_is_told_how_to_get_them() {
        let told = unmapped("mpirun", "There are not enough slots available in the system:");
        assert!(
            told.ends_with(
                "system; start fewer ranks, or let them share cores: mpirun --oversubscribe …"
            ),
            "{told}"
        );
        let told = unmapped("mpirun", "mpirun has detected an attempt to run as root.");
        assert!(told.ends_with("or allow root: mpirun --allow-run-as-root …"), "{told}");
        let told = unmapped("mpirun", "");
        assert!(told.ends_with("no reason given; give --ranks and --hosts instead"), "{told}");
    }

    #[test]
    fn what_is_not_bound_is_named_once_with_its_reason() {
        let (one, many) = (machine(1), machine(4));
        let codes = |machine, shared_memory, hosts: &[&str], count| -> Vec<&str> {
            let placed = placed(machine, hosts, count);
            let plan = Plan { placed: &placed, shared_memory, carrier: Carrier::Udp };
            plan.unbound().into_iter().map(Unbound::code).collect()
        };
        let alone = codes(&one, SharedMemory::Direct, &["here"], 1);
        assert_eq!(alone, ["interrupt", "steering"]);
        let two = codes(&one, SharedMemory::Direct, &["here"], 2);
        assert_eq!(two, ["shared_memory", "interrupt", "steering"]);
        let hosts = ["here", "far"];
        assert_eq!(codes(&many, SharedMemory::Off, &hosts, 4), ["other_hosts"]);
        let crowd = codes(&many, SharedMemory::Rings, &hosts, 6);
        let expected = [
            "too_few_cores",
            "shared_memory",
            "receive_queue",
            "interrupt",
            "other_hosts",
            "steering",
        ];
        assert_eq!(crowd, expected);
    }

    #[test]
    fn the_text_names_core_queue_interrupt_and_distance_of_every_rank() {
        let placed_ = placed(&machine(2), &["here", "far"], 3);
        let text =
            Plan { placed: &placed_, shared_memory: SharedMemory::Direct, carrier: Carrier::Udp }
                .text();
        for part in [
            "3 ranks on 2 hosts",
            "0     here  0: next to its receive queue",
            "1     here  1: next to its receive queue",
            "2     far   not known: another host",
            "10.0.0.1; port 61009",
            "eth0 rx-1: a rule for the endpoint's port",
            "31 (eth0-rx-1) on 1",
            "1, the rank's own core",
            "ethtool -N eth0 flow-type udp4 dst-port 61009 action 1  # the endpoint of rank 1",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
    }

    #[test]
    fn without_shared_memory_all_messages_are_datagrams() {
        let placed = placed(&machine(1), &["here", "far"], 3);
        let ways = |shared_memory| {
            let told = Plan { placed: &placed, shared_memory, carrier: Carrier::Udp }.json();
            let of = |name: &str| told["ranks"][0][name].as_u64();
            (of("shared_memory_ranks_count"), of("udp_ranks_count"))
        };
        assert_eq!(ways(SharedMemory::Direct), (Some(1), Some(1)));
        assert_eq!(ways(SharedMemory::Off), (Some(0), Some(2)));
    }
}
