//! The keys of a veth wire.

use super::LabFileError;
use super::direction::DIRECTION_KEYS;
use super::section::Section;
use crate::plan::VethPlan;

/// Keys that only a veth wire has.
pub(super) const VETH_KEYS: &[&str] = &["queues", "gro", "tso", "napi_threaded", "napi_core"];

/// More queues than this no veth pair needs.
const QUEUES_COUNT_MAX: u64 = 256;

/// Reads what a veth pair may be told; `hosts` are its ends.
pub(super) fn read_veth(section: &Section<'_>, hosts: [&str; 2]) -> Result<VethPlan, LabFileError> {
    let emulated = ["forward", "backward", "seed", "cores"];
    if let Some(key) = DIRECTION_KEYS.iter().chain(&emulated).find(|key| section.has(key)) {
        let message = format!("a veth wire emulates nothing; '{key}' needs a lightpath");
        return Err(section.error_at(key, message));
    }
    let queues_count = section.integer("queues")?;
    if let Some(count) = queues_count.filter(|count| !(1..=QUEUES_COUNT_MAX).contains(count)) {
        let message = format!("queues: {count} is not within 1 to {QUEUES_COUNT_MAX}");
        return Err(section.error_at("queues", message));
    }
    let napi_cores = read_napi_cores(section, hosts)?;
    let asked = section.flag("napi_threaded")?;
    let has_cores = napi_cores.iter().any(Option::is_some);
    if asked == Some(false) && has_cores {
        let message = "napi_core pins the threads that napi_threaded = false takes away";
        return Err(section.error_at("napi_core", message));
    }
    let napi_threaded = asked.unwrap_or(has_cores);
    let gro = section.flag("gro")?;
    if napi_threaded && gro == Some(false) {
        let message = "a veth pair has NAPI only with GRO: write gro = true";
        return Err(section.error_at("gro", message));
    }
    let tso = section.flag("tso")?;
    if napi_threaded && tso == Some(true) {
        let message = "with TSO the segments of a veth pair bypass NAPI: write tso = false";
        return Err(section.error_at("tso", message));
    }
    Ok(VethPlan {
        queues_count: queues_count.and_then(|count| u32::try_from(count).ok()),
        gro: gro.or(napi_threaded.then_some(true)),
        tso: tso.or(napi_threaded.then_some(false)),
        napi_threaded,
        napi_cores,
    })
}

/// Refuses the keys above on other wires.
pub(super) fn refuse_veth_keys(section: &Section<'_>) -> Result<(), LabFileError> {
    match VETH_KEYS.iter().find(|key| section.has(key)) {
        None => Ok(()),
        Some(key) => {
            let message = format!("'{key}' applies to veth pairs only: write wire = \"veth\"");
            Err(section.error_at(key, message))
        }
    }
}

/// `napi_core = 1` for both ends, or `{ near = 0, far = 1 }`.
fn read_napi_cores(
    section: &Section<'_>,
    hosts: [&str; 2],
) -> Result<[Option<u32>; 2], LabFileError> {
    let key = "napi_core";
    if !section.has(key) {
        return Ok([None; 2]);
    }
    let core = |section: &Section<'_>, key: &str| -> Result<Option<u32>, LabFileError> {
        let Some(number) = section.integer(key)? else { return Ok(None) };
        let core = u32::try_from(number).ok().filter(|core| *core < 1024);
        core.map(Some).ok_or_else(|| section.error_at(key, format!("no host has a core {number}")))
    };
    if section.scalar(key).is_ok() {
        let both = core(section, key)?;
        return Ok([both; 2]);
    }
    let Some(each) = section.section(key)? else { return Ok([None; 2]) };
    each.only(&hosts)?;
    Ok([core(&each, hosts[0])?, core(&each, hosts[1])?])
}
