//! Another user of this machine has been everywhere before: in the places for temporary files, in a
//! runtime folder that is open to all, in the folder in which results are written. Nothing of his is
//! followed, believed, run or removed, and a line says so.
//!
//! Root is needed to become two users: one that is attacked, and one that attacks.

use crate::PROGRAM;
use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use testkit::daemon::listening;
use testkit::executable;

/// Nobody else's numbers.
const VICTIM: u32 = 65_531;
const STRANGER: u32 = 65_532;
const LAB: &str = "name = \"x\"\n[host.near]\n[host.far]\n[[link]]\nbetween = [\"near\", \"far\"]\ndelay = \"1ms\"\n";

/// A place for temporary files as `/tmp` is, and the program where both users reach it.
struct Place {
    path: PathBuf,
}

impl Place {
    fn new(name: &str) -> Option<Self> {
        if !rustix::process::geteuid().is_root() {
            println!("skipped: only root can become another user");
            return None;
        }
        let path = std::env::temp_dir().join(format!("strangers-{name}-{}", std::process::id()));
        fs::create_dir(&path).expect("a folder of our own");
        mode(&path, 0o1777);
        let bin = path.join("bin");
        fs::create_dir(&bin).expect("ours");
        executable::copy(PROGRAM, bin.join("clearstream"));
        mode(&bin, 0o755);
        fs::write(bin.join("x.toml"), LAB).expect("ours");
        Some(Self { path })
    }

    fn at(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// A folder of this user.
    fn folder(&self, name: &str, user: u32, bits: u32) -> PathBuf {
        let path = self.at(name);
        fs::create_dir_all(&path).expect("ours");
        give(&path, user);
        mode(&path, bits);
        path
    }

    /// Where the victim's state is looked for.
    fn runtime(&self) -> PathBuf {
        self.at(&format!("clearstream-{VICTIM}"))
    }

    fn command(&self, user: u32, arguments: &[&str]) -> Command {
        let mut command = Command::new("setpriv");
        command.args([&format!("--reuid={user}"), &format!("--regid={user}"), "--clear-groups"]);
        command.arg(self.at("bin/clearstream")).args(arguments).current_dir(self.at("bin"));
        command.env("TMPDIR", &self.path).env("HOME", "/nonexistent").stdin(Stdio::null());
        for name in ["XDG_RUNTIME_DIR", "XDG_STATE_HOME", "CLEARSTREAM_SWITCH"] {
            command.env_remove(name);
        }
        command
    }

    /// Runs it as the victim, without `XDG_RUNTIME_DIR`.
    fn run(&self, arguments: &[&str]) -> Output {
        self.command(VICTIM, arguments).output().expect("setpriv is part of util-linux")
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        fs::remove_dir_all(&self.path).ok();
    }
}

fn mode(path: &Path, bits: u32) {
    fs::set_permissions(path, Permissions::from_mode(bits)).expect("root may");
}

fn give(path: &Path, user: u32) {
    chown(path, Some(user), Some(user)).expect("root may");
}

/// One line that holds `why`, and exit code 1.
fn refused(output: &Output, why: &str) {
    let line = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{line}");
    assert_eq!(line.lines().count(), 1, "{line}");
    assert!(line.contains(why), "{line}");
}

/// Everything that looks at, or changes, the labs there are.
const LAB_VERBS: [&[&str]; 8] = [
    &["lab", "list"],
    &["lab", "status"],
    &["lab", "status", "x"],
    &["lab", "exec", "x", "near", "--", "true"],
    &["lab", "exec", "near", "--", "true"],
    &["lab", "down", "x"],
    &["lab", "down", "--all"],
    &["lab", "up", "x.toml"],
];

/// A process of the victim's, and a state file that calls it a lab's anchor.
struct Bait(Child);

impl Bait {
    fn new() -> Self {
        let mut sleep = Command::new("setpriv");
        sleep.args([&format!("--reuid={VICTIM}"), "--clear-groups", "sleep", "60"]);
        Self(sleep.spawn().expect("setpriv is part of util-linux"))
    }

    fn state(&self) -> String {
        let pid = self.0.id();
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).expect("it runs");
        let ticks = stat.rsplit_once(')').expect("a name").1.split_whitespace().nth(19);
        let plan = r#"{"name":"x","hosts":[],"links":[],"switches":[]}"#;
        format!(
            r#"{{"pid":{pid},"started_ticks":{},"own_user_namespace":true,"plan":{plan},"network_fds":[],"notes":[],"owner":null}}"#,
            ticks.expect("22 fields")
        )
    }

    fn lives(&mut self) -> bool {
        self.0.try_wait().expect("ours").is_none()
    }
}

impl Drop for Bait {
    fn drop(&mut self) {
        self.0.kill().ok();
        self.0.wait().ok();
    }
}

#[test]
fn root_a_planted_link_leads_no_lab_command_to_somebodys_files() {
    let Some(place) = Place::new("link") else { return };
    let precious = place.folder("precious", VICTIM, 0o700);
    for name in ["labs", "labs/x", "labs/x/deep"] {
        place.folder(&format!("precious/{name}"), VICTIM, 0o755);
    }
    let letter = precious.join("labs/x/deep/letter");
    fs::write(&letter, "dear").expect("root may");
    symlink(&precious, place.runtime()).expect("root may");
    rustix::fs::chownat(
        rustix::fs::CWD,
        place.runtime(),
        Some(rustix::fs::Uid::from_raw(STRANGER)),
        None,
        rustix::fs::AtFlags::SYMLINK_NOFOLLOW,
    )
    .expect("root may");
    for arguments in LAB_VERBS {
        refused(&place.run(arguments), &format!("is a symbolic link, made by user {STRANGER}"));
        assert_eq!(fs::read_to_string(&letter).expect("it is there"), "dear", "{arguments:?}");
    }
    assert!(place.runtime().is_symlink(), "left alone");
}

#[test]
fn root_planted_labs_are_neither_believed_nor_removed() {
    let Some(place) = Place::new("state") else { return };
    let mut bait = Bait::new();
    // Readable to all, or only that its owner is another is seen.
    for bits in [0o755, 0o777, 0o700] {
        let runtime = place.folder(&format!("clearstream-{VICTIM}"), STRANGER, bits);
        for name in ["labs", "labs/x"] {
            place.folder(&format!("clearstream-{VICTIM}/{name}"), STRANGER, 0o777);
        }
        let state = runtime.join("labs/x/state.json");
        fs::write(&state, bait.state()).expect("root may");
        give(&state, STRANGER);
        for arguments in LAB_VERBS {
            refused(&place.run(arguments), &format!("belongs to user {STRANGER}"));
            assert!(bait.lives(), "{arguments:?}");
            assert!(state.exists(), "{arguments:?}");
        }
        fs::remove_dir_all(&runtime).expect("root may");
    }
}

#[test]
fn root_what_others_could_write_to_is_not_believed_though_it_is_ones_own() {
    let Some(place) = Place::new("open") else { return };
    let mut bait = Bait::new();
    // The folder, that of the labs, or that of one lab.
    for open in ["", "/labs", "/labs/x"] {
        let name = format!("clearstream-{VICTIM}");
        for below in ["", "/labs", "/labs/x"] {
            let bits = if below == open { 0o777 } else { 0o755 };
            place.folder(&format!("{name}{below}"), VICTIM, bits);
        }
        let state = place.runtime().join("labs/x/state.json");
        fs::write(&state, bait.state()).expect("root may");
        // Where only the lab is open, its file is another's.
        give(&state, if open == "/labs/x" { STRANGER } else { VICTIM });
        for arguments in [&["lab", "status", "x"][..], &["lab", "down", "x"]] {
            refused(&place.run(arguments), "is writable by others");
            assert!(bait.lives() && state.exists(), "{arguments:?}");
        }
        fs::remove_dir_all(place.runtime()).expect("root may");
    }
}

#[test]
fn root_a_place_in_which_others_rename_is_none() {
    let Some(place) = Place::new("way") else { return };
    // The victim's own place, below a folder that another owns.
    place.folder("theirs", STRANGER, 0o755);
    let own = place.folder("theirs/own", VICTIM, 0o700);
    let labs = |command: &mut Command| command.output().expect("setpriv");
    let listed = labs(place.command(VICTIM, &["lab", "list"]).env("XDG_RUNTIME_DIR", &own));
    assert_eq!(listed.status.code(), Some(0), "{}", String::from_utf8_lossy(&listed.stderr));
    let up = labs(place.command(VICTIM, &["lab", "up", "x.toml"]).env("XDG_RUNTIME_DIR", &own));
    assert_eq!(fs::read_dir(&own).expect("ours").count(), 0, "not there");
    if up.status.success() {
        assert!(place.runtime().join("labs/x").is_dir(), "but where nobody else renames");
        let known = fs::metadata(place.runtime()).expect("there").permissions().mode();
        assert_eq!(known & 0o7777, 0o700);
        assert!(place.run(&["lab", "down", "x"]).status.success());
    }
    assert!(!place.runtime().exists(), "nothing is left");
}

#[test]
fn root_a_strangers_switch_in_an_open_runtime_folder_gets_no_client() {
    let Some(place) = Place::new("switch") else { return };
    let shared = place.folder("shared", STRANGER, 0o777);
    let socket = shared.join("clearstream-switch.sock");
    let path = socket.to_str().expect("a plain path");
    let mut theirs = place.command(STRANGER, &["switch", "run", "--socket", path]);
    let (mut theirs, _said) = listening(&mut theirs);
    mode(&socket, 0o777);
    let client = |named: bool| {
        let mut command = place.command(VICTIM, &["port", "list"]);
        command.env("XDG_RUNTIME_DIR", &shared);
        if named {
            command.env("CLEARSTREAM_SWITCH", path);
        }
        command.output().expect("setpriv")
    };
    let named = client(true);
    let unnamed = client(false);
    theirs.kill().ok();
    theirs.wait().ok();
    assert_eq!(named.status.code(), Some(0), "{}", String::from_utf8_lossy(&named.stderr));
    // That of the system is asked, or there is none.
    let line = String::from_utf8_lossy(&unnamed.stderr);
    assert!(unnamed.status.success() || line.contains("/run/clearstream-switch.sock"), "{line}");
    assert!(!line.contains(path), "{line}");

    // What it left is its own to remove: root's switch says so.
    let left = Command::new("timeout")
        .args(["60", PROGRAM, "switch", "run", "--socket", path])
        .stdin(Stdio::null())
        .output()
        .expect("it ends");
    let line = String::from_utf8_lossy(&left.stderr);
    assert_eq!(left.status.code(), Some(4), "{line}");
    assert!(line.lines().count() == 1 && line.contains("choose a folder of your own"), "{line}");
    assert!(socket.exists());
}

#[test]
fn root_a_strangers_journal_is_not_undone() {
    let Some(place) = Place::new("journal") else { return };
    let state = place.folder("state", STRANGER, 0o755);
    fs::write(state.join("journal"), "{}\n").expect("root may");
    let state = state.to_str().expect("a plain path");
    for arguments in [["tune", "status", "--state", state], ["tune", "revert", "--state", state]] {
        let output = Command::new(PROGRAM).args(arguments).output().expect("it ends");
        refused(&output, &format!("belongs to user {STRANGER}"));
    }
    assert_eq!(fs::read_dir(state).expect("there").count(), 1, "no lock either");
}

#[test]
fn root_results_are_not_written_through_what_a_stranger_left() {
    let Some(place) = Place::new("results") else { return };
    let shared = place.folder("shared", 0, 0o1777);
    let kept = place.at("kept");
    let results =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/results/synthetic-path.json");
    for (planted, link) in
        [("report.html.new", true), ("report.html", true), ("report.html.new", false)]
    {
        fs::write(&kept, "kept").expect("ours");
        let trap = shared.join(planted);
        if link {
            symlink(&kept, &trap).expect("root may");
        } else {
            fs::write(&trap, "theirs").expect("root may");
            give(&trap, STRANGER);
        }
        let output = Command::new(PROGRAM)
            .args(["report", "--output", "report.html"])
            .arg(&results)
            .current_dir(&shared)
            .output()
            .expect("it ends");
        refused(&output, "it is left alone");
        assert_eq!(fs::read_to_string(&kept).expect("there"), "kept");
        fs::remove_file(&trap).expect("it is there still");
    }
}

/// Logs, tables and rows beside a run, which verbs write as iperf3, IOR and mdtest do: emptied or added to.
#[test]
fn root_logs_and_tables_are_not_written_through_what_a_stranger_left() {
    let Some(place) = Place::new("tables") else { return };
    let shared = place.folder("shared", 0, 0o1777);
    let (kept, load) = (place.at("kept"), place.folder("load", 0, 0o700));
    let load = load.to_str().expect("UTF-8");
    let io = ["io", "-a", "POSIX", "-b", "4k", "-t", "4k", "-o", &format!("{load}/file"), "-O"];
    let io = |option| [&io[..], &[option]].concat();
    for (planted, arguments) in [
        ("log", vec!["iperf3", "-c", "127.0.0.1", "-p", "1", "--logfile", "log"]),
        ("tables", io("summaryFile=tables")),
        ("ranks", io("saveRankPerformanceDetailsCSV=ranks")),
        ("meta", vec!["meta", "-n", "1", "-d", load, "--saveRankPerformanceDetails=meta"]),
    ] {
        fs::write(&kept, "kept").expect("ours");
        let trap = shared.join(planted);
        symlink(&kept, &trap).expect("root may");
        let output =
            Command::new(PROGRAM).args(&arguments).current_dir(&shared).output().expect("it ends");
        let line = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success(), "{arguments:?}: {line}");
        assert!(line.contains("it is left alone"), "{arguments:?}: {line}");
        assert_eq!(fs::read_to_string(&kept).expect("there"), "kept", "{arguments:?}");
        fs::remove_file(&trap).expect("it is there still");
    }
}
