//! The kernel's own choice of a next hop for a flow of this host.

use std::net::IpAddr;

use netlink::{Route, RouteQuestion, Target};
use route_plan::Flow;
use sys::netlink_socket::{NetlinkError, NetlinkSocket};
use thiserror::Error;

/// Why the kernel names no next hop.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum AskError {
    /// It refuses: no route, or the source is none of this host's addresses.
    #[error("the kernel has no route from {source_address} to {destination}")]
    NoWay {
        /// Source address of the flow.
        source_address: IpAddr,
        /// Destination address of the flow.
        destination: IpAddr,
        /// The kernel's error.
        source: NetlinkError,
    },
    /// The way leads over no gateway.
    #[error("the kernel sends packets to {0} without a gateway")]
    NoGateway(IpAddr),
}

/// The next hop by which this host would send a flow, ports taken as they are.
///
/// # Errors
/// [`AskError`].
pub fn ask(flow: &Flow) -> Result<IpAddr, AskError> {
    let question = RouteQuestion {
        source: Some(flow.source),
        flow: Some((flow.protocol, flow.source_port, flow.destination_port)),
        ..RouteQuestion::to(flow.destination)
    };
    let answer = NetlinkSocket::open()
        .and_then(|mut socket| socket.find::<Route>(&question.message()))
        .map_err(|source| AskError::NoWay {
            source_address: flow.source,
            destination: flow.destination,
            source,
        })?;
    let Target::Paths(paths) = answer.target else {
        return Err(AskError::NoGateway(flow.destination));
    };
    let gateway = paths.first().and_then(|path| path.gateway);
    gateway.ok_or(AskError::NoGateway(flow.destination))
}
