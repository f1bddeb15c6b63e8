//! Bytes that anybody may have written: no panic, bounded memory, and a document that `explain`
//! takes, whatever they are.

use crate::synthetic::{Format, PLAIN, WINDOW_FLOW, WindowFlow, capture};

fn harmless(bytes: &[u8]) {
    if let Some(Ok(results)) = recorded::read(bytes) {
        assert!(!explain::explain(&results).summary.is_empty());
        let written = serde_json::to_vec(&results).expect("a document is written");
        assert!(results::read_results(&written).is_ok(), "and read back");
    }
}

#[test]
fn no_bytes_make_a_reader_panic() {
    bolero::check!().for_each(|bytes: &[u8]| harmless(bytes));
    // Behind each magic, so that the readers behind it get them.
    let formats = [false, true].map(|is_ng| capture(Format { is_ng, ..PLAIN }, &[]));
    bolero::check!().for_each(|bytes: &[u8]| {
        for head in &formats {
            harmless(&[head, bytes].concat());
        }
        harmless(
            &[&b"ESTAB 0 0 10.0.0.1:1 10.0.0.2:2\n\t cubic rto:1 cwnd:1 "[..], bytes].concat(),
        );
    });
}

#[test]
fn no_change_to_a_capture_makes_a_reader_panic() {
    let flow = WindowFlow { rounds: 4, window: 8, ..WINDOW_FLOW };
    let files = [false, true].map(|is_ng| capture(Format { is_ng, ..PLAIN }, &flow.packets()));
    bolero::check!().with_type::<(bool, Vec<(u16, u8)>, u16)>().for_each(
        |(is_ng, changes, cut)| {
            let mut file = files[usize::from(*is_ng)].clone();
            for (at, value) in changes {
                let at = usize::from(*at) % file.len();
                file[at] = *value;
            }
            file.truncate(file.len() - usize::from(*cut) % file.len());
            harmless(&file);
        },
    );
}

#[test]
fn no_change_to_samples_makes_a_reader_panic() {
    let text = crate::real::file("window-ss.txt");
    let text = &text[..text.len().min(6000)];
    bolero::check!().with_type::<Vec<(u16, u8)>>().for_each(|changes| {
        let mut text = text.to_vec();
        for (at, value) in changes {
            let at = usize::from(*at) % text.len();
            text[at] = *value;
        }
        harmless(&text);
    });
}

#[test]
fn absurd_numbers_in_samples_are_no_figures() {
    let huge = "9".repeat(400);
    for field in ["rtt", "busy", "bytes_acked", "mss", "cwnd", "unacked", "skmem"] {
        let text = format!(
            "ESTAB 0 {huge} 10.0.0.1:1 10.0.0.2:2\n\t cubic rto:1 cwnd:9 mss:1448 busy:9ms bytes_acked:5 \
             {field}:{huge} delivery_rate {huge}Gbps pacing_rate 1e309bps\n{huge}\n"
        );
        harmless(text.as_bytes());
    }
}

#[test]
fn lengths_that_claim_more_than_there_is_allocate_nothing() {
    // A record of 4 GiB, an interface option of 64 KiB, a block as long as memory.
    let mut pcap = capture(PLAIN, &[]);
    pcap.extend([0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff]);
    harmless(&pcap);
    let mut ng = capture(Format { is_ng: true, ..PLAIN }, &[]);
    ng.extend([6, 0, 0, 0, 0xfc, 0xff, 0xff, 0xff, 0, 0, 0, 0]);
    harmless(&ng);
}
