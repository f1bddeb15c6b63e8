//! `clearstream mpi plan`: which rank runs on which core, and which queue and interrupt receive for it.

use std::ffi::OsString;
use std::fmt::Write as _;
use std::io::Write;

use crew::{
    CoreChoice, EndpointPlace, HereView, MappedRank, QueueChoice, RankPlacement, Receiver,
    even_ranks, place,
};
use results::{Machine, Proximity};
use serde_json::{Value, json};
use sys::own_address::{self, Reason};

use super::{
    INTERFACE_VARIABLE, LauncherError, SharedMemory, TransportArgs, check_launcher, no_interface,
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
    With a launcher, Open MPI itself reports where it would start and bind each rank. With --ranks,\n\
    the plan shows the order in which ClearStream would bind them: physical cores before their\n\
    siblings, packages in turn. Only the interfaces and cores of this host are known.")]
pub(super) struct PlanArgs {
    #[command(flatten)]
    transport: TransportArgs,
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
    let (endpoint, reason) = endpoint(args.transport.interface.as_deref())?;
    let own = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let ranks = match args.ranks {
        Some(count) if args.hosts.is_empty() => even_ranks(count, std::slice::from_ref(&own)),
        Some(count) => even_ranks(count, &args.hosts),
        None => match launched(&args.launcher)? {
            Ok(ranks) => ranks,
            Err(exit) => return Ok(exit),
        },
    };
    let names = names_of(&own);
    let machine = topology::machine();
    let here = HereView { names: &names, machine: &machine, endpoint: &endpoint };
    let plan = Plan {
        ranks: place(&ranks, args.ranks.is_none(), here),
        endpoint,
        reason,
        shared_memory,
        machine: &machine,
    };
    let mut out = crate::out::stdout();
    if json {
        writeln!(out, "{}", plan.json())?;
    } else {
        write!(out, "{}", plan.text())?;
    }
    Ok(Exit::Ok)
}

/// Where this host's endpoints are reached, and why there.
fn endpoint(interface: Option<&str>) -> Result<(EndpointPlace, Reason), VerbError> {
    let variable = std::env::var(INTERFACE_VARIABLE).ok().filter(|value| !value.is_empty());
    let wanted = interface.or(variable.as_deref());
    let Some((chosen, reason)) = own_address::choose(wanted) else {
        return Err(match wanted {
            Some(wanted) => no_interface(wanted),
            None => VerbError::missing("this host has no address"),
        });
    };
    Ok((EndpointPlace { interface: chosen.interface, ip: chosen.ip }, reason))
}

/// What launchers call this host: its name, also without its domain, and the loopback.
fn names_of(own: &str) -> Vec<String> {
    let short = own.split('.').next().unwrap_or(own);
    [own, short, "localhost", "127.0.0.1"].map(str::to_owned).into()
}

/// The ranks as the launcher would start them; an exit where it cannot be run.
fn launched(launcher: &[OsString]) -> Result<Result<Vec<MappedRank>, Exit>, VerbError> {
    let [program, arguments @ ..] = launcher else {
        return Err(VerbError::usage("name a launcher after --, such as mpirun, or give --ranks"));
    };
    refuse_other_ways(arguments)?;
    match check_launcher(program) {
        Ok(()) => {}
        Err(LauncherError::NotRun(error)) => return Ok(Err(not_run(program, &error))),
        Err(LauncherError::Unfit(line)) => return Err(VerbError::missing(line)),
    }
    let map = crew::job_map(program, arguments)?;
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
    ranks: Vec<RankPlacement>,
    endpoint: EndpointPlace,
    reason: Reason,
    shared_memory: SharedMemory,
    machine: &'a Machine,
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
        }
    }

    fn why(self) -> &'static str {
        match self {
            Self::Rank => {
                "ranks: the launcher binds them to no core, and the library does not either; with --bind-to core \
                 Open MPI does"
            }
            Self::TooFewCores => "ranks: there are more than usable cores, which they share",
            Self::Queue => {
                "receive queue: messages are UDP datagrams, each endpoint has a port that the kernel chooses when the \
                 rank starts, and the device's hash of addresses and ports chooses the queue; no rule steers it"
            }
            Self::Interrupt => {
                "interrupts: they stay where the system has them; `clearstream place --move-interrupts` and \
                 /proc/irq/N/smp_affinity_list move them"
            }
            Self::SharedMemory => {
                "ranks of one host: their messages go through shared memory, which the receiver polls; there is no \
                 packet, no queue and no interrupt"
            }
            Self::OtherHosts => {
                "ranks of other hosts: their cores, queues and interrupts are not known here; run this there"
            }
        }
    }
}

impl Plan<'_> {
    /// What is bound to nothing, in the order of a packet's way from rank to device.
    fn unbound(&self) -> Vec<Unbound> {
        let any = |is_it: &dyn Fn(&RankPlacement) -> bool| self.ranks.iter().any(is_it);
        let receivers = || self.ranks.iter().filter_map(|rank| rank.receiver.as_ref());
        let mut found = Vec::new();
        let mut note = |is_it: bool, what| found.extend(is_it.then_some(what));
        note(any(&|rank| rank.core_choice == CoreChoice::Nobody), Unbound::Rank);
        note(any(&|rank| rank.core_choice == CoreChoice::TooFewCores), Unbound::TooFewCores);
        let shares = self.shared_memory != SharedMemory::Off;
        note(shares && any(&|rank| rank.beside_count > 0), Unbound::SharedMemory);
        let by_hash = |one: &Receiver| one.queue_choice == QueueChoice::DeviceHash;
        note(receivers().any(by_hash), Unbound::Queue);
        note(receivers().any(|one| !one.interrupts.is_empty()), Unbound::Interrupt);
        note(any(&|rank| !rank.is_here), Unbound::OtherHosts);
        found
    }

    fn text(&self) -> String {
        let mut text = String::new();
        let EndpointPlace { interface, ip } = &self.endpoint;
        let hosts: std::collections::BTreeSet<&str> =
            self.ranks.iter().map(|rank| rank.host.as_str()).collect();
        // Writing to a String cannot fail.
        let mut line = |line: std::fmt::Arguments<'_>| writeln!(text, "{line}").unwrap_or(());
        line(format_args!(
            "{} on {}; endpoints of this host on {interface}, {ip}: {}\n",
            units::count_of(self.ranks.len() as u64, "rank"),
            units::count_of(hosts.len() as u64, "host"),
            why_there(self.reason),
        ));
        let wide = hosts.iter().map(|host| host.len()).max().unwrap_or(0).max(4);
        line(format_args!("rank  {:wide$}  core", "host"));
        for rank in &self.ranks {
            let core = core_text(rank);
            line(format_args!("{:<4}  {:wide$}  {core}", rank.rank, rank.host));
        }
        for (ranks, receiver) in self.receivers() {
            line(format_args!(
                "\nreceives for {} {ranks}",
                if ranks.contains(['-', ',']) { "ranks" } else { "rank" }
            ));
            line(format_args!(
                "  endpoint   UDP on {interface}, {ip}; the kernel chooses the port"
            ));
            line(format_args!("  queue      {}", queue_text(receiver, interface)));
            let interrupt = interrupt_text(receiver, interface);
            line(format_args!("  interrupt  {interrupt}"));
            line(format_args!("  core       {}", self.core_of(receiver)));
        }
        line(format_args!("\n{}", self.shared_memory.line(None)));
        line(format_args!("\nnot bound"));
        for what in self.unbound() {
            line(format_args!("  {}", what.why()));
        }
        text
    }

    /// Receivers that differ, with their ranks as text.
    fn receivers(&self) -> Vec<(String, &Receiver)> {
        let mut found: Vec<(Vec<u32>, &Receiver)> = Vec::new();
        for rank in &self.ranks {
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
        let moves = if self.machine.irqbalance_runs { "; irqbalance may move it" } else { "" };
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
                "interface": self.endpoint.interface,
                "ip": self.endpoint.ip,
                "reason": reason_code(self.reason),
            },
            "shared_memory": self.shared_memory.value(),
            "irqbalance_runs": self.machine.irqbalance_runs,
            "ranks": self.ranks.iter().map(rank).collect::<Vec<Value>>(),
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

fn core_text(rank: &RankPlacement) -> String {
    let cores = cores_text(&rank.cores);
    match rank.core_choice {
        CoreChoice::Launcher if rank.cores.is_empty() => {
            "bound by Open MPI, to cores not known here".to_owned()
        }
        CoreChoice::Launcher => format!("{cores}: bound by Open MPI"),
        CoreChoice::Nobody => "any: Open MPI binds it to none".to_owned(),
        CoreChoice::Order => format!("{cores}: next in order, physical cores first"),
        CoreChoice::TooFewCores => "any: more ranks than usable cores".to_owned(),
        CoreChoice::OtherHost => "not known: another host".to_owned(),
    }
}

fn core_code(choice: CoreChoice) -> &'static str {
    match choice {
        CoreChoice::Launcher => "launcher",
        CoreChoice::Nobody => "nobody",
        CoreChoice::Order => "order",
        CoreChoice::TooFewCores => "too_few_cores",
        CoreChoice::OtherHost => "other_host",
    }
}

fn queue_code(choice: QueueChoice) -> &'static str {
    match choice {
        QueueChoice::Loopback => "loopback",
        QueueChoice::OnlyOne => "only_one",
        QueueChoice::DeviceHash => "device_hash",
        QueueChoice::Unknown => "unknown",
    }
}

fn queue_text(receiver: &Receiver, interface: &str) -> String {
    let queues = cores_text(&receiver.queues);
    match receiver.queue_choice {
        QueueChoice::Loopback => "none: the loopback has no receive queue".to_owned(),
        QueueChoice::OnlyOne => format!("{interface} rx-{queues}: it has one"),
        QueueChoice::DeviceHash => {
            format!("one of {interface} rx-{queues}: by the device's hash of addresses and ports")
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
    use results::{Core, Interrupt, Nic, ReceiveQueue};

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

    fn plan<'a>(
        machine: &'a Machine,
        shared_memory: SharedMemory,
        hosts: &[&str],
        count: u32,
    ) -> Plan<'a> {
        let hosts: Vec<String> = hosts.iter().map(|&host| host.to_owned()).collect();
        let endpoint =
            EndpointPlace { interface: "eth0".to_owned(), ip: "10.0.0.1".parse().expect("one") };
        let names = names_of("here.example");
        let here = HereView { names: &names, machine, endpoint: &endpoint };
        let ranks = place(&even_ranks(count, &hosts), false, here);
        Plan { ranks, endpoint, reason: Reason::Routed, shared_memory, machine }
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
        let codes = |plan: Plan<'_>| -> Vec<&str> {
            plan.unbound().into_iter().map(Unbound::code).collect()
        };
        let alone = plan(&one, SharedMemory::Direct, &["here"], 1);
        assert_eq!(codes(alone), ["interrupt"]);
        let two = plan(&one, SharedMemory::Direct, &["here"], 2);
        assert_eq!(codes(two), ["shared_memory", "interrupt"]);
        let off = plan(&many, SharedMemory::Off, &["here"], 2);
        assert_eq!(codes(off), ["receive_queue", "interrupt"]);
        let crowd = plan(&many, SharedMemory::Rings, &["here", "far"], 6);
        let expected =
            ["too_few_cores", "shared_memory", "receive_queue", "interrupt", "other_hosts"];
        assert_eq!(codes(crowd), expected);
    }

    #[test]
    fn the_text_names_core_queue_interrupt_and_distance_of_every_rank() {
        let one = machine(1);
        let text = plan(&one, SharedMemory::Direct, &["here", "far"], 3).text();
        for part in [
            "3 ranks on 2 hosts",
            "0     here  0: next in order",
            "1     here  1: next in order",
            "2     far   not known: another host",
            "eth0 rx-0: it has one",
            "30 (eth0-rx-0) on 0",
            "0, the rank's own core",
            "0, a core of the same node",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
    }

    #[test]
    fn without_shared_memory_all_messages_are_datagrams() {
        let one = machine(1);
        let ways = |how| {
            let told = plan(&one, how, &["here", "far"], 3).json();
            let of = |name: &str| told["ranks"][0][name].as_u64();
            (of("shared_memory_ranks_count"), of("udp_ranks_count"))
        };
        assert_eq!(ways(SharedMemory::Direct), (Some(1), Some(1)));
        assert_eq!(ways(SharedMemory::Off), (Some(0), Some(2)));
    }
}
