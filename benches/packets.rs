//! The packet core: pipes and switches between processes of this program.
//!
//! Two cores: a pipe's ends have one each. Through a switch there are three processes: sender and switch
//! share a core, where the sender sleeps while its ring is full, and the receiver has the other. Rates are the
//! receiver's; frames that a full ring dropped are not in them.

pub(crate) mod dpdk;
pub(crate) mod floor;
mod growth;
mod lines;

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use serde_json::Value;
use sys::process::Owned;

use crate::comparison::{
    Better, Comparison, Contender, Effort, Figures, Gate, Medium, RowPlan, Run, Whose,
};
use crate::host::{BenchError, said, start};
use crate::ours::program;
use crate::queues::{self, Middle};
use crate::scratch;

/// Every comparison of the packet core.
pub(crate) fn comparisons(effort: Effort) -> Vec<Comparison> {
    let small = if effort.quick { vec!["60", "1500"] } else { vec!["60", "512", "1500"] };
    let mut all = vec![pipe(effort)];
    all.extend(small.into_iter().map(|bytes| switch(effort, bytes)));
    all.extend([wake_up(effort), growth(effort), at_rest(effort)]);
    all.extend([queues(effort, "60"), queues(effort, "1500"), taps(effort)]);
    all
}

const OURS: &str = "ClearStream";
/// The same with every number looked at.
const CHECKED: &str = "ClearStream, frames checked";
/// Slots go to and fro; their frames are neither written nor read again.
const SLOTS_ONLY: &str = "ClearStream, slots only";
const LINES: &str = "bare lines of memory";
const SLOTS_NOTE: &str = "slots only: after the first round no frame is written and none read, as netmap's pkt-gen measures";
const LINES_NOTE: &str = "the peer is what this machine's memory does: 64-byte lines written whole on one core, \
                          read whole on the other";

/// What the ends of a stream do with each frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Touch {
    /// The sender writes it whole, the receiver reads it whole.
    Bytes,
    /// And the receiver looks at its number and time.
    Checked,
    /// Neither.
    SlotsOnly,
}

fn pipe(effort: Effort) -> Comparison {
    let run = |touch| -> Run {
        Box::new(move |_, length| {
            let bed = Testbed::new(&["p"])?;
            bed.stream("p{0", "p}0", "60", touch, length)
        })
    };
    let mut contenders = vec![
        contender(OURS, run(Touch::Bytes)),
        contender(CHECKED, run(Touch::Checked)),
        contender(SLOTS_ONLY, run(Touch::SlotsOnly)),
        contender(LINES, Box::new(|_, length| lines::run(length))),
    ];
    contenders.extend(dpdk::rings());
    let beside = |name: &str, ours: &str, peer: &str, gate| RowPlan {
        peers: vec![peer.to_owned()],
        gate,
        ..row(name, MPPS, ours)
    };
    Comparison {
        name: "packets-pipe",
        setting: "60-byte frames through a pipe between two processes, one core each; every frame written whole by \
                  the sender and read whole by the receiver unless it says otherwise"
            .to_owned(),
        medium: Medium::Nothing,
        effort,
        contenders,
        rows: vec![
            RowPlan { gate: Gate::Figure(100.0), ..row("packets-pipe-60", MPPS, OURS) },
            row("packets-pipe-60-checked", MPPS, CHECKED),
            RowPlan {
                note: Some(LINES_NOTE),
                ..beside("packets-pipe-60-memory", OURS, LINES, Gate::None)
            },
            beside("packets-pipe-60-dpdk-frames", OURS, dpdk::RING_FRAMES, Gate::Ratio(2.0)),
            RowPlan {
                note: Some(SLOTS_NOTE),
                ..row("packets-pipe-60-slots-only", MPPS, SLOTS_ONLY)
            },
            beside("packets-pipe-60-dpdk-pointers", SLOTS_ONLY, dpdk::RING, Gate::None),
        ],
    }
}

fn switch(effort: Effort, bytes: &'static str) -> Comparison {
    let run: Run = Box::new(move |_, length| {
        let bed = Testbed::new(&[])?;
        bed.stream("vale0:a", "vale0:b", bytes, Touch::SlotsOnly, length)
    });
    let (name, frame_bytes, figure, gate) = match bytes {
        "60" => ("packets-switch-60", 60, MPPS, Gate::Figure(20.0)),
        "512" => ("packets-switch-512", 512, MPPS, Gate::None),
        _ => ("packets-switch-1500", 1500, GBITS, Gate::Figure(60.0)),
    };
    let beside = RowPlan {
        peers: vec![dpdk::TESTPMD.to_owned()],
        gate: Gate::Ratio(1.0),
        ..row(&format!("{name}-dpdk"), figure, OURS)
    };
    Comparison {
        name,
        setting: format!(
            "{bytes}-byte frames, one sender to one receiver, three processes on two cores; of DPDK's \
             two one sends and receives on core 0, the other forwards on core 1; on both sides whoever forwards \
             copies each frame, and whoever sends and receives touches slots only"
        ),
        medium: Medium::Nothing,
        effort,
        contenders: vec![contender(OURS, run), dpdk::testpmd(frame_bytes)],
        rows: vec![RowPlan { gate, ..row(name, figure, OURS) }, beside],
    }
}

/// Polls for a while where that pays, as clients do unless told otherwise.
const PIPE: &str = "ClearStream pipe";
const SWITCH: &str = "ClearStream switch";
/// Sleeps at once.
const PIPE_ASLEEP: &str = "ClearStream pipe, asleep";
const SWITCH_ASLEEP: &str = "ClearStream switch, asleep";
const SHARED_ASLEEP: &str = "ClearStream pipe, asleep, one core";
const POLLING: &str = "ClearStream pipe, polling";
/// What an exchange between sleepers costs whatever they exchange.
const BARE: &str = "bare eventfd";
const BARE_RELAYED: &str = "bare eventfd through a third";
const BARE_SHARED: &str = "bare eventfd, one core";

fn wake_up(effort: Effort) -> Comparison {
    let run = |ends: [&'static str; 2], far, linger: &'static str| -> Run {
        Box::new(move |_, _| {
            let bed = Testbed::new(&["p"])?;
            bed.ping(ends, far, linger)
        })
    };
    let floor =
        |far, relayed| -> Run { Box::new(move |_, length| floor::run(far, relayed, length)) };
    let latency = |name: &str, contender: &str, gate| RowPlan {
        better: Better::Lower,
        gate,
        ..row(name, MICROSECONDS, contender)
    };
    let beside = |name: &str, contender: &str, peer: &str| RowPlan {
        peers: vec![peer.to_owned()],
        ..latency(name, contender, Gate::None)
    };
    let (pipe, switch) = (["p{0", "p}0"], ["vale0:a", "vale0:b"]);
    Comparison {
        name: "packets-wake-up",
        setting:
            "median round trip of one 60-byte frame between processes on core 0 and core 1, the \
                  switch on core 0; one core: both on core 0"
                .to_owned(),
        medium: Medium::Nothing,
        effort,
        contenders: vec![
            contender(PIPE, run(pipe, "1", "100us")),
            contender(SWITCH, run(switch, "1", "100us")),
            contender(PIPE_ASLEEP, run(pipe, "1", "0s")),
            contender(BARE, floor(1, false)),
            contender(SWITCH_ASLEEP, run(switch, "1", "0s")),
            contender(BARE_RELAYED, floor(1, true)),
            contender(SHARED_ASLEEP, run(pipe, "0", "0s")),
            contender(BARE_SHARED, floor(0, false)),
            contender(POLLING, run(pipe, "1", "1s")),
        ],
        rows: vec![
            latency("packets-wake-up-pipe", PIPE, Gate::Figure(15.0)),
            latency("packets-wake-up-switch", SWITCH, Gate::Figure(15.0)),
            beside("packets-asleep-pipe", PIPE_ASLEEP, BARE),
            beside("packets-asleep-switch", SWITCH_ASLEEP, BARE_RELAYED),
            beside("packets-asleep-pipe-one-core", SHARED_ASLEEP, BARE_SHARED),
            latency("packets-polling-pipe", POLLING, Gate::Figure(2.0)),
        ],
    }
}

fn growth(effort: Effort) -> Comparison {
    const ONE: &str = "one sender, one receiver";
    let loads = [
        (ONE, growth::Load { senders: 1, receivers: 1, addresses: 1 }),
        ("broadcast to 8 ports", growth::Load { senders: 1, receivers: 8, addresses: 1 }),
        ("64 senders to one", growth::Load { senders: 64, receivers: 1, addresses: 1 }),
        ("10 000 addresses", growth::Load { senders: 1, receivers: 1, addresses: 10_000 }),
    ];
    let run = |load| -> Run { Box::new(move |_, length| growth::forward(load, length)) };
    let beside =
        |name: &str, ours: &str| RowPlan { peers: vec![ONE.to_owned()], ..row(name, MPPS, ours) };
    Comparison {
        name: "packets-growth",
        setting:
            "60-byte frames taken in, the switch on core 0, all clients on core 1, in one thread; \
                  the peer is one sender and one receiver"
                .to_owned(),
        medium: Medium::Nothing,
        effort,
        contenders: loads.map(|(name, load)| contender(name, run(load))).into(),
        rows: vec![
            beside("packets-broadcast-8", loads[1].0),
            beside("packets-64-senders", loads[2].0),
            beside("packets-10000-addresses", loads[3].0),
        ],
    }
}

fn at_rest(effort: Effort) -> Comparison {
    const SHARE: Figure = Figure("core_share", "% of a core", 0.01);
    const PORTS: Figure = Figure("ports_per_s", "ports/s", 1.0);
    const IDLE: &str = "64 idle ports";
    const ATTACHING: &str = "attach and detach";
    Comparison {
        name: "packets-ports",
        setting: "the switch with 64 attached ports at rest, and with one that comes and goes"
            .to_owned(),
        medium: Medium::Nothing,
        effort,
        contenders: vec![
            contender(IDLE, Box::new(|_, length| growth::idle(length))),
            contender(ATTACHING, Box::new(|_, length| growth::attach(length))),
        ],
        rows: vec![
            RowPlan {
                better: Better::Lower,
                gate: Gate::Figure(0.5),
                ..row("packets-idle-64-ports", SHARE, IDLE)
            },
            RowPlan { gate: Gate::Figure(1000.0), ..row("packets-attach", PORTS, ATTACHING) },
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
    Contender { whose: Whose::Ours, name: name.to_owned(), run }
}

#[derive(Clone, Copy)]
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
        note: None,
    }
}

/// A switch of this run, with the pipes it needs; all of it ends with the value.
pub(crate) struct Testbed {
    socket: PathBuf,
    daemon: Owned,
}

/// Longest wait for what `pkt sink` and `pkt ping` tell.
const TELL_MAX: Duration = Duration::from_secs(120);

static BEDS: AtomicU32 = AtomicU32::new(0);

impl Testbed {
    pub(crate) fn new(groups: &[&str]) -> Result<Self, BenchError> {
        let number = BEDS.fetch_add(1, Ordering::Relaxed);
        let socket = scratch::path(&format!("bench-{number}.sock"))?;
        let mut command = Command::new(program());
        command.args(["switch", "run", "--cores", "0", "--socket"]).arg(&socket);
        command.stderr(Stdio::null());
        let bed = Self { socket, daemon: start(&mut command)? };
        let until = Instant::now() + Duration::from_secs(5);
        while !bed.socket.exists() {
            if Instant::now() > until {
                return Err(BenchError::Failed("the switch does not begin".to_owned()));
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        for group in groups {
            let added = said(&mut bed.command(&["port", "add", group, "--pipes", "1"]))?.status;
            if !added.success() {
                return Err(BenchError::Failed(format!("port add {group}: {added}")));
            }
        }
        Ok(bed)
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(program());
        command.args(arguments).arg("--socket").arg(&self.socket).arg("--json");
        command.stdout(Stdio::piped()).stderr(Stdio::null());
        command
    }

    fn stream(
        &self,
        from: &str,
        to: &str,
        bytes: &str,
        touch: Touch,
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
        match touch {
            Touch::Bytes => {}
            Touch::Checked => sink.push("--check"),
            Touch::SlotsOnly => {
                sink.push("--slots-only");
                generate.push("--slots-only");
            }
        }
        let sink = start(&mut self.command(&sink))?;
        // It must be there, and the switch know where, before the first frame.
        std::thread::sleep(Duration::from_millis(100));
        let sent = said(&mut self.command(&generate))?;
        if !sent.status.success() {
            return Err(BenchError::Failed(format!("pkt gen: {}", sent.status)));
        }
        let value = told(sink)?;
        let figure = |name: &str| {
            let missing = || BenchError::Failed(format!("no {name} in pkt sink --json"));
            value[name].as_f64().ok_or_else(missing)
        };
        let (frames_per_s, elapsed_s) = (figure("frames_per_s")?, figure("elapsed_s")?);
        let bits_per_s = 8.0 * figure("bytes")? / elapsed_s;
        Ok(Figures::from([("frames_per_s", frames_per_s), ("bits_per_s", bits_per_s)]))
    }

    fn ping(&self, ends: [&str; 2], far: &str, linger: &str) -> Result<Figures, BenchError> {
        let [near, end] = ends;
        let echo = ["pkt", "echo", end, "--core", far, "--linger", linger];
        let echo = start(&mut self.command(&echo))?;
        std::thread::sleep(Duration::from_millis(100));
        let ping = ["pkt", "ping", near, "--core", "0", "--linger", linger, "--count", "50000"];
        let value = told(start(&mut self.command(&ping))?)?;
        drop(echo);
        let median = value["p50_s"].as_f64();
        let median = median.ok_or_else(|| BenchError::Failed("no p50_s in pkt ping".to_owned()))?;
        Ok(Figures::from([("p50_s", median)]))
    }
}

impl Drop for Testbed {
    fn drop(&mut self) {
        // The switch has it open, and goes after it.
        std::fs::remove_file(&self.socket).ok();
    }
}

/// The object that a child prints before it ends by itself.
fn told(child: Owned) -> Result<Value, BenchError> {
    let text = child.ended_within(TELL_MAX)?.stdout;
    serde_json::from_slice(&text).map_err(|error| {
        let text = String::from_utf8_lossy(&text);
        BenchError::Failed(format!("pkt --json: {error}: {text}"))
    })
}
