//! `clearstream rings`: a program for a guest whose interface has `/dev/netmap`; `reproduce P-netmap` runs it there.

use std::io::Write;
use std::time::Duration;

use packet_switch::pkt::{FRAME_BYTES_MIN, Frame, MacAddress};
use sys::netmap::NetmapPort;

use crate::VerbResult;
use crate::exit::{Exit, VerbError};
use crate::signals;

/// Longest sleep before signals are looked at.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Options of `rings`.
#[derive(Debug, clap::Args)]
pub(crate) struct RingsArgs {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, clap::Subcommand)]
enum Action {
    /// Send frames until a signal comes.
    Send {
        /// The network interface.
        interface: String,
        /// Where from.
        src: MacAddress,
        /// Where to.
        dst: MacAddress,
        /// Bytes of a frame.
        frame_bytes: u32,
        /// Frames handed over at once.
        batch: u32,
    },
    /// Take frames until a signal comes.
    Receive {
        /// The network interface.
        interface: String,
        /// The address that a first frame announces.
        src: MacAddress,
    },
}

pub(crate) fn run(args: &RingsArgs, _json: bool) -> VerbResult {
    signals::watch().map_err(|error| VerbError::from_error(&error))?;
    let count = match &args.action {
        Action::Send { interface, src, dst, frame_bytes, batch } => {
            send(interface, (*src, *dst), *frame_bytes as usize, *batch)
        }
        Action::Receive { interface, src } => receive(interface, *src),
    };
    let count = count.map_err(|error| VerbError::from_error(&error))?;
    writeln!(crate::out::stdout(), "{count} frames")?;
    Ok(Exit::Ok)
}

fn send(
    interface: &str,
    (src, dst): (MacAddress, MacAddress),
    frame_bytes: usize,
    batch: u32,
) -> Result<u64, sys::SyscallError> {
    let mut port = NetmapPort::open(interface)?;
    let frame = framed(&port, (src, dst), frame_bytes);
    let mut count = 0;
    while signals::caught().is_none() {
        match port.send(&frame, batch)? {
            0 => port.wait_for_room(LOOK_EVERY)?,
            sent => count += u64::from(sent),
        }
    }
    Ok(count)
}

fn receive(interface: &str, src: MacAddress) -> Result<u64, sys::SyscallError> {
    let mut port = NetmapPort::open(interface)?;
    let announcement = framed(&port, (src, MacAddress([0xff; 6])), FRAME_BYTES_MIN);
    port.send(&announcement, 1)?;
    let mut count = 0;
    while signals::caught().is_none() {
        match port.receive()? {
            0 => port.wait_for_frames(LOOK_EVERY)?,
            received => count += u64::from(received),
        }
    }
    Ok(count)
}

/// A frame behind an empty virtio-net header, if the port has such.
fn framed(port: &NetmapPort, (src, dst): (MacAddress, MacAddress), bytes: usize) -> Vec<u8> {
    let mut frame = vec![0; port.header_bytes()];
    frame.extend(Frame::new(src, dst, bytes).bytes());
    frame
}
