//! The model checker beside SPIN's compiled `pan`: the same systems, whole state spaces, nothing
//! reduced, nothing lost.
//!
//! Two systems, each written in both languages so that every step of the one is one step of the
//! other: both sides must find the same number of states, or the round fails. `pan` is compiled with
//! `-O2 -DNOREDUCE -DSAFETY` and given a table and a stack of the right size; its compilation is not
//! counted. A run's time is that of its process, from start to end.

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::rc::Rc;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::comparison::{
    Better, Comparison, Contender, Effort, Figures, Gate, Medium, RowPlan, Run, Whose,
};
use crate::host::{BenchError, installed};
use crate::ours::program;
use crate::scratch;

const OURS: &str = "ClearStream";
const TWO_RANKS: &str = "ClearStream, two ranks";
const JOB: &str = "ClearStream, two ranks under mpirun";
const TWICE: &str = "ClearStream, two searches at once";
const PAN: &str = "SPIN's pan";

/// A system in both languages, and how many states it has.
struct Twin {
    name: &'static str,
    /// Rows: against the peer, against the least rate, memory, two ranks against one, the same as an
    /// MPI job, two searches of their own at once against one: what this machine has of a second core.
    rows: [&'static str; 6],
    what: &'static str,
    dve: String,
    promela: String,
    states_count: u64,
}

/// Every comparison of the model checker.
pub(crate) fn comparisons(effort: Effort) -> Vec<Comparison> {
    vec![compare(effort, counters()), compare(effort, exclusion())]
}

fn compare(effort: Effort, twin: Twin) -> Comparison {
    let (name, [against, rate, memory, two_ranks, job, twice]) = (twin.name, twin.rows);
    let setting = format!(
        "{}, {} states, whole search, one rank or two (threads, or processes under mpirun)",
        twin.what, twin.states_count
    );
    let twin = Rc::new(twin);
    let run = |how: How| -> Run {
        let twin = twin.clone();
        Box::new(move |_, _| ours(&twin, how))
    };
    let (alone, shared, as_job, at_once) =
        (run(How::Alone), run(How::Threads), run(How::Job), run(How::Twice));
    let pan: Run = Box::new(move |_, _| pan(&twin));
    let row = |name: &str, figure, unit, scale, better, gate| RowPlan {
        name: name.to_owned(),
        figure,
        unit,
        scale,
        better,
        ours: vec![OURS.to_owned()],
        peers: vec![PAN.to_owned()],
        gate,
        note: None,
    };
    let own = |name: &str, run| Contender { whose: Whose::Ours, name: name.to_owned(), run };
    let rate_row =
        |name: &str, gate| row(name, "states_per_s", "M states/s", 1e6, Better::Higher, gate);
    let beside = |name: &str, who: &str, gate| RowPlan {
        ours: vec![who.to_owned()],
        peers: vec![OURS.to_owned()],
        ..rate_row(name, gate)
    };
    Comparison {
        name,
        setting,
        medium: Medium::Nothing,
        effort,
        contenders: vec![
            own(OURS, alone),
            own(TWO_RANKS, shared),
            own(JOB, as_job),
            own(TWICE, at_once),
            Contender { whose: Whose::Peer, name: PAN.to_owned(), run: pan },
        ],
        rows: vec![
            rate_row(against, Gate::Ratio(1.0)),
            rate_row(rate, Gate::Figure(1.5)),
            row(memory, "bytes_per_state", "B/state", 1.0, Better::Lower, Gate::Figure(25.0)),
            beside(two_ranks, TWO_RANKS, Gate::Ratio(1.7)),
            beside(job, JOB, Gate::None),
            beside(twice, TWICE, Gate::None),
        ],
    }
}

/// How our own program searches.
#[derive(Debug, Clone, Copy)]
enum How {
    Alone,
    /// Two ranks, threads.
    Threads,
    /// Two ranks, processes that Open MPI's launcher starts.
    Job,
    /// Two searches of the whole space by one rank each.
    Twice,
}

fn ours(twin: &Twin, how: How) -> Result<Figures, BenchError> {
    let folder = folder(twin.name)?;
    let model = folder.join("model.dve");
    fs::write(&model, &twin.dve)?;
    let search = || {
        let mut command = match how {
            How::Job => {
                let mut launcher = Command::new("mpirun.openmpi");
                launcher.args(["--allow-run-as-root", "--oversubscribe", "-n", "2", program()]);
                launcher
            }
            How::Alone | How::Threads | How::Twice => Command::new(program()),
        };
        command.arg("check").arg(&model).args(["--full", "--allow-deadlock", "--json"]);
        if let How::Threads = how {
            command.args(["--ranks", "2"]);
        }
        command
    };
    if let How::Job = how {
        installed("mpirun.openmpi")?;
    }
    let beside = match how {
        How::Twice => Some(std::thread::spawn({
            let command = search();
            move || timed(command)
        })),
        How::Alone | How::Threads | How::Job => None,
    };
    let (output, mut took) = timed(search())?;
    let searches = if let Some(beside) = beside {
        let end = beside.join().map_err(|_panic| BenchError::Failed("no second search".into()))?;
        took = took.max(end?.1);
        2.0
    } else {
        1.0
    };
    let document: Value = serde_json::from_str(&output)
        .map_err(|error| BenchError::Failed(format!("check --json: {error}")))?;
    let figure = |name: &str| document["checks"][0][name].as_f64().unwrap_or(0.0);
    let took = took.div_f64(searches);
    figures(twin, figure("states_count"), figure("memory_bytes"), took)
}

fn pan(twin: &Twin) -> Result<Figures, BenchError> {
    installed("spin")?;
    installed("gcc")?;
    let folder = folder(twin.name)?;
    fs::write(folder.join("model.pml"), &twin.promela)?;
    for (program, arguments) in [
        ("spin", &["-a", "model.pml"][..]),
        ("gcc", &["-O2", "-DNOREDUCE", "-DSAFETY", "-o", "pan", "pan.c"]),
    ] {
        let output = Command::new(program).args(arguments).current_dir(&folder).output()?;
        if !output.status.success() {
            let text = String::from_utf8_lossy(&output.stderr).into_owned();
            return Err(BenchError::Failed(format!("{program}: {text}")));
        }
    }
    // Ends without a step are fine, the path may be 500 000 long, the table has 2^22 chains.
    let mut command = Command::new(folder.join("pan"));
    command.current_dir(&folder).args(["-E", "-m500000", "-w22"]);
    let (output, took) = timed(command)?;
    let before = |words: &str| -> Option<f64> {
        let line = output.lines().find(|line| line.contains(words))?;
        line.split_whitespace().next()?.parse().ok()
    };
    let states = before("states, stored").unwrap_or(0.0);
    let memory = before("total actual memory usage").unwrap_or(0.0) * 1_048_576.0;
    figures(twin, states, memory, took)
}

fn figures(
    twin: &Twin,
    states: f64,
    memory_bytes: f64,
    took: Duration,
) -> Result<Figures, BenchError> {
    if states != twin.states_count as f64 {
        let wanted = twin.states_count;
        return Err(BenchError::Failed(format!("{states} states, there are {wanted}")));
    }
    Ok(Figures::from([
        ("states_per_s", states / took.as_secs_f64()),
        ("bytes_per_state", memory_bytes / states),
    ]))
}

/// A folder in that of this run.
fn folder(name: &str) -> Result<PathBuf, BenchError> {
    let path = scratch::path(name)?;
    fs::create_dir_all(&path)?;
    Ok(path)
}

/// What a command prints, and how long it takes.
fn timed(mut command: Command) -> Result<(String, Duration), BenchError> {
    let began = Instant::now();
    let output = command.output()?;
    let took = began.elapsed();
    if !output.status.success() {
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        return Err(BenchError::Failed(format!("{}: {text}", output.status)));
    }
    Ok((String::from_utf8_lossy(&output.stdout).into_owned(), took))
}

/// Two that take a shared number, double what they took and put it back, up to a bound (BEEM's
/// `adding.3`).
fn counters() -> Twin {
    const BOUND: u32 = 300;
    let mut dve = "int c = 1, x[2];\n".to_owned();
    let mut promela = "short c = 1, x0, x1;\n".to_owned();
    for me in 0..2 {
        dve += &format!(
            "process Adder{me} {{\n state take, add, put;\n init take;\n trans\n \
             take -> add {{ guard c < {BOUND}; effect x[{me}] = c; }},\n \
             add -> put {{ effect x[{me}] = x[{me}] + c; }},\n \
             put -> take {{ effect c = x[{me}]; }};\n}}\n"
        );
        promela += &format!(
            "active proctype Adder{me}() {{\ntake: if :: d_step {{ c < {BOUND} -> x{me} = c }} fi;\n\
             x{me} = x{me} + c;\nc = x{me};\ngoto take\n}}\n"
        );
    }
    dve += "system async;\n";
    let what = "two processes adding to a shared number";
    let rows = [
        "states-counters",
        "states-counters-rate",
        "states-counters-memory",
        "states-counters-two-ranks",
        "states-counters-two-ranks-mpirun",
        "states-counters-two-searches",
    ];
    Twin { name: "states-counters", rows, what, dve, promela, states_count: 1_894_376 }
}

const NEVER: u32 = 255;

/// A guarded move of the exclusion algorithm: from, guard, effects, to.
type Move = (&'static str, &'static str, &'static str, &'static str);

/// Mutual exclusion with deadlines (Alur and Taubenfeld 1997) for four processes, time in steps of a
/// timer (BEEM's `at.3`). `ME` is the process, `T` its deadline.
const MOVES: [Move; 14] = [
    ("away", "1", "x = ME; T = 255", "see"),
    ("see", "y == 255", "T = 2", "take"),
    ("take", "1", "y = ME; T = 2", "look"),
    ("look", "x == ME", "T = 2", "first"),
    ("first", "1", "z = 1; T = 255", "inside"),
    ("look", "x != ME", "T = 4", "pause"),
    ("pause", "T == 0", "T = 2", "again"),
    ("again", "y != ME", "T = 2", "away"),
    ("again", "y == ME", "T = 255", "wait"),
    ("wait", "z == 0", "", "inside"),
    ("inside", "1", "z = 0; T = 2", "leave"),
    ("leave", "y != ME", "T = 255", "away"),
    ("leave", "y == ME", "T = 2", "free"),
    ("free", "1", "y = 255; T = 255", "away"),
];

const PLACES: [&str; 10] =
    ["away", "see", "take", "look", "first", "pause", "again", "wait", "inside", "leave"];

fn exclusion() -> Twin {
    const COUNT: usize = 4;
    let places = [&PLACES[..], &["free"]].concat();
    let each = |text: &dyn Fn(usize) -> String, between: &str| -> String {
        (0..COUNT).map(text).collect::<Vec<_>>().join(between)
    };
    let due = each(&|me| format!("t{me} != 0"), " && ");
    let times = each(&|me| format!("t{me} = {NEVER}"), ", ");
    let tick = |me: usize| format!("t{me} = (t{me} - 1) | ((t{me} == {NEVER}) * {NEVER})");
    let mut dve = format!(
        "byte x, y = {NEVER}, z;\nbyte {times};\nprocess Timer {{ state on; init on; trans on -> on \
         {{ guard {due}; effect {}; }}; }}\n",
        each(&tick, ", ")
    );
    let tick = |me: usize| format!("t{me} = (t{me} == {NEVER} -> {NEVER} : t{me} - 1)");
    let mut promela = format!(
        "byte x, y = {NEVER}, z;\nbyte {times};\nactive proctype Timer() {{ do :: d_step {{ ({due}) -> \
         {} }} od }}\n",
        each(&tick, "; ")
    );
    for me in 0..COUNT {
        let fit = |text: &str| text.replace("ME", &me.to_string()).replace('T', &format!("t{me}"));
        let moves: Vec<String> = MOVES
            .iter()
            .map(|(from, guard, effects, to)| {
                let effects = match *effects {
                    "" => String::new(),
                    effects => format!(" effect {};", fit(effects).replace(';', ",")),
                };
                format!("{from} -> {to} {{ guard {};{effects} }}", fit(guard))
            })
            .collect();
        dve += &format!(
            "process P{me} {{\n state {};\n init away;\n trans\n {};\n}}\n",
            places.join(", "),
            moves.join(",\n ")
        );
        promela += &format!("active proctype P{me}() {{\n");
        for place in &places {
            promela += &format!("{place}: if\n");
            for (_, guard, effects, to) in MOVES.iter().filter(|(from, ..)| from == place) {
                let (guard, effects) = (fit(guard), fit(effects));
                let step = match effects.as_str() {
                    "" => guard,
                    _ => format!("d_step {{ {guard} -> {effects} }}"),
                };
                promela += &format!(":: {step}; goto {to}\n");
            }
            promela += "fi;\n";
        }
        promela += "skip\n}\n";
    }
    dve += "system async;\n";
    let what = "mutual exclusion of four processes with deadlines";
    let rows = [
        "states-exclusion",
        "states-exclusion-rate",
        "states-exclusion-memory",
        "states-exclusion-two-ranks",
        "states-exclusion-two-ranks-mpirun",
        "states-exclusion-two-searches",
    ];
    Twin { name: "states-exclusion", rows, what, dve, promela, states_count: 1_711_620 }
}
