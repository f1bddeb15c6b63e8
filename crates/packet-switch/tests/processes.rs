//! Several processes, real memory, and one of them broken or hostile. Every frame is accounted for.
//!
//! Each test runs its other processes as this same program with `CLEARSTREAM_ROLE` set. How long they
//! go on is `CLEARSTREAM_STRESS_S`, seconds, 2 unless given; a campaign sets hours.

#[path = "support/serving.rs"]
mod support;

use std::io::Read;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use packet_switch::attachment::{Ask, PipeEnd, Shape};
use packet_switch::client::{Attached, Connection};
use ring::{Patience, Receiver, Sender};
use stats::Random;
use support::{Serving, wait_until};

fn stress_time() -> Duration {
    let seconds = std::env::var("CLEARSTREAM_STRESS_S").ok().and_then(|text| text.parse().ok());
    Duration::from_secs(seconds.unwrap_or(2))
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
            send_with_naps(pipe);
        }
        "switch-sender" => {
            let mut connection = Connection::open(Path::new(&socket)).unwrap();
            send_with_naps(connection.attach_port(&"vale0:a".parse().unwrap()).unwrap());
        }
        "scribbler" => scribble(Path::new(&socket)),
        other => panic!("no role {other}"),
    }
}

const PATIENCE: Patience = Patience { linger: Duration::ZERO, timeout: Duration::from_millis(100) };

/// A frame from station 1 to station 2 that carries its number, and a length and bytes that follow
/// from it.
fn checked_frame(number: u64) -> Vec<u8> {
    let length = 60 + (number.wrapping_mul(37) % 1400) as usize;
    let mut frame = support::frame(1, 2, number as u8).to_vec();
    frame.resize(length, (number >> 3) as u8);
    frame[12..14].copy_from_slice(&[0x88, 0xb5]);
    frame[14..22].copy_from_slice(&number.to_le_bytes());
    frame
}

/// The number of a frame that [`checked_frame`] made; `None` for anybody else's. Panics when it is
/// damaged.
fn check(receiver: &Receiver, offset: u32) -> Option<u64> {
    let mut frame = [0; 2112];
    let length = receiver.copy(offset, &mut frame)?;
    let ours = length >= 22 && frame[6..14] == [2, 0, 0, 0, 0, 1, 0x88, 0xb5];
    let number = ours.then(|| u64::from_le_bytes(frame[14..22].try_into().unwrap()))?;
    assert_eq!(frame[..length], checked_frame(number), "frame {number} is damaged");
    Some(number)
}

fn send_some(sender: &mut Sender, next: &mut u64, wanted: u32) {
    let free = sender.wait(PATIENCE).unwrap().min(wanted);
    for offset in 0..free {
        assert!(sender.put(offset, &checked_frame(*next)));
        *next += 1;
    }
    sender.publish(free).unwrap();
}

/// Sends in bursts, naps now and then, and says how many frames that were.
fn send_with_naps(mut port: Attached) {
    let mut random = Random::from_seed(u64::from(std::process::id()));
    let (until, mut sent) = (Instant::now() + stress_time(), 0);
    while Instant::now() < until {
        send_some(&mut port.sender, &mut sent, random.below(300) as u32);
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
    assert!(sender.wait(support::SOON).unwrap() > 0);
    assert!(sender.put(0, &support::frame(2, 2, 0)));
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

#[test]
fn a_scribbling_process_harms_nobody_else() {
    let serving = Serving::start("scribble");
    let mut connection = serving.connect();
    let mut a = connection.attach_port(&"vale0:a".parse().unwrap()).unwrap();
    let mut b = connection.attach_port(&"vale0:b".parse().unwrap()).unwrap();
    // Before the scribbler sees anything, so that it does not learn who to impersonate.
    introduce(&mut b.sender);
    let mut scribblers: Vec<Child> = (0..2).map(|_| start("scribbler", serving.path())).collect();
    let until = Instant::now() + stress_time() * 2;
    let (mut sent, mut received, mut expected) = (0, 0, 0);
    while Instant::now() < until {
        send_some(&mut a.sender, &mut sent, 50);
        let mut rounds = 0;
        // Until all have come, or as long as frames of others keep it from telling.
        while expected < sent && rounds < 200 {
            rounds += 1;
            let arrived = b.receiver.wait(PATIENCE).unwrap();
            for number in (0..arrived).filter_map(|offset| check(&b.receiver, offset)) {
                assert!(number >= expected, "{number} after {expected}");
                expected = number + 1;
                received += 1;
            }
            b.receiver.release(arrived).unwrap();
            if arrived == 0 {
                break;
            }
        }
    }
    let cut_offs = serving
        .notices()
        .iter()
        .filter(|one| matches!(one, packet_switch::daemon::Notice::CutOff { .. }))
        .count();
    for scribbler in &mut scribblers {
        scribbler.kill().unwrap();
        scribbler.wait().unwrap();
    }
    let dropped = dropped(&mut connection, "vale0:b");
    assert!(sent - received <= dropped, "{sent} sent, {received} received, {dropped} dropped");
    assert!(received > 1000 && cut_offs > 10, "{received} received, {cut_offs} cut off");
    assert_eq!(connection.poll_cut_off().unwrap(), None, "the honest stay attached");
}

#[test]
fn killed_clients_leave_nothing() {
    let serving = Serving::start("killed");
    let mut connection = serving.connect();
    for round in 0..20 {
        let mut sender = start("switch-sender", serving.path());
        wait_until("it is attached", || !connection.list().unwrap().is_empty());
        std::thread::sleep(Duration::from_micros(round * 500));
        sender.kill().unwrap();
        let mut stdout = sender.stdout.take().unwrap();
        sender.wait().unwrap();
        stdout.read_to_string(&mut String::new()).unwrap();
        wait_until("its port is gone", || connection.list().unwrap().is_empty());
    }
}
