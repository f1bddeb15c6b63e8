//! Recordings that end early or hold garbage: the damage is located, and a verdict is withheld or
//! qualified.

use recorded::RecordedError;
use results::{Limit, Results};

use crate::built::told;
use crate::real::file;
use crate::synthetic::{Format, PLAIN, WINDOW_FLOW, capture};

fn read(file: &[u8]) -> Results {
    recorded::read(file).expect("a recording").expect("with a flow")
}

#[test]
fn a_capture_cut_to_3000_bytes_tells_where_and_gets_no_verdict() {
    let whole = file("shaper-sender.pcap");
    let results = read(&whole[..3000]);
    let damage = told(&results, "damage");
    assert!(damage.contains("truncated at byte 29"), "{damage}");
    assert!(damage.contains("after packet "), "{damage}");
    let verdict = explain::explain(&results);
    assert_eq!(verdict.limit, Limit::NoneFound);
    assert!(verdict.summary.starts_with("no verdict: "), "{}", verdict.summary);
    assert!(verdict.ruled_out.is_empty(), "nothing is ruled out by so little: {verdict:#?}");
}

#[test]
fn a_capture_damaged_in_its_middle_qualifies_the_verdict() {
    for is_ng in [false, true] {
        let mut file = capture(Format { is_ng, ..PLAIN }, &WINDOW_FLOW.packets());
        let whole = read(&file);
        assert_eq!(told(&whole, "damage"), "");
        assert!(!explain::explain(&whole).summary.contains("damaged"));
        // Nearly at the end, so that enough is left to judge.
        let at = file.len() * 9 / 10;
        file[at..at + 200].fill(0xff);
        let results = read(&file);
        let damage = told(&results, "damage");
        assert!(
            damage.contains("is damaged at byte ") && damage.contains("were not read"),
            "{damage}"
        );
        let verdict = explain::explain(&results);
        assert_eq!(verdict.limit, Limit::ReceiveWindow, "{verdict:#?}");
        assert!(verdict.summary.contains("the file is damaged"), "{}", verdict.summary);
    }
}

#[test]
fn every_cut_within_a_record_is_told_and_none_between_records() {
    for is_ng in [false, true] {
        let format = Format { is_ng, ..PLAIN };
        let packets = WINDOW_FLOW.packets();
        let (whole, shorter) = (capture(format, &packets[..40]), capture(format, &packets[..39]));
        assert_eq!(told(&read(&shorter), "damage"), "");
        for length in shorter.len() + 1..whole.len() {
            let damage = told(&read(&whole[..length]), "damage").to_owned();
            let place = format!("truncated at byte {}, after packet 39: ", shorter.len());
            assert!(damage.contains(&place), "{is_ng} {length}: {damage}");
            let unread = format!("the {} bytes from there on", length - shorter.len());
            assert!(damage.contains(&unread), "{is_ng} {length}: {damage}");
        }
    }
}

#[test]
fn a_capture_damaged_before_its_first_payload_says_so() {
    let file = capture(PLAIN, &WINDOW_FLOW.packets()[..4]);
    let cut = recorded::read(&file[..file.len() - 5]).expect("a capture");
    let Err(RecordedError::Damaged { damage, tcp_count: 3 }) = cut else { panic!("{cut:?}") };
    assert!(damage.contains("after packet 3"), "{damage}");
}

#[test]
fn samples_that_end_in_the_middle_lose_the_last_and_say_so() {
    let text = file("window-ss.txt");
    let whole = read(&text);
    assert_eq!(told(&whole, "damage"), "");
    let details = text.windows(12).rposition(|word| word == b" bytes_acked").expect("told");
    let results = read(&text[..details + 16]);
    let damage = told(&results, "damage");
    assert!(damage.contains("truncated within line "), "{damage}");
    let verdict = explain::explain(&results);
    assert_eq!(verdict.limit, Limit::ReceiveWindow, "{verdict:#?}");
    assert!(verdict.summary.contains("the file is damaged"), "{}", verdict.summary);
}

#[test]
fn samples_cut_to_3000_bytes_get_no_verdict_and_garbled_lines_are_counted() {
    let text = file("shaper-ss.txt");
    let verdict = explain::explain(&read(&text[..3000]));
    assert!(verdict.summary.starts_with("no verdict: "), "{}", verdict.summary);
    let mut garbled = text.clone();
    let middle = garbled.len() / 2;
    garbled[middle..middle + 20].fill(0xfe);
    let damage = told(&read(&garbled), "damage").to_owned();
    assert!(damage.starts_with("1 line is damaged ("), "{damage}");
    assert!(damage.ends_with("were not read") && damage.contains("from line "), "{damage}");
}
