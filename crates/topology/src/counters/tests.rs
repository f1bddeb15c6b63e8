use super::*;

const DEV: &str = "\
Inter-|   Receive                                                |  Transmit
 face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo colls carrier compressed
    lo:    3193      29    0    0    0     0          0         0     3193      29    0    0    0     0       0          0
  eth0: 184274275    4139    1    2    0     0          0         0   198963    2206    3    4    0     0       0          0
eth0:1: 1 1 0 0 0 0 0 0 1 1 0 0 0 0 0 0
";

/// Linux 6.18, two cores; the second line is core 3 because 1 and 2 are offline.
const SOFTNET: &str = "\
fffffff0 00000000 00000002 00000000 00000000 00000000 00000000 00000000 00000000 00000000 00000000 00000000 00000000 00000000 00000000
00001038 00000001 00000000 00000000 00000000 00000000 00000000 00000000 00000000 00000007 00000000 00000000 00000003 00000000 00000000
";

fn snapshot(dev: &str, softnet: &str) -> CounterSnapshot {
    CounterSnapshot {
        devices: parse_devices(dev),
        softnet: parse_softnet(softnet),
        protocols: ProtocolCounters::default(),
        ..CounterSnapshot::default()
    }
}

#[test]
fn reads_the_devices() {
    let devices = parse_devices(DEV);
    let names: Vec<_> = devices.iter().map(|device| device.interface.as_str()).collect();
    assert_eq!(names, ["lo", "eth0", "eth0:1"]);
    assert_eq!(
        devices[1],
        DeviceCounters {
            interface: "eth0".into(),
            rx_bytes: 184_274_275,
            rx_pkts: 4139,
            rx_errors_count: 1,
            rx_drops_count: 2,
            tx_bytes: 198_963,
            tx_pkts: 2206,
            tx_errors_count: 3,
            tx_drops_count: 4,
            rx_ring_overruns_count: None,
        }
    );
}

#[test]
fn only_what_moved_is_told() {
    let later = DEV.replace("198963    2206", "199963    2207");
    let gained = snapshot(&later, SOFTNET).since(&snapshot(DEV, SOFTNET));
    assert_eq!(gained.devices.len(), 1);
    assert_eq!((gained.devices[0].tx_bytes, gained.devices[0].tx_pkts), (1000, 1));
    assert_eq!(gained.softnet, []);
}

#[test]
fn a_device_made_anew_starts_from_zero() {
    let later = DEV.replace("184274275    4139", "500    9000");
    let gained = snapshot(&later, SOFTNET).since(&snapshot(DEV, SOFTNET));
    assert_eq!((gained.devices[0].rx_bytes, gained.devices[0].rx_pkts), (500, 9000));
    assert_eq!(gained.devices[0].tx_bytes, 198_963);
}

#[test]
fn softnet_counters_go_round() {
    let later = SOFTNET.replace("fffffff0", "00000010");
    let gained = snapshot(DEV, &later).since(&snapshot(DEV, SOFTNET));
    assert_eq!(gained.softnet.len(), 1);
    assert_eq!((gained.softnet[0].core, gained.softnet[0].processed_pkts), (0, 32));
}

#[test]
fn softnet_lines_carry_their_core() {
    let cores = parse_softnet(SOFTNET);
    assert_eq!((cores[1].core, cores[1].dropped_pkts, cores[1].steered_pkts), (3, 1, 7));
    let old = parse_softnet("1 2 3 0 0 0 0 0 0\n4 5 6 0 0 0 0 0 0\n");
    assert_eq!((old[1].core, old[1].processed_pkts, old[1].squeezed_count), (1, 4, 6));
}

#[test]
fn a_core_that_a_damaged_recording_has_twice_gains_once() {
    let torn = SOFTNET.replacen("00000002 00000000", "00000002\n00000000", 1);
    let cores: Vec<u32> = parse_softnet(&torn).iter().map(|row| row.core).collect();
    assert_eq!(cores, [0, 1, 3]);
    let torn = SOFTNET.replacen("00000000 00000003", "00000000 00000000", 1);
    let cores: Vec<u32> = parse_softnet(&torn).iter().map(|row| row.core).collect();
    assert_eq!(cores, [0]);
}

#[test]
fn damaged_recordings_neither_panic_nor_invent() {
    let recorded = [DEV, SOFTNET];
    bolero::check!().with_type::<(bool, Vec<(u16, u8)>)>().for_each(|(which, damage)| {
        let mut bytes = recorded[usize::from(*which)].as_bytes().to_vec();
        for (place, value) in damage {
            let place = usize::from(*place) % bytes.len();
            bytes[place] = *value;
        }
        let text = String::from_utf8_lossy(&bytes);
        let now = snapshot(&text, &text);
        let undamaged = snapshot(DEV, SOFTNET);
        assert!(now.devices.len() <= text.lines().count());
        assert!(undamaged.since(&now).devices.len() <= 3);
        assert!(now.since(&undamaged).softnet.len() <= 2);
    });
}

#[test]
fn traffic_on_loopback_shows() {
    let receiver = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let before = CounterSnapshot::read();
    receiver.send_to(&[0; 1000], receiver.local_addr().unwrap()).unwrap();
    receiver.recv(&mut [0; 1000]).unwrap();
    let gained = CounterSnapshot::read().since(&before);
    let lo = gained.devices.iter().find(|device| device.interface == "lo").unwrap();
    assert!(lo.tx_bytes >= 1028 && lo.rx_pkts >= 1, "{lo:?}");
    assert!(gained.protocols.iter().any(|counter| counter.name == "Udp.InDatagrams"));
}
