//! The values of the Cumulus paper's tables II to VII, in MB/s and files per second.

/// Catalogue entries that need the lab's file system.
pub(super) const IDS: [&str; 10] = [
    "G-tab2",
    "G-tab3",
    "G-fig2",
    "G-tab4",
    "G-tab5",
    "G-fig3-6",
    "G-fig7-8",
    "G-tab6-7",
    "G-flock",
    "G-failover",
];

/// Tasks; MB/s written and read through DVS, then natively (tables II and III).
const STREAMS: [(u64, [f64; 4]); 4] = [
    (1, [3053.26, 2008.49, 2912.81, 4029.48]),
    (2, [4531.97, 2660.09, 5229.82, 7593.69]),
    (4, [5617.79, 2759.58, 6213.73, 9358.46]),
    (8, [5504.65, 3654.27, 6303.60, 8867.00]),
];

/// Tasks and file size in bytes; files created, stat'ed and removed per second through DVS, then natively (tables IV
/// and V).
const METADATA: [(u64, u64, [f64; 6]); 6] = [
    (1, 0, [321.0, 13_472.0, 225.0, 13_241.0, 279_038.0, 20_418.0]),
    (1, 1024, [239.0, 13_250.0, 242.0, 1179.0, 286_249.0, 20_827.0]),
    (1, 4096, [157.0, 13_066.0, 227.0, 715.0, 284_019.0, 20_728.0]),
    (1, 32_768, [155.0, 12_918.0, 232.0, 709.0, 287_963.0, 20_585.0]),
    (2, 0, [906.0, 23_808.0, 425.0, 26_915.0, 427_140.0, 39_281.0]),
    (4, 0, [2039.0, 45_016.0, 925.0, 30_320.0, 666_998.0, 68_725.0]),
];

/// The same figures for one task on each of 64 clients, empty files (tables VI and VII).
const MANY: [f64; 6] = [21_802.0, 379_091.0, 9567.0, 228_868.0, 52_781.0, 45_725.0];

/// Throughput of one client's tasks, MB/s: writing (`access` 0) or reading (1).
pub(super) fn streams(is_native: bool, tasks: u64, access: usize) -> Option<f64> {
    let row = STREAMS.iter().find(|row| row.0 == tasks)?;
    row.1.get(2 * usize::from(is_native) + access).copied()
}

/// Files created (`call` 0), stat'ed (1) or removed (2) per second.
pub(super) fn metadata(is_native: bool, (tasks, bytes): (u64, u64), call: usize) -> Option<f64> {
    let row = METADATA.iter().find(|row| (row.0, row.1) == (tasks, bytes))?;
    row.2.get(3 * usize::from(is_native) + call).copied()
}

/// Files created (`call` 0), stat'ed (1) or removed (2) per second by one task on each of 64 clients.
pub(super) fn metadata_of_many(is_native: bool, call: usize) -> Option<f64> {
    MANY.get(3 * usize::from(is_native) + call).copied()
}
