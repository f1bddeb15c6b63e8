//! GlusterFS: on each server one brick, whose volume description is a file of the lab; clients distribute files over all
//! of them. There is no management daemon (`glusterd`): both ends read their descriptions from files.

use std::ffi::CString;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::{Child, Command};

use rustix::mount::{MountFlags, mount};
use sys::SyscallError;

use super::{Part, find_program, is_listening, spawn, wait_for};
use crate::LabError;
use crate::state::LabDir;

pub(super) const PROGRAMS: &[&str] = &["glusterfsd", "glusterfs"];
pub(super) const PACKAGES: &str = "glusterfs-client";

/// Where a brick listens.
const BRICK_PORT: u16 = 24007;
/// The part of a brick that clients name.
const EXPORTED: &str = "threads";

/// The file in the lab's directory with a host's volume description.
fn volume_name(host: &str) -> String {
    format!("{host}.vol")
}

fn command(name: &str, part: &Part) -> Command {
    let mut command = Command::new(find_program(name).unwrap_or_else(|| name.into()));
    // In the foreground, so that the keeper waits for it; what goes wrong into the keeper's log.
    command.args(["-N", "-l", "/dev/stderr", "-L", "ERROR", "-f"]);
    command.arg(part.directory.join(volume_name(&part.host)));
    command
}

/// Starts what runs on a server. Its data is where clients mount the file system.
pub(super) fn serve(part: &Part) -> Result<Vec<Child>, LabError> {
    let data = part.filesystem.mount_point();
    let size = CString::new(format!("size={}", part.filesystem.capacity_bytes)).unwrap_or_default();
    mount("tmpfs", &data, "tmpfs", MountFlags::NOSUID | MountFlags::NODEV, Some(&*size))
        .map_err(|error| SyscallError::new("mount", data.display().to_string(), error))?;
    let disk = data.join("brick");
    fs::create_dir(&disk).map_err(LabError::state("make", &disk))?;
    LabDir::at(&part.directory)?.write(&volume_name(&part.host), &brick(&disk))?;
    let mut child = spawn(&mut command("glusterfsd", part))?;
    wait_for(&mut child, "the brick", || is_listening([127, 0, 0, 1].into(), BRICK_PORT))?;
    Ok(vec![child])
}

/// Whether every server's brick can be reached: without one, a part of the files would be missing.
pub(super) fn can_mount(part: &Part) -> bool {
    part.server_addresses.iter().all(|&address| is_listening(address, BRICK_PORT))
}

/// What mounts the file system, and stays.
pub(super) fn client(part: &Part) -> Result<Command, LabError> {
    LabDir::at(&part.directory)?.write(&volume_name(&part.host), &volume(part))?;
    let mut client = command("glusterfs", part);
    client.arg(part.filesystem.mount_point());
    Ok(client)
}

fn brick(disk: &Path) -> String {
    format!(
        "volume disk\n  type storage/posix\n  option directory {}\nend-volume\n\
         volume locks\n  type features/locks\n  subvolumes disk\nend-volume\n\
         volume {EXPORTED}\n  type performance/io-threads\n  subvolumes locks\nend-volume\n\
         volume brick\n  type protocol/server\n  option transport-type tcp\n  \
         option transport.socket.listen-port {BRICK_PORT}\n  option auth.addr.{EXPORTED}.allow *\n  \
         subvolumes {EXPORTED}\nend-volume\n",
        disk.display()
    )
}

fn volume(part: &Part) -> String {
    let mut text = String::new();
    let names: Vec<String> =
        part.filesystem.servers.iter().map(|server| format!("brick-{server}")).collect();
    for (name, address) in names.iter().zip(&part.server_addresses) {
        // Writing to a string does not fail.
        write!(
            text,
            "volume {name}\n  type protocol/client\n  option transport-type tcp\n  option remote-host {address}\n  \
             option remote-port {BRICK_PORT}\n  option remote-subvolume {EXPORTED}\nend-volume\n"
        )
        .ok();
    }
    let all = names.join(" ");
    write!(text, "volume all\n  type cluster/distribute\n  subvolumes {all}\nend-volume\n").ok();
    text
}
