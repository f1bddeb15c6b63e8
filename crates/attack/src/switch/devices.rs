//! Devices: what somebody with a network namespace or a file system of its own can send along.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use packet_switch::attachment::{Answer, Ask, DeviceKind, XdpFacts};
use rustix::fs::{Mode, OFlags};
use rustix::mount::{MountFlags, MountPropagationFlags, UnmountFlags};
use sys::interface::RouteSocket;

use super::{Raw, SMALL};
use crate::case::{Case, Door, Need, Scene};

pub(crate) const CASES: &[Case] = &[
    Case::of(Door::Switch, "a queue of a device whose name is none", odd_names).needs(Need::Root),
    Case::of(Door::Switch, "a TAP device that comes and goes", taps).needs(Need::Root),
];

/// An `AF_XDP` socket that is one, with a device's name that is not: whoever has a namespace can have it.
fn odd_names(scene: &mut Scene) -> Result<(), String> {
    // This thread's network from now on; it ends with the attack.
    let namespace = sys::namespace::unshare_network().map_err(|error| error.to_string())?;
    let mut routes = RouteSocket::open().map_err(|error| error.to_string())?;
    routes
        .add_veth(["attack0", "attack1"], namespace.as_fd(), None)
        .map_err(|error| error.to_string())?;
    let names = ["x\0y", "\0", "", "\n\u{1b}[2J", "a\u{202e}b", &"\0".repeat(200), &"é".repeat(40)];
    for (number, name) in (0..).zip(names) {
        let opened = open_queue("attack0")?;
        let memory = opened.memory.fd().ok_or("no memory")?;
        let facts = XdpFacts {
            device: name.to_owned(),
            queue: u32::MAX,
            is_generic: opened.is_generic,
            takes_parts: opened.takes_parts,
        };
        let port = format!("vale0:x{number}").parse().map_err(|error| format!("{error}"))?;
        let ask = Ask::AddDevice { port, device: DeviceKind::Xdp(facts), shape: SMALL };
        let raw = Raw::connect(&scene.socket)?;
        let mut fds = vec![opened.socket.as_fd(), memory];
        fds.extend(opened.holds.iter().map(AsFd::as_fd));
        let (answer, _) = raw.ask(ask, &fds)?;
        if matches!(answer, Answer::Done) {
            let port = format!("vale0:x{number}").parse().map_err(|error| format!("{error}"))?;
            raw.ask(Ask::DeletePort { port }, &[])?;
        }
    }
    Ok(())
}

/// Takes the first queue of a device, as soon as the daemon has let go of it.
fn open_queue(device: &str) -> Result<ports::xdp::Opened, String> {
    let until = Instant::now() + super::ANSWER;
    loop {
        match ports::xdp::open(device, 0) {
            Ok(opened) => return Ok(opened),
            Err(error) if Instant::now() > until => return Err(error.to_string()),
            Err(_) => std::thread::sleep(Duration::from_millis(5)),
        }
    }
}

fn taps(scene: &mut Scene) -> Result<(), String> {
    let _namespace = sys::namespace::unshare_network().map_err(|error| error.to_string())?;
    for number in 0..5 {
        let Ok((tap, _)) = sys::tap::open_tap(&format!("attack-tap{number}")) else {
            return Err("no TAP device to be had".to_owned());
        };
        let name = format!("vale0:tap{number}");
        let port = || name.parse().map_err(|error| format!("{error}"));
        let raw = Raw::connect(&scene.socket)?;
        let device = DeviceKind::Tap;
        raw.ask(Ask::AddDevice { port: port()?, device, shape: SMALL }, &[tap.as_fd()])?;
        // The other holder of the very same descriptor makes it wait.
        rustix::fs::fcntl_setfl(&tap, OFlags::RDWR).ok();
        let mut frame = vec![0; 10];
        frame.extend(super::broadcast(17, 60));
        for _ in 0..50 {
            rustix::io::write(&tap, &frame).ok();
        }
        raw.ask(Ask::DeletePort { port: port()? }, &[])?;
    }
    Ok(())
}

/// A file of a file system that answers this process, and nobody else.
#[derive(Debug)]
pub(crate) struct SilentFile {
    pub(crate) fd: OwnedFd,
    folder: PathBuf,
    stop: Arc<AtomicBool>,
    server: Option<JoinHandle<()>>,
}

impl Drop for SilentFile {
    fn drop(&mut self) {
        rustix::mount::unmount(&self.folder, UnmountFlags::DETACH).ok();
        self.stop.store(true, Ordering::Relaxed);
        // With the file system gone all questions fail.
        if let Some(server) = self.server.take() {
            server.join().ok();
        }
    }
}

/// None where there is no `/dev/fuse`.
pub(crate) fn silent_file(scene: &Scene) -> Result<Option<SilentFile>, String> {
    let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let Ok(device) = rustix::fs::open("/dev/fuse", flags, Mode::empty()) else {
        return Ok(None);
    };
    // Nobody else sees it, nor has to wait for it.
    sys::namespace::unshare_mounts_and_host_name().map_err(|error| error.to_string())?;
    let private = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
    rustix::mount::mount_change("/", private).map_err(|error| format!("mount: {error}"))?;
    let folder = scene.folder.join("fuse");
    std::fs::create_dir_all(&folder).map_err(|error| error.to_string())?;
    let options = format!("fd={},rootmode=40000,user_id=0,group_id=0", device.as_raw_fd());
    let options = std::ffi::CString::new(options).map_err(|error| error.to_string())?;
    rustix::mount::mount("attack", &folder, "fuse", MountFlags::empty(), Some(options.as_c_str()))
        .map_err(|error| format!("mount of FUSE: {error}"))?;
    let stop = Arc::new(AtomicBool::new(false));
    let (stopped, mut questions) = (Arc::clone(&stop), File::from(device));
    let server = Some(std::thread::spawn(move || {
        while !stopped.load(Ordering::Relaxed) {
            if !answer_one(&mut questions) {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
    }));
    let file = File::open(folder.join("file")).map_err(|error| format!("FUSE: {error}"));
    match file {
        Ok(file) => Ok(Some(SilentFile { fd: file.into(), folder, stop, server })),
        Err(why) => {
            stop.store(true, Ordering::Relaxed);
            Err(why)
        }
    }
}

/// Answers a question of the kernel (`linux/fuse.h`), if one of this process is there.
fn answer_one(server: &mut File) -> bool {
    let mut question = vec![0; 1 << 20];
    let Ok(40..) = server.read(&mut question) else { return false };
    let word = |at: usize| u32::from_le_bytes(std::array::from_fn(|index| question[at + index]));
    let (opcode, unique, thread) = (word(4), &question[8..16], word(32));
    // FORGET is no question; what is not ours is left without an answer.
    let is_ours = thread == 0 || Path::new(&format!("/proc/self/task/{thread}")).exists();
    if opcode == 2 || !is_ours {
        return true;
    }
    let mut body = Vec::new();
    let mut error = 0_i32;
    match opcode {
        // INIT: the version that is asked for, no flags, 64 KiB to write.
        26 => {
            body.resize(64, 0);
            body[..8].copy_from_slice(&question[40..48]);
            body[20..24].copy_from_slice(&65_536_u32.to_le_bytes());
            body[24..28].copy_from_slice(&1_u32.to_le_bytes());
        }
        // LOOKUP: node 2, a regular file; GETATTR: the same or the folder.
        1 | 3 => {
            let is_file = opcode == 1 || word(16) == 2;
            let mut attributes = vec![0; 88];
            attributes[..8].copy_from_slice(&if is_file { 2_u64 } else { 1 }.to_le_bytes());
            let mode: u32 = if is_file { 0o100_666 } else { 0o040_777 };
            attributes[60..64].copy_from_slice(&mode.to_le_bytes());
            attributes[64..68].copy_from_slice(&1_u32.to_le_bytes());
            // Of an entry: node, generation, two times; of attributes one time.
            body = vec![0; if opcode == 1 { 40 } else { 16 }];
            body[0] = if opcode == 1 { 2 } else { 0 };
            body.extend(attributes);
        }
        // OPEN.
        14 => body = vec![0; 16],
        // FLUSH, RELEASE.
        25 | 18 => {}
        _ => error = -rustix::io::Errno::NOSYS.raw_os_error(),
    }
    let mut answer = (16 + body.len() as u32).to_le_bytes().to_vec();
    answer.extend(error.to_le_bytes());
    answer.extend(unique);
    answer.extend(body);
    server.write_all(&answer).is_ok()
}
