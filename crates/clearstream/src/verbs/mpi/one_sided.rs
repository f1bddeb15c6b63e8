//! How one-sided operations of a job are carried.

use crate::exit::VerbError;

/// What carries `MPI_Put`, `MPI_Get` and the like.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum OneSided {
    /// Messages of the MPI library.
    Messages,
    /// Access to the peer's memory by the provider. Open MPI 4.1.4 fails in `MPI_Compare_and_swap` then.
    Memory,
}

impl OneSided {
    /// What is asked for, or what this release of Open MPI can do.
    ///
    /// # Errors
    /// Messages are asked for, and the release has no component that sends them: windows could not be created.
    pub(super) fn chosen(asked: Option<Self>, release: u32) -> Result<Self, VerbError> {
        match asked {
            Some(Self::Messages) if release >= 5 => Err(VerbError::usage(format!(
                "--one-sided messages: Open MPI {release} cannot carry one-sided operations by messages; leave the option out"
            ))),
            Some(asked) => Ok(asked),
            None if release >= 5 => Ok(Self::Memory),
            None => Ok(Self::Messages),
        }
    }

    /// Open MPI's parameters. Without them one-sided operations would go past the provider, over TCP.
    pub(super) fn parameters(self) -> &'static [(&'static str, &'static str)] {
        match self {
            Self::Messages => &[("OMPI_MCA_osc", "^rdma,ucx")],
            Self::Memory => &[
                ("OMPI_MCA_osc", "^pt2pt,ucx"),
                ("OMPI_MCA_btl", "self,ofi"),
                ("OMPI_MCA_btl_ofi_provider_include", super::PROVIDER),
            ],
        }
    }

    /// Parameters that choose another way, besides those that always do.
    pub(super) fn further_choices(self) -> &'static [&'static str] {
        match self {
            Self::Messages => &[],
            Self::Memory => &["btl", "btl_ofi_provider_include", "btl_ofi_provider_exclude"],
        }
    }
}
