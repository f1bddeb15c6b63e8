//! DPDK beside the packet core, where it is installed with its headers: its ring between two cores, and
//! its testpmd forwarding between two memif ports. Huge pages are not asked for: few hosts have them
//! reserved, and neither side gets them then.

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::comparison::{Contender, Figures, Run, Whose};
use crate::host::{BenchError, finish, installed, speak_to_us, start};
use crate::scratch;

const SOURCE: &str = include_str!("dpdk.c");
const ENVIRONMENT: [&str; 6] =
    ["--no-huge", "--no-pci", "--no-telemetry", "--log-level=1", "-m", "192"];

/// A contender whose runs print frames a second.
fn contender(name: &str, run: Run) -> Contender {
    Contender { whose: Whose::Peer, name: name.to_owned(), run }
}

/// Bare pointers through a ring.
pub(crate) const RING: &str = "DPDK ring, bare pointers";
/// Frames through a ring: a buffer each, from a pool and back.
pub(crate) const RING_FRAMES: &str = "DPDK ring, frames in mbufs";

/// Both uses of a ring between two lcores, core 1 receiving.
pub(crate) fn rings() -> Vec<Contender> {
    let run = |job: &'static [&'static str]| -> Run {
        Box::new(move |_, length| {
            let mut peer = Peer::build()?.command("ring", "0@1,1@0");
            peer.args(["--", job[0], &length.as_secs_f64().to_string()]).args(&job[1..]);
            rate(peer, length, 60)
        })
    };
    vec![contender(RING, run(&["ring"])), contender(RING_FRAMES, run(&["frames", "60"]))]
}

/// testpmd as a forwarder.
pub(crate) const TESTPMD: &str = "DPDK testpmd, two memif ports";

/// testpmd on core 1 forwards what one process on core 0 sends and takes in.
pub(crate) fn testpmd(bytes: u16) -> Contender {
    // About one start in ten ends without a frame through memif, by chance.
    let run: Run = Box::new(move |_, length| {
        let again = |_refused| through_testpmd(bytes, length);
        through_testpmd(bytes, length).or_else(again).or_else(again)
    });
    contender(TESTPMD, run)
}

fn through_testpmd(bytes: u16, length: Duration) -> Result<Figures, BenchError> {
    installed("dpdk-testpmd")?;
    let mut peer = Peer::build()?.command("peer", "0@0");
    let name = scratch::path("memif")?;
    let ports = |role: &str| {
        [0, 1].map(|port| {
            let socket = format!("{}.{port},socket-abstract=no", name.display());
            format!("--vdev=net_memif{port},role={role},id={port},socket={socket},rsize=10")
        })
    };
    let mut forwarder = Command::new("dpdk-testpmd");
    forwarder.args(["--lcores", "0@1,1@1"]);
    forwarder.args(ENVIRONMENT).arg(prefix("forwarder")).args(ports("server"));
    forwarder.args(["--", "--forward-mode=io", "--auto-start", "--nb-cores=1"]);
    forwarder.args(["--burst=32", "--total-num-mbufs=16384"]);
    forwarder.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
    let _forwarder = start(&mut forwarder)?;
    let sockets = [0, 1].map(|port| PathBuf::from(format!("{}.{port}", name.display())));
    let until = Instant::now() + Duration::from_secs(10);
    while !sockets.iter().all(|socket| socket.exists()) {
        if Instant::now() > until {
            return Err(BenchError::Failed("testpmd does not begin".to_owned()));
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    peer.args(ports("client"));
    peer.args(["--", "forward", &length.as_secs_f64().to_string(), &bytes.to_string()]);
    let figures = rate(peer, length, bytes);
    // They may have gone with the forwarder.
    sockets.iter().for_each(|socket| drop(std::fs::remove_file(socket)));
    figures
}

/// Runs DPDK's files of this run are named so; nothing else on the host is touched.
fn prefix(role: &str) -> String {
    format!("--file-prefix=clearstream-{}-{role}", std::process::id())
}

fn rate(peer: Command, length: Duration, bytes: u16) -> Result<Figures, BenchError> {
    let finished = finish(peer, length + Duration::from_secs(15))?;
    let frames_per_s: f64 = finished
        .stdout
        .trim()
        .parse()
        .map_err(|error| BenchError::Failed(format!("{:?}: {error}", finished.stdout)))?;
    let bits_per_s = 8.0 * f64::from(bytes) * frames_per_s;
    Ok(Figures::from([("frames_per_s", frames_per_s), ("bits_per_s", bits_per_s)]))
}

/// Our program on DPDK's library, built when it is asked for.
struct Peer(PathBuf);

impl Peer {
    fn build() -> Result<Self, BenchError> {
        installed("pkg-config")?;
        installed("cc")?;
        // Nobody else can have put something there to be run.
        let program = scratch::path("dpdk")?;
        if program.exists() {
            return Ok(Self(program));
        }
        let flags = Command::new("pkg-config").args(["--cflags", "--libs", "libdpdk"]).output()?;
        if !flags.status.success() {
            return Err(BenchError::NotInstalled("DPDK with its headers (dpdk-dev)".to_owned()));
        }
        let flags = String::from_utf8_lossy(&flags.stdout).into_owned();
        let source = program.with_extension("c");
        std::fs::write(&source, SOURCE)?;
        let mut compiler = Command::new("cc");
        compiler.args(["-O3", "-march=native", "-Wall", "-o"]).arg(&program).arg(&source);
        let built = compiler.args(flags.split_whitespace()).output()?;
        std::fs::remove_file(&source)?;
        if built.status.success() {
            return Ok(Self(program));
        }
        let said = String::from_utf8_lossy(&built.stderr).into_owned();
        let first = said.lines().next().unwrap_or("nothing").to_owned();
        Err(BenchError::Failed(format!("cc on DPDK's library: {first}")))
    }

    fn command(&self, role: &str, lcores: &str) -> Command {
        let mut command = Command::new(&self.0);
        command.args(["--lcores", lcores]).args(ENVIRONMENT).arg(prefix(role));
        speak_to_us(&mut command);
        command
    }
}
