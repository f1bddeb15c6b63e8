//! Queues of network devices: frames from one veth pair to another, through the switch and by a bare loop.
//!
//! Three hosts in a row. The first sends as fast as it can, the last one's interface counts what arrives, and
//! the middle one forwards, on the second core: a loop that does nothing but move frames from one AF_XDP
//! socket to another, or the switch with two AF_XDP ports. Both copy each frame once from one device's
//! memory to the other's; the switch copies it twice more.

use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use ports::xdp::Port;
use rustix::event::{PollFd, PollFlags, Timespec};
use sys::process::Owned;

use crate::comparison::Figures;
use crate::host::{BenchError, Host, Lab, Wire, said, speak_to_us, start};
use crate::ours::program;
use crate::scratch;

/// First argument that turns this program into a sender or a forwarder.
const WORD: &str = "--queue";
/// Frames handed over at once, as the switch's turns.
const BATCH: u32 = 64;
/// Time for all to stand before the first frame.
const SETTLE: Duration = Duration::from_millis(150);

/// Runs the sender or forwarder when the arguments ask for it.
pub(crate) fn intercept(arguments: &[String]) -> Option<ExitCode> {
    let [_, word, role, rest @ ..] = arguments else { return None };
    if word != WORD {
        return None;
    }
    let ended = match (role.as_str(), rest) {
        ("send", [device, bytes, seconds]) => send(device, bytes, seconds),
        ("forward", [from, to]) => forward(from, to),
        _ => return Some(ExitCode::from(2)),
    };
    Some(match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("queue: {error}");
            ExitCode::FAILURE
        }
    })
}

type Ended = Result<(), Box<dyn std::error::Error>>;

fn open(device: &str) -> Result<Port, Box<dyn std::error::Error>> {
    Ok(ports::xdp::open(device, 0)?.try_into()?)
}

fn send(device: &str, bytes: &str, seconds: &str) -> Ended {
    let mut port = open(device)?;
    let mut frame = vec![0; bytes.parse()?];
    frame[..14].copy_from_slice(&[2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 0x88, 0xb5]);
    let length = Duration::from_secs_f64(seconds.parse()?);
    let began = Instant::now();
    while began.elapsed() < length {
        let room = port.room(BATCH)?.min(BATCH);
        for offset in 0..room {
            if let Some(chunk) = port.chunk(offset)
                && chunk.write(0, &frame)
            {
                port.put(offset, frame.len() as u32, false);
            }
        }
        port.publish(room)?;
    }
    println!("{}", began.elapsed().as_secs_f64());
    Ok(())
}

fn forward(from: &str, to: &str) -> Ended {
    let (mut from, mut to) = (open(from)?, open(to)?);
    loop {
        let arrived = from.peek()?.min(BATCH);
        let count = to.room(arrived)?.min(arrived);
        for offset in 0..count {
            let Some((frame, chunk)) = from.frame(offset).zip(to.chunk(offset)) else { continue };
            let length = frame.bytes.length_bytes();
            if chunk.copy_from(&frame.bytes, length) {
                to.put(offset, length as u32, frame.goes_on);
            }
        }
        to.publish(count)?;
        from.release(count)?;
        if arrived == 0 {
            let timeout = Timespec { tv_sec: 0, tv_nsec: 1_000_000 };
            let mut set = [PollFd::new(&from, PollFlags::IN)];
            rustix::event::poll(&mut set, Some(&timeout))?;
        }
    }
}

/// Who stands in the middle.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Middle {
    /// The switch.
    Switch,
    /// The loop.
    Loop,
}

/// One run; frames a second that arrive at the last host.
pub(crate) fn run(middle: Middle, bytes: &str, length: Duration) -> Result<Figures, BenchError> {
    let (first, second, third) =
        (Host::new("192.0.2.1")?, Host::new("192.0.2.2")?, Host::new("192.0.2.3")?);
    second.cable("n1", &first, "f1")?;
    second.cable("n2", &third, "f2")?;
    let ours = std::env::current_exe()?;
    let ours = ours.to_str().ok_or_else(|| BenchError::Failed("an odd path".to_owned()))?;
    let _forwarding = match middle {
        Middle::Loop => {
            let mut command = second.enter_on("1", ours);
            vec![start_quiet(command.args([WORD, "forward", "n1", "n2"]))?]
        }
        Middle::Switch => switch("1", "xdp", [(&second, "n1"), (&second, "n2")])?,
    };
    std::thread::sleep(SETTLE);
    let before = arrived(&third)?;
    let seconds = length.as_secs_f64().to_string();
    let mut sender = first.enter_on("0", ours);
    sender.args([WORD, "send", "f1", bytes, &seconds]);
    let ended = said(speak_to_us(&mut sender))?;
    let took = String::from_utf8_lossy(&ended.stdout).trim().parse::<f64>();
    let took = took.map_err(|_none| BenchError::Failed(ended.last_line()))?;
    let frames = arrived(&third)?.saturating_sub(before) as f64;
    Ok(Figures::from([("frames_per_s", frames / took)]))
}

/// A switch on these cores with ports of type `kind`: each host's device.
fn switch(cores: &str, kind: &str, ports: [(&Host, &str); 2]) -> Result<Vec<Owned>, BenchError> {
    let socket = scratch::path("bench-ports.sock")?;
    // One that a killed run left, or none.
    std::fs::remove_file(&socket).ok();
    let mut daemon = ports[0].0.enter_on("0-1", program());
    daemon.args(["switch", "run", "--cores", cores, "--socket"]).arg(&socket);
    let running = start_quiet(&mut daemon)?;
    let until = Instant::now() + Duration::from_secs(5);
    while !socket.exists() && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(5));
    }
    for (host, device) in ports {
        let mut add = host.enter_on("0-1", program());
        let port = format!("vale0:{device}");
        add.args(["port", "add", &port, "--type", kind, "--device", device, "--socket"]);
        let ended = said(speak_to_us(add.arg(&socket)))?;
        if !ended.status.success() {
            return Err(BenchError::Failed(ended.last_line()));
        }
    }
    Ok(vec![running])
}

/// One run of `clearstream test` over TAP devices on a switch.
pub(crate) fn taps_on_a_switch(length: Duration) -> Result<Figures, BenchError> {
    let (near, far) = (Host::new("192.0.2.1")?, Host::new("192.0.2.2")?);
    let _switch = switch("0,1", "tap", [(&near, "tap0"), (&far, "tap1")])?;
    for (host, address, device) in [(&near, "192.0.2.1/24", "tap0"), (&far, "192.0.2.2/24", "tap1")]
    {
        host.ip(&["address", "add", address, "dev", device])?;
    }
    crate::ours::test(&Wire::veth(near, far), length, &["--omit", "1"])
}

/// The same over a link of a lab that neither delays nor limits.
pub(crate) fn taps_on_a_delay_line(length: Duration) -> Result<Figures, BenchError> {
    const NAME: &str = "bench-line";
    let text = format!(
        "name = \"{NAME}\"\n[host.near]\ncores = [0]\n[host.far]\ncores = [1]\n\
         [[link]]\nbetween = [\"near\", \"far\"]\nmtu = 1500\ndelay = \"0s\"\n"
    );
    let file = scratch::path(&format!("{NAME}.toml"))?;
    std::fs::write(&file, text)?;
    let lab = Lab::up(&file.to_string_lossy(), NAME, ["near", "far"]);
    std::fs::remove_file(&file).ok();
    crate::ours::test(&Wire::Lab(lab?), length, &["--omit", "1"])
}

/// Frames that the last host's interface has received.
fn arrived(host: &Host) -> Result<u64, BenchError> {
    let links = topology::InterfaceCounters::read_from(&host.files());
    let link = links.into_iter().find(|link| link.interface == "f2");
    let link = link.ok_or_else(|| BenchError::Failed("no counters of f2".to_owned()))?;
    Ok(link.rx_pkts)
}

/// Starts a child that nobody hears.
fn start_quiet(command: &mut Command) -> Result<Owned, BenchError> {
    start(command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()))
}
