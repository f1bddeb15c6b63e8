//! A TAP device as a port: what the host sends comes into the switch, what the switch delivers the host
//! receives, super-segments whole. Frames go straight between the device and the port's buffers.

use ports::tap::{Port, Queues};
use ports::{Moved, Source, carry};

use super::{DeviceCounters, DeviceError, Plug, Stop, TURN, sleep};

pub(super) fn run(
    queues: Vec<Port>,
    mut plug: Plug,
    stop: &Stop,
    counters: &DeviceCounters,
) -> Result<(), DeviceError> {
    let mut host = Queues::new(queues);
    while !stop.is_asked() {
        let sent = carry(&mut host, &mut plug.to, TURN)?;
        let received = carry(&mut plug.from, &mut host, TURN)?;
        counters.refuse(received.refused);
        if sent.packets + received.packets == 0 {
            wait(&host, &mut plug, stop, sent.last != Moved::NoRoom)?;
        }
    }
    Ok(())
}

fn wait(
    host: &Queues<Port>,
    plug: &mut Plug,
    stop: &Stop,
    has_room: bool,
) -> Result<(), DeviceError> {
    if plug.from.arm()? && (has_room || plug.to.arm()?) {
        let mut set = plug.from.fds();
        if has_room {
            set.extend(host.fds());
        } else {
            // What the host sends stays in the device's queues.
            set.push(plug.to.fd());
        }
        sleep(stop, &set, None)?;
    }
    plug.from.disarm()?;
    if !has_room {
        plug.to.disarm()?;
    }
    Ok(())
}
