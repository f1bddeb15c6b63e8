//! Placement files and cores, for the verbs that find and use placements.

use std::path::Path;

use results::{End, PlacedEnd, Placement, Results, read_placement};

use crate::exit::VerbError;

/// Longest placement file to read, bytes: one more than the parser accepts.
const FILE_BYTES_MAX: u64 = (64 << 10) + 1;

/// Reads a placement file.
///
/// # Errors
/// One line that names the file and the problem.
pub(crate) fn load(path: &Path) -> Result<Placement, VerbError> {
    use std::io::Read;
    let at = |what: &dyn std::fmt::Display| VerbError::usage(format!("{}: {what}", path.display()));
    let mut text = String::new();
    std::fs::File::open(path)
        .and_then(|file| file.take(FILE_BYTES_MAX).read_to_string(&mut text))
        .map_err(|error| at(&error))?;
    read_placement(&text).map_err(|error| at(&error))
}

/// Refuses cores that an end does not have.
///
/// # Errors
/// One line: the file, the end, the core, and the cores that exist.
pub(crate) fn check(
    path: &Path,
    end: End,
    placed: &PlacedEnd,
    usable: &[u32],
) -> Result<(), VerbError> {
    let name = if end == End::Near { "near" } else { "far" };
    match placed.cores.iter().find(|core| !usable.contains(core)) {
        None => Ok(()),
        Some(core) => Err(VerbError::usage(format!(
            "{}: core {core} is not usable at the {name} end; usable cores: {}",
            path.display(),
            cores_text(usable)
        ))),
    }
}

/// Whether both ends run on this machine's cores: in a lab, or over loopback.
pub(crate) fn shares_machine(results: &Results) -> bool {
    let address = results.path.address.as_deref().and_then(|text| text.parse().ok());
    results.path.lab.is_some() || address.is_some_and(|ip: std::net::IpAddr| ip.is_loopback())
}

/// A list of cores as text: `0-3,8`.
pub(crate) fn cores_text(cores: &[u32]) -> String {
    let mut parts: Vec<(u32, u32)> = Vec::new();
    for core in cores {
        match parts.last_mut() {
            Some((_, last)) if last.checked_add(1) == Some(*core) => *last = *core,
            _ => parts.push((*core, *core)),
        }
    }
    let one = |(first, last): &(u32, u32)| match first == last {
        true => first.to_string(),
        false => format!("{first}-{last}"),
    };
    parts.iter().map(one).collect::<Vec<_>>().join(",")
}
