//! MooseFS 3: a master and a chunk server on the first server, a chunk server on each other one.

use std::fs;
use std::path::Path;
use std::process::{Child, Command};

use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
use sys::SyscallError;

use super::{Part, find_program, is_listening, is_mounted, spawn, wait_for};
use crate::LabError;

pub(super) const PROGRAMS: &[&str] =
    &["mfsmaster", "mfschunkserver", "mfsmount", "mfssetgoal", "mfssettrashtime", "mfssetquota"];
pub(super) const PACKAGES: &str = "moosefs-master moosefs-chunkserver moosefs-client";

/// The packages make this directory; the programs want theirs there.
const DATA: &str = "/var/lib/mfs";
/// Where the master listens for clients (`MATOCL_LISTEN_PORT`).
pub(super) const CLIENTS_PORT: u16 = 9421;
/// Where a chunk server listens (`CSSERV_LISTEN_PORT`).
const CHUNKS_PORT: u16 = 9422;
/// What a server must leave free, bytes (`HDD_LEAVE_SPACE_DEFAULT`), and what it may have more to keep than others: three
/// chunks.
const BESIDE_BYTES: u64 = (64 + 3 * 64) << 20;

fn command(name: &str) -> Command {
    Command::new(find_program(name).unwrap_or_else(|| name.into()))
}

/// Starts what runs on a server.
pub(super) fn serve(part: &Part) -> Result<Vec<Child>, LabError> {
    let size = format!("size={}", part.filesystem.capacity_bytes + BESIDE_BYTES);
    let options = std::ffi::CString::new(size).unwrap_or_default();
    mount("tmpfs", DATA, "tmpfs", MountFlags::NOSUID | MountFlags::NODEV, Some(&*options))
        .map_err(|error| SyscallError::new("mount", DATA, error))?;
    let mut children = Vec::new();
    if part.is_first() {
        children.push(start_master(part)?);
        set_defaults(part)?;
    }
    write("chunks.cfg", &chunks_config(part))?;
    write("disks.cfg", &format!("{DATA}/chunks\n"))?;
    let disk = Path::new(DATA).join("chunks");
    fs::create_dir(&disk).map_err(LabError::state("make", &disk))?;
    let mut chunks = command("mfschunkserver");
    let mut child = spawn(chunks.args(["-f", "-c", "/var/lib/mfs/chunks.cfg", "start"]))?;
    wait_for(&mut child, "the chunk server", || is_listening([127, 0, 0, 1].into(), CHUNKS_PORT))?;
    children.push(child);
    Ok(children)
}

fn start_master(part: &Part) -> Result<Child, LabError> {
    write("master.cfg", &master_config())?;
    write("exports.cfg", "* / rw,alldirs,admin,maproot=0\n")?;
    write("topology.cfg", "")?;
    // An empty file system, as the package's metadata.mfs.empty has it.
    write("metadata.mfs", "MFSM NEW")?;
    let mut master = command("mfsmaster");
    let mut child = spawn(master.args(["-f", "-c", "/var/lib/mfs/master.cfg", "start"]))?;
    wait_for(&mut child, "the master", || is_listening(part.metadata_address, CLIENTS_PORT))?;
    Ok(child)
}

/// One copy of each chunk, and no trash: with the default of a day what tests delete would fill the memory. More than the
/// servers may keep is refused by the master, at once: a client whose chunk no server takes would try again for minutes.
fn set_defaults(part: &Part) -> Result<(), LabError> {
    let point = part.filesystem.mount_point();
    let mut child = spawn(&mut client(part))?;
    wait_for(&mut child, "the master's own mount", || is_mounted(&point))?;
    let most = part.filesystem.bytes_max().to_string();
    let set =
        [("mfssetgoal", "-r", "1"), ("mfssettrashtime", "-r", "0"), ("mfssetquota", "-S", &most)];
    for (name, option, value) in set {
        let mut setter = spawn(command(name).args([option, value]).arg(&point))?;
        let status = setter.wait().map_err(LabError::state("wait for", name))?;
        if !status.success() {
            return Err(LabError::NotStarted(format!("{name}: {status}")));
        }
    }
    unmount(&point, UnmountFlags::empty())
        .map_err(|error| SyscallError::new("umount", point.display().to_string(), error))?;
    child.wait().map_err(LabError::state("wait for", "mfsmount"))?;
    Ok(())
}

/// What mounts the file system, and stays.
pub(super) fn client(part: &Part) -> Command {
    client_at(part, &part.filesystem.mount_point(), "allow_other")
}

/// The same at another place, with these options.
pub(super) fn client_at(part: &Part, point: &Path, options: &str) -> Command {
    let mut client = command("mfsmount");
    client.arg(point).arg("-f").arg("-H").arg(part.metadata_address.to_string());
    client.args(["-o", options]);
    client
}

fn master_config() -> String {
    format!(
        "WORKING_USER = root\nWORKING_GROUP = root\nDATA_PATH = {DATA}\nLOCK_MEMORY = 0\n\
         EXPORTS_FILENAME = {DATA}/exports.cfg\nTOPOLOGY_FILENAME = {DATA}/topology.cfg\n"
    )
}

fn chunks_config(part: &Part) -> String {
    format!(
        "WORKING_USER = root\nWORKING_GROUP = root\nDATA_PATH = {DATA}\nLOCK_MEMORY = 0\n\
         HDD_CONF_FILENAME = {DATA}/disks.cfg\nHDD_LEAVE_SPACE_DEFAULT = 64MiB\n\
         MASTER_HOST = {}\nMASTER_RECONNECTION_DELAY = 1\n",
        part.metadata_address
    )
}

fn write(name: &str, text: &str) -> Result<(), LabError> {
    let path = Path::new(DATA).join(name);
    fs::write(&path, text).map_err(LabError::state("write", &path))
}
