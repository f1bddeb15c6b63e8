//! Settings by name: `-O name=value,name=value`, and the lines of a script.

use super::refusal;
use super::{
    CommandLine, DUAL_MOUNT, Format, IoOptions, api, integer, kind, memory, seed, set_flag,
};
use crate::size::parse_size;

/// Names that set what a flag sets, in lower case.
const FLAGS: [(&str, &str); 24] = [
    ("collective", "-c"),
    ("reordertasks", "-C"),
    ("reordertasksconstant", "-C"),
    ("reordertasksrandom", "-Z"),
    ("fsync", "-e"),
    ("fsyncperwrite", "-Y"),
    ("useexistingtestfile", "-E"),
    ("fileperproc", "-F"),
    ("uniquedir", "-u"),
    ("multifile", "-m"),
    ("intratestbarriers", "-g"),
    ("keepfile", "-k"),
    ("keepfilewitherror", "-K"),
    ("readfile", "-r"),
    ("writefile", "-w"),
    ("checkread", "-R"),
    ("checkwrite", "-W"),
    ("singlexferattempt", "-x"),
    ("randomoffset", "-z"),
    ("verbose", "-v"),
    ("warningaserrors", "--warningAsErrors"),
    ("dryrun", "--dryRun"),
    ("useo_direct", "--posix.odirect"),
    ("dualmount", "-y"),
];

impl CommandLine {
    /// Sets what `name=value,name=value` says; a `#` begins a comment. A value cannot hold a comma.
    pub(super) fn directives(&mut self, test: &mut IoOptions, text: &str) -> Result<(), String> {
        let text = text.split('#').next().unwrap_or_default();
        for directive in text.split(',').map(str::trim) {
            if directive.is_empty() {
                continue;
            }
            let wrong = || {
                format!(
                    "\"{directive}\" is not name=value (a value cannot hold a comma or a space)"
                )
            };
            let (name, value) = directive.split_once('=').ok_or_else(wrong)?;
            let (name, value) = (name.trim(), value.trim());
            if name.is_empty() || value.is_empty() || value.contains(char::is_whitespace) {
                return Err(wrong());
            }
            self.directive(test, name, value)?;
        }
        Ok(())
    }

    fn directive(&mut self, test: &mut IoOptions, name: &str, value: &str) -> Result<(), String> {
        let lower = name.to_ascii_lowercase();
        let at = |what: &str| format!("{name}={value}: {what}");
        let number = || integer(value).ok_or_else(|| at("this is not an integer"));
        if let Some((_, option)) = FLAGS.iter().find(|(known, _)| *known == lower) {
            return set_flag(test, option, Some(number()?));
        }
        if self.destination(&lower, value)? {
            return Ok(());
        }
        let size = || parse_size(value).ok_or_else(|| at("this is not a size (8, 4k, 2m, 1g)"));
        let count = || parse_size(value).ok_or_else(|| at("this is not a number"));
        match lower.as_str() {
            "api" => api(value)?,
            "refnum" => test.reference_number = number()?,
            "debug" => test.debug = Some(value.to_owned()),
            "platform" => test.platform = Some(value.to_owned()),
            "testfile" => value.clone_into(&mut test.test_file),
            "deadlineforstonewalling" => test.stonewall_s = count()?,
            "stonewallingwearout" => test.wears_out = number()? > 0,
            "stonewallingwearoutiterations" => test.wear_out_count = count()?,
            "stonewallingstatusfile" => test.status_file = Some(value.to_owned()),
            "maxtimeduration" => test.time_max_min = count()?,
            "mintimeduration" => test.time_min_s = count()?,
            "outlierthreshold" => test.outlier_s = count()?,
            "numnodes" => test.nodes = Some(count()?),
            "numtasks" => test.tasks = Some(count()?),
            "numtasksonnode0" => test.tasks_on_first_node = Some(count()?),
            "repetitions" => {
                test.repetitions = u32::try_from(number()?.max(0)).unwrap_or(u32::MAX);
            }
            "intertestdelay" => test.delay_s = count()?,
            "interiodelay" => test.transfer_delay_us = count()?,
            "taskpernodeoffset" => test.task_offset = count()?,
            "reordertasksrandomseed" => test.reorder_seed = number()?,
            "segmentcount" => test.segment_count = count()?,
            "blocksize" => test.block_bytes = size()?,
            "transfersize" => test.transfer_bytes = size()?,
            "settimestampsignature" => {
                test.seed = seed(value).ok_or_else(|| at("this is not a 32-bit number"))?;
            }
            "datapackettype" => {
                test.pattern = kind(value).ok_or_else(|| at("expected o, i, t or r"))?;
            }
            "memorypertask" => test.memory_per_task_bytes = size()?,
            "memorypernode" => {
                test.memory_per_node_bytes =
                    memory(value).ok_or_else(|| at("this is not a size"))?;
            }
            "summaryalways" => test.summary_always = number()? > 0,
            _ => return self.other(test, name, value),
        }
        Ok(())
    }

    /// Whether the name is one of where results go; sets it then.
    fn destination(&mut self, lower: &str, value: &str) -> Result<bool, String> {
        let to = &mut self.destinations;
        match lower {
            "summaryfile" => to.summary_file = Some(value.to_owned()),
            "saverankperformancedetailscsv" => to.ranks_file = Some(value.to_owned()),
            "saveperopdatacsv" => to.transfers_file = Some(value.to_owned()),
            "summaryformat" => {
                to.format = match value.to_ascii_lowercase().as_str() {
                    "default" => Format::Text,
                    "json" => Format::Json,
                    "csv" => Format::Csv,
                    _ => {
                        return Err(format!(
                            "summaryFormat={value}: expected default, JSON or CSV"
                        ));
                    }
                };
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// An option of the command line by its own name (`--posix.odirect=1`), or none.
    fn other(&mut self, test: &mut IoOptions, name: &str, value: &str) -> Result<(), String> {
        if ["allocateBufferOnGPU", "GPUid", "GPUDirect"]
            .iter()
            .any(|gpu| gpu.eq_ignore_ascii_case(name))
        {
            return Err(format!("{name} is not supported: buffers are in main memory"));
        }
        if let Some(reason) = refusal(name) {
            return Err(reason);
        }
        let number =
            || integer(value).ok_or_else(|| format!("{name}={value}: this is not an integer"));
        if name.eq_ignore_ascii_case("dualMount") {
            return Err(DUAL_MOUNT.to_owned());
        }
        match name {
            "--posix.odirect" | "--posix.rangelocks" => set_flag(test, name, Some(number()?)),
            _ => Err(format!("there is no setting \"{name}\" (-O or a line of the script)")),
        }
    }
}
