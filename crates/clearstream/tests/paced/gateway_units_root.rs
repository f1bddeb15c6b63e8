//! Our own systemd units on a host of the lab `cumulus`: their commands, run with no more capabilities than each unit keeps,
//! apply the plan, watch its gateways, and undo everything. Needs root and iproute2.

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};

use rustix::process::Signal;
use serde_json::Value;
use testkit::root::is_root;

use super::gateway_lab_root::{Lab, run};
use super::gateway_watch_root::youngest;
use crate::PROGRAM;

/// The units of the host `c1`, as they run in a lab.
struct Units {
    emitted: Value,
    /// The plan and its key are there, as `cumulus.toml` and `cumulus.key`.
    folder: String,
}

impl Units {
    fn text(&self, name: &str) -> &str {
        let files = self.emitted["files"].as_array().expect("files");
        let is_it = |file: &&Value| file["path"].as_str().is_some_and(|path| path.ends_with(name));
        files.iter().find(is_it).expect(name)["text"].as_str().expect("text")
    }

    fn value<'a>(&'a self, name: &str, key: &str) -> &'a str {
        let line = self.text(name).lines().find_map(|line| line.strip_prefix(key));
        line.and_then(|rest| rest.strip_prefix('=')).expect(key)
    }

    /// A command of a unit, with the capabilities that the unit keeps.
    fn command(&self, name: &str, key: &str) -> String {
        let kept = self.value(name, "CapabilityBoundingSet").split(' ');
        let kept = kept.map(|one| one.trim_start_matches("CAP_").to_lowercase());
        let command = self.value(name, key).replace("/usr/bin/clearstream", PROGRAM);
        let command =
            command.replace("/etc/clearstream/gateway/%i", &format!("{}/cumulus", self.folder));
        let bounds = kept.map(|one| format!(",+{one}")).collect::<String>();
        format!("setpriv --bounding-set=-all{bounds} {command}")
    }
}

/// The program that the units run, as one emits them that is root's and at `place`, in a folder of this mode.
fn named_by(place: &str, mode: &str) -> (String, String) {
    let folder = std::path::Path::new(place).parent().expect("a folder").display();
    let script = format!(
        "mount -t tmpfs -o mode={mode} tmpfs {folder} && cp {PROGRAM} {place} \
         && {place} gateway emit cumulus --host c1 --to unit"
    );
    let done =
        Command::new("unshare").args(["-m", "sh", "-c", &script]).output().expect("util-linux");
    let [out, err] = [done.stdout, done.stderr].map(|text| String::from_utf8(text).expect("text"));
    let line = out.lines().find_map(|line| line.strip_prefix("ExecStart="));
    let program = line.and_then(|line| line.split(' ').next());
    (program.unwrap_or_else(|| panic!("{out}{err}")).to_owned(), err)
}

#[test]
fn units_run_the_program_that_emits_them_where_only_root_can_replace_it_root() {
    if !is_root() {
        return;
    }
    assert_eq!(named_by("/opt/clearstream", "755"), ("/opt/clearstream".to_owned(), String::new()));
    let (program, said) = named_by("/opt/clearstream", "1777");
    assert_eq!(program, "/usr/bin/clearstream");
    assert!(
        said.contains("unit: the units run /usr/bin/clearstream, because users other"),
        "{said}"
    );
}

#[test]
fn units_apply_watch_and_revert_with_the_capabilities_they_keep_root() {
    if !is_root() {
        return;
    }
    let lab = Lab::up("units");
    let before = lab.routing("c1");
    let emitted =
        run(&["--json", "gateway", "emit", "cumulus", "--host", "c1", "--to", "unit"]).stdout;
    let emitted = serde_json::from_slice(&emitted).expect("JSON");
    let folder = lab.folder.to_str().expect("text").to_owned();
    let units = Units { emitted, folder };
    let plan = include_str!("../../../../labs/gateways/cumulus.toml");
    fs::write(lab.folder.join("cumulus.toml"), plan).expect("written");
    let key = lab.folder.join("cumulus.key");
    fs::write(&key, "000102030405060708090a0b0c0d0e0f\n").expect("written");
    fs::set_permissions(&key, fs::Permissions::from_mode(0o600)).expect("ours");

    let apply = "clearstream-gateway@.service";
    lab.exec("c1", &units.command(apply, "ExecStart"));
    let checked = format!("{PROGRAM} gateway check cumulus");
    assert_eq!(lab.exec("c1", &checked), "c1  matches the plan\n");
    lab.exec("c1", &units.command(apply, "ExecReload"));

    let mut command = Command::new(PROGRAM);
    command.args(["lab", "exec", &lab.name, "c1", "--"]);
    command.args(units.command("clearstream-gateway-watch@.service", "ExecStart").split(' '));
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut watcher = command.spawn().expect("the program starts");
    let mut said = BufReader::new(watcher.stderr.take().expect("piped"));
    let mut line = String::new();
    said.read_line(&mut line).expect("a line");
    assert!(
        line.starts_with("c1 watches 3 gateways: a probe every 50ms, 3 missed rounds"),
        "{line}"
    );
    // Without its capabilities it would complain of its priority or memory.
    rustix::process::kill_process(youngest(watcher.id()), Signal::TERM).expect("it runs");
    let mut rest = String::new();
    std::io::Read::read_to_string(&mut said, &mut rest).expect("text");
    assert_eq!(rest, "");
    assert_eq!(watcher.wait().expect("ours").code(), Some(0));

    lab.exec("c1", &units.command(apply, "ExecStop"));
    assert_eq!(lab.routing("c1"), before);
}
