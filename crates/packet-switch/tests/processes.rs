//! Several processes, real memory, and one of them broken or hostile. Every frame is accounted for.
//!
//! Each test runs its other processes as this same program with `CLEARSTREAM_ROLE` set. How long they
//! go on is `CLEARSTREAM_STRESS_S`, seconds, 2 unless given; and at least until
//! `CLEARSTREAM_STRESS_FRAMES` have been sent, 5000 unless given, and `CLEARSTREAM_STRESS_KILLS` clients
//! killed, 20 unless given. `tools/campaign` sets large ones.

use std::io::Read;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use packet_switch::attachment::{Ask, PipeEnd, Shape};
use packet_switch::client::{Attached, Connection};
use packet_switch::daemon::Notice;
use ring::{Patience, Receiver, Sender};
use rustix::process::{Pid, Signal, kill_process};
use stats::Random;
use testkit::serving::{Serving, wait_until};

fn stress(name: &str, default: u64) -> u64 {
    let text = std::env::var(format!("CLEARSTREAM_STRESS_{name}"));
    text.map_or(default, |text| text.parse().expect("a number"))
}

fn stress_time() -> Duration {
    Duration::from_secs(stress("S", 2))
}

/// Starts this program again for `role`.
fn start(role: &str, socket: &Path) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "plays_its_role", "--nocapture", "--test-threads", "1"])
        .env("CLEARSTREAM_ROLE", role)
        .env("CLEARSTREAM_SOCKET", socket)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap()
}

/// What a role printed behind `what`.
fn said(child: Child, what: &str) -> u64 {
    let output = child.wait_with_output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{text}");
    let number = text.split(what).nth(1).and_then(|rest| rest.split_whitespace().next());
    number.and_then(|number| number.parse().ok()).unwrap_or_else(|| panic!("{what} in {text}"))
}

/// What the other processes do. Without a role it checks that there is a role for each test.
#[test]
fn plays_its_role() {
    let role = std::env::var("CLEARSTREAM_ROLE").unwrap_or_default();
    let socket = std::env::var("CLEARSTREAM_SOCKET").unwrap_or_default();
    match role.as_str() {
        "" => assert!(Connection::open(Path::new("/nowhere")).is_err()),
        "pipe-sender" => {
            let mut connection = Connection::open(Path::new(&socket)).unwrap();
            let pipe =
                connection.attach_pipe(&"stress".parse().unwrap(), 0, PipeEnd::Master).unwrap();
            send_with_naps(pipe, 1);
        }
        "switch-sender" => {
            let mut connection = Connection::open(Path::new(&socket)).unwrap();
            send_with_naps(connection.attach_port(&"vale0:a".parse().unwrap()).unwrap(), 1);
        }
        "victim" => {
            let mut connection = Connection::open(Path::new(&socket)).unwrap();
            send_with_naps(connection.attach_port(&"vale0:victim".parse().unwrap()).unwrap(), 3);
        }
        "scribbler" => scribble(Path::new(&socket)),
        other => panic!("no role {other}"),
    }
}

/// Sleeping at once is the harder case.
const PATIENCE: Patience = Patience { linger: Duration::ZERO, timeout: Duration::from_millis(100) };

/// A frame from a station to station 2 that carries its number, and a length and bytes that follow
/// from it.
struct Checked {
    bytes: [u8; 1460],
    length: usize,
}

impl Checked {
    fn new(from: u8, number: u64) -> Self {
        let length = 60 + (number.wrapping_mul(37) % 1400) as usize;
        let mut bytes = [(number >> 3) as u8; 1460];
        bytes[..60].copy_from_slice(&testkit::serving::frame(from, 2, number as u8));
        bytes[12..14].copy_from_slice(&[0x88, 0xb5]);
        bytes[14..22].copy_from_slice(&number.to_le_bytes());
        Self { bytes, length }
    }

    fn bytes(&self) -> &[u8] {
        &self.bytes[..self.length]
    }
}

/// The number of a frame that [`Checked`] made for station 1; `None` for anybody else's. Panics when
/// it is damaged.
fn check(receiver: &Receiver, offset: u32) -> Option<u64> {
    let mut frame = [0; 2112];
    let length = receiver.copy(offset, &mut frame)?;
    let ours = length >= 22 && frame[6..14] == [2, 0, 0, 0, 0, 1, 0x88, 0xb5];
    let number = ours.then(|| u64::from_le_bytes(frame[14..22].try_into().unwrap()))?;
    assert_eq!(&frame[..length], Checked::new(1, number).bytes(), "frame {number} is damaged");
    Some(number)
}

fn send_some(sender: &mut Sender, from: u8, next: &mut u64, wanted: u32) {
    let free = sender.wait(PATIENCE).unwrap().min(wanted);
    for offset in 0..free {
        assert!(sender.put(offset, Checked::new(from, *next).bytes()));
        *next += 1;
    }
    sender.publish(free).unwrap();
}

/// Sends in bursts, naps now and then, and says how many frames that were.
fn send_with_naps(mut port: Attached, from: u8) {
    let mut random = Random::from_seed(u64::from(std::process::id()));
    let (until, frames, mut sent) = (Instant::now() + stress_time(), stress("FRAMES", 5000), 0);
    while Instant::now() < until || sent < frames {
        send_some(&mut port.sender, from, &mut sent, random.below(300) as u32);
        if random.chance(0.05) {
            std::thread::sleep(Duration::from_micros(random.below(500)));
        }
    }
    let all = port.sender.end().slots() - 1;
    wait_until("all is taken", || port.sender.reserve(all).unwrap() == all);
    println!("sent {sent} ");
}

/// Receives until the sender has ended and nothing more comes; napping now and then. Frames must come
/// in order; how many came.
fn receive_with_naps(port: &mut Attached, sender: &mut Child) -> u64 {
    let mut random = Random::from_seed(1);
    let (mut received, mut expected) = (0, 0);
    loop {
        let over = sender.try_wait().unwrap().is_some();
        let arrived = port.receiver.wait(PATIENCE).unwrap();
        for offset in 0..arrived {
            let number = check(&port.receiver, offset).expect("nobody else sends");
            assert!(number >= expected, "{number} after {expected}");
            expected = number + 1;
            received += 1;
        }
        port.receiver.release(arrived).unwrap();
        if over && arrived == 0 {
            return received;
        }
        if random.chance(0.02) {
            std::thread::sleep(Duration::from_micros(random.below(500)));
        }
    }
}

#[test]
fn a_pipe_between_processes_loses_nothing() {
    let serving = Serving::start("pipe-stress");
    let mut connection = serving.connect();
    let group = "stress".parse().unwrap();
    let shape = Shape { slots: 64, ..Shape::default() };
    connection.ask(Ask::AddPipes { group, pipes: 1, shape }).unwrap();
    let mut port = connection.attach_pipe(&"stress".parse().unwrap(), 0, PipeEnd::Slave).unwrap();
    let mut sender = start("pipe-sender", serving.path());
    let received = receive_with_naps(&mut port, &mut sender);
    println!("{received} sent and received");
    assert_eq!(said(sender, "sent "), received);
    assert!(received > 1000, "{received} is no stress");
}

#[test]
fn a_switch_between_processes_accounts_for_every_frame() {
    let serving = Serving::start("switch-stress");
    let mut connection = serving.connect();
    let mut port = connection.attach_port(&"vale0:b".parse().unwrap()).unwrap();
    introduce(&mut port.sender);
    let mut sender = start("switch-sender", serving.path());
    let received = receive_with_naps(&mut port, &mut sender);
    let sent = said(sender, "sent ");
    let dropped = dropped(&mut connection, "vale0:b");
    println!("{sent} sent, {received} received, {dropped} dropped");
    assert_eq!(sent, received + dropped, "{received} received, {dropped} dropped");
    assert!(received > 1000, "{received} is no stress");
}

/// Frames for that port that found its ring full.
fn dropped(connection: &mut Connection, port: &str) -> u64 {
    let entries = connection.list().unwrap();
    let entry = entries.iter().find(|entry| entry.name == port).expect("the port is listed");
    entry.count.as_ref().expect("a port counts").outgoing.dropped_total()
}

/// Lets the switch know where station 2 is.
fn introduce(sender: &mut Sender) {
    assert!(sender.wait(testkit::serving::SOON).unwrap() > 0);
    assert!(sender.put(0, &testkit::serving::frame(2, 2, 0)));
    sender.publish(1).unwrap();
    let all = sender.end().slots() - 1;
    wait_until("it is taken", || sender.reserve(all).unwrap() == all);
}

/// Attaches, writes random numbers all over its memory, rings, and when it is cut off begins anew.
fn scribble(socket: &Path) {
    let mut random = Random::from_seed(u64::from(std::process::id()));
    let mut attached = 0;
    loop {
        let connection = shm::Socket::connect(socket).unwrap();
        let shape = Shape { slots: 64, ..Shape::default() };
        let ask = Ask::AttachPort { port: "vale0:bad".parse().unwrap(), shape };
        connection.send(&packet_switch::attachment::Request::encode(ask), &[]).unwrap();
        let shm::Message::Received { mut fds, .. } = connection.receive().unwrap() else {
            panic!()
        };
        if fds.is_empty() {
            continue; // the last one is not gone yet
        }
        attached += 1;
        let region = shm::Region::attach(fds.remove(0)).unwrap();
        let bell = shm::Bell::from_fd(fds.remove(0));
        let words = region.view::<AtomicU64>(0, region.length_bytes() / 8).unwrap();
        let gentle = random.chance(0.5);
        for step in 0..20_000_u64 {
            // Most of a region is buffers; half the blows go where it hurts: the cursors and slots.
            let place = if random.chance(0.5) {
                random.below(4096)
            } else {
                random.below(words.len() as u64)
            };
            // Small numbers pass the first checks and reach those behind.
            let value =
                if gentle { random.below(130) | random.below(64) << 32 } else { random.bits() };
            words[place as usize].store(value, Ordering::Relaxed);
            if step % 64 == 0 {
                bell.ring().unwrap();
            }
        }
        if attached % 50 == 0 {
            println!("attached {attached} ");
        }
    }
}

/// What is stress: frames between the honest, and times that somebody was cut off.
const RECEIVED_LEAST: u64 = 1000;
const CUT_OFFS_LEAST: usize = 10;

/// Two honest clients, and what they have sent each other so far.
struct Honest {
    connection: Connection,
    a: Attached,
    b: Attached,
    sent: u64,
    received: u64,
    expected: u64,
    introduced: Instant,
}

/// Long before a switch forgets where a station is: then all would see what is meant for it.
const INTRODUCE_EVERY: Duration = Duration::from_secs(60);

impl Honest {
    /// Attaches them, before anybody else who might learn who to impersonate.
    fn join(serving: &Serving) -> Self {
        let mut connection = serving.connect();
        let a = connection.attach_port(&"vale0:a".parse().unwrap()).unwrap();
        let mut b = connection.attach_port(&"vale0:b".parse().unwrap()).unwrap();
        introduce(&mut b.sender);
        let introduced = Instant::now();
        Self { connection, a, b, sent: 0, received: 0, expected: 0, introduced }
    }

    /// A few frames from one to the other, which must come whole and in order.
    fn exchange(&mut self) {
        if self.introduced.elapsed() > INTRODUCE_EVERY {
            introduce(&mut self.b.sender);
            self.introduced = Instant::now();
        }
        send_some(&mut self.a.sender, 1, &mut self.sent, 50);
        let mut rounds = 0;
        // Until all have come, or as long as frames of others keep it from telling.
        while self.expected < self.sent && rounds < 200 {
            rounds += 1;
            let receiver = &mut self.b.receiver;
            let arrived = receiver.wait(PATIENCE).unwrap();
            for number in (0..arrived).filter_map(|offset| check(receiver, offset)) {
                assert!(number >= self.expected, "{number} after {}", self.expected);
                self.expected = number + 1;
                self.received += 1;
            }
            receiver.release(arrived).unwrap();
            if arrived == 0 {
                break;
            }
        }
    }

    /// What did not come was dropped and counted, and nobody took their ports away.
    fn account(mut self) {
        let Self { sent, received, .. } = self;
        let dropped = dropped(&mut self.connection, "vale0:b");
        println!("{sent} sent, {received} received, {dropped} dropped with those of others");
        assert!(sent - received <= dropped, "{sent} sent, {received} received, {dropped} dropped");
        assert!(received > RECEIVED_LEAST, "{received} is no stress");
        assert_eq!(self.connection.poll_cut_off().unwrap(), None, "the honest stay attached");
    }
}

#[test]
fn a_scribbling_process_harms_nobody_else() {
    let serving = Serving::start("scribble");
    let mut honest = Honest::join(&serving);
    let mut scribblers: Vec<Child> = (0..2).map(|_| start("scribbler", serving.path())).collect();
    let is_cut_off = |one: &&Notice| matches!(one, Notice::CutOff { .. });
    let count = || serving.notices().iter().filter(is_cut_off).count();
    let until = Instant::now() + stress_time() * 2;
    // On a machine that does little in that time: until there was some stress.
    let latest = until + Duration::from_secs(60);
    let is_some = |honest: &Honest| count() > CUT_OFFS_LEAST && honest.received > RECEIVED_LEAST;
    while Instant::now() < until || (!is_some(&honest) && Instant::now() < latest) {
        honest.exchange();
    }
    let cut_offs = count();
    for scribbler in &mut scribblers {
        scribbler.kill().unwrap();
        scribbler.wait().unwrap();
    }
    println!("{cut_offs} cut off");
    assert!(cut_offs > CUT_OFFS_LEAST, "{cut_offs} cut off");
    honest.account();
}

/// Descriptors of this process, the daemon's among them.
fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

#[test]
fn clients_stopped_and_killed_at_random_harm_nobody_and_leave_nothing() {
    let serving = Serving::start("killed");
    let mut honest = Honest::join(&serving);
    let mut random = Random::from_seed(7);
    let (mut stopped, kills) = (0, stress("KILLS", 20));
    for _ in 0..kills {
        let mut victim = start("victim", serving.path());
        let pid = Pid::from_child(&victim);
        // It is anywhere between its first instruction and full speed.
        for _ in 0..random.below(6) {
            let begin = Instant::now() + Duration::from_micros(random.below(3000));
            while Instant::now() < begin {
                honest.exchange();
            }
            if random.chance(0.3) {
                kill_process(pid, Signal::STOP).unwrap();
                stopped += 1;
                (0..20).for_each(|_| honest.exchange());
            }
            if random.chance(0.5) {
                kill_process(pid, Signal::CONT).unwrap();
            }
        }
        victim.kill().unwrap();
        let mut stdout = victim.stdout.take().unwrap();
        victim.wait().unwrap();
        stdout.read_to_string(&mut String::new()).unwrap();
        let connection = &mut honest.connection;
        wait_until("its port is gone", || connection.list().unwrap().len() == 2);
    }
    println!("{kills} killed, {stopped} stopped");
    let latest = Instant::now() + Duration::from_secs(60);
    while honest.received <= RECEIVED_LEAST && Instant::now() < latest {
        honest.exchange();
    }
    // One stopped for long would be held by nothing either.
    wait_until("no descriptor is left", || descriptors() <= DESCRIPTORS_MOST);
    honest.account();
}

/// What this test's process has open with two attachments: the harness's, those of other tests that run
/// beside it, and no multiple of the kills.
const DESCRIPTORS_MOST: usize = 150;
