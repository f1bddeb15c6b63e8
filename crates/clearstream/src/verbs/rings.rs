//! `clearstream rings`: a program for a guest whose interface has `/dev/netmap`; `reproduce P-netmap` runs it there, and
//! docs/guests.md shows what a doorbell costs with it.

use std::io::Write;
use std::time::{Duration, Instant};

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
    /// Send one frame at a time to an echo, and print percentiles of the round trips.
    Ping {
        /// The network interface.
        interface: String,
        /// Where from.
        src: MacAddress,
        /// Where to.
        dst: MacAddress,
        /// Number of round trips.
        count: u32,
        /// Look at the rings until the frame is back, rather than sleep until an interrupt.
        #[arg(long)]
        poll: bool,
    },
}

pub(crate) fn run(args: &RingsArgs, _json: bool) -> VerbResult {
    signals::watch().map_err(|error| VerbError::from_error(&error))?;
    let said = match &args.action {
        Action::Send { interface, src, dst, frame_bytes, batch } => {
            send(interface, (*src, *dst), *frame_bytes as usize, *batch).map(frames)
        }
        Action::Receive { interface, src } => receive(interface, *src).map(frames),
        Action::Ping { interface, src, dst, count, poll } => {
            ping(interface, (*src, *dst), *count, *poll).map(|times| percentiles(&times))
        }
    };
    let said = said.map_err(|error| VerbError::from_error(&error))?;
    writeln!(crate::out::stdout(), "{said}")?;
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

/// The time of each round trip, in ascending order. An answer that has not come in a second never will.
fn ping(
    interface: &str,
    addresses: (MacAddress, MacAddress),
    count: u32,
    polls: bool,
) -> Result<Vec<Duration>, sys::SyscallError> {
    const ANSWER_MAX: Duration = Duration::from_secs(1);
    let mut port = NetmapPort::open(interface)?;
    let frame = framed(&port, addresses, FRAME_BYTES_MIN);
    let mut times = Vec::new();
    for _ in 0..count {
        while port.receive()? > 0 {}
        let begun = Instant::now();
        while port.send(&frame, 1)? == 0 {
            port.wait_for_room(LOOK_EVERY)?;
        }
        let is_back = loop {
            if port.receive()? > 0 {
                break true;
            }
            if signals::caught().is_some() || begun.elapsed() > ANSWER_MAX {
                break false;
            }
            if !polls {
                port.wait_for_frames(LOOK_EVERY)?;
            }
        };
        if signals::caught().is_some() {
            break;
        }
        times.extend(is_back.then(|| begun.elapsed()));
    }
    times.sort_unstable();
    Ok(times)
}

fn frames(count: u64) -> String {
    format!("{count} frames")
}

/// Of times in ascending order.
fn percentiles(times: &[Duration]) -> String {
    let us = |percent: usize| {
        let index = (times.len() * percent / 100).min(times.len().saturating_sub(1));
        times.get(index).map_or(0.0, Duration::as_secs_f64) * 1e6
    };
    match times.len() {
        0 => "no frame came back".to_owned(),
        count => format!(
            "{count} round trips: median {:.1} us, 10th percentile {:.1} us, 99th {:.1} us",
            us(50),
            us(10),
            us(99)
        ),
    }
}

/// A frame behind an empty virtio-net header, if the port has such.
fn framed(port: &NetmapPort, (src, dst): (MacAddress, MacAddress), bytes: usize) -> Vec<u8> {
    let mut frame = vec![0; port.header_bytes()];
    frame.extend(Frame::new(src, dst, bytes).bytes());
    frame
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_of_times_that_were_measured() {
        assert_eq!(percentiles(&[]), "no frame came back");
        let one = percentiles(&[Duration::from_micros(7)]);
        assert_eq!(one, "1 round trips: median 7.0 us, 10th percentile 7.0 us, 99th 7.0 us");
        let times: Vec<Duration> = (1..=1000).map(Duration::from_micros).collect();
        let all = percentiles(&times);
        assert_eq!(
            all,
            "1000 round trips: median 501.0 us, 10th percentile 101.0 us, 99th 991.0 us"
        );
    }
}
