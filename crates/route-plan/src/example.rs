//! The plan of the paper's system, for tests.

use crate::file::parse_plan;
use crate::plan::Plan;

/// Six gateways between 112 clients and ten servers.
pub(crate) const CUMULUS: &str = include_str!("../tests/data/cumulus.toml");

/// The plan with another mode.
pub(crate) fn cumulus(mode: &str) -> Plan {
    let text = CUMULUS.replace("mode = \"pairs\"", &format!("mode = \"{mode}\""));
    parse_plan("cumulus.toml", &text).unwrap()
}
