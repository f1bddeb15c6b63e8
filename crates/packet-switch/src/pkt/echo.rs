//! Sending back, and passing on.

use ring::{Receiver, Sender};

use super::{Manner, PktError, Ticker};

/// What was sent back or passed on.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct BridgeCount {
    /// Frames returned.
    pub frames: u64,
    /// Frames that found no free slot at the other side.
    pub dropped: u64,
    /// Of the frames, those whose buffer was swapped instead of copied.
    pub swapped: u64,
}

impl std::ops::AddAssign for BridgeCount {
    fn add_assign(&mut self, other: Self) {
        self.frames += other.frames;
        self.dropped += other.dropped;
        self.swapped += other.swapped;
    }
}

/// Sends every frame back to where it came from, addresses exchanged.
///
/// # Errors
/// A ring broke.
pub fn echo(
    receiver: &mut Receiver,
    sender: &mut Sender,
    manner: &Manner,
    report: &mut dyn FnMut(BridgeCount),
    stop: &dyn Fn() -> bool,
) -> Result<BridgeCount, PktError> {
    let mut count = BridgeCount::default();
    let mut ticker = Ticker::new();
    while !stop() {
        let arrived = receiver.wait(manner.patience())?.min(manner.batch);
        pass(receiver, sender, arrived, true, &mut count)?;
        if ticker.tick(arrived == 0) {
            report(count);
        }
    }
    Ok(count)
}

/// Passes frames between two ports, both ways, until stopped. Ports of one memory swap buffers; others
/// copy.
///
/// # Errors
/// A ring broke.
pub fn bridge(
    (receiver_a, sender_a): (&mut Receiver, &mut Sender),
    (receiver_b, sender_b): (&mut Receiver, &mut Sender),
    manner: &Manner,
    report: &mut dyn FnMut(BridgeCount),
    stop: &dyn Fn() -> bool,
) -> Result<BridgeCount, PktError> {
    let mut count = BridgeCount::default();
    let mut ticker = Ticker::new();
    // Two rings cannot be slept on at once; a short sleep on each in turn bounds the delay.
    let turn = ring::Patience { linger: manner.linger, timeout: BRIDGE_TURN };
    while !stop() {
        let mut from_a = receiver_a.peek(1)?.min(manner.batch);
        let from_b = receiver_b.peek(1)?.min(manner.batch);
        if from_a + from_b == 0 {
            from_a = receiver_a.wait(turn)?.min(manner.batch);
        }
        pass(receiver_a, sender_b, from_a, false, &mut count)?;
        pass(receiver_b, sender_a, from_b, false, &mut count)?;
        if ticker.tick(from_a + from_b == 0) {
            report(count);
        }
    }
    Ok(count)
}

/// How long a bridge listens to one side only.
const BRIDGE_TURN: std::time::Duration = std::time::Duration::from_micros(200);

fn pass(
    from: &mut Receiver,
    to: &mut Sender,
    frames: u32,
    back: bool,
    count: &mut BridgeCount,
) -> Result<(), PktError> {
    if frames == 0 {
        return Ok(());
    }
    let free = to.reserve(frames)?.min(frames);
    for offset in 0..free {
        if back {
            turn_round(from, offset);
        }
        if ring::swap(from, offset, to, offset) {
            count.swapped += 1;
        } else if !copy(from, offset, to) {
            // Its slot names no buffer, or theirs are shorter: an empty frame goes nowhere.
            let _sent = to.put_length(offset, 0);
            count.dropped += 1;
        }
    }
    to.publish(free)?;
    from.release(frames)?;
    count.frames += u64::from(free);
    count.dropped += u64::from(frames - free);
    Ok(())
}

fn copy(from: &Receiver, offset: u32, to: &mut Sender) -> bool {
    let Some((source, length)) = from.frame(offset) else { return false };
    let copied = to.buffer(offset).is_some_and(|buffer| buffer.copy_from(&source, length));
    // A slot's length is 16 bits, and this one came from a slot.
    copied && to.put_length(offset, u16::try_from(length).unwrap_or(u16::MAX))
}

/// Exchanges a frame's addresses where it lies.
fn turn_round(from: &Receiver, offset: u32) {
    let Some((buffer, _)) = from.frame(offset) else { return };
    let mut addresses = [0; 12];
    if buffer.read(0, &mut addresses) {
        addresses.rotate_left(6);
        // As many bytes as were read fit.
        let _written = buffer.write(0, &addresses);
    }
}
