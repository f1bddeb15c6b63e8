//! Completion of names by the shell: bash runs the generated script, which asks the program.

use crate::PROGRAM;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};

use rustix::process::{Pid, Signal, kill_process};
use sys::private::Scratch;
use testkit::daemon::{Said, listening};
use testkit::executable;
use testkit::lab_bed::LabBed;
use testkit::socket::socket_path;

/// A folder with the generated scripts and, as `clearstream`, the program.
fn scripts(name: &str) -> Scratch {
    let scratch = Scratch::new(name).expect("a scratch folder");
    let mut manual = Command::new(PROGRAM);
    manual.args(["manual", "--out"]).arg(scratch.path());
    let output = manual.output().expect("the program starts");
    assert!(output.status.success(), "{output:?}");
    symlink(PROGRAM, scratch.path().join("clearstream")).expect("a name for the program");
    scratch
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).expect("UTF-8")
}

/// What bash offers for a command line, by the generated script.
fn offered(scratch: &Path, line: &str) -> Vec<String> {
    let script = format!(
        "source '{0}/clearstream.bash'\n\
         COMP_LINE=\"$1\" COMP_POINT=${{#1}} COMP_WORDBREAKS=$' \\t\\n\"\\'><=;|&(:'\n\
         read -r -a COMP_WORDS <<<\"$1\"; [[ $1 == *' ' ]] && COMP_WORDS+=('')\n\
         COMP_CWORD=$(( ${{#COMP_WORDS[@]}} - 1 ))\n\
         _clearstream_names clearstream \"${{COMP_WORDS[COMP_CWORD]}}\" x\n\
         printf '%s\\n' \"${{COMPREPLY[@]}}\"",
        scratch.display()
    );
    let path = std::env::var_os("PATH").unwrap_or_default();
    let path = format!("{}:{}", scratch.display(), path.to_string_lossy());
    let output = Command::new("bash")
        .args(["--norc", "-c", &script, "bash", line])
        .env("PATH", path)
        .output()
        .expect("bash starts");
    assert!(output.stderr.is_empty(), "{line}: {}", text(&output.stderr));
    text(&output.stdout).lines().map(str::to_owned).collect()
}

#[test]
fn bash_completes_names_and_falls_back_to_options() {
    let scratch = scripts("completion");
    let offered = |line| offered(scratch.path(), line);
    assert_eq!(offered("clearstream lab up gli"), ["glif2010"]);
    assert_eq!(offered("clearstream lab fail near ha"), ["hang"]);
    assert_eq!(offered("clearstream help lab-"), ["lab-file"]);
    assert_eq!(offered("clearstream help tune app"), ["apply"]);
    assert_eq!(offered("clearstream check --example pete"), ["peterson"]);
    assert_eq!(offered("clearstream check --example=pete"), ["peterson"]);
    assert_eq!(offered("clearstream reproduce --repeats 2 G-fl"), ["G-flock"]);
    assert_eq!(offered("clearstream gateway plan cu"), ["cumulus"]);
    assert_eq!(offered("clearstream gateway drain cumulus "), ["g1", "g2", "g3"]);
    assert_eq!(offered("clearstream gateway watch cumulus --host s"), ["s1", "s2"]);
    assert_eq!(offered("clearstream tune apply --only net.ipv4.tcp_rm"), ["net.ipv4.tcp_rmem"]);
    assert!(offered("clearstream live ").contains(&"lo".to_owned()));
    assert!(offered("clearstream reproduce ").contains(&"C-fig6".to_owned()));
    assert!(offered("clearstream lab sta").contains(&"status".to_owned()));
    assert!(offered("clearstream test --no-del").contains(&"--no-delay".to_owned()));
}

#[test]
fn bash_replaces_only_what_follows_the_last_break_of_a_word() {
    let scratch = scripts("breaks");
    // It answers like `clearstream complete` where a lab `office` with a host `one` is up.
    let program = scratch.path().join("clearstream");
    let answers =
        "#!/bin/sh\ncase \"$*\" in *--lab=o) echo --lab=office;; *a:b=c) echo a:b=cd;; esac\n";
    fs::remove_file(&program).expect("the program's other name");
    executable::script(&program, answers);
    assert_eq!(offered(scratch.path(), "clearstream lab exec --lab=o"), ["office"]);
    assert_eq!(offered(scratch.path(), "clearstream port del a:b=c"), ["cd"]);
}

#[test]
fn root_bash_completes_labs_their_hosts_and_their_ports() {
    let Some(bed) = LabBed::up("completion", "delay = \"1ms\"") else { return };
    let scratch = scripts("lab-names");
    let name = &bed.name;
    let offered = |line: &str| offered(scratch.path(), line);
    assert_eq!(offered(&format!("clearstream lab down {}", &name[..name.len() - 1])), [&**name]);
    assert_eq!(offered(&format!("clearstream lab exec {name} ne")), ["near"]);
    assert_eq!(offered(&format!("clearstream lab exec --lab={name} fa")), ["far"]);
    assert_eq!(offered(&format!("clearstream lab fail --lab {name} near port ")), ["eth0", "far"]);
    assert_eq!(offered(&format!("clearstream io --lab {name} --hosts near,f")), ["near,far"]);
}

/// A running `clearstream switch run`, killed when dropped.
struct Switch {
    daemon: Child,
    socket: PathBuf,
    _said: Said,
}

impl Switch {
    fn run(name: &str) -> Self {
        let socket = socket_path(name);
        let mut command = Command::new(PROGRAM);
        let (daemon, said) = listening(command.args(["switch", "run", "--socket"]).arg(&socket));
        Self { daemon, socket, _said: said }
    }
}

impl Drop for Switch {
    fn drop(&mut self) {
        self.daemon.kill().ok();
        self.daemon.wait().ok();
    }
}

#[test]
fn bash_completes_ports_of_a_switch_and_does_not_wait_for_one_that_is_stopped() {
    let switch = Switch::run("completion");
    let socket = switch.socket.to_str().expect("UTF-8");
    for port in ["vale7:left", "vale7:right"] {
        let mut add = Command::new(PROGRAM);
        let added = add.args(["port", "add", port, "--socket", socket]).output();
        assert!(added.expect("the program starts").status.success(), "{port}");
    }
    let scratch = scripts("port-names");
    let offered = |line: String| offered(scratch.path(), &line);
    let ports = offered(format!("clearstream port --socket {socket} del vale7:"));
    assert_eq!(ports, ["left", "right"]);
    let one = offered(format!("clearstream pkt sink --socket={socket} vale7:l"));
    assert_eq!(one, ["left"]);
    let daemon = Pid::from_child(&switch.daemon);
    kill_process(daemon, Signal::STOP).expect("our own process");
    // Without a deadline this would never end. No file has that name.
    let nothing = offered(format!("clearstream port --socket {socket} del vale7:"));
    assert_eq!(nothing.concat(), "");
}
