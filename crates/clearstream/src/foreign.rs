//! Results read from files of other programs: `iperf3 -J`, packet captures, `ss -tin`.

use std::path::Path;

use results::{Finding, Results};

use crate::exit::VerbError;
use crate::store;

/// Reads a results document, or derives one from another program's file; `-` is standard input.
///
/// # Errors
/// One line that names the file and the problem.
pub(crate) fn load(path: &Path) -> Result<Results, VerbError> {
    parse(path, &store::read(path)?)
}

/// The same of a file's contents.
///
/// # Errors
/// One line that names the file and the problem.
pub(crate) fn parse(path: &Path, bytes: &[u8]) -> Result<Results, VerbError> {
    let name = store::input_name(path);
    if bytes.trim_ascii().is_empty() {
        return Err(VerbError::failed(format!("{name}: the file is empty")));
    }
    if let Some((how, program)) = compression(bytes) {
        let line =
            format!("{name}: the file is compressed ({how}); decompress it first: {program}");
        return Err(VerbError::failed(line));
    }
    if let Some(read) = recorded::read(bytes) {
        return read.map_err(|error| VerbError::failed(format!("{name}: {error}")));
    }
    if let Some(results) = iperf3::stored::from_iperf3(bytes) {
        return Ok(results);
    }
    match iperf3::stored::damage_of_iperf3(bytes) {
        Some(damage) => Err(VerbError::failed(format!("{name}: {damage}"))),
        None => store::parse(path, bytes).map_err(|error| {
            // Whatever begins like JSON may be a damaged document of this program's.
            let is_json = bytes.trim_ascii_start().first() == Some(&b'{');
            let others = "; other files that can be read: iperf3 -J, pcap, pcapng, text of ss -tin";
            if is_json { error } else { error.and(others) }
        }),
    }
}

/// How a file is compressed, as its first bytes say, and the program that undoes it.
fn compression(bytes: &[u8]) -> Option<(&'static str, &'static str)> {
    const KINDS: [(&[u8], &str, &str); 4] = [
        (&[0x1f, 0x8b], "gzip", "gunzip"),
        (&[0x28, 0xb5, 0x2f, 0xfd], "zstd", "unzstd"),
        (&[0xfd, b'7', b'z', b'X', b'Z', 0], "xz", "unxz"),
        (b"BZh", "bzip2", "bunzip2"),
    ];
    let found = KINDS.iter().find(|(magic, ..)| bytes.starts_with(magic));
    found.map(|&(_, how, program)| (how, program))
}

/// Findings taken from another program's recording, in the document's order.
pub(crate) fn recorded(results: &Results) -> impl Iterator<Item = &Finding> {
    results.findings.iter().filter(|finding| finding.code.starts_with(Finding::RECORDED))
}

/// A document as from [`load`], with a verdict, for verbs that only show what a document contains.
///
/// # Errors
/// Those of [`load`].
pub(crate) fn load_judged(path: &Path) -> Result<Results, VerbError> {
    let results = load(path)?;
    let is_own = results.tool.name == env!("CARGO_PKG_NAME");
    let verdict = results.verdict.clone();
    let verdict = if is_own { verdict } else { verdict.or(Some(explain::explain(&results))) };
    Ok(Results { verdict, ..results })
}
