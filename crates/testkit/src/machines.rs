//! Machines we do not have, as trees of the kernel's files: written from what their kernels show.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// The distances of Figure 10 of "ClearStream" (2011), as `numactl --hardware` printed them.
pub const FIGURE_10: [[u32; 8]; 8] = [
    [10, 16, 16, 22, 16, 22, 16, 22],
    [16, 10, 16, 22, 22, 16, 22, 16],
    [16, 16, 10, 16, 16, 16, 16, 22],
    [22, 22, 16, 10, 16, 16, 22, 16],
    [16, 22, 16, 16, 10, 16, 16, 16],
    [22, 16, 16, 16, 16, 10, 22, 22],
    [16, 22, 16, 22, 16, 22, 10, 16],
    [22, 16, 22, 16, 16, 22, 16, 10],
];

/// Where a core sits.
#[derive(Clone, Copy)]
pub struct Place {
    pub package: u32,
    pub physical: u32,
    pub node: u32,
    /// Cores with the same last-level cache.
    pub cache: u32,
}

/// An interface on PCI Express.
#[derive(Clone)]
pub struct Card {
    pub name: &'static str,
    pub driver: &'static str,
    pub node: i32,
    pub mbit_per_s: i64,
    pub mtu: u32,
    pub queues: u32,
    /// Name of the interrupt of a queue.
    pub interrupt: fn(u32) -> String,
    /// Core of the interrupt of a queue.
    pub core: fn(u32) -> u32,
    /// Link now and at most: `8.0 GT/s PCIe`, lanes.
    pub now: (&'static str, u32),
    pub most: (&'static str, u32),
    /// Link of the bridge above.
    pub bridge: (&'static str, u32),
    pub payload_code: u16,
}

/// A machine to write down.
pub struct Shape {
    pub places: BTreeMap<u32, Place>,
    pub offline: Vec<u32>,
    pub distances: Vec<Vec<u32>>,
    pub has_nodes: bool,
    pub has_caches: bool,
    pub last_cache_kib: u32,
    pub clock: Option<(&'static str, &'static str, u64, u64)>,
    pub idle: &'static [(&'static str, u64)],
    pub cards: Vec<Card>,
    /// `Cpus_allowed_list` of the reader.
    pub allowed: String,
    /// Other files, below the root.
    pub extra: Vec<(String, String)>,
}

/// A tree that goes with the value.
pub struct Tree {
    pub root: PathBuf,
}

impl Drop for Tree {
    fn drop(&mut self) {
        fs::remove_dir_all(&self.root).ok();
    }
}

/// The Dell R815 of the paper: 4 packages of 2 nodes of 6 cores; core i sits on package i mod 4.
/// Which of a package's cores are on which of its nodes the paper does not print.
pub fn r815() -> Shape {
    let place = |core: u32| {
        let package = core % 4;
        let node = package * 2 + core / 24;
        (core, Place { package, physical: core / 4, node, cache: node })
    };
    let card = Card {
        name: "eth2",
        driver: "mlx4_en",
        node: 0,
        mbit_per_s: 40_000,
        mtu: 9000,
        queues: 16,
        interrupt: |queue| format!("eth2-rx-{queue}"),
        core: |_queue| 1,
        now: ("5.0 GT/s", 8),
        most: ("5.0 GT/s", 8),
        bridge: ("5.0 GT/s", 16),
        payload_code: 0,
    };
    Shape {
        places: (0..48).map(place).collect(),
        distances: FIGURE_10.iter().map(|row| row.to_vec()).collect(),
        last_cache_kib: 5118,
        clock: Some(("powernow-k8", "ondemand", 800_000, 2_100_000)),
        cards: vec![card],
        ..plain(48)
    }
}

/// Two packages of 16 cores with SMT, one node each; the card runs on half of its lanes.
pub fn dual_xeon() -> Shape {
    let place = |core: u32| {
        let package = core % 32 / 16;
        (core, Place { package, physical: core % 16, node: package, cache: package })
    };
    let card = Card {
        name: "ens1f0",
        driver: "ice",
        node: 1,
        mbit_per_s: 100_000,
        mtu: 9000,
        queues: 16,
        interrupt: |queue| format!("ice-ens1f0-TxRx-{queue}"),
        core: |queue| 16 + queue,
        now: ("8.0 GT/s PCIe", 8),
        most: ("16.0 GT/s PCIe", 16),
        bridge: ("8.0 GT/s PCIe", 8),
        payload_code: 1,
    };
    Shape {
        places: (0..64).map(place).collect(),
        distances: vec![vec![10, 21], vec![21, 10]],
        last_cache_kib: 24 << 10,
        clock: Some(("intel_pstate", "powersave", 800_000, 3_500_000)),
        idle: &[("POLL", 0), ("C1", 1), ("C1E", 4), ("C6", 170)],
        cards: vec![card],
        ..plain(64)
    }
}

/// Two packages of 8 chiplets with 4 cores and their own L3, four nodes a package (NPS4), SMT.
pub fn chiplets() -> Shape {
    nps4(32, 4, "mlx5_core", 16)
}

/// 256 cores in 8 nodes, an interface of 64 queues.
pub fn huge() -> Shape {
    nps4(64, 8, "mlx5_core", 64)
}

fn nps4(cores_a_package: u32, cores_a_cache: u32, driver: &'static str, queues: u32) -> Shape {
    let all = cores_a_package * 4;
    let place = |core: u32| {
        let physical = core % (cores_a_package * 2);
        let (package, inside) = (physical / cores_a_package, physical % cores_a_package);
        let node = package * 4 + inside / (cores_a_package / 4);
        (core, Place { package, physical: inside, node, cache: physical / cores_a_cache })
    };
    let distance = |from: u32, to: u32| match (from == to, from / 4 == to / 4) {
        (true, _) => 10,
        (false, true) => 12,
        (false, false) => 32,
    };
    let card = Card {
        name: "enp65s0f0np0",
        driver,
        node: 2,
        mbit_per_s: 200_000,
        mtu: 9000,
        queues,
        interrupt: |queue| format!("mlx5_comp{queue}@pci:0000:41:00.0"),
        core: |queue| queue,
        now: ("16.0 GT/s PCIe", 16),
        most: ("16.0 GT/s PCIe", 16),
        bridge: ("16.0 GT/s PCIe", 16),
        payload_code: 2,
    };
    Shape {
        places: (0..all).map(place).collect(),
        distances: (0..8).map(|from| (0..8).map(|to| distance(from, to)).collect()).collect(),
        last_cache_kib: 32 << 10,
        clock: Some(("acpi-cpufreq", "schedutil", 1_500_000, 2_450_000)),
        idle: &[("POLL", 0), ("C1", 1), ("C2", 400)],
        cards: vec![card],
        ..plain(all)
    }
}

/// One node, 8 cores with SMT, an interface on one lane.
pub fn desktop() -> Shape {
    let place = |core: u32| (core, Place { package: 0, physical: core / 2, node: 0, cache: 0 });
    let card = Card {
        name: "eno1",
        driver: "igc",
        node: -1,
        mbit_per_s: 2500,
        mtu: 1500,
        queues: 4,
        interrupt: |queue| format!("eno1-TxRx-{queue}"),
        core: |queue| queue * 2,
        now: ("5.0 GT/s PCIe", 1),
        most: ("5.0 GT/s PCIe", 1),
        bridge: ("5.0 GT/s PCIe", 1),
        payload_code: 1,
    };
    Shape { places: (0..16).map(place).collect(), cards: vec![card], ..plain(16) }
}

/// The dual Xeon with the second half of its second package's threads offline.
pub fn offline() -> Shape {
    Shape { offline: (56..64).collect(), ..dual_xeon() }
}

/// The chiplet server seen from a container that may use six of its cores.
pub fn container() -> Shape {
    Shape { allowed: "2-5,34,35".into(), ..chiplets() }
}

/// A virtual machine that tells nothing: no nodes, caches, clocks or idle states.
pub fn bare_guest() -> Shape {
    let net = "sys/class/net/eth0";
    let extra = [
        (format!("{net}/type"), "1"),
        (format!("{net}/mtu"), "1500"),
        (format!("{net}/carrier"), "1"),
        (format!("{net}/speed"), "-1"),
        (format!("{net}/queues/rx-0/rps_cpus"), "0"),
        (format!("{net}/queues/tx-0/xps_cpus"), "0"),
        (format!("{net}/device/uevent"), "DRIVER=virtio_net\nMODALIAS=virtio:d00000001v00001AF4"),
    ];
    Shape {
        has_nodes: false,
        has_caches: false,
        extra: extra.map(|(path, text)| (path, text.to_owned())).to_vec(),
        ..plain(4)
    }
}

fn plain(cores: u32) -> Shape {
    let place = |core: u32| (core, Place { package: 0, physical: core, node: 0, cache: 0 });
    Shape {
        places: (0..cores).map(place).collect(),
        offline: Vec::new(),
        distances: vec![vec![10]],
        has_nodes: true,
        has_caches: true,
        last_cache_kib: 16 << 10,
        clock: None,
        idle: &[],
        cards: Vec::new(),
        allowed: format!("0-{}", cores - 1),
        extra: Vec::new(),
    }
}

impl Shape {
    /// Writes the tree into a folder of its own.
    pub fn write(&self, name: &str) -> Tree {
        // Thousands of files, for which a disk takes seconds.
        let memory = Path::new("/dev/shm");
        let folder = if memory.is_dir() { memory.into() } else { std::env::temp_dir() };
        let root = folder.join(format!("machine-{name}-{}", std::process::id()));
        let tree = Tree { root };
        fs::remove_dir_all(&tree.root).ok();
        self.cores(&tree);
        if self.has_nodes {
            self.nodes(&tree);
        }
        for (at, card) in self.cards.iter().enumerate() {
            self.card(&tree, at as u32, card);
        }
        self.interrupts(&tree);
        tree.file("proc/self/status", &format!("Name:\tx\nCpus_allowed_list:\t{}\n", self.allowed));
        tree.file("proc/sys/net/core/rps_sock_flow_entries", "0\n");
        tree.file("sys/class/net/lo/type", "772\n");
        for (path, text) in &self.extra {
            tree.file(path, &format!("{text}\n"));
        }
        tree
    }

    fn is_online(&self, core: u32) -> bool {
        !self.offline.contains(&core)
    }

    fn cores(&self, tree: &Tree) {
        let cpu = "sys/devices/system/cpu";
        let all: Vec<u32> = self.places.keys().copied().collect();
        let online: Vec<u32> = all.iter().copied().filter(|&core| self.is_online(core)).collect();
        tree.file(&format!("{cpu}/present"), &list(&all));
        tree.file(&format!("{cpu}/online"), &list(&online));
        tree.file(&format!("{cpu}/isolated"), "\n");
        for (&core, place) in &self.places {
            let folder = format!("{cpu}/cpu{core}");
            if self.has_nodes {
                tree.file(&format!("{folder}/node{}/x", place.node), "");
            }
            if !self.is_online(core) {
                continue;
            }
            let topology = format!("{folder}/topology");
            tree.file(&format!("{topology}/physical_package_id"), &place.package.to_string());
            tree.file(&format!("{topology}/core_id"), &place.physical.to_string());
            tree.file(&format!("{topology}/die_id"), "0\n");
            if self.has_caches {
                self.caches(tree, core, place, &online);
            }
            self.steering(tree, &folder);
        }
    }

    fn caches(&self, tree: &Tree, core: u32, place: &Place, online: &[u32]) {
        let sharing = |same: &dyn Fn(&Place) -> bool| -> String {
            list(&online.iter().copied().filter(|at| same(&self.places[at])).collect::<Vec<_>>())
        };
        let siblings = sharing(&|at| at.package == place.package && at.physical == place.physical);
        let below = sharing(&|at| at.cache == place.cache);
        let last = self.last_cache_kib;
        for (index, (level, kind, kib, cores)) in [
            (1, "Data", 32, &siblings),
            (1, "Instruction", 32, &siblings),
            (2, "Unified", 512, &siblings),
            (3, "Unified", last, &below),
        ]
        .into_iter()
        .enumerate()
        {
            let folder = format!("sys/devices/system/cpu/cpu{core}/cache/index{index}");
            tree.file(&format!("{folder}/level"), &level.to_string());
            tree.file(&format!("{folder}/type"), kind);
            tree.file(&format!("{folder}/size"), &format!("{kib}K\n"));
            tree.file(&format!("{folder}/shared_cpu_list"), cores);
        }
    }

    fn steering(&self, tree: &Tree, folder: &str) {
        if let Some((driver, governor, least, most)) = self.clock {
            let clock = format!("{folder}/cpufreq");
            tree.file(&format!("{clock}/scaling_driver"), driver);
            tree.file(&format!("{clock}/scaling_governor"), governor);
            tree.file(&format!("{clock}/scaling_min_freq"), &least.to_string());
            tree.file(&format!("{clock}/scaling_max_freq"), &most.to_string());
            tree.file(&format!("{clock}/cpuinfo_max_freq"), &most.to_string());
            tree.file(&format!("{clock}/scaling_cur_freq"), &least.to_string());
        }
        for (index, (name, latency_us)) in self.idle.iter().enumerate() {
            let state = format!("{folder}/cpuidle/state{index}");
            tree.file(&format!("{state}/name"), name);
            tree.file(&format!("{state}/latency"), &latency_us.to_string());
            tree.file(&format!("{state}/disable"), "0\n");
        }
    }

    fn nodes(&self, tree: &Tree) {
        let folder = "sys/devices/system/node";
        let numbers: Vec<u32> = (0..self.distances.len() as u32).collect();
        tree.file(&format!("{folder}/online"), &list(&numbers));
        for (node, row) in numbers.iter().zip(&self.distances) {
            let on_it = |(core, place): (&u32, &Place)| {
                (place.node == *node && self.is_online(*core)).then_some(*core)
            };
            let cores: Vec<u32> = self.places.iter().filter_map(on_it).collect();
            let row: Vec<String> = row.iter().map(u32::to_string).collect();
            tree.file(&format!("{folder}/node{node}/cpulist"), &list(&cores));
            tree.file(&format!("{folder}/node{node}/distance"), &row.join(" "));
            let memory = format!("Node {node} MemTotal:       16777216 kB\n");
            tree.file(&format!("{folder}/node{node}/meminfo"), &memory);
        }
    }

    /// A card below its bridge, as `/sys/devices` nests them, and the links to it.
    fn card(&self, tree: &Tree, at: u32, card: &Card) {
        let bus = 0x41 + at;
        let bridge = format!("sys/devices/pci0000:40/0000:40:0{}.1", at + 1);
        let device = format!("{bridge}/0000:{bus:x}:00.0");
        let net = format!("{device}/net/{}", card.name);
        let uevent = |slot: &str, driver: &str| format!("DRIVER={driver}\nPCI_SLOT_NAME={slot}\n");
        tree.file(
            &format!("{bridge}/uevent"),
            &uevent(&format!("0000:40:0{}.1", at + 1), "pcieport"),
        );
        tree.file(&format!("{device}/uevent"), &uevent(&format!("0000:{bus:x}:00.0"), card.driver));
        for (folder, (now, lanes), (most, lanes_most)) in
            [(&bridge, card.bridge, card.bridge), (&device, card.now, card.most)]
        {
            tree.file(&format!("{folder}/current_link_speed"), now);
            tree.file(&format!("{folder}/current_link_width"), &lanes.to_string());
            tree.file(&format!("{folder}/max_link_speed"), most);
            tree.file(&format!("{folder}/max_link_width"), &lanes_most.to_string());
        }
        let mut config = [0; 256];
        (config[0x06], config[0x34], config[0x60]) = (0x10, 0x60, 0x10);
        let control = card.payload_code << 5 | 2 << 12;
        config[0x68..0x6a].copy_from_slice(&control.to_le_bytes());
        tree.bytes(&format!("{device}/config"), &config);
        tree.file(&format!("{device}/numa_node"), &card.node.to_string());
        let near = |place: &Place| card.node < 0 || place.node as i32 == card.node;
        let near: Vec<u32> =
            self.places.iter().filter(|(_, at)| near(at)).map(|(&core, _)| core).collect();
        tree.file(&format!("{device}/local_cpulist"), &list(&near));
        for (file, text) in [
            ("type", "1".to_owned()),
            ("mtu", card.mtu.to_string()),
            ("carrier", "1".to_owned()),
            ("speed", card.mbit_per_s.to_string()),
            ("threaded", "0".to_owned()),
        ] {
            tree.file(&format!("{net}/{file}"), &text);
        }
        let words = self.places.len().div_ceil(32);
        for queue in 0..card.queues {
            let zero = vec!["00000000"; words].join(",");
            let core = (card.core)(queue);
            let mut xps = vec![0u32; words];
            xps[words - 1 - core as usize / 32] = 1 << (core % 32);
            let xps: Vec<String> = xps.iter().map(|word| format!("{word:08x}")).collect();
            tree.file(&format!("{net}/queues/rx-{queue}/rps_cpus"), &zero);
            tree.file(&format!("{net}/queues/rx-{queue}/rps_flow_cnt"), "0\n");
            tree.file(&format!("{net}/queues/tx-{queue}/xps_cpus"), &xps.join(","));
            tree.file(&format!("{device}/msi_irqs/{}", irq(at, queue)), "msix\n");
        }
        tree.link(&format!("{net}/device"), &format!("../../../0000:{bus:x}:00.0"));
        let target = format!("../../{}", net.trim_start_matches("sys/"));
        tree.link(&format!("sys/class/net/{}", card.name), &target);
    }

    fn interrupts(&self, tree: &Tree) {
        let online: Vec<u32> =
            self.places.keys().copied().filter(|&core| self.is_online(core)).collect();
        let mut text = " ".repeat(8);
        for core in &online {
            text.push_str(&format!("{:>11}", format!("CPU{core}")));
        }
        text.push('\n');
        for (at, card) in self.cards.iter().enumerate() {
            for queue in 0..card.queues {
                let (number, on) = (irq(at as u32, queue), (card.core)(queue));
                text.push_str(&format!("{number:>4}:"));
                for &core in &online {
                    let count = if core == on { 1000 + queue } else { 0 };
                    text.push_str(&format!("{count:>11}"));
                }
                let name = (card.interrupt)(queue);
                text.push_str(&format!("  IR-PCI-MSIX {number}-edge      {name}\n"));
                tree.file(&format!("proc/irq/{number}/smp_affinity_list"), &on.to_string());
                tree.file(&format!("proc/irq/{number}/effective_affinity_list"), &on.to_string());
            }
        }
        text.push_str(" NMI:          0   Non-maskable interrupts\n");
        tree.file("proc/interrupts", &text);
    }
}

fn irq(card: u32, queue: u32) -> u32 {
    100 + card * 200 + queue
}

impl Tree {
    fn file(&self, path: &str, text: &str) {
        self.bytes(path, text.as_bytes());
    }

    fn bytes(&self, path: &str, bytes: &[u8]) {
        let path = self.root.join(path);
        fs::create_dir_all(path.parent().expect("below the root")).expect("a folder");
        fs::write(path, bytes).expect("a file");
    }

    fn link(&self, path: &str, target: &str) {
        let path = self.root.join(path);
        fs::create_dir_all(path.parent().expect("below the root")).expect("a folder");
        std::os::unix::fs::symlink(Path::new(target), path).expect("a link");
    }
}

/// `0-3,8`, and a new line.
fn list(numbers: &[u32]) -> String {
    let runs = numbers.chunk_by(|a, b| a + 1 == *b);
    let text: Vec<String> = runs
        .map(|run| match run {
            [one] => one.to_string(),
            [first, .., last] => format!("{first}-{last}"),
            [] => String::new(),
        })
        .collect();
    format!("{}\n", text.join(","))
}
