//! Tuning as a user meets it: what goes wrong is said in a line with nothing half-applied. What it gains is judged in
//! `paced/tune_gain_root.rs`.

use crate::PROGRAM;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::Value;

use testkit::root::is_root;

/// The program in a network namespace of its own that ends with it; `sh -c script` with `$0` the
/// program, `$STATE` a state directory and `$ROOT` a root of persisted files.
fn in_namespace(name: &str, script: &str) -> (Output, PathBuf) {
    let folder = std::env::temp_dir().join(format!("tune-ns-{name}-{}", std::process::id()));
    fs::create_dir_all(folder.join("root")).expect("a folder of our own");
    let output = Command::new("unshare")
        .args(["--net", "--mount", "--propagation", "private", "sh", "-c"])
        .arg(format!("mount -t sysfs sysfs /sys; {script}"))
        .arg(PROGRAM)
        .env("STATE", folder.join("state"))
        .env("ROOT", folder.join("root"))
        .output()
        .expect("unshare is part of util-linux");
    (output, folder)
}

#[test]
fn root_one_denied_of_three_leaves_nothing_half_applied() {
    if !is_root() {
        return;
    }
    let apply = "\"$0\" tune apply --state $STATE --set net.ipv4.tcp_wmem='4096 16384 1048576' \
                 --set net.core.rmem_max=1048576 --set net.ipv4.tcp_sack=0";
    let script = format!(
        "\"$0\" tune dump --state $STATE > $ROOT/a; {apply}; echo code $?; \
                          \"$0\" tune dump --state $STATE > $ROOT/b; cmp $ROOT/a $ROOT/b && echo same; \
                          {apply} --keep-going; echo code $?; \"$0\" tune status --state $STATE; \
                          \"$0\" tune revert --state $STATE; \
                          \"$0\" tune dump --state $STATE > $ROOT/b; cmp $ROOT/a $ROOT/b && echo same"
    );
    let (done, folder) = in_namespace("denied", &script);
    let (out, said) = (text(&done.stdout), text(&done.stderr));
    assert!(out.contains("code 4\nsame\n"), "{out}{said}");
    assert!(out.contains("code 5\n"), "{out}{said}");
    assert!(out.contains("net.ipv4.tcp_sack: 1 -> 0  in force"), "{out}");
    assert!(out.ends_with("same\n"), "{out}");
    assert_eq!(said.lines().count(), 2, "{said}");
    assert!(said.contains("net.core.rmem_max: ") && said.contains("machine-wide"), "{said}");
    fs::remove_dir_all(folder).ok();
}

#[test]
fn root_another_user_sees_the_changes_of_root_or_why_not() {
    if !is_root() {
        return;
    }
    // A checkout may lie where no other user gets to: the program is copied to where it does.
    let script = "umask 022; mount -t tmpfs -o mode=755 tmpfs /var/lib; cd /var/lib; \
        unset CLEARSTREAM_LAB_DIR XDG_STATE_HOME; \
        install -d -o 65534 /var/lib/home; install -m 755 \"$0\" /var/lib/program; \
        other() { setpriv --reuid=65534 --regid=65534 --clear-groups env HOME=/var/lib/home \
            /var/lib/program tune $1; echo code $?; }; \
        other status; \"$0\" tune apply --set net.ipv4.tcp_sack=0 > /dev/null; other status; \
        other revert; chmod 600 /var/lib/clearstream/tune/journal; other status; other revert; \
        \"$0\" tune revert > /dev/null; other status";
    let (done, folder) = in_namespace("other", script);
    let (out, said) = (text(&done.stdout), text(&done.stderr));
    let none = "No change by this program is in force on this host; `--far HOST` shows those on a far host.\ncode 0\n";
    let made = "net.ipv4.tcp_sack: 1 -> 0  in force\ncode 0\n";
    assert_eq!(out, format!("{none}{made}code 4\ncode 4\ncode 4\n{none}"), "{said}");
    let [reverting, looking, blind] = &said.lines().collect::<Vec<_>>()[..] else {
        panic!("{said}")
    };
    assert!(reverting.contains("1 change of root left in force"), "{said}");
    for line in [looking, blind] {
        assert!(line.contains("the changes in force cannot be read: Permission denied"), "{said}");
    }
    fs::remove_dir_all(folder).ok();
}

#[test]
fn root_two_at_once_a_damaged_journal_and_a_foreign_change_get_a_line_each() {
    if !is_root() {
        return;
    }
    let script = "change() { \"$0\" tune apply --state $STATE --set \"$@\"; echo code $?; }; \
        change net.ipv4.tcp_sack=0; \
        (flock 9; change net.ipv4.tcp_ecn=1) 9>>$STATE/lock; \
        echo 1 > /proc/sys/net/ipv4/tcp_sack; echo 2 > /proc/sys/net/ipv4/tcp_timestamps; \
        change net.ipv4.tcp_timestamps=1; echo 0 > /proc/sys/net/ipv4/tcp_timestamps; \
        \"$0\" tune revert --state $STATE; echo code $?; \
        \"$0\" tune revert --force --state $STATE; echo code $?; cat /proc/sys/net/ipv4/tcp_timestamps; \
        change net.ipv4.tcp_sack=0; echo nonsense >> $STATE/journal; \
        change net.ipv4.tcp_ecn=1; \"$0\" tune revert --state $STATE; echo code $?; \
        cat /proc/sys/net/ipv4/tcp_sack; \"$0\" tune revert --forget --state $STATE; echo code $?";
    let (done, folder) = in_namespace("lines", script);
    let (out, said) = (text(&done.stdout), text(&done.stderr));
    let codes: Vec<&str> = out.lines().filter_map(|line| line.strip_prefix("code ")).collect();
    assert_eq!(codes, ["0", "1", "0", "5", "0", "0", "1", "1", "0"], "{out}{said}");
    assert!(
        out.contains("net.ipv4.tcp_timestamps: changed to 0 by something else since; left"),
        "{out}"
    );
    assert!(out.contains("code 0\n2\n"), "forced back: {out}");
    let lines: Vec<&str> = said.lines().collect();
    assert_eq!(lines.len(), 3, "{said}");
    assert!(lines[0].contains("another clearstream command is using"), "{said}");
    assert!(
        lines[1].contains("line 4 is not a journal record")
            && lines[1].contains("nothing was changed"),
        "{said}"
    );
    assert!(out.contains("code 1\n0\ncode 0"), "the damaged journal touched nothing: {out}");
    fs::remove_dir_all(folder).ok();
}

#[test]
fn root_persisted_changes_are_files_that_go_again() {
    if !is_root() {
        return;
    }
    let script = "ip link set lo up; \
        \"$0\" tune apply --state $STATE --root $ROOT --persist --set net.ipv4.tcp_slow_start_after_idle=0 \
        --set lo/txqueuelen=777; echo code $?; find $ROOT \\( -type f -o -type l \\) | sort; \
        cat $ROOT/etc/sysctl.d/90-clearstream.conf; \
        \"$0\" tune boot --root $ROOT; echo code $?; \
        \"$0\" tune revert lo/txqueuelen --state $STATE --root $ROOT; \
        find $ROOT \\( -type f -o -type l \\) | wc -l; \
        \"$0\" tune revert --state $STATE --root $ROOT; find $ROOT \\( -type f -o -type l \\) | wc -l; \
        cat /proc/sys/net/ipv4/tcp_slow_start_after_idle";
    let (done, folder) = in_namespace("persist", script);
    let (out, said) = (text(&done.stdout), text(&done.stderr));
    assert!(said.is_empty(), "{said}{out}");
    for line in [
        "/etc/sysctl.d/90-clearstream.conf",
        "/etc/clearstream/tune.conf",
        "/etc/systemd/system/clearstream-tune.service",
        "/etc/systemd/system/multi-user.target.wants/clearstream-tune.service",
        "net.ipv4.tcp_slow_start_after_idle = 0",
    ] {
        assert!(out.contains(line), "{line}: {out}");
    }
    assert!(out.contains("\n1\n"), "of the files one is left: {out}");
    assert!(out.ends_with("\n0\n1\n"), "no file is left, the setting is back: {out}");
    fs::remove_dir_all(folder).ok();
}

fn run(arguments: &[&str]) -> Output {
    Command::new(PROGRAM).args(arguments).stdin(Stdio::null()).output().expect("it starts")
}

#[test]
fn profiles_are_compared_with_the_running_kernel() {
    let listed = text(&run(&["tune", "profile", "list"]).stdout);
    for name in ["clearstream-2011", "cumulus-2018", "esnet-2025"] {
        assert!(listed.contains(name), "{listed}");
    }
    let done = run(&["--json", "tune", "profile", "compare", "cumulus-2018"]);
    let document: Value = serde_json::from_slice(&done.stdout).expect("JSON");
    let of = |key: &str| {
        let settings = document["settings"].as_array().expect("settings");
        settings.iter().find(|one| one["key"] == key).expect(key).clone()
    };
    let gone = of("net.ipv4.tcp_tw_recycle");
    assert_eq!((&gone["in_kernel"], gone["advice"].as_str()), (&Value::Bool(false), Some("gone")));
    assert_eq!(of("net.ipv4.tcp_timestamps")["advice"], "harmful");
    assert!(of("net.ipv4.tcp_rmem")["running"].is_string());
    let file = std::env::temp_dir().join(format!("g-tune-{}.json", std::process::id()));
    let told = run(&["reproduce", "G-tune", "--output", file.to_str().expect("a plain path")]);
    fs::remove_file(&file).expect("it was written");
    let told = text(&told.stdout);
    assert!(told.contains("tcp_tw_recycle") && told.contains("not in this kernel"), "{told}");
    assert!(told.contains("holds: "), "{told}");
}

#[test]
fn bad_requests_get_one_line() {
    let folder = std::env::temp_dir().join(format!("tune-bad-{}", std::process::id()));
    fs::create_dir_all(&folder).expect("a folder of our own");
    let file = |name: &str, contents: &str| -> String {
        fs::write(folder.join(name), contents).expect("written");
        folder.join(name).to_str().expect("a plain path").to_owned()
    };
    let state = folder.join("state").to_str().expect("a plain path").to_owned();
    for (arguments, code, words) in [
        (vec!["tune", "plan"], 2, "name the far HOST"),
        (
            vec!["tune", "apply", "--set", "kernel.panic=1"],
            2,
            "is not a setting that this program changes",
        ),
        (vec!["tune", "apply", "--set", "net.ipv4.tcp_rmem=1"], 2, "is not three whole numbers"),
        (vec!["tune", "apply", "--set", "net.ipv4.tcp_sack"], 2, "is not KEY=VALUE"),
        (
            vec!["tune", "apply", "--set", "no-such-dev/mtu=1500"],
            1,
            "there is no interface no-such-dev",
        ),
        (vec!["tune", "profile", "show", "none-2099"], 2, "no profile 'none-2099'"),
        (
            vec!["tune", "profile", "show", &file("p.conf", "net.a = 1\nnonsense\n")],
            1,
            "line 2 is not NAME = VALUE",
        ),
        (vec!["tune", "plan", "--results", &file("r.json", "{")], 1, "not a complete results file"),
        (vec!["tune", "apply", "--plan", &file("plan.json", "[]")], 1, "plan.json"),
    ] {
        let mut line = arguments.clone();
        if arguments[1] == "apply" {
            line.extend(["--state", &state]);
        }
        let done = run(&line);
        let said = text(&done.stderr);
        assert_eq!(done.status.code(), Some(code), "{arguments:?}: {said}");
        assert_eq!(said.lines().count(), 1, "{arguments:?}: {said}");
        assert!(said.contains(words), "{arguments:?}: {said}");
    }
    assert!(!Path::new(&state).join("journal").exists(), "nothing was begun");
    fs::remove_dir_all(folder).ok();
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
