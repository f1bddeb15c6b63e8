use results::{Offload, PcieLink};

use super::*;

fn nic(driver: &str, speed_gbit_per_s: f64, mtu_bytes: u32, pcie: (f64, u32, u32)) -> Nic {
    let (speed_gt_per_s, lanes_count, payload) = pcie;
    Nic {
        name: "eth0".into(),
        driver: Some(driver.into()),
        speed_bits_per_s: Some(speed_gbit_per_s * 1e9),
        mtu_bytes,
        pcie: Some(PcieLink {
            address: "0000:41:00.0".into(),
            speed_gt_per_s,
            lanes_count,
            payload_max_bytes: Some(payload),
            ..PcieLink::default()
        }),
        ..Nic::default()
    }
}

/// The card of ClearStream 2011: 40GE on PCIe 2.0 x8, MaxPayload 128.
fn connect_x2(mtu_bytes: u32) -> Nic {
    nic("mlx4_en", 40.0, mtu_bytes, (5.0, 8, 128))
}

fn gbit(nic: &Nic, link: CeilingLink) -> f64 {
    ceilings(nic, Headers::default(), None).of(link).unwrap().goodput_bits_per_s / 1e9
}

#[test]
fn a_connect_x2_comes_out_at_32_after_encoding_and_at_25_to_26_of_goodput() {
    for (mtu, low, high) in [(1500, 24.5, 25.2), (9000, 25.8, 26.6)] {
        let told = ceilings(&connect_x2(mtu), Headers::default(), None);
        let receive = told.of(CeilingLink::PcieReceive).unwrap();
        assert!((receive.steps[0].bits_per_s / 1e9 - 40.0).abs() < 1e-9);
        assert!((receive.steps[1].bits_per_s / 1e9 - 32.0).abs() < 1e-9);
        let here = receive.goodput_bits_per_s / 1e9;
        assert!((low..=high).contains(&here), "MTU {mtu}: {here}");
        assert_eq!(told.lowest_receiving().unwrap().link, CeilingLink::PcieReceive);
    }
}

#[test]
fn sums_agree_with_a_hand_s() {
    // MTU 1500, IPv4, timestamps: a frame of 1514 bytes is 12 writes of 128 and 24 bytes around
    // each, 1802; a completion entry 32 + 24; a quarter of a descriptor read, 6; 45 segments share
    // an acknowledgement of 24 + 24 + 56, 2.3; and 16 bytes for each of 0.25 + 3/45 transactions.
    let all = 1802.0 + 56.0 + 6.0 + 104.0 / 45.0 + 16.0 * (0.25 + 3.0 / 45.0);
    let by_hand = 32.0 * 1534.0 / 1538.0 * 1448.0 / all;
    let here = gbit(&connect_x2(1500), CeilingLink::PcieReceive);
    assert!((here - by_hand).abs() < 1e-6, "{here} {by_hand}");
    let here = gbit(&connect_x2(1500), CeilingLink::Line);
    assert!((here - 40.0 * 1448.0 / 1538.0).abs() < 1e-9, "{here}");
}

#[test]
fn a_modern_card_is_bound_by_its_wire_and_a_narrow_slot_is_seen() {
    let card = nic("mlx5_core", 100.0, 9000, (8.0, 16, 256));
    let told = ceilings(&card, Headers::default(), None);
    assert_eq!(told.lowest_receiving().unwrap().link, CeilingLink::Line);
    let mut narrow = card.clone();
    let link = narrow.pcie.as_mut().unwrap();
    link.narrowest_bridge = Some("0000:40:01.1".into());
    (link.bridge_speed_gt_per_s, link.bridge_lanes_count) = (Some(8.0), Some(4));
    let told = ceilings(&narrow, Headers::default(), None);
    let lowest = told.lowest_receiving().unwrap();
    assert_eq!(lowest.link, CeilingLink::PcieReceive);
    assert!(lowest.steps[0].what.contains("0000:40:01.1"), "{lowest:?}");
    assert!(lowest.goodput_bits_per_s < 32e9, "{lowest:?}");
}

#[test]
fn every_step_takes_something_and_the_last_is_the_goodput() {
    for pcie in [(2.5, 4, 128), (5.0, 8, 256), (8.0, 8, 512), (32.0, 16, 256), (64.0, 16, 512)] {
        for mtu in [576, 1500, 9000] {
            let told = ceilings(&nic("ice", 100.0, mtu, pcie), Headers::default(), Some(20e9));
            assert_eq!(told.ceilings.len(), 4, "{:?}", told.absent);
            for ceiling in &told.ceilings {
                let rates: Vec<f64> = ceiling.steps.iter().map(|step| step.bits_per_s).collect();
                let falls = |pair: &[f64]| pair[1] <= pair[0] * (1.0 + 1e-12) && pair[1] > 0.0;
                let is_send = ceiling.link == CeilingLink::PcieTransmit;
                // A send's headers are made by the device: frames leave faster than bytes are read.
                let checked = if is_send { &rates[..3] } else { &rates[..] };
                assert!(checked.windows(2).all(falls), "{pcie:?} {mtu}: {ceiling:?}");
                assert_eq!(rates.last(), Some(&ceiling.goodput_bits_per_s));
                assert!(ceiling.goodput_bits_per_s < rates[0] || ceiling.steps.len() == 2);
            }
        }
    }
}

#[test]
fn segmentation_in_the_device_saves_reads() {
    let mut single = connect_x2(1500);
    single.offloads =
        vec![Offload { name: "tx-tcp-segmentation".into(), is_on: false, may_change: true }];
    let joined = gbit(&connect_x2(1500), CeilingLink::PcieTransmit);
    let one_by_one = gbit(&single, CeilingLink::PcieTransmit);
    assert!(joined > one_by_one * 1.05, "{joined} {one_by_one}");
}

#[test]
fn what_is_not_known_is_absent() {
    let bare = Nic { mtu_bytes: 1500, ..Nic::default() };
    let told = ceilings(&bare, Headers::default(), None);
    assert_eq!((told.ceilings.len(), told.absent.len()), (0, 3));
    let told = ceilings(&Nic { mtu_bytes: 52, ..connect_x2(1500) }, Headers::default(), None);
    assert!(told.ceilings.is_empty(), "no room for a payload");
    let mut odd = connect_x2(1500);
    odd.pcie.as_mut().unwrap().speed_gt_per_s = f64::NAN;
    odd.speed_bits_per_s = Some(f64::INFINITY);
    assert!(ceilings(&odd, Headers::default(), Some(f64::NAN)).ceilings.is_empty());
}

proptest::proptest! {
    #[test]
    fn any_figures_give_finite_ceilings(
        (speed, lanes, line) in proptest::prelude::any::<(f64, u32, f64)>(),
        (payload, mtu) in proptest::prelude::any::<(u32, u32)>(),
        (bridge_speed, bridge_lanes, copy) in proptest::prelude::any::<(f64, u32, f64)>(),
    ) {
        let mut card = nic("ixgbe", line / 1e9, mtu, (speed, lanes, payload));
        let link = card.pcie.as_mut().unwrap();
        link.narrowest_bridge = Some(String::new());
        (link.bridge_speed_gt_per_s, link.bridge_lanes_count) =
            (Some(bridge_speed), Some(bridge_lanes));
        link.read_request_max_bytes = Some(payload);
        let headers = Headers { is_ipv6: true, ..Headers::default() };
        for ceiling in ceilings(&card, headers, Some(copy)).ceilings {
            assert!(ceiling.goodput_bits_per_s.is_finite(), "{ceiling:?}");
        }
    }
}
