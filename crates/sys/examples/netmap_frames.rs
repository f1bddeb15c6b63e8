//! Frames by `/dev/netmap`, for the tests that boot a guest.
//!
//! ```text
//! netmap_frames send INTERFACE COUNT DESTINATION   COUNT frames of 60 bytes, to 12 hexadecimal digits
//! netmap_frames receive INTERFACE COUNT            until COUNT slots have come
//! ```
//!
//! `eth0` is all queues of an interface, `eth0-1` the queue 1 alone.

use std::time::Duration;

use sys::SyscallError;
use sys::netmap::NetmapPort;

const FRAME_BYTES: usize = 60;
const BATCH: u64 = 64;
const LOOK_EVERY: Duration = Duration::from_millis(100);

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let done = match words[..] {
        ["send", interface, count, to] => send(interface, number(count, 10), number(to, 16)),
        ["receive", interface, count] => receive(interface, number(count, 10)),
        _ => panic!("send INTERFACE COUNT DESTINATION, or receive INTERFACE COUNT"),
    };
    match done {
        Ok(count) => println!("{count}"),
        Err(error) => {
            println!("{error}: {}", error.source);
            std::process::exit(1);
        }
    }
}

fn number(text: &str, radix: u32) -> u64 {
    u64::from_str_radix(text, radix).unwrap()
}

fn open(interface: &str) -> Result<NetmapPort, SyscallError> {
    match interface.split_once('-') {
        Some((interface, queue)) => NetmapPort::open_queue(interface, queue.parse().unwrap()),
        None => NetmapPort::open(interface),
    }
}

fn send(interface: &str, count: u64, to: u64) -> Result<u64, SyscallError> {
    let mut port = open(interface)?;
    let mut frame = vec![0; port.header_bytes()];
    frame.extend(&to.to_be_bytes()[2..]);
    // A local address, and the type that is for experiments (IEEE 802).
    frame.extend([2, 0, 0, 0, 0, 9, 0x88, 0xb5]);
    frame.resize(port.header_bytes() + FRAME_BYTES, 0);
    let mut sent = 0;
    while sent < count {
        match port.send(&frame, (count - sent).min(BATCH) as u32)? {
            0 => port.wait_for_room(LOOK_EVERY)?,
            more => sent += u64::from(more),
        }
    }
    Ok(sent)
}

fn receive(interface: &str, count: u64) -> Result<u64, SyscallError> {
    let mut port = open(interface)?;
    let mut received = 0;
    while received < count {
        match port.receive()? {
            0 => port.wait_for_frames(LOOK_EVERY)?,
            more => received += u64::from(more),
        }
    }
    Ok(received)
}
