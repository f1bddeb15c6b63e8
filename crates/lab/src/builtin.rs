use crate::file::{LabFileError, parse_lab};
use crate::plan::LabPlan;

/// A lab that comes with the program.
#[derive(Debug, Clone, Copy)]
pub struct BuiltinLab {
    /// What `lab up` calls it.
    pub name: &'static str,
    /// Text of its lab file.
    pub text: &'static str,
}

/// All labs that come with the program.
#[must_use]
pub fn builtin_labs() -> &'static [BuiltinLab] {
    &[
        BuiltinLab { name: "glif2010", text: include_str!("../../../labs/glif2010.toml") },
        BuiltinLab { name: "local40g", text: include_str!("../../../labs/local40g.toml") },
        BuiltinLab { name: "lossy", text: include_str!("../../../labs/lossy.toml") },
        BuiltinLab { name: "shared", text: include_str!("../../../labs/shared.toml") },
        BuiltinLab { name: "onequeue", text: include_str!("../../../labs/onequeue.toml") },
        BuiltinLab { name: "lan", text: include_str!("../../../labs/lan.toml") },
        BuiltinLab { name: "cumulus", text: include_str!("../../../labs/cumulus.toml") },
        BuiltinLab {
            name: "cumulus-gluster",
            text: include_str!("../../../labs/cumulus-gluster.toml"),
        },
        BuiltinLab { name: "vm-pair", text: include_str!("../../../labs/vm-pair.toml") },
        BuiltinLab { name: "vm-mixed", text: include_str!("../../../labs/vm-mixed.toml") },
        BuiltinLab { name: "shaped", text: include_str!("../../../labs/shaped.toml") },
    ]
}

/// The plan of a lab that comes with the program.
#[must_use]
pub fn builtin(name: &str) -> Option<LabPlan> {
    builtin_labs().iter().find(|lab| lab.name == name)?.plan().ok()
}

impl BuiltinLab {
    /// The lab it describes.
    ///
    /// # Errors
    /// Never for the labs of a released program; a test reads them all.
    pub fn plan(&self) -> Result<LabPlan, LabFileError> {
        parse_lab(self.name, self.text)
    }
}
