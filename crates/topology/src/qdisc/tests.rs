use netlink::Object;

use super::*;

const TCA_KIND: u16 = 1;
const TCA_OPTIONS: u16 = 2;

fn attr(kind: u16, value: &[u8]) -> Vec<u8> {
    let mut bytes = u16::try_from(4 + value.len()).unwrap().to_ne_bytes().to_vec();
    bytes.extend(kind.to_ne_bytes());
    bytes.extend(value);
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytes
}

fn message(handle: u32, parent: u32, kind: &str, options: &[u8]) -> Vec<u8> {
    let mut body = vec![0; 4];
    body.extend(3u32.to_ne_bytes());
    body.extend(handle.to_ne_bytes());
    body.extend(parent.to_ne_bytes());
    body.extend([0; 4]);
    body.extend(attr(TCA_KIND, kind.as_bytes()));
    body.extend(attr(TCA_OPTIONS, options));
    body
}

/// `struct tc_ratespec`, twice, as tbf and htb begin their parameters.
fn two_rates(first: u32, second: u32) -> Vec<u8> {
    let mut bytes = vec![0; 8];
    bytes.extend(first.to_ne_bytes());
    bytes.extend([0; 8]);
    bytes.extend(second.to_ne_bytes());
    bytes
}

fn discipline(handle: u32, parent: u32, kind: &str, options: &[u8]) -> Discipline {
    Discipline::parse(&message(handle, parent, kind, options)).unwrap()
}

#[test]
fn tbf_prefers_its_wide_rate() {
    let narrow = attr(TCA_TBF_PARMS, &two_rates(125_000_000, 0));
    assert_eq!(rate_bytes_per_s(&discipline(1, ROOT, "tbf", &narrow)), Some(125_000_000));
    let mut wide = attr(TCA_TBF_PARMS, &two_rates(u32::MAX, 0));
    wide.extend(attr(TCA_TBF_RATE64, &5_000_000_000u64.to_ne_bytes()));
    assert_eq!(rate_bytes_per_s(&discipline(1, ROOT, "tbf", &wide)), Some(5_000_000_000));
}

#[test]
fn fq_without_a_limit_has_no_rate() {
    let unlimited = attr(TCA_FQ_FLOW_MAX_RATE, &u32::MAX.to_ne_bytes());
    assert_eq!(rate_bytes_per_s(&discipline(1, ROOT, "fq", &unlimited)), None);
    let limited = attr(TCA_FQ_FLOW_MAX_RATE, &1000u32.to_ne_bytes());
    assert_eq!(rate_bytes_per_s(&discipline(1, ROOT, "fq", &limited)), Some(1000));
}

#[test]
fn htb_is_as_wide_as_the_narrowest_class_above_the_default() {
    let class = |handle, parent, ceil| {
        discipline(handle, parent, "htb", &attr(TCA_HTB_PARMS, &two_rates(1, ceil)))
    };
    let classes = [
        class(0x1_0001, ROOT, 500),
        class(0x1_0010, 0x1_0001, 900),
        class(0x1_0020, 0x1_0001, 100),
        class(0x1_0030, 0x1_0030, 70),
    ];
    let root = |default: u32| {
        let mut init = [0; 20];
        init[8..12].copy_from_slice(&default.to_ne_bytes());
        discipline(0x1_0000, ROOT, "htb", &attr(TCA_HTB_INIT, &init))
    };
    assert_eq!(htb_bound(&root(0x10), &classes), Some((500, 0x1_0001)));
    assert_eq!(htb_bound(&root(0x20), &classes), Some((100, 0x1_0020)));
    let top = Some((500, 0x1_0001));
    assert_eq!(htb_bound(&root(0), &classes), top, "no default class: the top one");
    let own = Some((70, 0x1_0030));
    assert_eq!(htb_bound(&root(0x30), &classes), own, "its own parent: the walk ends");
    assert_eq!(htb_bound(&root(0x10), &[]), None);
}

#[test]
fn any_message_is_read_or_refused() {
    bolero::check!().for_each(|bytes: &[u8]| {
        let mut whole = message(1, ROOT, "tbf", &attr(TCA_TBF_PARMS, &two_rates(1, 2)));
        for (to, from) in whole.iter_mut().rev().zip(bytes) {
            *to = *from;
        }
        for body in [bytes, &whole] {
            if let Ok(discipline) = Discipline::parse(body) {
                rate_bytes_per_s(&discipline);
                htb_bound(&discipline, std::slice::from_ref(&discipline));
            }
        }
    });
}
