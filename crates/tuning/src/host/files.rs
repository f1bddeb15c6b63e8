//! Files that make settings survive a reboot, written whole or not at all.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use settings::Key;

use super::read_text;
use crate::store::sync_directory;
use crate::world::WorldError;

/// `-` for no file, `+` and the contents, `>` and the target of a link.
pub(super) fn read(key: &Key, path: &Path) -> Result<String, WorldError> {
    let refused = |error: io::Error| WorldError::of_io(key, &error, false);
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok("-".to_owned()),
        Err(error) => Err(refused(error)),
        Ok(known) if known.is_symlink() => {
            let target = fs::read_link(path).map_err(refused)?;
            Ok(format!(">{}", target.display()))
        }
        Ok(known) if known.is_file() => Ok(format!("+{}", read_text(path).map_err(refused)?)),
        Ok(_) => Err(WorldError::refused(key, "it is neither a file nor a link")),
    }
}

pub(super) fn write(key: &Key, path: &Path, value: &str) -> Result<(), WorldError> {
    let refused = |error: io::Error| WorldError::of_io(key, &error, false);
    let folder = path.parent().unwrap_or(path);
    let (kind, text) = value.split_at_checked(1).unwrap_or(("-", ""));
    if kind == "-" {
        match fs::remove_file(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(refused(error)),
            _ => return remove_empty(key, folder),
        }
    }
    fs::create_dir_all(folder).map_err(refused)?;
    let beside = beside(path);
    let written = if kind == ">" { link(&beside, text) } else { plain(&beside, text) };
    written.and_then(|()| fs::rename(&beside, path)).map_err(|error| {
        // Half a file helps nobody; that it may not exist is fine.
        fs::remove_file(&beside).ok();
        refused(error)
    })?;
    sync_directory(folder).map_err(|error| WorldError::refused(key, error.to_string()))
}

fn plain(path: &Path, text: &str) -> io::Result<()> {
    let mut file = File::create(path)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()
}

fn link(path: &Path, target: &str) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    symlink(target, path)
}

fn beside(path: &Path) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".new");
    path.with_file_name(name)
}

/// Folders of ours go with their last file; those that other programs share stay.
fn remove_empty(key: &Key, folder: &Path) -> Result<(), WorldError> {
    let ours = ["clearstream", "irqbalance.service.d"];
    let is_ours = folder.file_name().is_some_and(|name| ours.iter().any(|own| name == *own));
    if is_ours {
        // Somebody else's file in it keeps it.
        fs::remove_dir(folder).ok();
    }
    let parent = if is_ours { folder.parent().unwrap_or(folder) } else { folder };
    if !parent.is_dir() {
        return Ok(());
    }
    sync_directory(parent).map_err(|error| WorldError::refused(key, error.to_string()))
}
