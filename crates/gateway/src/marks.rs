//! What marking packets by their gateways needs to know of this host: its packet filter tables, and the hardware addresses
//! of the gateways.

use std::thread;
use std::time::{Duration, Instant};

use netlink::{Mode, Neighbour, NeighbourFilter, neighbour_state};
use route_plan::{Found, HardwareAddress, HostState, Plan, Steering, mark_table_name};
use sys::netlink_socket::{NetlinkError, NetlinkSocket};
use thiserror::Error;

/// `EPERM`, as the kernel says it without `CAP_NET_ADMIN`.
const EPERM: i32 = 1;
/// How long gateways may take to answer on the link; a kernel asks once a second.
const PATIENCE: Duration = Duration::from_millis(1200);
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// Why packets cannot be marked by the gateway that they come from.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum MarksError {
    /// The kernel has no packet filters.
    #[error(
        "follow: this kernel has no packet filters (nf_tables, CONFIG_NF_TABLES), so packets cannot be marked by their \
         gateway"
    )]
    Lacking(#[source] NetlinkError),
    /// A privilege is missing.
    #[error("follow: reading packet filters needs CAP_NET_ADMIN (root)")]
    Privilege(#[source] NetlinkError),
    /// The kernel gives no list.
    #[error("follow: cannot list packet filters and neighbours")]
    Netlink(#[source] NetlinkError),
    /// It is not known where gateways are on the link.
    #[error(
        "follow: the hardware address of {} is not known: the gateway does not answer on the \
         link, and the plan has no `hardware_addresses` for it",
        .0.join(", ")
    )]
    Unknown(Vec<String>),
}

impl MarksError {
    fn of(error: NetlinkError) -> Self {
        match error.errno() {
            _any if error.is_lacking() => Self::Lacking(error),
            Some(EPERM) => Self::Privilege(error),
            _other => Self::Netlink(error),
        }
    }

    /// Whether a kernel or a privilege lacks something.
    #[must_use]
    pub fn is_missing(&self) -> bool {
        matches!(self, Self::Lacking(_) | Self::Privilege(_))
    }

    /// The gateways of these indices.
    pub(crate) fn unknown(plan: &Plan, gateways: &[usize]) -> Self {
        let names = gateways.iter().map(|&gateway| plan.gateways[gateway].name.clone());
        Self::Unknown(names.collect())
    }
}

/// Adds to what was found the packet filter tables with names of this program's, and the hardware addresses of gateways
/// whose packets the state marks. Without such marks a host may be without packet filters, or keep them from who
/// asks.
///
/// # Errors
/// [`MarksError`], but not `Unknown`.
pub fn read_marks(plan: &Plan, state: &HostState, found: &mut Found) -> Result<(), MarksError> {
    let name = mark_table_name(plan).table();
    let tables = NetlinkSocket::open_filters()
        .and_then(|mut socket| socket.filter_tables(plan.family, |other| other == name));
    let is_wanted = !state.steering.is_empty();
    match tables {
        Ok(tables) => found.filter_tables = tables,
        Err(error) if is_wanted => return Err(MarksError::of(error)),
        Err(_none) => {}
    }
    if is_wanted {
        let mut socket = NetlinkSocket::open().map_err(MarksError::Netlink)?;
        read_neighbours(&mut socket, plan, state, found).map_err(MarksError::Netlink)?;
    }
    Ok(())
}

fn read_neighbours(
    socket: &mut NetlinkSocket,
    plan: &Plan,
    state: &HostState,
    found: &mut Found,
) -> Result<(), NetlinkError> {
    let filter = NeighbourFilter { family: plan.family, interface_index: None };
    for one in socket.list::<Neighbour>(&Neighbour::dump(filter))? {
        let is_failed = one.state & neighbour_state::FAILED != 0;
        let is_gateway = |steering: &Steering| {
            steering.address == one.address
                && found.interfaces.index(&steering.interface) == Some(one.interface_index)
        };
        let bytes: Option<[u8; 6]> = one.hardware_address.as_slice().try_into().ok();
        if let Some(bytes) = bytes.filter(|_| !is_failed && state.steering.iter().any(is_gateway)) {
            found.neighbours.insert(one.address, HardwareAddress(bytes));
        }
    }
    Ok(())
}

/// Has the kernel look for the gateways whose hardware addresses are neither in the plan nor known, and waits a moment
/// for their answers.
pub(crate) fn find_gateways(
    plan: &Plan,
    state: &HostState,
    found: &mut Found,
) -> Result<(), MarksError> {
    let unknown = |found: &Found| -> Vec<Steering> {
        let is_unknown = |one: &&Steering| {
            one.hardware_address.is_none() && !found.neighbours.contains_key(&one.address)
        };
        state.steering.iter().filter(is_unknown).cloned().collect()
    };
    let mut socket = NetlinkSocket::open().map_err(MarksError::Netlink)?;
    for one in unknown(found) {
        let index = found.interfaces.index(&one.interface).unwrap_or(0);
        // Whom the kernel cannot look for stays unknown.
        socket.create(&Neighbour::sought(index, one.address), Mode::Replace).ok();
    }
    let began = Instant::now();
    while !unknown(found).is_empty() && began.elapsed() < PATIENCE {
        thread::sleep(LOOK_EVERY);
        read_neighbours(&mut socket, plan, state, found).map_err(MarksError::Netlink)?;
    }
    Ok(())
}
