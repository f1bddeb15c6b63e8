//! A link between two ports: a lightpath each way, the delay line between them.

use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use rustix::event::PollFlags;
use switch::delay_line::DelayLine;
use switch::frame::{FrameShape, mark_congestion};
use switch::lightpath::{Lightpath, LightpathConfig, LostPackets, Verdict};
use switch::split::send_survivors;

use super::{DeviceCounters, DeviceError, Plug, Stop, sleep};
use crate::attachment::LinkWishes;

/// Most that is in flight one way, bytes.
const FLIGHT_BYTES_MAX: usize = 512 << 20;
/// Packets between two looks at the other direction.
const TURN: u32 = 64;
/// Sooner than this a frame's time is polled for: a sleep would end later.
const POLL_BELOW: Duration = Duration::from_micros(60);

/// Both directions.
pub(super) struct Pair {
    plugs: [Plug; 2],
    ways: [Way; 2],
    began: Instant,
}

/// Out of one port, into the other.
struct Way {
    path: Lightpath,
    line: DelayLine<LostPackets>,
}

impl Pair {
    pub(super) fn new(wishes: &LinkWishes, plugs: [Plug; 2]) -> Result<Self, DeviceError> {
        let way = |number: u64| -> Result<Way, DeviceError> {
            let config = LightpathConfig {
                seed: wishes.seed.wrapping_mul(2).wrapping_add(number),
                delay_ns: wishes.delay_ns,
                jitter_ns: wishes.jitter_ns,
                rate_bits_per_s: wishes.rate_bits_per_s,
                queue_bytes: wishes.queue_bytes,
                loss: f64::from(wishes.loss_per_billion) * 1e-9,
                ..LightpathConfig::default()
            };
            let line = DelayLine::new(FLIGHT_BYTES_MAX);
            Ok(Way { path: Lightpath::new(config)?, line })
        };
        Ok(Self { plugs, ways: [way(0)?, way(1)?], began: Instant::now() })
    }

    pub(super) fn run(
        &mut self,
        stop: &Stop,
        counters: &DeviceCounters,
    ) -> Result<(), DeviceError> {
        while !stop.is_asked() {
            let [one, other] = &mut self.plugs;
            let [there, back] = &mut self.ways;
            let now_ns = nanoseconds(self.began.elapsed());
            let mut work = there.take_in(one, now_ns, counters)?;
            work += back.take_in(other, now_ns, counters)?;
            work += there.let_out(other, now_ns, counters)?;
            work += back.let_out(one, now_ns, counters)?;
            if work == 0 {
                self.wait(stop)?;
            }
        }
        Ok(())
    }

    fn wait(&mut self, stop: &Stop) -> Result<(), DeviceError> {
        let next_ns = self.ways.iter().filter_map(|way| way.line.next_leaves_ns()).min();
        let now = self.began.elapsed();
        let left = next_ns.map(|next| Duration::from_nanos(next).saturating_sub(now));
        if left.is_some_and(|left| left < POLL_BELOW) {
            std::hint::spin_loop();
            return Ok(());
        }
        let [one, other] = &mut self.plugs;
        if one.receiver.arm()? && other.receiver.arm()? {
            let set = [&one.receiver, &other.receiver].map(|one| (one.as_fd(), PollFlags::IN));
            sleep(stop, &set, left.map(|left| left - POLL_BELOW / 2))?;
        }
        one.receiver.disarm()?;
        other.receiver.disarm()?;
        Ok(())
    }
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

impl Way {
    /// Frames out of a port; each one's fate is decided now.
    fn take_in(
        &mut self,
        from: &mut Plug,
        now_ns: u64,
        counters: &DeviceCounters,
    ) -> Result<u32, DeviceError> {
        let arrived = from.receiver.peek(1)?;
        let (mut taken, mut packets) = (0, 0);
        while taken < arrived && packets < TURN {
            let slots = from.packet_slots(taken, arrived);
            let space = self.line.space();
            let mut bytes = 0;
            for slot in taken..taken + slots {
                let left = &mut space[bytes..];
                let length = from.receiver.copy(slot, left).unwrap_or(0);
                bytes += length.min(left.len());
            }
            counters.lose(u64::from(self.decide(bytes, now_ns)));
            taken += slots;
            packets += 1;
        }
        from.receiver.release(taken)?;
        Ok(packets)
    }

    /// Holds the frame in the space, or does not; how many wire packets were lost.
    fn decide(&mut self, bytes: usize, now_ns: u64) -> u32 {
        let packet = &mut self.line.space()[..bytes];
        let shape = FrameShape::of(packet);
        match self.path.handle_frame(now_ns, &shape) {
            Verdict::Drop(_) => shape.packets_count,
            Verdict::Forward { leaves_ns, marked, lost } => {
                if marked {
                    mark_congestion(packet);
                }
                if self.line.hold(bytes, leaves_ns, lost) {
                    lost.count(shape.packets_count)
                } else {
                    shape.packets_count
                }
            }
        }
    }

    /// Frames that are due, into the other port.
    fn let_out(
        &mut self,
        to: &mut Plug,
        now_ns: u64,
        counters: &DeviceCounters,
    ) -> Result<u32, DeviceError> {
        let (mut filled, mut packets, mut full) = (0, 0, 0);
        let mut broken = Ok(());
        while packets < TURN {
            let went = self.line.poll_due(now_ns, |packet, _, lost| {
                let mut put = |head: &[u8], tail: &[u8]| match to.put(filled, head, tail) {
                    Ok(0) => full += 1,
                    Ok(slots) => filled += slots,
                    Err(error) => broken = Err(error),
                };
                let shape = FrameShape::of(packet);
                if lost.count(shape.packets_count) == 0 {
                    put(packet, &[]);
                } else {
                    send_survivors(packet, &shape, lost, put);
                }
            });
            if !went {
                break;
            }
            packets += 1;
        }
        broken?;
        counters.refuse(full);
        to.sender.publish(filled)?;
        Ok(packets)
    }
}
