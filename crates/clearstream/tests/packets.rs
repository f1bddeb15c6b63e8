//! `switch`, `port` and `pkt` as a user runs them: a process each.

use crate::PROGRAM;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use packet_switch::client::{Attached, ClientError, Connection};
use ring::Patience;
use serde_json::Value;
use testkit::daemon::{Said, listening};
use testkit::socket::socket_path;

#[path = "packets/abuse.rs"]
mod abuse;
#[path = "packets/log_flood.rs"]
mod log_flood;
#[path = "packets/restart.rs"]
mod restart;
#[path = "packets/signalled.rs"]
mod signalled;

/// A running `clearstream switch run`.
struct Switch {
    daemon: Child,
    socket: PathBuf,
    said: Option<Said>,
}

impl Switch {
    fn run(name: &str) -> Self {
        Self::run_within(name, "")
    }

    /// The same behind a shell's `ulimit`.
    fn run_within(name: &str, limit: &str) -> Self {
        let socket = socket_path(&format!("cli-{name}"));
        let mut command = Command::new("sh");
        command.args(["-c", &format!("{limit} exec \"$0\" switch run --socket \"$1\""), PROGRAM]);
        Self::of(command, socket)
    }

    /// The daemon that this command starts when the path of its socket is given to it.
    fn of(mut command: Command, socket: PathBuf) -> Self {
        let (daemon, said) = listening(command.arg(&socket));
        Self { daemon, socket, said: Some(said) }
    }

    /// Kills the daemon, so that it cleans nothing up, and starts another.
    fn replace(&mut self) {
        self.end();
        let mut command = Command::new(PROGRAM);
        let (daemon, said) =
            listening(command.args(["switch", "run", "--socket"]).arg(&self.socket));
        (self.daemon, self.said) = (daemon, Some(said));
    }

    /// Kills the daemon; what it had said.
    fn end(&mut self) -> String {
        self.daemon.kill().unwrap();
        self.daemon.wait().unwrap();
        self.said.take().expect("it is ended once").whole()
    }

    fn command(&self, arguments: &str) -> Command {
        let mut command = Command::new(PROGRAM);
        command.args(arguments.split(' ')).arg("--socket").arg(&self.socket);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    fn start(&self, arguments: &str) -> Child {
        self.command(arguments).spawn().unwrap()
    }

    fn ask(&self, arguments: &str) -> Output {
        self.command(arguments).output().unwrap()
    }

    /// What a run that must succeed prints with `--json`.
    fn json(&self, arguments: &str) -> Value {
        json(self.start(&format!("{arguments} --json")))
    }

    /// Waits until so many clients are attached.
    fn wait_for_clients(&self, count: u64) {
        let until = Instant::now() + Duration::from_secs(20);
        loop {
            let entries = self.json("port list");
            let attached =
                |entry: &Value| entry["attached"].as_u64().expect("a number of attachments");
            if entries.as_array().unwrap().iter().map(attached).sum::<u64>() == count {
                return;
            }
            assert!(Instant::now() < until, "{count} clients, {entries}");
        }
    }
}

impl Drop for Switch {
    fn drop(&mut self) {
        self.daemon.kill().unwrap();
        self.daemon.wait().unwrap();
        std::fs::remove_file(&self.socket).ok();
    }
}

fn json(child: Child) -> Value {
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{output:?}");
    serde_json::from_slice(&output.stdout).unwrap()
}

fn end(mut child: Child) {
    child.kill().unwrap();
    child.wait().unwrap();
}

fn complaint(output: &Output) -> String {
    let text = String::from_utf8(output.stderr.clone()).unwrap();
    assert_eq!(text.lines().count(), 1, "one line: {text}");
    text
}

#[test]
fn what_is_generated_arrives_and_is_counted() {
    let switch = Switch::run("gen");
    // One that stays, with its counters, when its client has seen enough.
    assert!(switch.ask("port add vale0:b").status.success());
    let sink = switch.start(
        "pkt sink vale0:b --announce 02:00:00:00:00:02 --count 20000 --check --quiet 5s --json",
    );
    switch.wait_for_clients(1);
    let sent = switch.json(
        "pkt gen vale0:a --dst 02:00:00:00:00:02 --size 200 --count 20000 --rate 200K --stamp",
    );
    assert_eq!(sent["frames"], 20_000);
    let stats = switch.json("port stats vale0:b");
    // 4 MB, in the unit of other verbs.
    let text = String::from_utf8(switch.ask("port stats vale0:b").stdout).unwrap();
    assert!(text.contains(" MiB") && !text.contains(" bytes"), "{text}");
    let outgoing = &stats[0]["count"]["outgoing"];
    let dropped = outgoing["dropped"]["ring_full"].as_u64().unwrap_or(0);
    assert_eq!(outgoing["frames"].as_u64().unwrap() + dropped, 20_000);
    if dropped == 0 {
        let received = json(sink);
        assert_eq!((&received["frames"], &received["missing"]), (&20_000.into(), &0.into()));
        assert_eq!(received["bytes"], 20_000 * 200);
        let under_way = |what: &str| received["under_way"][what].as_f64().expect(what);
        assert!(
            under_way("p50_s") <= under_way("p99_s") && under_way("p99_s") <= under_way("max_s")
        );
        assert!(under_way("mean_s") < 1.0);
    } else {
        end(sink);
    }
}

#[test]
fn a_generator_and_a_sink_say_what_was_dropped_between_them() {
    use rustix::process::{Pid, Signal, kill_process};

    let switch = Switch::run("dropped");
    assert!(switch.ask("port add vale0:b").status.success());
    let sink = switch.start("pkt sink vale0:b --quiet 2s --json");
    switch.wait_for_clients(1);
    // It takes nothing until the generator is done.
    let pid = Pid::from_child(&sink);
    kill_process(pid, Signal::STOP).unwrap();
    let sent = switch.json("pkt gen vale0:a --count 5000");
    kill_process(pid, Signal::CONT).unwrap();
    let dropped = sent["dropped"]["to"]["vale0:b"]["ring_full"].as_u64().expect("a number");
    assert!((1..=5000).contains(&dropped), "{sent}");
    assert_eq!(sent["dropped"]["sent"], serde_json::json!({}));
    let received = json(sink);
    assert_eq!(received["dropped"]["ring_full"], dropped, "{received}");
    assert_eq!(received["frames"], 5000 - dropped, "{received}");
    // Nobody else is there.
    assert!(switch.ask("port del vale0:b").status.success());
    let alone = switch.ask("pkt gen vale0:a --count 10");
    let text = String::from_utf8(alone.stdout).unwrap();
    assert!(text.contains("; the switch dropped 10 of them (no_destination)"), "{text}");
}

#[test]
fn ranges_of_addresses_go_where_they_were_announced() {
    let switch = Switch::run("ranges");
    let names = ["even", "odd"];
    for name in names {
        assert!(switch.ask(&format!("port add vale0:{name}")).status.success());
    }
    let even = switch.start("pkt sink vale0:even --announce 02:00:00:00:00:02 --count 500 --json");
    let odd = switch.start("pkt sink vale0:odd --announce 02:00:00:00:00:03 --count 500 --json");
    switch.wait_for_clients(2);
    // Both have said where they are; a frame to an address that nobody announced goes to both.
    let learnt = || {
        let stats = |name| switch.json(&format!("port stats vale0:{name}"));
        names.iter().all(|name| stats(name)[0]["count"]["incoming"]["frames"] != 0)
    };
    while !learnt() {
        std::thread::sleep(Duration::from_millis(5));
    }
    let sent = switch.json(
        "pkt gen vale0:a --dst 02:00:00:00:00:02-02:00:00:00:00:03 --src-ip 10.0.0.1:1-10.0.0.9:9 --count 1000",
    );
    assert_eq!(sent["frames"], 1000);
    for sink in [even, odd] {
        assert_eq!(json(sink)["frames"], 500);
    }
    let backwards = switch.ask("pkt gen vale0:a --dst 02:00:00:00:00:03-02:00:00:00:00:02");
    assert_eq!(backwards.status.code(), Some(2));
    assert!(complaint(&backwards).contains("ends before it begins"));
}

#[test]
fn a_pipe_loses_nothing_through_a_bridge() {
    let switch = Switch::run("bridge");
    assert!(switch.ask("port add chain --pipes 2").status.success());
    let sink = switch.start("pkt sink chain}1 --check --count 300000 --quiet 5s --json");
    let bridge = switch.start("pkt bridge chain}0 chain{1");
    switch.wait_for_clients(3);
    // Slow enough for a bridge, which drops what its far side has no room for.
    let sent = switch.json("pkt gen chain{0 --stamp --count 300000 --rate 2M");
    assert_eq!(sent["frames"], 300_000);
    // Once the sink has all that comes the bridge has nothing left to pass on.
    let sink = sink.wait_with_output().unwrap();
    let interrupt = rustix::process::Signal::INT;
    let pid = rustix::process::Pid::from_child(&bridge);
    rustix::process::kill_process(pid, interrupt).unwrap();
    let passed = bridge.wait_with_output().unwrap();
    let text = String::from_utf8(passed.stdout).unwrap();
    assert!(text.contains("by swapping buffers"), "{text}");
    if text.contains("dropped 0") {
        let received: Value = serde_json::from_slice(&sink.stdout).unwrap();
        assert!(sink.status.success(), "{sink:?}");
        assert_eq!(received["frames"], 300_000);
        assert_eq!((&received["missing"], &received["late"]), (&0.into(), &0.into()));
    }
}

#[test]
fn pings_come_back() {
    let switch = Switch::run("ping");
    let echo = switch.start("pkt echo vale0:b");
    switch.wait_for_clients(1);
    let times = switch.json("pkt ping vale0:a --count 500");
    assert_eq!((&times["round_trips"], &times["lost"]), (&500.into(), &0.into()));
    assert!(times["p50_s"].as_f64().unwrap() < 0.1);
    end(echo);
}

#[test]
fn ports_come_and_go() {
    let switch = Switch::run("ports");
    assert!(switch.ask("port add vale0:kept --slots 64").status.success());
    let again = switch.ask("port add vale0:kept");
    assert_eq!(again.status.code(), Some(1));
    assert!(complaint(&again).contains("vale0:kept already exists"));
    let listed = switch.ask("port list");
    let text = String::from_utf8(listed.stdout).unwrap();
    assert!(text.contains("vale0:kept") && text.contains("64 slots"), "{text}");
    let sink = switch.start("pkt sink vale0:kept");
    switch.wait_for_clients(1);
    let taken = switch.ask("pkt sink vale0:kept");
    assert!(complaint(&taken).contains("vale0:kept is already in use"));
    assert!(switch.ask("port del vale0:kept").status.success());
    end(sink);
    assert_eq!(switch.json("port list"), serde_json::json!([]));
    let unknown = switch.ask("port stats vale0:kept");
    assert_eq!(unknown.status.code(), Some(1));
    assert!(
        complaint(&unknown).contains("there is no port vale0:kept on the switch (it has none)")
    );
    let unknown = switch.ask("port del vale0:kept");
    assert_eq!(unknown.status.code(), Some(1));
    let line = complaint(&unknown);
    assert!(line.contains("there is no port vale0:kept; `clearstream port list`"), "{line}");
    assert_eq!(switch.ask("port add nonsense").status.code(), Some(2));
    assert_eq!(switch.ask("pkt gen vale0:a --size 59").status.code(), Some(2));
}

#[test]
fn without_a_switch_there_is_one_clear_line() {
    let output = Command::new(PROGRAM)
        .args(["port", "list", "--socket", "/nowhere/switch.sock"])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1));
    let line = complaint(&output);
    assert!(
        line.contains("/nowhere/switch.sock") && line.contains("clearstream switch run"),
        "{line}"
    );
    // Variables that are set to nothing are not set, nor is a runtime folder that is none.
    let output = Command::new(PROGRAM)
        .args(["port", "list"])
        .env("CLEARSTREAM_SWITCH", "")
        .env("XDG_RUNTIME_DIR", "/nowhere")
        .output()
        .unwrap();
    let line = complaint(&output);
    assert!(line.contains("no switch at /run/clearstream-switch.sock:"), "{line}");
}

#[test]
fn a_netmap_program_gets_the_library_and_the_socket() {
    let switch = Switch::run("netmap");
    let script = "echo \"$LD_PRELOAD $CLEARSTREAM_SWITCH\"; exit 7";
    let run = |socket: &Path, arguments: &[&str]| {
        let mut command = Command::new(PROGRAM);
        command.arg("netmap").arg("--socket").arg(socket).args(arguments);
        command.output().unwrap()
    };
    // Any ELF file will do to see which one is preloaded; the loader passes over a program.
    let library = std::fs::canonicalize(PROGRAM).unwrap();
    let library = library.to_str().unwrap();
    let told = run(&switch.socket, &["--library", library, "--", "/bin/sh", "-c", script]);
    assert_eq!(told.status.code(), Some(7));
    let expected = format!("{library} {}\n", switch.socket.display());
    assert_eq!(String::from_utf8(told.stdout).unwrap(), expected);

    let missing = run(&switch.socket, &["--library", "/nonexistent/library", "--", "true"]);
    assert_eq!(missing.status.code(), Some(2));
    complaint(&missing);
    let alone = run(Path::new("/nonexistent/switch"), &["--", "true"]);
    assert_eq!(alone.status.code(), Some(1));
    assert!(complaint(&alone).contains("start one with `clearstream switch run`"));
}

#[test]
fn invalid_requests_get_a_one_line_error() {
    let switch = Switch::run("wrong");
    let file = switch.socket.with_extension("file");
    std::fs::write(&file, "somebody's").unwrap();
    let file_name = file.to_str().unwrap();
    for (arguments, code, wanted) in [
        (&*format!("switch run --socket {file_name}"), 1, "exists and is not a socket"),
        (&*format!("netmap --library {file_name} -- true"), 2, "this is not a library"),
        ("switch run --cores 1023", 2, "core 1023: there is no such core"),
        ("pkt gen vale0:a --core 1023", 2, "core 1023: there is no such core"),
        ("pkt gen vale0:a --rate 0", 2, "the rate must be more than 0"),
        ("link add vale0:a vale0:a", 2, "both ends of the link are vale0:a"),
        ("link add vale0:a vale1:b --delay 2m", 2, "the longest delay is 1 minute"),
        ("link add vale0:a vale1:b --rate 0", 2, "the rate must be more than 0"),
        ("link add vale0:a vale1:b --rate 200T", 2, "rate is 200000000000000, beyond"),
        ("link add vale0:a vale1:b --queue 0", 2, "queue must be more than 0"),
        ("port add vale0:a --slots 1", 2, "rings of 1 slots"),
        ("port add vale0:a --buffer 100", 2, "buffers of 100 bytes"),
        ("port add chain --pipes 0", 2, "0 is not in 1 to 32"),
        ("port add vale0:a --type tap --device a/b", 2, "'a/b' is not a device name"),
        ("port add vale0:a --type tap --device a --queues 65", 2, "a TAP port has 1 to 64"),
    ] {
        let mut command = Command::new(PROGRAM);
        command.args(arguments.split(' ')).env("CLEARSTREAM_SWITCH", &switch.socket);
        let output = command.output().unwrap();
        let said = complaint(&output);
        assert_eq!(output.status.code(), Some(code), "{arguments}: {said}");
        assert!(said.contains(wanted), "{arguments}: {said}");
    }
    assert_eq!(std::fs::read(&file).unwrap(), b"somebody's");
    std::fs::remove_file(&file).ok();
}

#[test]
fn clients_are_notified_when_their_port_is_removed() {
    let switch = Switch::run("taken");
    assert!(switch.ask("port add chain --pipes 1").status.success());
    for (place, name) in [("vale0:a", "vale0:a"), ("chain}0", "chain")] {
        let sink = switch.start(&format!("pkt sink {place}"));
        switch.wait_for_clients(1);
        assert!(switch.ask(&format!("port del {name}")).status.success());
        let output = sink.wait_with_output().unwrap();
        let said = complaint(&output);
        assert_eq!(output.status.code(), Some(1), "{said}");
        let wanted =
            format!("clearstream: the switch disconnected this client: {name} was removed");
        assert_eq!(said.trim_end(), wanted);
    }
}

#[test]
fn a_second_switch_is_told_about_the_first() {
    let switch = Switch::run("second");
    let output = Command::new(PROGRAM)
        .args(["switch", "run", "--socket"])
        .arg(&switch.socket)
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(complaint(&output).contains("another switch serves"));
    assert!(Path::new(&switch.socket).exists(), "the first one's socket stays");
}

fn connect(switch: &Switch) -> Connection {
    Connection::open(&switch.socket).unwrap()
}

/// Processor time that the threads of a process have had (`schedstat`, first field).
fn busy(pid: u32) -> Duration {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).unwrap();
    let of_one = |task: std::io::Result<std::fs::DirEntry>| {
        let text = std::fs::read_to_string(task.unwrap().path().join("schedstat")).unwrap();
        text.split(' ').next().unwrap().parse::<u64>().unwrap()
    };
    Duration::from_nanos(tasks.map(of_one).sum())
}

#[test]
fn idle_ports_cost_next_to_nothing() {
    let switch = Switch::run("idle");
    let mut connection = connect(&switch);
    let mut ports: Vec<Attached> = (0..64)
        .map(|number| connection.attach_port(&format!("vale0:p{number}").parse().unwrap()).unwrap())
        .collect();
    // They have been at work before.
    let soon = Patience { linger: Duration::ZERO, timeout: Duration::from_secs(20) };
    assert!(ports[0].sender.wait(soon).unwrap() > 0 && ports[0].sender.put(0, &[0xff; 60]));
    ports[0].sender.publish(1).unwrap();
    assert_eq!(ports[63].receiver.wait(soon).unwrap(), 1);
    let pid = switch.daemon.id();
    std::thread::sleep(Duration::from_millis(100));
    // An unoptimized build, and twice the limit for it.
    let (before, began) = (busy(pid), Instant::now());
    std::thread::sleep(Duration::from_secs(2));
    let share = (busy(pid) - before).as_secs_f64() / began.elapsed().as_secs_f64();
    println!("{:.3} % of a core", share * 100.0);
    assert!(share < 0.01, "{share} of a core for nothing");
}

/// Attaches ports until one is refused: how many, and why.
fn attach_all(switch: &Switch, most: usize) -> (Vec<(Connection, Attached)>, String) {
    let mut attached = Vec::new();
    for number in 0..most {
        let name = format!("vale0:p{number}").parse().unwrap();
        let outcome = Connection::open(&switch.socket).and_then(|mut connection| {
            let port = connection.attach_port(&name)?;
            Ok((connection, port))
        });
        match outcome {
            Ok(one) => attached.push(one),
            Err(error) => return (attached, error.to_string()),
        }
    }
    panic!("{most} ports, and none refused");
}

/// Those who are attached go on, and one who leaves makes room.
fn goes_on(mut attached: Vec<(Connection, Attached)>, switch: &Switch) {
    let soon = Patience { linger: Duration::ZERO, timeout: Duration::from_secs(20) };
    assert!(attached.len() > 2, "{} fit", attached.len());
    attached.truncate(attached.len() - 1);
    let port = &mut attached[0].1;
    assert!(port.sender.wait(soon).unwrap() > 0 && port.sender.put(0, &[0xff; 60]));
    port.sender.publish(1).unwrap();
    assert_eq!(attached[1].1.receiver.wait(soon).unwrap(), 1);
    let until = Instant::now() + Duration::from_secs(20);
    let name = "vale0:again".parse().unwrap();
    while !Connection::open(&switch.socket).is_ok_and(|mut one| one.attach_port(&name).is_ok()) {
        assert!(Instant::now() < until, "there is room again");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn without_descriptors_there_is_a_clear_refusal() {
    let switch = Switch::run_within("files", "ulimit -n 100;");
    let (attached, why) = attach_all(&switch, 50);
    assert!(why.contains("Too many open files") || why.contains("no file descriptor"), "{why}");
    goes_on(attached, &switch);
    // Connections alone, with nothing attached: those beyond the limit are told.
    let mut idle: Vec<Connection> = Vec::new();
    let why = loop {
        let mut one = connect(&switch);
        match one.list() {
            Ok(_) => idle.push(one),
            Err(error) => break error.to_string(),
        }
        assert!(idle.len() < 100, "a limit of 100 descriptors");
    };
    assert!(why.contains("no file descriptor left for another client"), "{why}");
}

/// A switch that has too few descriptors to serve anybody ends; one that listens answers.
#[test]
fn whoever_connects_is_answered_however_few_descriptors_there_are() {
    for limit in 3..10 {
        let socket = socket_path(&format!("cli-few-{limit}"));
        let mut daemon = Command::new("sh")
            .args(["-c", "ulimit -n $2; exec \"$0\" switch run --socket \"$1\"", PROGRAM])
            .arg(&socket)
            .arg(limit.to_string())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let ended = loop {
            if let Some(status) = daemon.try_wait().unwrap() {
                break Some(status);
            }
            let Ok(mut one) = Connection::open(&socket) else {
                std::thread::sleep(Duration::from_millis(1));
                continue;
            };
            let (tell, told) = std::sync::mpsc::channel();
            std::thread::spawn(move || tell.send(one.list()));
            match told.recv_timeout(Duration::from_secs(20)) {
                Ok(Ok(_) | Err(ClientError::Refused { .. })) => break None,
                // It found out after it had begun to listen.
                Ok(Err(ClientError::SwitchEnded)) => {}
                other => panic!("{limit}: {other:?}"),
            }
        };
        match ended {
            Some(status) => assert!(!status.success(), "{limit}"),
            None => end(daemon),
        }
        std::fs::remove_file(&socket).ok();
    }
}

#[test]
fn a_file_size_limit_ends_no_switch() {
    let switch = Switch::run_within("size", "ulimit -f 0;");
    let refused = switch.ask("pkt gen vale0:a --count 1");
    let said = complaint(&refused);
    assert_eq!(refused.status.code(), Some(1), "{said}");
    assert!(said.contains("the switch's process: ftruncate"), "{said}");
    assert!(switch.ask("port list").status.success());
}

#[test]
fn without_memory_there_is_a_clear_refusal() {
    let switch = Switch::run_within("memory", "ulimit -v 400000;");
    let (attached, why) = attach_all(&switch, 200);
    assert!(why.contains("Cannot allocate memory"), "{why}");
    goes_on(attached, &switch);
}

/// A switch that has no core for a while, most likely while it wakes somebody, blames nobody for it.
#[test]
fn a_switch_that_is_stopped_cuts_nobody_off() {
    let mut switch = Switch::run("stopped");
    let sink = switch.start("pkt sink vale0:b --linger 0s --announce 02:00:00:00:00:02");
    switch.wait_for_clients(1);
    let sender = switch.start("pkt gen vale0:a --linger 0s --rate 20K --dst 02:00:00:00:00:02");
    switch.wait_for_clients(2);
    let pid = rustix::process::Pid::from_child(&switch.daemon);
    for _ in 0..6 {
        rustix::process::kill_process(pid, rustix::process::Signal::STOP).unwrap();
        std::thread::sleep(Duration::from_millis(150));
        rustix::process::kill_process(pid, rustix::process::Signal::CONT).unwrap();
        std::thread::sleep(Duration::from_millis(40));
    }
    switch.wait_for_clients(2);
    end(sender);
    end(sink);
    let log = switch.end();
    assert!(log.contains("attached") && !log.contains("cut-off"), "{log}");
}

#[test]
fn a_switch_gives_up_the_calls_it_has_no_need_of() {
    let switch = Switch::run("sandbox");
    let echo = switch.start("pkt echo vale0:b");
    switch.wait_for_clients(1);
    let status = |path: PathBuf| std::fs::read_to_string(path.join("status")).unwrap();
    let tasks = std::fs::read_dir(format!("/proc/{}/task", switch.daemon.id())).unwrap();
    let tasks: Vec<String> = tasks.map(|task| status(task.unwrap().path())).collect();
    assert!(tasks.len() >= 2, "the control thread and the switch's: {tasks:?}");
    for task in &tasks {
        assert!(task.contains("Seccomp:\t2") && task.contains("NoNewPrivs:\t1"), "{task}");
    }
    end(echo);

    let mut command = Command::new(PROGRAM);
    command.args(["switch", "run", "--no-sandbox", "--socket"]);
    let mut open = Switch::of(command, switch.socket.with_extension("open"));
    let ours = status("/proc/self".into());
    let line =
        |text: &str| text.lines().find(|line| line.starts_with("Seccomp:")).map(str::to_owned);
    assert_eq!(line(&status(format!("/proc/{}", open.daemon.id()).into())), line(&ours));
    let said = open.end();
    assert!(said.contains("sandbox   none, as asked for"), "{said}");
}
