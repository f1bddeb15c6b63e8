//! Rules by which a device directs datagrams to a receive queue, by their UDP destination port
//! (`ETHTOOL_SRXCLSRLINS` and its relatives, kernel `include/uapi/linux/ethtool.h`; `ethtool -N`).
//!
//! Reading needs no privilege, changing `CAP_NET_ADMIN`. Devices without such rules, as veth and most virtual ones,
//! answer `EOPNOTSUPP`.

use rustix::io::Errno;
use settings::FlowName;

use crate::SyscallError;
use crate::ethtool::Device;

const GRXCLSRLCNT: u32 = 0x2e;
const GRXCLSRULE: u32 = 0x2f;
const GRXCLSRLALL: u32 = 0x30;
const SRXCLSRLDEL: u32 = 0x31;
const SRXCLSRLINS: u32 = 0x32;

const UDP_V4_FLOW: u32 = 0x02;
const UDP_V6_FLOW: u32 = 0x06;
/// The device takes special locations.
const LOCATION_SPECIAL: u32 = 0x8000_0000;
/// The device chooses the location.
const LOCATION_ANY: u32 = 0xffff_ffff;
/// Most rules that are read of a device; larger tables belong to devices that no rule of ours is looked for in.
const RULES_COUNT_MAX: u32 = 64 << 10;

/// Words of `struct ethtool_rxnfc` before its list of locations.
const HEAD_WORDS: usize = 47;
// Where its fields are, in words: `data`, the rule (`fs`), and the number of rules.
const DATA: usize = 2;
const FLOW_TYPE: usize = 4;
const FIELDS: usize = 5;
const MASKS: usize = 23;
/// Fields, or masks, with what follows them (`h_u`, `h_ext`).
const FIELDS_WORDS: usize = 18;
const QUEUE: usize = 42;
const LOCATION: usize = 44;
const COUNT: usize = 46;

/// The table of a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Table {
    rules_count: u32,
    takes_any_location: bool,
}

/// Whether the device has rules that choose queues.
///
/// # Errors
/// No such device, or its driver has no such rules (`EOPNOTSUPP`).
pub fn check(device: &Device) -> Result<(), SyscallError> {
    table(device).map(|_table| ())
}

/// The queue to which a rule for exactly this flow directs it, if there is one.
///
/// # Errors
/// As [`check`].
pub fn queue_of(device: &Device, flow: FlowName) -> Result<Option<u32>, SyscallError> {
    Ok(find(device, flow)?.map(|(_location, queue)| queue))
}

/// Directs the flow to a queue.
///
/// # Errors
/// As [`check`]; no `CAP_NET_ADMIN`; a full table; no such queue.
pub fn direct(device: &Device, flow: FlowName, queue: u32) -> Result<(), SyscallError> {
    let location = match find(device, flow)? {
        Some((location, _queue)) => location,
        None if table(device)?.takes_any_location => LOCATION_ANY,
        None => free_location(device)?,
    };
    device.ask("ETHTOOL_SRXCLSRLINS", &mut rule(flow, queue, location))
}

/// Removes the flow's rule, if there is one.
///
/// # Errors
/// As [`check`]; no `CAP_NET_ADMIN`.
pub fn remove(device: &Device, flow: FlowName) -> Result<(), SyscallError> {
    let Some((location, _queue)) = find(device, flow)? else { return Ok(()) };
    let mut words = request(SRXCLSRLDEL, 0);
    words[LOCATION] = location;
    device.ask("ETHTOOL_SRXCLSRLDEL", &mut words)
}

fn request(command: u32, locations_count: u32) -> Vec<u32> {
    let mut words = vec![0; HEAD_WORDS + 1 + locations_count as usize];
    words[0] = command;
    words
}

fn table(device: &Device) -> Result<Table, SyscallError> {
    let mut words = request(GRXCLSRLCNT, 0);
    device.ask("ETHTOOL_GRXCLSRLCNT", &mut words)?;
    // `data` is 64 bits wide; the flag and the table's size are in its low half.
    let low = words[DATA + usize::from(cfg!(target_endian = "big"))];
    Ok(Table { rules_count: words[COUNT], takes_any_location: low & LOCATION_SPECIAL != 0 })
}

/// Locations in use, and how many there are.
fn locations(device: &Device) -> Result<(Vec<u32>, u32), SyscallError> {
    let count = table(device)?.rules_count;
    if count > RULES_COUNT_MAX {
        return Err(SyscallError::new("ioctl(ETHTOOL_GRXCLSRLALL)", "flow rules", Errno::TOOBIG));
    }
    let mut words = request(GRXCLSRLALL, count);
    words[COUNT] = count;
    device.ask("ETHTOOL_GRXCLSRLALL", &mut words)?;
    let size = words[DATA + usize::from(cfg!(target_endian = "big"))] & !LOCATION_SPECIAL;
    let known = words[COUNT].min(count) as usize;
    Ok((words[HEAD_WORDS..HEAD_WORDS + known].to_vec(), size))
}

/// The last location that is free: earlier ones take precedence.
fn free_location(device: &Device) -> Result<u32, SyscallError> {
    let (used, size) = locations(device)?;
    let free = last_free(&used, size);
    free.ok_or_else(|| SyscallError::new("ioctl(ETHTOOL_SRXCLSRLINS)", "flow rules", Errno::NOSPC))
}

fn last_free(used: &[u32], size: u32) -> Option<u32> {
    (0..size).rev().find(|location| !used.contains(location))
}

/// Location and queue of the rule for exactly this flow.
fn find(device: &Device, flow: FlowName) -> Result<Option<(u32, u32)>, SyscallError> {
    for location in locations(device)?.0 {
        let mut words = request(GRXCLSRULE, 0);
        words[LOCATION] = location;
        // One that went meanwhile is none.
        if device.ask("ETHTOOL_GRXCLSRULE", &mut words).is_ok()
            && let Some(queue) = queue_in(&words, flow)
        {
            return Ok(Some((location, queue)));
        }
    }
    Ok(None)
}

/// The request that has a rule for this flow.
fn rule(flow: FlowName, queue: u32, location: u32) -> Vec<u32> {
    let mut words = request(SRXCLSRLINS, 0);
    words[FLOW_TYPE] = if flow.is_ipv6 { UDP_V6_FLOW } else { UDP_V4_FLOW };
    words[FIELDS + port_word(flow)] = port_half(flow.port);
    words[MASKS + port_word(flow)] = port_half(u16::MAX);
    words[QUEUE + usize::from(cfg!(target_endian = "big"))] = queue;
    words[LOCATION] = location;
    words
}

/// Which word of the fields has the ports, the destination's in its second half: after two addresses.
fn port_word(flow: FlowName) -> usize {
    if flow.is_ipv6 { 8 } else { 2 }
}

fn port_half(port: u16) -> u32 {
    let [high, low] = port.to_be_bytes();
    u32::from_ne_bytes([0, 0, high, low])
}

/// The queue of an answer that has a rule for exactly this flow.
fn queue_in(words: &[u32], flow: FlowName) -> Option<u32> {
    let wanted = rule(flow, 0, 0);
    let is_same = words.get(FLOW_TYPE) == wanted.get(FLOW_TYPE)
        && [FIELDS, MASKS]
            .into_iter()
            .all(|at| words.get(at..at + FIELDS_WORDS) == wanted.get(at..at + FIELDS_WORDS));
    let half = usize::from(cfg!(target_endian = "big"));
    is_same.then(|| words.get(QUEUE + half).copied()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    const FOUR: FlowName = FlowName { is_ipv6: false, port: 61_008 };
    const SIX: FlowName = FlowName { is_ipv6: true, port: 61_008 };

    fn bytes(words: &[u32]) -> Vec<u8> {
        words.iter().flat_map(|word| word.to_ne_bytes()).collect()
    }

    #[test]
    fn a_rule_has_its_fields_where_the_kernel_reads_them() {
        let rule = bytes(&rule(FOUR, 3, 7));
        // struct ethtool_rxnfc: command, then at 16 the rule: type, at 4 the fields, at 76 their masks; the destination
        // port stands at 10 of `struct ethtool_tcpip4_spec`, the queue at 152 and the location at 160 of the rule.
        assert_eq!(rule[16..20], UDP_V4_FLOW.to_ne_bytes());
        assert_eq!(rule[30..32], 61_008_u16.to_be_bytes());
        assert_eq!(rule[102..104], [0xff, 0xff]);
        assert_eq!(rule[168..176], 3_u64.to_ne_bytes());
        assert_eq!(rule[176..180], 7_u32.to_ne_bytes());
        let others: usize = [0..4, 16..20, 30..32, 102..104, 168..176, 176..180]
            .into_iter()
            .map(|range| rule[range].iter().filter(|&&byte| byte != 0).count())
            .sum();
        assert_eq!(others, rule.iter().filter(|&&byte| byte != 0).count(), "nothing else is set");
        let six = bytes(&super::rule(SIX, 0, 0));
        // At 34 of `struct ethtool_tcpip6_spec`.
        assert_eq!(six[54..56], 61_008_u16.to_be_bytes());
        assert_eq!(six[126..128], [0xff, 0xff]);
    }

    #[test]
    fn only_a_rule_for_exactly_the_flow_is_its_own() {
        let mut answer = rule(FOUR, 5, 1);
        assert_eq!(queue_in(&answer, FOUR), Some(5));
        assert_eq!(queue_in(&answer, SIX), None);
        assert_eq!(queue_in(&answer, FlowName { port: 61_009, ..FOUR }), None);
        // Of one sender only.
        answer[FIELDS] = 0x0100_000a;
        answer[MASKS] = u32::MAX;
        assert_eq!(queue_in(&answer, FOUR), None);
        assert_eq!(queue_in(&[], FOUR), None);
    }

    #[test]
    fn a_rule_takes_the_last_free_location() {
        assert_eq!(last_free(&[7, 6, 1], 8), Some(5));
        assert_eq!(last_free(&[0, 1], 2), None);
        assert_eq!(last_free(&[], 0), None);
    }

    #[test]
    fn a_device_without_rules_says_so() {
        let device = Device::open("lo").expect("a socket");
        let error = check(&device).expect_err("the loopback has none");
        assert_eq!(Errno::from_io_error(&error.source), Some(Errno::OPNOTSUPP));
        assert!(queue_of(&device, FOUR).is_err() && remove(&device, FOUR).is_err());
    }
}
