//! The guests of all contenders, up at the same time, and what connects them.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use packet_switch::client::Connection;
use results::{Finding, FramesWork, TestOutcome, TestSpec};
use sys::private::Scratch;
use sys::process::{Ending, Owned};
use vm::accelerator::{Choice, choose, qemu_version, tsc_khz};
use vm::image::Image;
use vm::line::{Accelerator, MachineConfig, mac_of, quoted};
use vm::{Machine, Place, Program, ShellEnd, Start, VmError};

use super::contender::Contender;
use super::meter::{Listener, MARK, Reading, Window, cpu_of};
use super::study::Study;
use crate::exit::VerbError;
use crate::tester::Request;
use crate::verbs::reproduce::finding;

const QEMU: &str = "qemu-system-x86_64";
const MEMORY_BYTES: u64 = 512 << 20;
/// The bridge; its hardware address is [`SINK_MAC`].
const BRIDGE: &str = "bridge";
/// Where the generator sends its frames.
const SINK_MAC: &str = "02:00:00:00:00:02";
/// Address of a guest but for its last number, the same at every contender.
const SUBNET: &str = "10.0.0";

/// Longest until a guest has booted, on a machine on which many want the cores.
const READY_MAX: Duration = Duration::from_secs(300);
/// Longest until a switch answers.
const SWITCH_MAX: Duration = Duration::from_secs(20);
/// Time a test may take besides what it measures, seconds.
const BESIDES_S: f64 = 60.0;

/// The user's image with this program in it. `tell` is called with each step of making it.
pub(super) fn image(tell: impl FnMut(&str)) -> Result<Image, VerbError> {
    let folder = vm::image::default_folder();
    let image = vm::image::make_beside(&folder, "measuring", &[std::env::current_exe()?], tell)?;
    match image.no_ptnet {
        Some(why) => Err(VmError::NoDriver(why).into()),
        None => Ok(image),
    }
}

/// Moves this process into a network namespace of its own, where it may make devices. To be called with one thread.
pub(super) fn enter_own_network(id: &str) -> Result<(), VerbError> {
    let enter = || -> Result<(), sys::SyscallError> {
        if !rustix::process::geteuid().is_root() {
            sys::namespace::unshare_user()?;
        }
        sys::namespace::unshare_network().map(drop)
    };
    enter().map_err(|error| {
        let why = crate::exit::chain(&error);
        VerbError::missing(format!("{id} needs root, or user namespaces, for a bridge: {why}"))
    })
}

/// The guests of one contender.
pub(super) struct Pair {
    contender: Contender,
    machines: Vec<Machine>,
    switch: Option<Owned>,
    socket: std::path::PathBuf,
    /// Takes the frames that guests send to [`SINK_MAC`].
    sink: Option<Owned>,
    /// Frames are generated for the second guest, by the ring API if the guests have it.
    is_of_rings: bool,
}

/// Everything that is up.
pub(super) struct ContenderGuests {
    pairs: Vec<Pair>,
    choice: Choice,
    ready_s: f64,
    // Declared last, so removed last.
    _scratch: Scratch,
}

impl ContenderGuests {
    /// Boots all guests at once.
    pub(super) fn up(image: &Image, study: &Study) -> Result<Self, VerbError> {
        let scratch = Scratch::new("guests").map_err(|error| VerbError::from_error(&error))?;
        let (version, choice) = (qemu_version(QEMU.as_ref())?, choose(QEMU.as_ref()));
        let mut guests = Self { pairs: Vec::new(), choice, ready_s: 0.0, _scratch: scratch };
        let began = Instant::now();
        for contender in Contender::ALL {
            guests.pairs.push(Pair::new(contender, study.is_of_rings(), &guests._scratch)?);
        }
        let place = Place::at(guests._scratch.path())?;
        let program = Program::new(std::env::current_exe()?, ["vm", "internal"]);
        for pair in &mut guests.pairs {
            for number in 1..=study.guests_count {
                let config = pair.config(number, image, (guests.choice.accelerator, version))?;
                let owner = i32::try_from(std::process::id()).ok();
                let start = Start { config: &config, program: &program, owner };
                pair.machines.push(Machine::start_in(&place, start)?);
            }
        }
        drop(place);
        guests.pairs.iter().try_for_each(Pair::settle)?;
        guests.ready_s = began.elapsed().as_secs_f64();
        guests.pairs.iter_mut().try_for_each(Pair::begin)?;
        Ok(guests)
    }

    pub(super) fn pair(&self, contender: Contender) -> Option<&Pair> {
        self.pairs.iter().find(|pair| pair.contender == contender)
    }

    /// What a reader must know of these guests.
    pub(super) fn findings(&self) -> Vec<Finding> {
        let count: usize = self.pairs.iter().map(|pair| pair.machines.len()).sum();
        let Choice { accelerator, why } = &self.choice;
        let why = why.as_ref().map(|why| format!(" ({why})")).unwrap_or_default();
        let mut findings = vec![
            finding("guest-accelerator", format!("the guests run under {accelerator}{why}")),
            finding("guest-boot", format!("{count} guests were ready after {:.1} s", self.ready_s)),
        ];
        if *accelerator == Accelerator::Tcg {
            let text = "under TCG vhost-user guests have INTx instead of MSI-X, which crashes QEMU 7.2, and \
                        no contender has vhost-net";
            findings.push(finding("guest-interrupts", text.to_owned()));
        }
        findings
    }
}

impl Drop for ContenderGuests {
    fn drop(&mut self) {
        for machine in self.pairs.iter_mut().flat_map(|pair| pair.machines.drain(..)) {
            // Its keeper ends with this process in any case.
            machine.end().ok();
        }
    }
}

impl Pair {
    /// What its guests will be connected to.
    fn new(contender: Contender, is_of_rings: bool, scratch: &Scratch) -> Result<Self, VerbError> {
        let socket = scratch.path().join(format!("{}.sock", contender.prefix()));
        let (machines, switch, sink) = (Vec::new(), None, None);
        let mut pair = Self { contender, machines, switch, socket, sink, is_of_rings };
        if contender == Contender::Bridge {
            let link = format!("link add {BRIDGE} address {SINK_MAC} type bridge");
            ip(&link)?;
            ip(&format!("link set {BRIDGE} up"))?;
            return Ok(pair);
        }
        pair.switch = Some(pair.start(&["switch", "run"])?);
        let until = Instant::now() + SWITCH_MAX;
        while let Err(error) = Connection::open(&pair.socket) {
            if Instant::now() > until {
                return Err(VerbError::from_error(&error));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(pair)
    }

    /// One of its guests.
    fn config(
        &self,
        number: usize,
        image: &Image,
        (accelerator, qemu_version): (Accelerator, (u32, u32)),
    ) -> Result<MachineConfig, VerbError> {
        let name = format!("{}{number}", self.contender.prefix());
        let wrong = |error: packet_switch::NameError| VerbError::from_error(&error);
        let port = format!("vale0:{name}").parse().map_err(wrong)?;
        Ok(MachineConfig {
            port_type: self.contender.port_type(),
            trust: None,
            switch: self.socket.clone(),
            kernel: Some(image.kernel.clone()),
            initrd: Some(image.initrd.clone()),
            disk: None,
            memory_bytes: MEMORY_BYTES,
            cores: 1,
            queues: 1,
            mac: mac_of(&port),
            name,
            port: Some(port),
            passthrough: None,
            append: append(accelerator).to_owned(),
            has_shell: true,
            accelerator,
            tsc_khz: tsc_khz(accelerator),
            qemu: QEMU.into(),
            qemu_version,
        })
    }

    /// Starts this program, for its switch.
    fn start(&self, arguments: &[&str]) -> Result<Owned, VerbError> {
        let mut command = Command::new(std::env::current_exe()?);
        command.args(arguments).arg("--socket").arg(&self.socket);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        Ok(Owned::start(&mut command, Ending::TERM.with_group())?)
    }

    /// Waits until its guests have booted, and gives them addresses.
    fn settle(&self) -> Result<(), VerbError> {
        for (index, machine) in self.machines.iter().enumerate() {
            machine.wait_until_ready(READY_MAX)?;
            if self.contender == Contender::Bridge {
                ip(&format!("link set {} master {BRIDGE} up", machine.state().config.name))?;
            }
            let address = format!("{SUBNET}.{}", index + 1);
            let script = format!("ip addr add {address}/24 dev eth0; ip link set eth0 up");
            run(machine, &script, &mut Vec::new())?;
        }
        Ok(())
    }

    /// Starts the other end: a server in the second guest, or, where there is none, a port that takes frames.
    fn begin(&mut self) -> Result<(), VerbError> {
        if let Some(far) = self.machines.get(1).filter(|_| self.is_of_rings) {
            return run(far, self.receiver(), &mut Vec::new());
        }
        if let Some(far) = self.machines.get(1) {
            let port = traffic::server::DEFAULT_PORT;
            let script = format!(
                "(clearstream serve >/tmp/serve 2>&1 &)\n\
                 for one in $(seq 600); do\n\
                 grep -q ':{port:04X} .* 0A ' /proc/net/tcp /proc/net/tcp6 && exit 0\n\
                 sleep 0.1\n\
                 done\n\
                 tail -n 1 /tmp/serve; exit 1"
            );
            return run(far, &script, &mut Vec::new());
        }
        if self.switch.is_some() {
            // It sleeps when nothing comes: the guest needs the cores.
            let sink = ["pkt", "sink", SINK_PORT, "--announce", SINK_MAC, "--linger", "0s"];
            self.sink = Some(self.start(&sink)?);
        }
        Ok(())
    }

    /// Runs a test from the first guest to the second.
    pub(super) fn test(&self, spec: &TestSpec) -> Result<(TestOutcome, Window), VerbError> {
        let request = serde_json::to_string(&Request::Test(Box::new(spec.clone())));
        let request = request.map_err(|error| VerbError::from_error(&error))?;
        let results::TestLimit::DurationS(duration_s) = spec.limit else {
            return Err(VerbError::failed("tests in guests are limited by time"));
        };
        let limit_s = (duration_s + BESIDES_S).ceil();
        let script = format!(
            "echo {} | timeout {limit_s} clearstream tester {SUBNET}.2 2>&1",
            quoted(&request)
        );
        let read = || self.read();
        let mut listener = Listener::new(&read);
        let ran = run(self.near()?, &script, &mut listener);
        let window = listener.window()?;
        let outcome = listener.outcome()?;
        ran?;
        Ok((outcome, window))
    }

    /// What the second guest does with frames, in a shell. Either way the switch or the bridge learns where it is.
    fn receiver(&self) -> &'static str {
        match self.contender {
            // Its interface has no carrier while a program has the rings.
            Contender::Ptnet => {
                "own=/sys/class/net/eth0\n\
                 (clearstream rings receive eth0 $(cat $own/address) >/tmp/rings 2>&1 &)\n\
                 for one in $(seq 100); do\n\
                 [ \"$(cat $own/carrier)\" = 0 ] && exit 0\n\
                 sleep 0.1\n\
                 done\n\
                 tail -n 1 /tmp/rings; exit 1"
            }
            Contender::VhostUser | Contender::Bridge => "ping -c 1 -W 20 10.0.0.1 >/dev/null",
        }
    }

    /// Lets the first guest send frames.
    pub(super) fn generate(&self, work: &FramesWork, batch: u64) -> Result<Window, VerbError> {
        let FramesWork { frame_bytes, duration_s, .. } = work;
        let to = self.machines.get(1).map(|far| far.state().config.mac);
        let to = to.as_deref().unwrap_or(SINK_MAC);
        let window = format!("sleep 0.5; echo {MARK}; sleep {duration_s}; echo {MARK}");
        let script = if self.is_of_rings && self.contender == Contender::Ptnet {
            format!(
                "clearstream rings send eth0 $(cat /sys/class/net/eth0/address) {to} {frame_bytes} {batch} >/tmp/rings 2>&1 &\n\
                 {window}\n\
                 kill $! && wait $! || {{ tail -n 1 /tmp/rings; exit 1; }}"
            )
        } else {
            format!(
                "[ -e /proc/net/pktgen ] || insmod /modules/pktgen.ko || exit\n\
                 cd /proc/net/pktgen || exit\n\
                 echo rem_device_all >kpktgend_0\n\
                 echo add_device eth0 >kpktgend_0\n\
                 for line in 'count 0' 'clone_skb 1000000' 'pkt_size {frame_bytes}' 'burst {batch}' 'delay 0' \
                 'dst_mac {to}' 'dst {SUBNET}.9'; do\n\
                 echo \"$line\" >eth0 || exit\n\
                 done\n\
                 (echo start >pgctrl) &\n\
                 {window}\n\
                 echo stop >pgctrl; wait"
            )
        };
        let read = || self.read();
        let mut listener = Listener::new(&read);
        let ran = run(self.near()?, &script, &mut listener);
        let window = listener.window()?;
        ran.map(|()| window)
    }

    fn near(&self) -> Result<&Machine, VerbError> {
        self.machines.first().ok_or_else(|| VerbError::failed("there is no guest"))
    }

    /// The meters of its processes, and the frames that came to the sink.
    fn read(&self) -> Reading {
        let states = self.machines.iter().map(Machine::state);
        let (qemus, mut others): (Vec<i32>, Vec<i32>) =
            states.map(|state| (state.qemu.pid, state.keeper.pid)).unzip();
        let own = self.switch.as_ref().and_then(|switch| i32::try_from(switch.id()).ok());
        others.extend(own);
        Reading {
            pkts: self.pkts().unwrap_or(0),
            qemu: cpu_of(&qemus),
            switch: cpu_of(&others),
            at: Instant::now(),
        }
    }

    /// Frames of the generator that have come so far: to the second guest's device, else to the host.
    fn pkts(&self) -> Option<u64> {
        let far = self.machines.get(1).map(|far| far.state().config);
        if self.contender == Contender::Bridge {
            let devices = std::fs::read_to_string("/proc/thread-self/net/dev").ok()?;
            return match far {
                Some(far) => count_of(&devices, &far.name, SENT_FRAMES),
                None => count_of(&devices, BRIDGE, RECEIVED_FRAMES),
            };
        }
        let port = far.map_or(SINK_PORT.to_owned(), |far| far.network());
        let entries = Connection::open(&self.socket).ok()?.list().ok()?;
        let entry = entries.iter().find(|entry| entry.name == port)?;
        Some(entry.count.as_ref()?.outgoing.frames)
    }
}

/// Words for the kernel of each guest. QEMU's translations are kept by address: with random addresses each test would begin
/// with code that is new to it.
fn append(accelerator: Accelerator) -> &'static str {
    match accelerator {
        Accelerator::Tcg => "norandmaps",
        Accelerator::Kvm => "",
    }
}

/// The port that takes the generator's frames.
const SINK_PORT: &str = "vale0:sink";

/// Columns of `/proc/net/dev`.
const RECEIVED_FRAMES: usize = 1;
const SENT_FRAMES: usize = 9;

/// A count of a device, from `/proc/net/dev` (`proc_net(5)`).
fn count_of(text: &str, device: &str, column: usize) -> Option<u64> {
    let counts =
        text.lines().find_map(|line| line.trim_start().strip_prefix(device)?.strip_prefix(':'));
    counts?.split_ascii_whitespace().nth(column)?.parse().ok()
}

/// Runs a shell's script in a guest.
fn run(machine: &Machine, script: &str, out: &mut dyn std::io::Write) -> Result<(), VerbError> {
    let mut shell = machine.shell(READY_MAX)?;
    match shell.run(&["sh", "-c", script], out, None)? {
        ShellEnd::Status(0) => Ok(()),
        ShellEnd::Status(status) => {
            let name = machine.state().config.name;
            Err(VerbError::failed(format!("guest {name}: exit status {status}")))
        }
        ShellEnd::Signal(number) => Err(VerbError::failed(format!("ended by signal {number}"))),
    }
}

/// Runs iproute2 in this process's network namespace.
fn ip(arguments: &str) -> Result<(), VerbError> {
    let output = Command::new("ip").args(arguments.split(' ')).stdin(Stdio::null()).output();
    let output = output.map_err(|error| VerbError::missing(format!("ip (iproute2): {error}")))?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let why = said.lines().last().unwrap_or("no reason").trim();
    Err(VerbError::missing(format!("ip {arguments}: {why}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_counted_by_device_and_direction() {
        let text = "Inter-|   Receive\n face |bytes packets\n    lo: 1 2 0\nbridge: 600 10 0 0 0 0 0 0 900 15\n";
        assert_eq!(count_of(text, BRIDGE, RECEIVED_FRAMES), Some(10));
        assert_eq!(count_of(text, BRIDGE, SENT_FRAMES), Some(15));
        assert_eq!(count_of(text, "lo", RECEIVED_FRAMES), Some(2));
        assert_eq!(count_of(text, "bridg", RECEIVED_FRAMES), None);
    }
}
