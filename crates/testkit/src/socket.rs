//! Names for the sockets of tests and benchmarks, and what killed ones have left under such names.

use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

/// A path of this process. Sockets of such names whose processes are gone and which nobody serves are taken
/// away.
pub fn socket_path(name: &str) -> PathBuf {
    let folder = std::env::temp_dir();
    let files = std::fs::read_dir(&folder).into_iter().flatten().flatten();
    files.map(|file| file.path()).filter(|path| is_left_over(path)).for_each(|path| {
        // Another test may have been quicker.
        std::fs::remove_file(path).ok();
    });
    folder.join(format!("clearstream-{name}-{}.sock", std::process::id()))
}

fn is_left_over(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let of_ours = name.strip_prefix("clearstream-").and_then(|name| name.strip_suffix(".sock"));
    let pid = of_ours.and_then(|name| name.rsplit_once('-')?.1.parse::<u32>().ok());
    let is_gone = pid.is_some_and(|pid| !Path::new(&format!("/proc/{pid}")).exists());
    // Another user's is his to remove.
    let user = |path: &Path| path.symlink_metadata().map(|known| known.uid()).ok();
    is_gone
        && user(path) == user(Path::new("/proc/self"))
        && UnixStream::connect(path)
            .is_err_and(|error| error.kind() == ErrorKind::ConnectionRefused)
}
