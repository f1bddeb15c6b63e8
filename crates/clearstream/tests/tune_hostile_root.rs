//! A hostile client of `serve --allow-tuning`, with the program as it ships: the owner's settings and
//! persisted files stay as they are, and everything can be undone, with a flood of requests and with a
//! full disk.
//!
//! Each test is a thread in a network namespace of its own; every program it starts runs there, in a
//! mount namespace where `/etc` is a folder of the test.

use crate::PROGRAM;
use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};
use testkit::port::free_port;
use traffic::client::{CONNECT_TIMEOUT, Peer, Session, Target, connect};

/// The owner's settings, one of each way to persist.
const OWNERS: [(&str, &str); 2] =
    [("net.ipv4.tcp_slow_start_after_idle", "0"), ("lo/txqueuelen", "777")];

/// Runs a test in a network namespace of its own.
fn in_namespace(test: impl FnOnce() + Send + 'static) {
    if !rustix::process::geteuid().is_root() {
        println!("skipped: only root can create network namespaces");
        return;
    }
    let inside = move || {
        let _namespace = sys::namespace::unshare_network().expect("root may");
        let up = Command::new("ip").args(["link", "set", "lo", "up"]).status();
        assert!(up.expect("iproute2 is there").success());
        test();
    };
    thread::spawn(inside).join().expect("the test");
}

struct Testbed {
    folder: PathBuf,
    port: u16,
    server: Option<Child>,
}

impl Testbed {
    fn new(name: &str) -> Self {
        let folder =
            std::env::temp_dir().join(format!("tune-hostile-{name}-{}", std::process::id()));
        fs::create_dir_all(folder.join("etc")).expect("a folder of our own");
        fs::create_dir_all(folder.join("state")).expect("a folder of our own");
        Self { folder, port: free_port(), server: None }
    }

    fn state(&self) -> String {
        self.folder.join("state").to_str().expect("a plain path").to_owned()
    }

    /// The program where `/etc` is the bed's.
    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new("unshare");
        command
            .args(["--mount", "--propagation", "private", "sh", "-c"])
            .arg("mount --bind \"$ETC\" /etc && mount -t sysfs sysfs /sys && exec \"$0\" \"$@\"")
            .arg(PROGRAM)
            .args(arguments)
            .env("ETC", self.folder.join("etc"))
            .stdin(Stdio::null());
        command
    }

    /// The owner's `tune`.
    fn tune(&self, arguments: &[&str]) -> Output {
        let state = self.state();
        let all = [&["tune"], arguments, &["--state", &state]].concat();
        self.command(&all).output().expect("unshare is part of util-linux")
    }

    fn must(&self, arguments: &[&str]) -> String {
        let done = self.tune(arguments);
        let (out, said) = (text(&done.stdout), text(&done.stderr));
        assert!(done.status.success(), "{arguments:?}: {out}{said}");
        out
    }

    fn serve(&mut self) {
        let (port, state) = (self.port.to_string(), self.state());
        let arguments = [
            &["serve", "--bind", "127.0.0.1", "--port", &port, "--allow", "127.0.0.0/8"][..],
            &["--allow-tuning", "--tuning-state", &state],
        ]
        .concat();
        let mut server =
            self.command(&arguments).stderr(Stdio::piped()).spawn().expect("it starts");
        let mut said = BufReader::new(server.stderr.take().expect("piped"));
        self.server = Some(server);
        let mut line = String::new();
        said.read_line(&mut line).expect("it says that it listens");
        assert!(line.contains("listening"), "{line}");
        line.clear();
        said.read_line(&mut line).expect("it says what that means");
        assert!(line.contains("an address within --allow is the only check"), "{line}");
        thread::spawn(move || std::io::copy(&mut said, &mut std::io::sink()));
    }

    fn client(&self) -> Session {
        let target = Target { port: self.port, ..Target::new("127.0.0.1") };
        match connect(&target, CONNECT_TIMEOUT, &[]) {
            Ok(Peer::ClearStream(session)) => *session,
            other => panic!("{other:?}"),
        }
    }

    /// Every file of `/etc` with what is in it; links with where they lead.
    fn files(&self) -> BTreeMap<PathBuf, Vec<u8>> {
        fn gather(folder: &Path, files: &mut BTreeMap<PathBuf, Vec<u8>>) {
            for entry in fs::read_dir(folder).expect("a folder") {
                let path = entry.expect("an entry").path();
                let known = fs::symlink_metadata(&path).expect("there");
                if known.is_dir() {
                    gather(&path, files);
                } else if known.is_symlink() {
                    let target = fs::read_link(&path).expect("a link");
                    files.insert(path, target.into_os_string().into_encoded_bytes());
                } else {
                    files.insert(path.clone(), fs::read(&path).expect("there"));
                }
            }
        }
        let mut files = BTreeMap::new();
        gather(&self.folder.join("etc"), &mut files);
        files
    }

    /// The owner's settings are in force and the files are as they were.
    fn assert_untouched(&self, files: &BTreeMap<PathBuf, Vec<u8>>, told: &str) {
        assert_eq!(self.files(), *files, "{told}");
        let status = self.must(&["status"]);
        for (key, to) in OWNERS {
            let is_in_force =
                |line: &str| line.starts_with(key) && line.ends_with(&format!("-> {to}  in force"));
            assert!(status.lines().any(is_in_force), "{told}: {status}");
        }
    }
}

impl Drop for Testbed {
    fn drop(&mut self) {
        if let Some(mut server) = self.server.take() {
            server.kill().ok();
            server.wait().ok();
        }
        fs::remove_dir_all(&self.folder).ok();
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn ask(session: &mut Session, request: &Value) -> Value {
    session.tune(request).expect("an answer")
}

fn change(key: &str, to: &str, why: &str) -> Value {
    json!({ "key": key, "to": to, "why": why, "source": why })
}

fn apply(changes: &[Value]) -> Value {
    json!({ "ask": "apply", "policy": "keep-going", "changes": changes })
}

/// Everything of the owner's is asked for, one way and another, between changes of the client's own.
#[test]
fn root_a_hostile_client_touches_nothing_of_the_owners() {
    in_namespace(|| {
        let mut bed = Testbed::new("owner");
        let before = bed.must(&["dump"]);
        let sets: Vec<String> = OWNERS.iter().map(|(key, to)| format!("{key}={to}")).collect();
        bed.must(&["apply", "--persist", "--set", &sets[0], "--set", &sets[1]]);
        let files = bed.files();
        assert!(files.len() >= 4, "{files:?}");
        bed.serve();
        let mut client = bed.client();
        let lines = "x\n[Service]\nExecStart=/bin/sh\nkernel.core_pattern = |/x \u{1b}[2J";
        let own = apply(&[
            change("net.ipv4.tcp_sack", "0", lines),
            change(OWNERS[0].0, "1", lines),
            change(OWNERS[1].0, "1000", lines),
        ]);
        let file = "file:etc/sysctl.d/90-clearstream.conf";
        let keys: [&[&str]; 6] = [
            &["net.ipv4.tcp_sack"],
            &[OWNERS[0].0],
            &[OWNERS[1].0, "net.ipv4.tcp_sack"],
            &[file],
            &["net.ipv4.tcp_ecn"],
            &[],
        ];
        for how in ["all", "last", "force"] {
            for keys in keys {
                let answer = ask(&mut client, &own).to_string();
                assert!(answer.contains("a local user of that host has changed"), "{answer}");
                let revert = json!({ "ask": "revert", "keys": keys, "how": how });
                let answer = ask(&mut client, &revert);
                bed.assert_untouched(&files, &format!("{revert}: {answer}"));
            }
        }
        for request in [
            apply(&[change(file, "+kernel.core_pattern = |/x\n", "")]),
            json!({ "ask": "read", "keys": [file] }),
            json!({ "ask": "revert", "keys": ["file:etc/passwd"] }),
        ] {
            let answer = ask(&mut client, &request);
            assert_eq!(answer["answer"], "failed", "{request}: {answer}");
        }
        ask(&mut client, &own);
        let seen = ask(&mut client, &json!({ "ask": "status" }));
        let lines = seen["lines"].as_array().expect("lines");
        assert!(lines.iter().all(|line| line["key"] == "net.ipv4.tcp_sack"), "{seen}");
        bed.assert_untouched(&files, "the end");
        // The owner undoes everything, the client's change too.
        bed.must(&["revert"]);
        assert_eq!(bed.must(&["dump"]), before);
        assert_eq!(bed.files(), BTreeMap::new());
    });
}

/// Long reasons, thousands of changes, several clients at once: the owner's `status` and `revert` work
/// in the middle of it, and the client's own do after it.
#[test]
fn root_a_flood_of_changes_stops_no_status_and_no_revert() {
    in_namespace(|| {
        let mut bed = Testbed::new("flood");
        let before = bed.must(&["dump"]);
        bed.must(&["apply", "--set", "net.ipv4.tcp_slow_start_after_idle=0"]);
        bed.serve();
        let long = "\u{1b}\"\\".repeat(30);
        let flood = |session: &mut Session, count: usize| {
            let change = |n: usize| change("net.ipv4.tcp_ecn", ["0", "1"][n % 2], &long);
            let changes: Vec<Value> = (0..40).map(change).collect();
            for _ in 0..count {
                let answer = ask(session, &apply(&changes));
                assert_eq!(answer["answer"], "applied", "{answer}");
                let answer = ask(session, &json!({ "ask": "revert" }));
                assert_eq!(answer["answer"], "reverted", "{answer}");
            }
        };
        let clients: Vec<Session> = (0..3).map(|_| bed.client()).collect();
        thread::scope(|scope| {
            let asking: Vec<_> = clients
                .into_iter()
                .map(|mut session| scope.spawn(move || flood(&mut session, 4)))
                .collect();
            thread::sleep(Duration::from_millis(300));
            for _ in 0..3 {
                assert!(bed.must(&["status"]).contains("tcp_slow_start_after_idle: 1 -> 0"));
                bed.must(&["apply", "--set", "net.ipv4.tcp_sack=0"]);
                bed.must(&["revert", "net.ipv4.tcp_sack"]);
            }
            asking.into_iter().for_each(|one| one.join().expect("answered"));
        });
        let known = fs::metadata(Path::new(&bed.state()).join("journal")).expect("there");
        assert!(known.len() < 1 << 20, "{} bytes", known.len());
        bed.must(&["revert"]);
        assert_eq!(bed.must(&["dump"]), before);
    });
}

/// The state directory's disk fills up: no change is made without room to undo it, and what was made
/// before is undone without any.
#[test]
fn root_with_a_full_disk_nothing_is_changed_and_everything_is_undone() {
    in_namespace(|| {
        let bed = Testbed::new("full");
        let script = "mount -t tmpfs -o size=64k,mode=0700 tmpfs $STATE
            change() { \"$0\" tune apply --state $STATE --set \"$@\"; echo code $?; }
            change net.ipv4.tcp_sack=0
            dd if=/dev/zero of=$STATE/other bs=1k count=200 2>/dev/null
            n=0; while [ $n -lt 200 ] && change net.ipv4.tcp_ecn=$((n % 2)) | grep -q 'code 0'
            do n=$((n + 1)); done; [ $n -lt 200 ] && echo refused
            \"$0\" tune status --state $STATE | grep sack
            \"$0\" tune revert --state $STATE > $STATE.log; echo code $?
            cat /proc/sys/net/ipv4/tcp_sack /proc/sys/net/ipv4/tcp_ecn
            \"$0\" tune revert --state $STATE; echo code $?; ls $STATE/journal";
        let done = Command::new("unshare")
            .args(["--mount", "--propagation", "private", "sh", "-c", script, PROGRAM])
            .env("STATE", bed.state())
            .output()
            .expect("unshare is part of util-linux");
        let (out, said) = (text(&done.stdout), text(&done.stderr));
        let lines: Vec<&str> = out.lines().collect();
        assert!(lines[1].starts_with("Undo ") && lines[2] == "code 0", "{out}{said}");
        assert_eq!(lines[3..5], ["refused", "net.ipv4.tcp_sack: 1 -> 0  in force"], "{out}{said}");
        assert_eq!(lines[5..8], ["code 0", "1", "2"], "{out}{said}");
        let nothing = "Nothing to revert on this host; `--far HOST` reverts changes on a far host.";
        assert_eq!(lines[8..], [nothing, "code 0"], "{out}{said}");
        assert!(said.contains("No space left on device"), "{said}");
        assert_eq!(said.lines().count(), 2, "a line each, of the program and of ls: {said}");
    });
}

/// Who may change a host must be said: exit code 2 and one line that says why.
#[test]
fn permissions_to_change_the_host_are_refused_without_a_network() {
    for options in [
        &["--allow-tuning"][..],
        &["--allow-interrupt-moves"],
        &["--allow-tuning", "--allow-interrupt-moves"],
    ] {
        let port = free_port().to_string();
        let arguments = [&["serve", "--bind", "127.0.0.1", "--port", &port], options].concat();
        let done = Command::new(PROGRAM).args(arguments).output().expect("it starts");
        let said = text(&done.stderr);
        assert_eq!(done.status.code(), Some(2), "{options:?}: {said}");
        assert_eq!(said.lines().count(), 1, "{said}");
        assert!(said.contains(&options.join(" and ")), "{said}");
        assert!(said.contains("--allow NETWORK (an address is the only check)"), "{said}");
    }
    let help = Command::new(PROGRAM).args(["serve", "--help"]).output().expect("it starts");
    let words = text(&help.stdout).split_whitespace().collect::<Vec<_>>().join(" ");
    assert_eq!(words.matches("address is the only check").count(), 2, "{words}");
}
