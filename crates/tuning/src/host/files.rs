//! Files that make settings survive a reboot, written whole or not at all.

use std::fs;
use std::io;
use std::path::Path;

use sys::durable::{self, DurableError, Step};

use settings::Key;

use super::read_text;
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
    let replaced = match kind {
        ">" => durable::replace_by_link(path, text),
        _ => durable::replace(path, text.as_bytes()),
    };
    replaced.map_err(|error| not_durable(key, &error))
}

fn not_durable(key: &Key, error: &DurableError) -> WorldError {
    match error.step {
        Step::SyncFolder => WorldError::refused(key, format!("{error}: {}", error.source)),
        _ => WorldError::of_io(key, &error.source, false),
    }
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
    durable::sync_folder(parent).map_err(|error| not_durable(key, &error))
}
