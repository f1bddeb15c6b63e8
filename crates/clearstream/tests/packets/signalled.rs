//! Exit codes of `pkt` and `port capture` that a signal ends.

use rustix::process::{Pid, Signal, kill_process};
use sys::private::Scratch;
use testkit::lab_bed::eventually;

use super::Switch;

/// A run without an end of its own ends regularly by a signal; one whose limit was not reached was cut short.
#[test]
fn a_signal_is_the_regular_end_of_a_run_without_limits_only() {
    let switch = Switch::run("signalled");
    assert!(switch.ask("port add vale0:b").status.success());
    let scratch = Scratch::new("signalled").expect("a folder of its own");
    let file = scratch.path().join("b.pcap");
    let capture = format!("port capture vale0:b -o {}", file.display());
    let capture_some = format!("{capture} --count 5");
    for (words, is_limited) in [
        ("pkt sink vale0:c", false),
        ("pkt sink vale0:c --count 5", true),
        ("pkt gen vale0:c --rate 1k", false),
        ("pkt gen vale0:c --rate 1k --duration 1h", true),
        ("pkt echo vale0:c", false),
        (&capture, false),
        (&capture_some, true),
    ] {
        for signal in [Signal::INT, Signal::TERM] {
            let child = switch.start(words);
            if words.starts_with("port") {
                eventually("it captures", || {
                    std::fs::metadata(&file).is_ok_and(|it| it.len() >= 24)
                });
                std::fs::remove_file(&file).expect("its file");
            } else {
                switch.wait_for_clients(1);
            }
            kill_process(Pid::from_child(&child), signal).expect("it runs");
            let output = child.wait_with_output().expect("it ends");
            let code = if is_limited { 128 + signal.as_raw() } else { 0 };
            assert_eq!(output.status.code(), Some(code), "{words}: {output:?}");
            switch.wait_for_clients(0);
        }
    }
}
