//! What carries messages: shared memory inside a host, and UDP or the network card's queues between hosts.

use clap::ValueEnum;

use crate::exit::VerbError;

/// Tells the provider how ranks of one host exchange messages.
pub(super) const SHARED_MEMORY_VARIABLE: &str = "FI_CLEARSTREAM_SHM";
/// Tells it what carries packets between hosts.
pub(super) const TRANSPORT_VARIABLE: &str = "FI_CLEARSTREAM_TRANSPORT";

/// How ranks of one host exchange messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum SharedMemory {
    /// Rings in shared memory; long messages are read from the sender's memory, with one copy.
    Direct,
    /// Rings in shared memory for all messages.
    Rings,
    /// UDP, as between hosts.
    Off,
}

/// What carries packets between hosts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Carrier {
    /// Sockets: no privilege is needed.
    Udp,
    /// A receive queue of the network card for each endpoint, past the kernel's network stack (AF_XDP). A rank that
    /// cannot have one says why and uses UDP.
    Xdp,
}

/// What the command line says, else the environment.
fn chosen<T: ValueEnum>(
    given: Option<T>,
    name: &str,
    default: T,
    values: &str,
) -> Result<T, VerbError> {
    if let Some(given) = given {
        return Ok(given);
    }
    match std::env::var(name) {
        Ok(value) if !value.is_empty() => T::from_str(&value, false)
            .map_err(|_error| VerbError::usage(format!("{name}={value}: expected {values}"))),
        _ => Ok(default),
    }
}

pub(super) fn shared_memory(given: Option<SharedMemory>) -> Result<SharedMemory, VerbError> {
    chosen(given, SHARED_MEMORY_VARIABLE, SharedMemory::Direct, "direct, rings or off")
}

/// `port`: packets go over a packet switch, so that there is nothing to choose.
pub(super) fn carrier(given: Option<Carrier>, port: Option<&str>) -> Result<Carrier, VerbError> {
    let chosen = chosen(given, TRANSPORT_VARIABLE, Carrier::Udp, "udp or xdp")?;
    Ok(if port.is_some() { Carrier::Udp } else { chosen })
}

impl Carrier {
    /// The variable's value.
    pub(super) fn value(self) -> &'static str {
        match self {
            Self::Udp => "udp",
            Self::Xdp => "xdp",
        }
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Udp => "UDP",
            Self::Xdp => "AF_XDP, otherwise UDP,",
        }
    }
}

impl SharedMemory {
    /// The variable's value.
    pub(super) fn value(self) -> &'static str {
        match self {
            Self::Direct => "direct",
            Self::Rings => "rings",
            Self::Off => "off",
        }
    }

    /// One line for the user: how messages go inside a host and between hosts; `port` is the switch's port, by whose
    /// frames ranks of its network are reached.
    pub(super) fn line(self, port: Option<&str>, carrier: Carrier) -> String {
        let inside = match self {
            Self::Direct => Some("shared memory inside a host, with one copy if they are long,"),
            Self::Rings => Some("shared memory inside a host"),
            Self::Off => None,
        };
        match (inside, port, carrier) {
            (Some(inside), None, Carrier::Udp) => {
                format!("messages use {inside} and UDP between hosts")
            }
            (Some(inside), None, Carrier::Xdp) => {
                format!("messages use {inside} and AF_XDP, otherwise UDP, between hosts")
            }
            (None, None, Carrier::Udp) => {
                "messages use UDP between hosts and inside a host".to_owned()
            }
            (None, None, Carrier::Xdp) => {
                "messages use AF_XDP, otherwise UDP, between hosts, and UDP inside a host"
                    .to_owned()
            }
            (Some(inside), Some(port), _) => format!(
                "messages use {inside} and frames of a port on {port} otherwise; UDP only to ranks of other networks"
            ),
            (None, Some(port), _) => {
                format!(
                    "messages use frames of a port on {port}, and UDP only to ranks of other networks"
                )
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_line_names_the_ways_that_messages_take() {
        for (how, port, carrier, line) in [
            (
                SharedMemory::Off,
                None,
                Carrier::Udp,
                "messages use UDP between hosts and inside a host",
            ),
            (
                SharedMemory::Rings,
                None,
                Carrier::Udp,
                "messages use shared memory inside a host and UDP between hosts",
            ),
            (
                SharedMemory::Rings,
                None,
                Carrier::Xdp,
                "messages use shared memory inside a host and AF_XDP, otherwise UDP, between hosts",
            ),
            (
                SharedMemory::Off,
                Some("vale0"),
                Carrier::Udp,
                "messages use frames of a port on vale0, and UDP only to ranks of other networks",
            ),
        ] {
            assert_eq!(how.line(port, carrier), line);
        }
        let both = SharedMemory::Direct.line(Some("vale0"), Carrier::Udp);
        assert!(
            both.contains("shared memory inside a host") && both.contains("port on vale0"),
            "{both}"
        );
    }
}
