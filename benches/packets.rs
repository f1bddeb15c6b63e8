//! The packet core: pipes and switches between processes of this program.
//!
//! Two cores: a pipe's ends have one each. Through a switch there are three processes: sender and switch
//! share a core, where the sender sleeps while its ring is full, and the receiver has the other. Rates are the
//! receiver's; frames that a full ring dropped are not in them.

use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::comparison::{
    Better, Comparison, Contender, Effort, Figures, Gate, Medium, RowPlan, Run,
};
use crate::host::BenchError;
use crate::ours::PROGRAM;
use crate::queues::{self, Middle};

/// Every comparison of the packet core.
pub(crate) fn comparisons(effort: Effort) -> Vec<Comparison> {
    vec![
        pipe(effort),
        switch(effort, "60"),
        switch(effort, "1500"),
        wake_up(effort),
        queues(effort, "60"),
        queues(effort, "1500"),
        taps(effort),
    ]
}

const OURS: &str = "ClearStream";
const STAMPED: &str = "ClearStream, frames numbered and checked";
const POLLING: &str = "ClearStream, both ends polling";
const SWITCHED: &str = "ClearStream, through a switch";

fn pipe(effort: Effort) -> Comparison {
    let run = |stamped| -> Run {
        Box::new(move |_, length| {
            let bed = Bed::new(&["p"])?;
            bed.stream("p{0", "p}0", "60", stamped, length)
        })
    };
    Comparison {
        name: "packets-pipe",
        setting: "60-byte frames through a pipe between two processes, one core each".to_owned(),
        medium: Medium::Nothing,
        effort,
        contenders: vec![contender(OURS, run(false)), contender(STAMPED, run(true))],
        rows: vec![
            RowPlan { gate: Gate::Figure(100.0), ..row("packets-pipe-60", MPPS, OURS) },
            row("packets-pipe-60-checked", MPPS, STAMPED),
        ],
    }
}

fn switch(effort: Effort, bytes: &'static str) -> Comparison {
    let run: Run = Box::new(move |_, length| {
        let bed = Bed::new(&[])?;
        bed.stream("vale0:a", "vale0:b", bytes, false, length)
    });
    let small = bytes == "60";
    let name = if small { "packets-switch-60" } else { "packets-switch-1500" };
    let (figure, least) = if small { (MPPS, 20.0) } else { (GBITS, 60.0) };
    Comparison {
        name,
        setting: format!(
            "{bytes}-byte frames, one sender to one receiver, three processes on two cores"
        ),
        medium: Medium::Nothing,
        effort,
        contenders: vec![contender(OURS, run)],
        rows: vec![RowPlan { gate: Gate::Figure(least), ..row(name, figure, OURS) }],
    }
}

fn wake_up(effort: Effort) -> Comparison {
    let run = |near: &'static str, far: &'static str, linger: &'static str| -> Run {
        Box::new(move |_, _| {
            let bed = Bed::new(&["p"])?;
            bed.ping(near, far, linger)
        })
    };
    let latency = |name: &str, contender: &str, most: f64| RowPlan {
        better: Better::Lower,
        gate: Gate::Figure(most),
        ..row(name, MICROSECONDS, contender)
    };
    Comparison {
        name: "packets-wake-up",
        setting: "median round trip of one 60-byte frame between two processes".to_owned(),
        medium: Medium::Nothing,
        effort,
        contenders: vec![
            contender(OURS, run("p{0", "p}0", "0s")),
            contender(SWITCHED, run("vale0:a", "vale0:b", "0s")),
            contender(POLLING, run("p{0", "p}0", "1s")),
        ],
        rows: vec![
            latency("packets-wake-up-pipe", OURS, 15.0),
            RowPlan { gate: Gate::None, ..latency("packets-wake-up-switch", SWITCHED, 15.0) },
            latency("packets-polling-pipe", POLLING, 2.0),
        ],
    }
}

fn queues(effort: Effort, bytes: &'static str) -> Comparison {
    const BARE: &str = "a bare AF_XDP loop";
    let run =
        |middle: Middle| -> Run { Box::new(move |_, length| queues::run(middle, bytes, length)) };
    let name = if bytes == "60" { "packets-xdp-60" } else { "packets-xdp-1500" };
    Comparison {
        name,
        setting: format!(
            "{bytes}-byte frames from one veth pair to another by AF_XDP, forwarded on one core"
        ),
        medium: Medium::Nothing,
        effort,
        contenders: vec![contender(OURS, run(Middle::Switch)), contender(BARE, run(Middle::Loop))],
        rows: vec![RowPlan {
            peers: vec![BARE.to_owned()],
            gate: Gate::Ratio(0.9),
            ..row(name, MPPS, OURS)
        }],
    }
}

fn taps(effort: Effort) -> Comparison {
    const LINE: &str = "the lab's delay line, no delay";
    let figure = || Figure("bits_per_s", "Gbit/s", 1e9);
    let through = |gate, name: &str| RowPlan {
        gate,
        peers: vec![LINE.to_owned()],
        ..row(name, figure(), OURS)
    };
    Comparison {
        name: "packets-tap",
        setting:
            "TCP, one stream between the TAP devices of two hosts, one core each, first second \
                  omitted"
                .to_owned(),
        medium: Medium::Nothing,
        effort: Effort { run: effort.run.max(Duration::from_secs(3)), ..effort },
        contenders: vec![
            contender(OURS, Box::new(|_, length| queues::taps_on_a_switch(length))),
            contender(LINE, Box::new(|_, length| queues::taps_on_a_delay_line(length))),
        ],
        rows: vec![
            through(Gate::Ratio(1.0), "packets-tap"),
            RowPlan { peers: Vec::new(), ..through(Gate::Figure(10.0), "packets-tap-rate") },
        ],
    }
}

fn contender(name: &str, run: Run) -> Contender {
    Contender { name: name.to_owned(), run }
}

struct Figure(&'static str, &'static str, f64);

const MPPS: Figure = Figure("frames_per_s", "Mpkt/s", 1e6);
const GBITS: Figure = Figure("bits_per_s", "Gbit/s", 1e9);
const MICROSECONDS: Figure = Figure("p50_s", "us", 1e-6);

fn row(name: &str, figure: Figure, contender: &str) -> RowPlan {
    let Figure(figure, unit, scale) = figure;
    RowPlan {
        name: name.to_owned(),
        figure,
        unit,
        scale,
        better: Better::Higher,
        ours: vec![contender.to_owned()],
        peers: Vec::new(),
        gate: Gate::None,
    }
}

/// A switch of this run, with the pipes it needs; all of it ends with the value.
struct Bed {
    socket: PathBuf,
    daemon: Child,
}

static BEDS: AtomicU32 = AtomicU32::new(0);

impl Bed {
    fn new(groups: &[&str]) -> Result<Self, BenchError> {
        let number = BEDS.fetch_add(1, Ordering::Relaxed);
        let name = format!("clearstream-bench-{}-{number}.sock", std::process::id());
        let socket = std::env::temp_dir().join(name);
        let mut command = Command::new(PROGRAM);
        command.args(["switch", "run", "--cores", "0", "--socket"]).arg(&socket);
        command.stderr(Stdio::null());
        let bed = Self { socket, daemon: command.spawn()? };
        let until = Instant::now() + Duration::from_secs(5);
        while !bed.socket.exists() {
            if Instant::now() > until {
                return Err(BenchError::Failed("the switch does not begin".to_owned()));
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        for group in groups {
            let added = bed.command(&["port", "add", group, "--pipes", "1"]).status()?;
            if !added.success() {
                return Err(BenchError::Failed(format!("port add {group}: {added}")));
            }
        }
        Ok(bed)
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(PROGRAM);
        command.args(arguments).arg("--socket").arg(&self.socket).arg("--json");
        command.stdout(Stdio::piped()).stderr(Stdio::null());
        command
    }

    fn stream(
        &self,
        from: &str,
        to: &str,
        bytes: &str,
        stamped: bool,
        length: Duration,
    ) -> Result<Figures, BenchError> {
        let seconds = length.as_secs_f64().to_string();
        let mut sink = vec!["pkt", "sink", to, "--core", "1", "--quiet", "1s", "--linger", "100us"];
        if to.contains(':') {
            sink.extend(["--announce", "02:00:00:00:00:02"]);
        }
        let mut generate =
            vec!["pkt", "gen", from, "--core", "0", "--size", bytes, "--duration", &seconds];
        // On a core shared with the switch it must not poll.
        let linger = if to.contains(':') { "0s" } else { "100us" };
        generate.extend(["--linger", linger, "--dst", "02:00:00:00:00:02"]);
        if stamped {
            sink.push("--check");
            generate.push("--stamp");
        }
        let sink = Ending(self.command(&sink).spawn()?);
        // It must be there, and the switch know where, before the first frame.
        std::thread::sleep(Duration::from_millis(100));
        let sent = self.command(&generate).output()?;
        if !sent.status.success() {
            return Err(BenchError::Failed(format!("pkt gen: {}", sent.status)));
        }
        let value = sink.output()?;
        let figure = |name: &str| {
            let missing = || BenchError::Failed(format!("no {name} in pkt sink --json"));
            value[name].as_f64().ok_or_else(missing)
        };
        let (frames_per_s, elapsed_s) = (figure("frames_per_s")?, figure("elapsed_s")?);
        let bits_per_s = 8.0 * figure("bytes")? / elapsed_s;
        Ok(Figures::from([("frames_per_s", frames_per_s), ("bits_per_s", bits_per_s)]))
    }

    fn ping(&self, near: &str, far: &str, linger: &str) -> Result<Figures, BenchError> {
        let echo = ["pkt", "echo", far, "--core", "1", "--linger", linger];
        let echo = Ending(self.command(&echo).spawn()?);
        std::thread::sleep(Duration::from_millis(100));
        let ping = ["pkt", "ping", near, "--core", "0", "--linger", linger, "--count", "50000"];
        let value = Ending(self.command(&ping).spawn()?).output()?;
        drop(echo);
        let median = value["p50_s"].as_f64();
        let median = median.ok_or_else(|| BenchError::Failed("no p50_s in pkt ping".to_owned()))?;
        Ok(Figures::from([("p50_s", median)]))
    }
}

impl Drop for Bed {
    fn drop(&mut self) {
        // It may have ended already.
        self.daemon.kill().ok();
        self.daemon.wait().ok();
        std::fs::remove_file(&self.socket).ok();
    }
}

/// A child that does not outlive the value.
struct Ending(Child);

impl Ending {
    /// What it prints until it ends by itself.
    fn output(mut self) -> Result<Value, BenchError> {
        let mut text = String::new();
        if let Some(stdout) = &mut self.0.stdout {
            std::io::Read::read_to_string(stdout, &mut text)?;
        }
        serde_json::from_str(&text)
            .map_err(|error| BenchError::Failed(format!("pkt --json: {error}: {text}")))
    }
}

impl Drop for Ending {
    fn drop(&mut self) {
        // It may have ended already.
        self.0.kill().ok();
        self.0.wait().ok();
    }
}
