//! Every figure and table of the papers: its content and its law.

/// One figure or table.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Entry {
    /// Identifier: `C-fig6`.
    pub(crate) id: &'static str,
    /// What it shows, and which parameters vary.
    pub(crate) title: &'static str,
    /// The paper, and the place in it.
    pub(crate) source: &'static str,
    /// The law that should hold on other hosts too.
    pub(crate) law: &'static str,
}

const CLEARSTREAM: &str = "ClearStream 2011";
const PTNET: &str = "ptnet 2016";
const OPEN_MX: &str = "Open-MX 2009";
const CUMULUS: &str = "Cumulus 2018";

/// The first letter of an entry's id, and the paper it stands for.
pub(crate) const PAPERS: [(char, &str); 4] = [
    ('C', "ClearStream 2011: 40 Gbit/s single streams over 1650 km"),
    ('P', "ptnet 2016: packet rings passed through to virtual machines, the VALE switch"),
    ('M', "Open-MX 2009: message passing over plain Ethernet"),
    ('G', "Cumulus 2018: native routing over many gateways to a parallel file system"),
];

/// The catalogue, in the papers' order.
pub(crate) const ENTRIES: [Entry; 36] = [
    ready(
        "C-fig5",
        "local TCP over time: 1 flow, 2 flows, more",
        "one flow is limited by a core, several by a shared ceiling: more flows add nothing",
    ),
    ready(
        "C-bidir",
        "both directions at once: 1 flow, 2 flows each way",
        "traffic in both directions costs a single flow more than it costs the total",
    ),
    ready(
        "C-udp",
        "UDP streaming over offered rate",
        "as TCP, without the window: delivered follows offered up to the ceiling",
    ),
    ready("C-ceiling", "PCIe and header arithmetic", "the lowest ceiling of the path is the limit"),
    ready("C-fig6", "one flow at 17 ms RTT over the TCP window", "T(w) = min(w / RTT, Tmax)"),
    ready(
        "C-fig7",
        "live traffic at both ends, one line per second",
        "what one end sends the other receives",
    ),
    ready(
        "C-fig10",
        "memory node distances",
        "every node is nearest to itself, and some are farther than others",
    ),
    ready(
        "C-fig12",
        "sender pinned to each core",
        "throughput follows the distance from core to NIC",
    ),
    ready(
        "C-fig14",
        "sender core x receiver core, one queue",
        "the distance between the receiver's core and its interrupt's decides",
    ),
    ready(
        "C-divine",
        "a distributed LTL checker over the path",
        "a real application exceeds 10 Gbit/s",
    ),
    ready("C-mix", "bulk flows and the checker together", "large and small flows share the path"),
    ready(
        "C-energy",
        "energy per bit transported, by placement",
        "the energy per bit falls with the core time that a bit takes",
    ),
    between_guests(
        "P-fig3",
        "request/response over message size and device",
        "without device emulation ptnet leads until copying dominates",
    ),
    between_guests(
        "P-stream",
        "TCP_STREAM with 64 KiB TSO packets",
        "extra copies cost bulk throughput",
    ),
    between_guests(
        "P-fig4",
        "UDP_STREAM over message size and device",
        "fixed cost per message, then copies",
    ),
    between_guests(
        "P-fig5",
        "in-guest packet generator over batch size",
        "batches survive the device; wake-ups decide",
    ),
    between_guests(
        "P-netmap",
        "netmap ring API guest to guest over batch size",
        "the ring API carries several times what any network device in the guest does",
    ),
    Entry {
        id: "P-vale",
        title: "VALE switch on the host",
        source: PTNET,
        law: "a switch between processes carries 20 million short frames per second",
    },
    Entry {
        id: "P-pipe",
        title: "netmap pipe",
        source: PTNET,
        law: "nothing is copied: the frame rate does not depend on the length of frames",
    },
    messages(
        "M-tab1",
        "IMB PingPong over receive queues and binding",
        "bound beats scattered; sharing a cache beats the same core",
    ),
    messages(
        "M-idle",
        "idle cores, interrupt on the right core or not",
        "wake-ups cost more than misses",
    ),
    messages(
        "M-tab2",
        "cache misses over message size and binding",
        "bound, the kernel misses the cache half as often and the program up to 100 times less",
    ),
    messages(
        "M-fig5",
        "IMB Alltoall, one process per core",
        "spreading receive work pays when many processes talk",
    ),
    messages(
        "M-tab3",
        "NAS kernels, 16 processes",
        "communication-heavy codes gain, others a few percent",
    ),
    Entry {
        id: "M-divine",
        title: "the model checker on two hosts, by messages and by TCP",
        source: "ClearStream 2011 over Open-MX 2009",
        law: "two hosts search at least 1.6 times as fast as one with as many cores as each",
    },
    cumulus(
        "G-tab2",
        "IOR, one client, projected beside native",
        "native reads 2-3x faster, writes equal or better",
    ),
    cumulus(
        "G-tab3",
        "IOR, one client, native beside projected",
        "native reads 2-3x faster, writes equal or better",
    ),
    cumulus(
        "G-fig2",
        "IOR, one client, over tasks",
        "native reads 2-3x faster, writes equal or better",
    ),
    cumulus("G-tab4", "mdtest, one client, projected beside native", "metadata gains 2 to 90 fold"),
    cumulus("G-tab5", "mdtest, one client, native beside projected", "metadata gains 2 to 90 fold"),
    cumulus("G-fig3-6", "mdtest over file size", "metadata gains 2 to 90 fold"),
    cumulus(
        "G-fig7-8",
        "IOR, 4 clients measured, 16 and 64 modelled",
        "the price of native: its totals are lower with many clients",
    ),
    cumulus("G-tab6-7", "mdtest, 4 clients for the paper's 64", "metadata scales better natively"),
    cumulus("G-flock", "flock and byte-range locks", "absent when projected, present natively"),
    cumulus(
        "G-failover",
        "a gateway fails while files are created",
        "with watchers no call on a file takes longer than 1 s, and none fails",
    ),
    Entry {
        id: "G-tune",
        title: "the sysctl list against today's kernel",
        source: CUMULUS,
        law: "some of the settings no longer exist or have no effect",
    },
];

/// Finds an entry by its id; case does not matter.
pub(crate) fn find(id: &str) -> Option<&'static Entry> {
    ENTRIES.iter().find(|entry| entry.id.eq_ignore_ascii_case(id))
}

/// The ids of all figures and tables.
pub(crate) fn ids() -> impl Iterator<Item = &'static str> {
    ENTRIES.iter().map(|entry| entry.id)
}

const fn ready(id: &'static str, title: &'static str, law: &'static str) -> Entry {
    Entry { id, title, source: CLEARSTREAM, law }
}

const fn between_guests(id: &'static str, title: &'static str, law: &'static str) -> Entry {
    Entry { id, title, source: PTNET, law }
}

const fn cumulus(id: &'static str, title: &'static str, law: &'static str) -> Entry {
    Entry { id, title, source: CUMULUS, law }
}

const fn messages(id: &'static str, title: &'static str, law: &'static str) -> Entry {
    Entry { id, title, source: OPEN_MX, law }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_unique_and_found() {
        for entry in &ENTRIES {
            let same = ENTRIES.iter().filter(|other| other.id == entry.id).count();
            assert_eq!(same, 1, "{}", entry.id);
            assert!(find(&entry.id.to_lowercase()).is_some());
        }
    }
}
