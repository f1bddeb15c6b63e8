//! Which queueing discipline an interface has, and the rate it holds traffic to
//! (kernel `include/uapi/linux/pkt_sched.h`).

mod stats;

pub(crate) use stats::QdiscReadings;

use netlink::{Discipline, DisciplineKind, ROOT, attribute, u32_of, u64_of};
use sys::netlink_socket::NetlinkSocket;

const TCA_TBF_PARMS: u16 = 1;
const TCA_TBF_RATE64: u16 = 4;
const TCA_HTB_PARMS: u16 = 1;
const TCA_HTB_INIT: u16 = 2;
const TCA_HTB_CEIL64: u16 = 7;
const TCA_FQ_FLOW_MAX_RATE: u16 = 7;
const TCA_CAKE_BASE_RATE64: u16 = 2;

/// What stands at an interface's root.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct RootQdisc {
    /// `fq_codel`, `tbf`; `None` when the kernel lists none (`noqueue`).
    pub(crate) kind: Option<String>,
    /// The rate it holds to, bit/s: of all traffic (tbf, htb, cake), or of each flow (fq).
    pub(crate) rate_bits_per_s: Option<f64>,
    /// htb's class that sets this rate, as `tc` writes it.
    pub(crate) class: Option<String>,
}

/// The root qdisc of an interface.
pub(crate) fn root_qdisc(socket: &mut NetlinkSocket, index: u32) -> RootQdisc {
    let qdiscs = disciplines(socket, DisciplineKind::Qdisc, index, 0);
    let mine = || qdiscs.iter().filter(|qdisc| qdisc.index == index);
    let Some(root) = mine().find(|qdisc| qdisc.parent == ROOT) else {
        return RootQdisc::default();
    };
    let mut class = None;
    let rate_bytes_per_s = if root.kind == "htb" {
        let bound = htb_bound(root, &disciplines(socket, DisciplineKind::Class, index, 0));
        class = bound.map(|(_, handle)| stats::show_handle(handle));
        bound.map(|(rate, _)| rate)
    } else {
        // Below a root without a rate of its own (mq) the widest child is the ceiling.
        rate_bytes_per_s(root).or_else(|| {
            let children = mine().filter(|qdisc| qdisc.parent >> 16 == root.handle >> 16);
            children.filter_map(rate_bytes_per_s).max()
        })
    };
    RootQdisc {
        kind: Some(root.kind.clone()),
        rate_bits_per_s: rate_bytes_per_s.map(|rate| rate as f64 * 8.0),
        class,
    }
}

/// What the kernel lists; nothing where it refuses, as where a qdisc has no classes.
fn disciplines(
    socket: &mut NetlinkSocket,
    kind: DisciplineKind,
    index: u32,
    parent: u32,
) -> Vec<Discipline> {
    socket.list(&kind.dump(index, parent)).unwrap_or_default()
}

fn rate_bytes_per_s(discipline: &Discipline) -> Option<u64> {
    let option = |kind| attribute(&discipline.options, kind);
    let rate = match discipline.kind.as_str() {
        "tbf" => {
            option(TCA_TBF_RATE64).and_then(u64_of).or_else(|| ratespec(option(TCA_TBF_PARMS)?, 0))
        }
        // All ones is fq's "unlimited".
        "fq" => option(TCA_FQ_FLOW_MAX_RATE)
            .and_then(u32_of)
            .filter(|&rate| rate != u32::MAX)
            .map(u64::from),
        "cake" => option(TCA_CAKE_BASE_RATE64).and_then(u64_of),
        _other => None,
    };
    rate.filter(|&rate| rate > 0)
}

/// An htb class's `ceil`, bytes/s, and its handle.
fn ceiling(class: &Discipline) -> Option<(u64, u32)> {
    let wide = attribute(&class.options, TCA_HTB_CEIL64).and_then(u64_of);
    let bytes_per_s = wide.or_else(|| ratespec(attribute(&class.options, TCA_HTB_PARMS)?, 1))?;
    Some((bytes_per_s, class.handle))
}

/// The `rate` of the n-th `struct tc_ratespec` of a parameter block, bytes/s.
fn ratespec(parameters: &[u8], place: usize) -> Option<u64> {
    const RATESPEC_BYTES: usize = 12;
    u32_of(parameters.get(place * RATESPEC_BYTES + 8..)?).map(u64::from)
}

/// What htb lets through, bytes/s, and the class that decides: the ceiling of the class that unclassified traffic goes to and of those
/// above it. Where there is no such class filters decide, and the widest top class is the bound.
fn htb_bound(root: &Discipline, classes: &[Discipline]) -> Option<(u64, u32)> {
    const TREE_DEPTH_MAX: usize = 8;
    let default_minor =
        attribute(&root.options, TCA_HTB_INIT).and_then(|init| u32_of(init.get(8..)?));
    let mut at = classes
        .iter()
        .find(|class| Some(class.handle & 0xffff) == default_minor.filter(|&minor| minor != 0));
    let mut narrowest = None;
    for _level in 0..TREE_DEPTH_MAX {
        let Some(class) = at else { break };
        narrowest = narrowest.into_iter().chain(ceiling(class)).min_by_key(|&(rate, _)| rate);
        at = classes.iter().find(|above| above.handle == class.parent);
    }
    narrowest.or_else(|| {
        let top = classes.iter().filter(|class| class.parent == ROOT);
        top.filter_map(ceiling).max_by_key(|&(rate, _)| rate)
    })
}

#[cfg(test)]
mod tests;
