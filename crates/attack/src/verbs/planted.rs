//! Another user of this host was there first: what it put below `/tmp` is neither followed nor executed nor
//! removed, and what it leads to stays.
//!
//! In a mount namespace of the attack's own, with a `/tmp` and a `/run` of its own.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, lchown, symlink};
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::mount::{MountFlags, MountPropagationFlags};

use crate::case::{Case, Door, Need, Scene};
use crate::play::STRANGER;
use crate::program::Daemon;

pub(crate) const CASES: &[Case] = &[
    Case::of(Door::Verbs, "a planted state folder of labs", labs).needs(Need::Root),
    Case::of(Door::Verbs, "a planted state folder of settings", settings).needs(Need::Root),
    Case::of(
        Door::Verbs,
        "planted sockets, files and folders where a switch is to listen",
        sockets,
    )
    .needs(Need::Root),
    Case::of(
        Door::Verbs,
        "planted links where logs, tables and results are to be written",
        outputs,
    )
    .needs(Need::Root),
    Case::of(Door::Verbs, "planted names of temporary files", temporary).needs(Need::Root).waits(),
];

/// Who runs the verbs; no such user need exist.
const VICTIM: u32 = 61_235;
/// What the victim has, and nobody may touch.
const HOME: &str = "/tmp/victim";
const WITHIN: Duration = Duration::from_secs(20);

fn said(what: &str) -> impl Fn(std::io::Error) -> String {
    let what = what.to_owned();
    move |error| format!("{what}: {error}")
}

/// A copy of the program where every user of the private `/run` may start it: it may lie below a home
/// that only its owner enters, or below the `/tmp` that is covered.
const PROGRAM: &str = "/run/under-attack";

/// A `/tmp` and a `/run` that only this thread and its children see, with the program.
fn alone(scene: &Scene) -> Result<(), String> {
    let program = fs::read(&scene.program).map_err(said("the program"))?;
    sys::namespace::unshare_mounts_and_host_name().map_err(|error| error.to_string())?;
    let private = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
    rustix::mount::mount_change("/", private).map_err(|error| format!("mount: {error}"))?;
    for (place, mode) in [("/tmp", 0o1777), ("/run", 0o755)] {
        rustix::mount::mount("attack", place, "tmpfs", MountFlags::empty(), None)
            .map_err(|error| format!("mount of {place}: {error}"))?;
        fs::set_permissions(place, fs::Permissions::from_mode(mode)).map_err(said(place))?;
    }
    fs::write(PROGRAM, program).map_err(said(PROGRAM))?;
    fs::set_permissions(PROGRAM, fs::Permissions::from_mode(0o755)).map_err(said(PROGRAM))
}

/// The victim's folder, with folders in it that look like labs that are down.
fn furnish() -> Result<(), String> {
    let home = Path::new(HOME);
    fs::remove_dir_all(home).ok();
    for folder in ["papers/labs/one", "papers/labs/two", "papers/tune"] {
        fs::create_dir_all(home.join(folder)).map_err(said(HOME))?;
    }
    for file in [
        "papers/thesis",
        "papers/labs/one/chapter",
        "papers/labs/two/state.json",
        "papers/tune/journal",
    ] {
        fs::write(home.join(file), "the victim's").map_err(said(HOME))?;
    }
    let all = [
        "",
        "papers",
        "papers/labs",
        "papers/labs/one",
        "papers/labs/two",
        "papers/tune",
        "papers/thesis",
        "papers/labs/one/chapter",
        "papers/labs/two/state.json",
        "papers/tune/journal",
    ];
    all.iter()
        .try_for_each(|one| chown(home.join(one), Some(VICTIM), Some(VICTIM)))
        .map_err(said(HOME))
}

/// All that was there is, and nothing has been run.
fn is_untouched() -> Result<(), String> {
    for file in [
        "papers/thesis",
        "papers/labs/one/chapter",
        "papers/labs/two/state.json",
        "papers/tune/journal",
    ] {
        let text = fs::read_to_string(Path::new(HOME).join(file)).unwrap_or_default();
        if text != "the victim's" {
            return Err(format!("another user had {file} of the victim's changed or removed"));
        }
    }
    if Path::new("/tmp/was-run").exists() {
        return Err("another user's program was run".to_owned());
    }
    Ok(())
}

/// Another user's link.
fn plant_link(at: &str, to: &str) -> Result<(), String> {
    symlink(to, at).map_err(said(at))?;
    lchown(at, Some(STRANGER), Some(STRANGER)).map_err(said(at))
}

/// Another user's folder, which everybody may write.
fn plant_folder(at: &str) -> Result<(), String> {
    fs::create_dir_all(at).map_err(said(at))?;
    fs::set_permissions(at, fs::Permissions::from_mode(0o777)).map_err(said(at))?;
    chown(at, Some(STRANGER), Some(STRANGER)).map_err(said(at))
}

/// Another user's program, under a name that somebody may run.
fn plant_program(at: &str) -> Result<(), String> {
    fs::write(at, "#!/bin/sh\ntouch /tmp/was-run\n").map_err(said(at))?;
    fs::set_permissions(at, fs::Permissions::from_mode(0o777)).map_err(said(at))?;
    chown(at, Some(STRANGER), Some(STRANGER)).map_err(said(at))
}

fn plant_pipe(at: &str) -> Result<(), String> {
    let mode = rustix::fs::Mode::from_raw_mode(0o666);
    rustix::fs::mknodat(rustix::fs::CWD, at, rustix::fs::FileType::Fifo, mode, 0)
        .map_err(|error| format!("{at}: {error}"))?;
    lchown(at, Some(STRANGER), Some(STRANGER)).map_err(said(at))
}

/// As the victim and as root, without any variable that names a folder.
fn verbs(all: &[&[&str]]) -> Result<(), String> {
    for words in all {
        for user in [Some(VICTIM), None] {
            // Whether it can be done is not asked; it must end, and in order.
            super::run(Path::new(PROGRAM), words, Path::new("/"), user, WITHIN)?;
            is_untouched()?;
        }
    }
    Ok(())
}

const LAB_VERBS: &[&[&str]] = &[
    &["lab", "list"],
    &["lab", "status"],
    &["lab", "status", "one"],
    &["lab", "exec", "amsterdam", "--", "/bin/true"],
    &["lab", "down"],
    &["lab", "down", "one"],
];

/// Puts something of another user's at a path.
type Plant = fn(&str) -> Result<(), String>;

fn labs(scene: &mut Scene) -> Result<(), String> {
    alone(scene)?;
    let base = format!("/tmp/clearstream-{VICTIM}");
    let plants: [Plant; 5] = [
        |base| plant_link(base, "/tmp/victim/papers"),
        |base| {
            plant_folder(base)
                .and_then(|()| plant_link(&format!("{base}/labs"), "/tmp/victim/papers/labs"))
        },
        |base| {
            plant_folder(&format!("{base}/labs"))?;
            plant_folder(base)?;
            plant_link(&format!("{base}/labs/one"), "/tmp/victim/papers/labs/one")
        },
        |base| {
            plant_folder(&format!("{base}/labs/one"))?;
            plant_folder(base)?;
            plant_pipe(&format!("{base}/labs/one/state.json"))?;
            plant_pipe(&format!("{base}/labs/one/owner.json"))
        },
        |base| plant_pipe(base),
    ];
    for plant in plants {
        furnish()?;
        fs::remove_file(&base).ok();
        fs::remove_dir_all(&base).ok();
        plant(&base)?;
        verbs(LAB_VERBS)?;
    }
    Ok(())
}

fn settings(scene: &mut Scene) -> Result<(), String> {
    alone(scene)?;
    furnish()?;
    plant_folder("/tmp/clearstream")?;
    plant_link("/tmp/clearstream/tune", "/tmp/victim/papers/tune")?;
    plant_link(&format!("/tmp/clearstream-plan-{}", std::process::id()), "/tmp/victim/papers")?;
    verbs(&[&["tune", "status"], &["tune", "revert"]])?;
    fs::remove_file("/tmp/clearstream/tune").map_err(said("/tmp/clearstream/tune"))?;
    plant_folder("/tmp/clearstream/tune")?;
    plant_pipe("/tmp/clearstream/tune/journal")?;
    plant_pipe("/tmp/clearstream/tune/journal.json")?;
    verbs(&[&["tune", "status"], &["tune", "revert"]])
}

fn sockets(scene: &mut Scene) -> Result<(), String> {
    alone(scene)?;
    furnish()?;
    plant_folder("/tmp/open")?;
    plant_link("/tmp/open/link", "/tmp/victim/papers/thesis")?;
    plant_pipe("/tmp/open/pipe")?;
    plant_folder("/tmp/open/folder")?;
    for path in
        ["/tmp/open/link", "/tmp/open/pipe", "/tmp/open/folder", "/tmp/victim/papers/thesis"]
    {
        verbs(&[&["switch", "run", "--socket", path]])?;
    }
    // A client that finds something else than a switch.
    let listener =
        std::os::unix::net::UnixListener::bind("/tmp/open/other").map_err(said("a socket"))?;
    fs::set_permissions("/tmp/open/other", fs::Permissions::from_mode(0o777))
        .map_err(said("a socket"))?;
    for path in ["/tmp/open/other", "/tmp/open/pipe", "/tmp/open/folder", "/tmp/open/none"] {
        verbs(&[&["port", "list", "--socket", path]])?;
    }
    drop(listener);
    deserted()
}

/// A socket that another user has left behind is that user's to remove, by whoever listens there next.
fn deserted() -> Result<(), String> {
    const PLACE: &str = "/tmp/open/deserted";
    const SWITCH: &str = "/run/switch.sock";
    drop(std::os::unix::net::UnixListener::bind(PLACE).map_err(said(PLACE))?);
    chown(PLACE, Some(STRANGER), Some(STRANGER)).map_err(said(PLACE))?;
    let number = || fs::symlink_metadata(PLACE).map(|file| file.ino()).map_err(said(PLACE));
    let before = number()?;
    let arguments = ["switch", "run", "--socket", SWITCH];
    let mut switch = Daemon::start(Path::new(PROGRAM), &arguments, "/run/switch.log".into())?;
    let until = Instant::now() + WITHIN;
    while !Path::new(SWITCH).exists() && Instant::now() < until {
        switch.check()?;
        std::thread::sleep(Duration::from_millis(5));
    }
    let guest = ["port", "add", "vale0:vm", "--type", "vhost-user", "--path", PLACE];
    let guest = [&guest[..], &["--socket", SWITCH]].concat();
    verbs(&[&guest, &["switch", "run", "--socket", PLACE]])?;
    if number()? != before {
        return Err("another user's deserted socket was replaced".to_owned());
    }
    switch.check()
}

/// Verbs that write a file, OUT, that the user names. Most fail before, or because of it; none may follow it.
const WRITERS: &[&[&str]] = &[
    &["iperf3", "-c", "127.0.0.1", "-p", "1", "--logfile", "OUT"],
    &["iperf3", "-c", "127.0.0.1", "-p", "1", "-I", "OUT"],
    &["io", "-a", "POSIX", "-b", "4k", "-t", "4k", "-o", "/tmp/load", "-O", "summaryFile=OUT"],
    &["io", "-a", "POSIX", "-b", "4k", "-t", "4k", "-o", "/tmp/load", "--output", "OUT"],
    &["meta", "-n", "1", "-d", "/tmp/load-meta", "--saveRankPerformanceDetails=OUT"],
    &["test", "127.0.0.1", "-p", "PORT", "-t", "100ms", "-b", "1M", "-o", "OUT"],
    &["report", "/tmp/real.json", "-o", "OUT"],
    &["topo", "--svg", "OUT"],
    &["check", "/tmp/model.dve", "--checkpoint", "OUT", "--memory", "1"],
    &["check", "/tmp/model.dve", "-o", "OUT"],
];

/// A link in a folder that everybody may write, sticky and not. What the kernel does about
/// these (`fs.protected_symlinks`) is a setting of the host.
fn outputs(scene: &mut Scene) -> Result<(), String> {
    alone(scene)?;
    let port = scene.port.to_string();
    fs::write("/tmp/model.dve", super::files::MODEL).map_err(said("a model"))?;
    plant_folder("/tmp/load-meta")?;
    let test =
        ["test", "127.0.0.1", "-p", &port, "-t", "100ms", "-b", "1M", "-o", "/tmp/real.json"];
    super::run(Path::new(PROGRAM), &test, Path::new("/"), None, WITHIN)?;
    fs::set_permissions("/tmp/real.json", fs::Permissions::from_mode(0o644))
        .map_err(said("results"))?;
    for (folder, mode) in [("/tmp/open", 0o777), ("/tmp/sticky", 0o1777)] {
        plant_folder(folder)?;
        fs::set_permissions(folder, fs::Permissions::from_mode(mode)).map_err(said(folder))?;
        let out = format!("{folder}/out");
        for words in WRITERS {
            furnish()?;
            fs::remove_file(&out).ok();
            plant_link(&out, "/tmp/victim/papers/thesis")?;
            let word = |word: &&str| match *word {
                "PORT" => port.clone(),
                other => other.replace("OUT", &out),
            };
            let words: Vec<String> = words.iter().map(word).collect();
            verbs(&[&words.iter().map(String::as_str).collect::<Vec<_>>()])
                .map_err(|why| format!("{folder}: `{}`: {why}", words.join(" ")))?;
        }
    }
    Ok(())
}

/// Names of temporary folders that another user can guess or has seen: with the process ids that are soon to come,
/// and as such a folder is named that somebody has left behind.
fn temporary(scene: &mut Scene) -> Result<(), String> {
    alone(scene)?;
    furnish()?;
    let own = std::process::id();
    for name in ["plan", "packets", "divine", "failover", "dpdk", "mix", "reproduce"] {
        for pid in own..own + 3000 {
            plant_link(&format!("/tmp/clearstream-{name}-{pid}"), "/tmp/victim/papers/thesis")?;
        }
        plant_link(&format!("/tmp/clearstream-{name}-0123456789abcdef"), "/tmp/victim/papers")?;
        let left = left_behind(name);
        plant_folder(&left)?;
        plant_link(&format!("{left}/.owner"), "/tmp/victim/papers/thesis")?;
        plant_link(&format!("{left}/papers"), "/tmp/victim/papers")?;
    }
    plant_program("/tmp/clearstream")?;
    plant_program("/tmp/mpirun")?;
    verbs(&[&["reproduce", "--list"], &["topo"], &["tune", "dump"], &["lab", "show", "lan"]])?;
    let port = scene.port.to_string();
    let words = ["tune", "plan", "127.0.0.1", "-p", &port, "--duration", "100ms", "-b", "10M"];
    for user in [Some(VICTIM), None] {
        makes_a_folder(&words, user)?;
        is_untouched()?;
        // Somebody else's, whatever it looks like.
        if !Path::new(&left_behind("plan")).join("papers").is_symlink() {
            return Err("what another user had put there was removed".to_owned());
        }
    }
    Ok(())
}

fn left_behind(name: &str) -> String {
    format!("/tmp/clearstream-{name}-00000000deadbeef")
}

/// Runs a verb that makes a temporary folder and removes it again, and must succeed.
fn makes_a_folder(words: &[&str], user: Option<u32>) -> Result<(), String> {
    let changed =
        || fs::metadata("/tmp").and_then(|folder| folder.modified()).map_err(said("/tmp"));
    let before = changed()?;
    let done = super::run(Path::new(PROGRAM), words, Path::new("/"), user, WITHIN)?;
    if !done.status.success() {
        return Err(format!("`clearstream {}`: {}: {}", words.join(" "), done.status, done.text));
    }
    if changed()? == before {
        return Err(format!("`clearstream {}` made no temporary folder", words.join(" ")));
    }
    Ok(())
}
