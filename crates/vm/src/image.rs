//! What guests boot: a kernel of Debian's and a small file system in memory, made once and kept.
//!
//! The script that makes it is `tools/guest` of the source; an installed program carries it along.

use std::ffi::OsString;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use sys::private::Scratch;

use crate::VmError;

const SCRIPT: &str = include_str!("../../../tools/guest");
/// The driver of guests that drive their port's rings themselves.
const DRIVER: [(&str, &str); 11] = [
    ("Kbuild", include_str!("../../../guest/ptnet/Kbuild")),
    ("main.c", include_str!("../../../guest/ptnet/main.c")),
    ("netdev.c", include_str!("../../../guest/ptnet/netdev.c")),
    ("queue.c", include_str!("../../../guest/ptnet/queue.c")),
    ("netmap.c", include_str!("../../../guest/ptnet/netmap.c")),
    ("netmap_rings.c", include_str!("../../../guest/ptnet/netmap_rings.c")),
    ("program.c", include_str!("../../../guest/ptnet/program.c")),
    ("port.h", include_str!("../../../guest/ptnet/port.h")),
    ("program.h", include_str!("../../../guest/ptnet/program.h")),
    ("netmap.h", include_str!("../../../guest/ptnet/netmap.h")),
    ("ptnet.h", include_str!("../../../guest/ptnet/ptnet.h")),
];

/// Where it is kept: `$CLEARSTREAM_GUEST`, else `clearstream/guest` in the user's cache (`$XDG_CACHE_HOME`, `~/.cache`), else
/// in `/var/cache`.
#[must_use]
pub fn default_folder() -> PathBuf {
    let set = |name| std::env::var_os(name).filter(|value: &OsString| !value.is_empty());
    if let Some(folder) = set("CLEARSTREAM_GUEST") {
        return folder.into();
    }
    let cache = set("XDG_CACHE_HOME").map(PathBuf::from).filter(|path| path.is_absolute());
    let home = || set("HOME").map(|home| Path::new(&home).join(".cache"));
    let cache = cache.or_else(home).unwrap_or_else(|| "/var/cache".into());
    cache.join("clearstream/guest")
}

/// A kernel and its file system in memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Image {
    /// Uncompressed, so that it begins at once.
    pub kernel: PathBuf,
    /// The file system.
    pub initrd: PathBuf,
    /// Why it has no driver of `guest/ptnet`, if it has none.
    pub no_ptnet: Option<String>,
}

/// The image in a folder, if it is there.
///
/// # Errors
/// It is not.
pub fn find(folder: &Path) -> Result<Image, VmError> {
    let folder = std::path::absolute(folder).map_err(VmError::file("find", folder))?;
    let no_ptnet = std::fs::read_to_string(folder.join("no-ptnet")).ok();
    let image = Image {
        kernel: folder.join("vmlinux"),
        initrd: folder.join("initrd.gz"),
        no_ptnet: no_ptnet.map(|why| units::printable(why.trim()).into_owned()),
    };
    // Written last.
    let is_whole = folder.join("key").is_file() && image.kernel.is_file() && image.initrd.is_file();
    if is_whole { Ok(image) } else { Err(VmError::NoImage(folder)) }
}

/// Makes an image with these programs in a folder of this name below another's, whose packages it uses if they are there.
/// `tell` is called as by [`make`].
///
/// # Errors
/// As [`make`].
pub fn make_beside(
    folder: &Path,
    name: &str,
    programs: &[PathBuf],
    tell: impl FnMut(&str),
) -> Result<Image, VmError> {
    const PACKAGES: &str = "packages";
    let beside = folder.join(name);
    std::fs::create_dir_all(&beside).map_err(VmError::file("make", &beside))?;
    let packages = beside.join(PACKAGES);
    if folder.join(PACKAGES).is_dir() && packages.symlink_metadata().is_err() {
        std::os::unix::fs::symlink(Path::new("..").join(PACKAGES), &packages)
            .map_err(VmError::file("link", &packages))?;
    }
    make(&beside, programs, tell)
}

/// Makes the image in a folder, unless it is there as it would be made; `programs` go into the guest's `/bin`. `tell` is called
/// with each step when it begins, such as `fetching Linux 6.1.0-1-cloud-amd64`.
///
/// # Errors
/// A tool is missing, or the kernel's package cannot be had; with what the script said last.
pub fn make(folder: &Path, programs: &[PathBuf], tell: impl FnMut(&str)) -> Result<Image, VmError> {
    let scratch = Scratch::new("vm-image")?;
    let script = scratch.path().join("guest");
    for (name, text) in [("guest", SCRIPT)].into_iter().chain(DRIVER) {
        let path = scratch.path().join(name);
        std::fs::File::create_new(&path)
            .and_then(|mut file| file.write_all(text.as_bytes()))
            .map_err(VmError::file("write", &path))?;
    }
    let mut command = Command::new("bash");
    command.arg(&script).arg(folder).args(programs).env("GUEST_PTNET", scratch.path());
    command.stdin(Stdio::null()).stderr(Stdio::piped());
    command.stdout(Stdio::null());
    let mut running = command.spawn().map_err(VmError::file("run", "bash"))?;
    let last = running.stderr.take().and_then(|said| listen(said, tell));
    let ended = running.wait().map_err(VmError::file("run", "bash"))?;
    if !ended.success() {
        return Err(VmError::ImageNotMade(last.unwrap_or_else(|| "no reason".to_owned())));
    }
    find(folder)
}

/// What marks the script's own lines; other lines are of the tools that it calls.
const OWN_LINE: &str = "guest: ";

/// Tells what the script says of its steps, until it ends; its last line that is not empty.
fn listen(said: impl Read, mut tell: impl FnMut(&str)) -> Option<String> {
    let mut last = None;
    for line in BufReader::new(said).split(b'\n') {
        let Ok(line) = line else { break };
        let line = String::from_utf8_lossy(&line);
        let own = line.strip_prefix(OWN_LINE);
        if let Some(step) = own {
            tell(&units::printable(step));
        }
        let text = own.unwrap_or(&line).trim();
        if !text.is_empty() {
            last = Some(text.to_owned());
        }
    }
    last
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_told_as_they_begin_and_the_last_line_is_the_reason() {
        let mut told = Vec::new();
        let said = b"guest: fetching Linux\nE: a tool's line\xff\nguest: it \x1b[1mfailed\n\n";
        let last = listen(&said[..], |step| told.push(step.to_owned()));
        assert_eq!(last.as_deref(), Some("it \x1b[1mfailed"));
        assert_eq!(told.len(), 2);
        assert_eq!(told[0], "fetching Linux");
        assert!(!told[1].contains('\x1b'), "{told:?}");
    }
}
