//! An interface's queues and who serves them, with rows that follow one rule folded into one.

use std::collections::BTreeMap;
use std::fmt;

use results::{Interrupt, NapiThread, Nic};

use super::list;

/// Rows printed one by one; more are folded where they can be.
const ROWS_MAX: usize = 12;

/// A line of the table, maybe for several queues.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Row {
    /// `rx+tx 0-31`.
    pub(super) queues: String,
    /// `irq 128-159 mlx5_comp0…`, `thread napi/eth0-8193`.
    pub(super) server: String,
    /// May run on.
    pub(super) allowed: String,
    /// Did run on.
    pub(super) ran: String,
    /// `RPS 0-3`, `XPS 1`.
    pub(super) steering: String,
}

/// Which queues are served.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Kind {
    receive: bool,
    transmit: bool,
}

impl Kind {
    const BOTH: Self = Self { receive: true, transmit: true };
}

impl fmt::Display for Kind {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match (self.receive, self.transmit) {
            (true, true) => "rx+tx",
            (true, false) => "rx",
            (false, true) => "tx",
            (false, false) => "other",
        })
    }
}

/// What serves one queue.
#[derive(Debug)]
struct Served {
    kind: Kind,
    queue: Option<u32>,
    number: u32,
    word: &'static str,
    name: String,
    allowed: Vec<u32>,
    ran: Vec<u32>,
}

/// The table of an interface.
pub(super) fn rows(nic: &Nic) -> Vec<Row> {
    let mut served: Vec<Served> = nic.interrupts.iter().map(of_interrupt).collect();
    served.extend(nic.napi_threads.iter().map(of_thread));
    let is_folded = served.len() > ROWS_MAX;
    let mut rows: Vec<Row> = if is_folded {
        let follows = |a: &Served, b: &Served| a.is_followed_by(b);
        served.chunk_by(follows).map(|run| fold(run, nic)).collect()
    } else {
        served.chunks(1).map(|run| fold(run, nic)).collect()
    };
    if rows.is_empty() && !nic.receive_queues.is_empty() {
        rows.extend(without_server(nic));
    }
    rows
}

fn of_interrupt(interrupt: &Interrupt) -> Served {
    let kind = Kind { receive: interrupt.serves_receive, transmit: interrupt.serves_transmit };
    let mut ran = interrupt.ran.clone();
    // The busiest first, and only those that matter: a hundredth of it.
    ran.sort_by_key(|&(core, count)| (std::cmp::Reverse(count), core));
    let all: u64 = ran.iter().fold(0, |sum, &(_, count)| sum.saturating_add(count));
    let matters = |&(_, count): &(u32, u64)| count >= all / 100;
    let ran = ran.into_iter().filter(matters).map(|(core, _)| core).collect();
    Served {
        kind,
        queue: interrupt.queue,
        number: interrupt.irq,
        word: "irq",
        name: interrupt.name.clone(),
        allowed: interrupt.allowed_cores.clone(),
        ran,
    }
}

fn of_thread(thread: &NapiThread) -> Served {
    Served {
        kind: Kind::BOTH,
        queue: thread.queue,
        number: thread.pid,
        word: "thread",
        name: thread.name.clone(),
        allowed: thread.allowed_cores.clone(),
        ran: thread.last_core.into_iter().collect(),
    }
}

impl Served {
    /// The next queue, and either the same cores or each the next core.
    fn is_followed_by(&self, next: &Self) -> bool {
        let is_next = |a: Option<u32>, b: Option<u32>| match (a, b) {
            (Some(a), Some(b)) => a.checked_add(1) == Some(b),
            (None, None) => true,
            _ => false,
        };
        let step = |a: &[u32], b: &[u32]| match (a, b) {
            ([a], [b]) => a.checked_add(1) == Some(*b),
            _ => false,
        };
        self.kind == next.kind
            && self.word == next.word
            && is_next(self.queue, next.queue)
            && (self.allowed == next.allowed || step(&self.allowed, &next.allowed))
    }
}

fn fold(run: &[Served], nic: &Nic) -> Row {
    let [first, .., last] = run else {
        return run.first().map_or_else(
            || Row {
                queues: String::new(),
                server: String::new(),
                allowed: String::new(),
                ran: String::new(),
                steering: String::new(),
            },
            |one| one_row(one, nic),
        );
    };
    let numbers: Vec<u32> = run.iter().map(|one| one.number).collect();
    let queues: Vec<u32> = run.iter().filter_map(|one| one.queue).collect();
    let together = |of: fn(&Served) -> &Vec<u32>| {
        let each: Vec<u32> = run.iter().flat_map(|one| of(one).iter().copied()).collect();
        list(&each)
    };
    let is_one_each = run.iter().all(|one| one.allowed.len() == 1) && first.allowed != last.allowed;
    let each = if is_one_each { ", one each" } else { "" };
    Row {
        queues: if queues.is_empty() {
            "other".to_owned()
        } else {
            format!("{} {}", first.kind, list(&queues))
        },
        server: format!("{} {} {}\u{2026}", first.word, list(&numbers), first.name),
        allowed: format!("{}{each}", together(|one| &one.allowed)),
        ran: together(|one| &one.ran),
        steering: steering(nic, &queues, first.kind),
    }
}

fn one_row(one: &Served, nic: &Nic) -> Row {
    let queue = one.queue.map_or(String::new(), |queue| format!(" {queue}"));
    let queues: Vec<u32> = one.queue.into_iter().collect();
    Row {
        queues: format!("{}{queue}", one.kind),
        server: format!("{} {} {}", one.word, one.number, one.name),
        allowed: list(&one.allowed),
        ran: list(&one.ran),
        steering: steering(nic, &queues, one.kind),
    }
}

/// What software does with the packets of these queues.
fn steering(nic: &Nic, queues: &[u32], kind: Kind) -> String {
    let mut parts = Vec::new();
    let has = |queue: u32| queues.contains(&queue);
    if kind.receive {
        let rps = nic.receive_queues.iter().filter(|at| has(at.queue));
        let cores: Vec<u32> = rps.clone().flat_map(|at| at.rps_cores.iter().copied()).collect();
        if !cores.is_empty() {
            parts.push(format!("RPS {}", list(&cores)));
        }
        if let Some(most) = rps.map(|at| at.rfs_entries_count).max().filter(|&most| most > 0) {
            parts.push(format!("RFS {most}"));
        }
    }
    if kind.transmit {
        let xps = nic.transmit_queues.iter().filter(|at| has(at.queue));
        let cores: Vec<u32> = xps.flat_map(|at| at.xps_cores.iter().copied()).collect();
        if !cores.is_empty() {
            parts.push(format!("XPS {}", list(&cores)));
        }
    }
    parts.join(" ")
}

/// Queues that neither an interrupt nor a thread of their own serves: a software device.
fn without_server(nic: &Nic) -> Vec<Row> {
    let mut same: BTreeMap<(Vec<u32>, u32), Vec<u32>> = BTreeMap::new();
    for at in &nic.receive_queues {
        same.entry((at.rps_cores.clone(), at.rfs_entries_count)).or_default().push(at.queue);
    }
    same.into_values()
        .map(|queues| Row {
            queues: format!("rx {}", list(&queues)),
            server: "softirq of the sender's core".to_owned(),
            allowed: String::new(),
            ran: String::new(),
            steering: steering(nic, &queues, Kind::BOTH),
        })
        .collect()
}
