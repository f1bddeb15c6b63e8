//! `clearstream io` and `meta` beside hpc/ior's IOR and mdtest: the same command line, the same number of ranks under Open
//! MPI, the same folder (`TMPDIR`), in turns. Debian has neither; they are built from source
//! (`./bootstrap && ./configure && make`) and found on the path or in the folder of `--ior`.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::OnceLock;
use std::time::Duration;

use crate::comparison::{
    Better, Comparison, Contender, Effort, Figures, Gate, Medium, RowPlan, Run, Whose,
};
use crate::host::{BenchError, finish, installed, speak_to_us};
use crate::ours::program;
use crate::scratch;

const OURS: &str = "ClearStream";
/// Rounds that show a difference of 3 %.
const ROUNDS_MIN: u32 = 10;
/// Longest that one run may take.
const RUN_MAX: Duration = Duration::from_secs(120);
/// What is required beside the peer: at most 3 % lower.
const RATE: Gate = Gate::Ratio(0.97);

static FOLDER: OnceLock<String> = OnceLock::new();

/// Takes IOR and mdtest from a folder; before the first run.
pub(crate) fn choose(folder: &str) {
    FOLDER.get_or_init(|| folder.to_owned());
}

fn peer_program(name: &str) -> String {
    FOLDER.get().map_or_else(|| name.to_owned(), |folder| format!("{folder}/{name}"))
}

/// One kind of load.
struct Load {
    name: &'static str,
    what: &'static str,
    /// Verb of ours, program of the peer's.
    programs: [&'static str; 2],
    ranks: &'static str,
    options: &'static [&'static str],
    /// Where a figure is in what both print: its name, the beginning of the line, the number of the word behind it.
    figures: &'static [(&'static str, &'static str, usize)],
    /// Bytes that are written and read, per rank and way.
    bytes: u64,
    rows: Vec<RowPlan>,
}

/// Every comparison of file-system load.
pub(crate) fn comparisons(effort: Effort) -> Vec<Comparison> {
    let effort = if effort.quick {
        effort
    } else {
        Effort { rounds: effort.rounds.max(ROUNDS_MIN), ..effort }
    };
    let loads = [transfers_of_1_mib(), transfers_of_4_kib(), metadata()];
    loads.into_iter().map(|load| compare(effort, load)).collect()
}

const TRANSFER_FIGURES: &[(&str, &str, usize)] =
    &[("write_mib_per_s", "write ", 0), ("read_mib_per_s", "read ", 0)];
/// Its summary has maximum, minimum, mean and deviation.
const METADATA_FIGURES: &[(&str, &str, usize)] = &[
    ("creates_per_s", "File creation", 2),
    ("stats_per_s", "File stat", 2),
    ("removals_per_s", "File removal", 2),
];

fn transfers_of_1_mib() -> Load {
    Load {
        name: "files-1m",
        what: "two ranks write and read a file of 256 MiB each, in transfers of 1 MiB",
        programs: ["io", "ior"],
        ranks: "2",
        options: &["-w", "-r", "-F", "-e", "-g", "-b", "256m", "-t", "1m", "-o"],
        figures: TRANSFER_FIGURES,
        bytes: 256 << 20,
        rows: vec![
            row("files-1m-write", "write_mib_per_s", "MiB/s", Better::Higher, RATE),
            row("files-1m-read", "read_mib_per_s", "MiB/s", Better::Higher, RATE),
        ],
    }
}

fn transfers_of_4_kib() -> Load {
    Load {
        name: "files-4k",
        what: "one rank writes and reads a file of 256 MiB in transfers of 4 KiB",
        programs: ["io", "ior"],
        ranks: "1",
        options: &["-w", "-r", "-F", "-b", "256m", "-t", "4k", "-o"],
        figures: TRANSFER_FIGURES,
        bytes: 256 << 20,
        rows: vec![
            row("files-4k-write", "write_mib_per_s", "MiB/s", Better::Higher, RATE),
            row("files-4k-read", "read_mib_per_s", "MiB/s", Better::Higher, RATE),
            row("files-4k-cpu", "cpu_s_per_gib", "s/GiB", Better::Lower, Gate::Ratio(1.03)),
        ],
    }
}

fn metadata() -> Load {
    Load {
        name: "files-meta",
        what: "two ranks create, look up and remove 20 000 empty files each",
        programs: ["meta", "mdtest"],
        ranks: "2",
        options: &["-n", "20000", "-F", "-u", "-C", "-T", "-r", "-d"],
        figures: METADATA_FIGURES,
        bytes: 0,
        rows: vec![
            row("files-create", "creates_per_s", "files/s", Better::Higher, RATE),
            row("files-stat", "stats_per_s", "files/s", Better::Higher, RATE),
            row("files-remove", "removals_per_s", "files/s", Better::Higher, RATE),
        ],
    }
}

fn row(
    name: &str,
    figure: &'static str,
    unit: &'static str,
    better: Better,
    gate: Gate,
) -> RowPlan {
    RowPlan {
        name: name.to_owned(),
        figure,
        unit,
        scale: 1.0,
        better,
        ours: vec![OURS.to_owned()],
        peers: Vec::new(),
        gate,
        note: None,
    }
}

fn compare(effort: Effort, mut load: Load) -> Comparison {
    let mut rows = std::mem::take(&mut load.rows);
    let (name, [verb, peer]) = (load.name, load.programs);
    let setting = format!("{}, under Open MPI, the same folder for both", load.what);
    let load = std::rc::Rc::new(load);
    let ours: Run = {
        let load = load.clone();
        Box::new(move |_, _| run(&load, &[program(), verb]))
    };
    let theirs: Run = Box::new(move |_, _| {
        let program = peer_program(peer);
        installed(&program)?;
        run(&load, &[&program])
    });
    let peer = if peer == "ior" { "IOR" } else { peer };
    rows.iter_mut().for_each(|row| row.peers.push(peer.to_owned()));
    Comparison {
        name,
        setting,
        medium: Medium::Nothing,
        effort,
        contenders: vec![
            Contender { whose: Whose::Ours, name: OURS.to_owned(), run: ours },
            Contender { whose: Whose::Peer, name: peer.to_owned(), run: theirs },
        ],
        rows,
    }
}

fn run(load: &Load, words: &[&str]) -> Result<Figures, BenchError> {
    installed("mpirun.openmpi")?;
    let folder = scratch::path(load.name)?;
    fs::create_dir_all(&folder)?;
    let mut command = Command::new("mpirun.openmpi");
    command.args(["--allow-run-as-root", "--oversubscribe", "-n", load.ranks]);
    command.args(words).args(load.options).arg(target(load, &folder));
    speak_to_us(&mut command);
    let finished = finish(command, RUN_MAX)?;
    let mut figures = Figures::new();
    for (figure, line, place) in load.figures {
        let value = number_of(&finished.stdout, line, *place);
        let missing = || BenchError::Failed(format!("no line '{line}' in what it printed"));
        figures.insert(figure, value.ok_or_else(missing)?);
    }
    if load.bytes > 0 {
        let gib = 2.0 * load.bytes as f64 / (1_u64 << 30) as f64;
        figures.insert("cpu_s_per_gib", finished.cpu_s / gib);
    }
    fs::remove_dir_all(&folder)?;
    Ok(figures)
}

fn target(load: &Load, folder: &Path) -> std::path::PathBuf {
    if load.bytes > 0 { folder.join("file") } else { folder.to_owned() }
}

/// A number of the first line that begins so.
fn number_of(text: &str, line: &str, place: usize) -> Option<f64> {
    let rest = text.lines().find_map(|one| one.trim_start().strip_prefix(line))?;
    rest.split_whitespace().nth(place)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_read_from_the_lines_of_ior_and_mdtest() {
        let ior = "access    bw(MiB/s)  IOPS\nwrite     593.38     723.77\nread      1001.81    1456.69\n";
        assert_eq!(number_of(ior, "write ", 0), Some(593.38));
        assert_eq!(number_of(ior, "read ", 0), Some(1001.81));
        let mdtest =
            "   File creation             22000.5      21000.5      21500.25        500.1\n";
        assert_eq!(number_of(mdtest, "File creation", 2), Some(21_500.25));
        assert_eq!(number_of(mdtest, "File stat", 2), None);
    }
}
