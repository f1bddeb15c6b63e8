//! Overlapping tests over files in place of `/proc/irq`, with the real guards, locks and records.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use super::*;

/// A folder with three interrupts on cores of their own, and a place for records.
struct Testbed {
    folder: PathBuf,
}

const BEFORE: [&str; 3] = ["0-1\n", "2\n", "0-3,5\n"];

impl Testbed {
    fn new(name: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("irq-{name}-{}", std::process::id()));
        fs::create_dir_all(folder.join("records")).expect("a folder of our own");
        for (irq, cores) in BEFORE.iter().enumerate() {
            fs::write(folder.join(irq.to_string()), cores).expect("written");
        }
        Self { folder }
    }

    fn records(&self) -> PathBuf {
        self.folder.join("records")
    }

    fn source(&self, irq: u32) -> Source {
        let path = self.folder.join(irq.to_string());
        Source { key: Key::InterruptAffinity(irq), what: What::Interrupt { path } }
    }

    fn begin(&self, irqs: &[u32], core: u32) -> Result<Moved, MoveError> {
        let sources = irqs.iter().map(|irq| self.source(*irq)).collect();
        move_all(&self.records(), sources, "eth0", core, End::Far)
    }

    fn now(&self) -> Vec<String> {
        // A kernel file has one line; ours keeps what a shorter write leaves behind it.
        let read = |irq: usize| fs::read_to_string(self.folder.join(irq.to_string()));
        (0..BEFORE.len()).map(|irq| read(irq).expect("there")).collect()
    }

    fn assert_all_back(&self, told: &str) {
        assert_eq!(self.now(), BEFORE, "{told}");
        for record in fs::read_dir(self.records()).expect("a folder") {
            let path = record.expect("a record").path();
            assert_eq!(fs::read(&path).expect("there"), b"", "{told}: {}", path.display());
        }
    }
}

impl Drop for Testbed {
    fn drop(&mut self) {
        fs::remove_dir_all(&self.folder).ok();
    }
}

/// All orders in which three tests can begin and end.
fn orders() -> Vec<Vec<usize>> {
    fn more(left: [u8; 3], order: &mut Vec<usize>, all: &mut Vec<Vec<usize>>) {
        if left == [0; 3] {
            all.push(order.clone());
        }
        for test in (0..3).filter(|&test| left[test] > 0) {
            let mut rest = left;
            rest[test] -= 1;
            order.push(test);
            more(rest, order, all);
            order.pop();
        }
    }
    let mut all = Vec::new();
    more([2; 3], &mut Vec::new(), &mut all);
    all
}

/// The first time a test is named in an order it begins, the second time it ends. Every test has the
/// middle interrupt, which only one at a time may have; what they end with is what there was.
#[test]
fn whatever_the_order_of_overlapping_tests_all_interrupts_are_back_after_the_last() {
    let bed = Testbed::new("orders");
    let of_test: [&[u32]; 3] = [&[0, 1], &[1, 2], &[2, 1, 0]];
    let (mut refused, mut overlaps) = (0, 0);
    let all = orders();
    assert_eq!(all.len(), 90);
    // A refused test has waited for the one before it; the orders are shared by threads.
    let patience_ends = |order: &[usize]| {
        let bed = Testbed::new(&format!("order-{order:?}").replace([' ', ','], ""));
        let mut running: BTreeMap<usize, Option<Moved>> = BTreeMap::new();
        let mut refusals = 0;
        for &test in order {
            if let Some(moved) = running.remove(&test) {
                drop(moved);
                continue;
            }
            let is_free = running.values().all(Option::is_none);
            let moved = bed.begin(of_test[test], 10 + test as u32);
            match &moved {
                Ok(_) => assert!(is_free, "{order:?}: two have the same"),
                Err(MoveError::Busy(_)) => assert!(!is_free, "{order:?}: nobody has it"),
                Err(error) => panic!("{order:?}: {error}"),
            }
            refusals += usize::from(moved.is_err());
            running.insert(test, moved.ok());
        }
        bed.assert_all_back(&format!("{order:?}"));
        refusals
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> =
            all.iter().map(|order| scope.spawn(move || patience_ends(order))).collect();
        for thread in threads {
            let refusals = thread.join().expect("the order");
            refused += refusals;
            overlaps += usize::from(refusals > 0);
        }
    });
    assert!(overlaps > 60 && refused > 90, "{refused} refused in {overlaps} orders");
    bed.assert_all_back("untouched");
}

#[test]
fn a_test_waits_for_one_that_is_about_to_end() {
    let bed = Testbed::new("waits");
    let first = bed.begin(&[0, 1], 7).expect("free");
    std::thread::scope(|scope| {
        let second = scope.spawn(|| bed.begin(&[1], 8));
        std::thread::sleep(std::time::Duration::from_millis(100));
        drop(first);
        let second = second.join().expect("it ends").expect("in time");
        let change = second.changes[0].clone();
        assert_eq!((change.end, change.key.as_str()), (End::Far, "irq:1/affinity"));
        assert_eq!((change.from.as_deref(), change.to.as_str()), (Some("2"), "8"));
        let mut report = EndReport::default();
        second.undo(&mut report, End::Far);
        assert_eq!(report.changes, [change]);
        let text = &report.findings[0].text;
        assert_eq!(text, "irq 1 of eth0 was on cores 2 and ran on core 8 for this test");
    });
    bed.assert_all_back("both have ended");
}

/// One of several is taken: none is moved, and none stays locked.
#[test]
fn a_refused_test_has_moved_nothing_and_holds_nothing() {
    let bed = Testbed::new("refused");
    let first = bed.begin(&[2], 7).expect("free");
    let error = bed.begin(&[0, 1, 2], 8).expect_err("one of them is taken");
    assert_eq!(
        error.to_string(),
        "irq 2 is in use by another test that moves interrupts; try again when that test has ended"
    );
    assert_eq!(bed.now()[..2], BEFORE[..2]);
    drop(bed.begin(&[0, 1], 9).expect("not held"));
    drop(first);
    // One of several is not there: what was recorded of the others is no "before" for later.
    let error = bed.begin(&[0, 1, 9], 8).expect_err("there is no irq 9");
    assert!(error.to_string().starts_with("irq 9 cannot be moved to core 8"), "{error}");
    bed.assert_all_back("all have ended");
}

/// The test and its guard were killed: what stands there is the killed test's core. The next owner's
/// "before" is what there was before the killed one, and so is what a start puts back.
#[test]
fn what_a_killed_guard_left_goes_back_before_anything_is_moved_again() {
    let bed = Testbed::new("killed");
    let leave = |irq: u32, from: &str| {
        let record = serde_json::json!({ "source": bed.source(irq), "from": from });
        fs::write(bed.records().join(format!("irq-{irq}")), record.to_string()).expect("written");
        fs::write(bed.folder.join(irq.to_string()), "9\n").expect("written");
    };
    leave(1, "2\n");
    let moved = bed.begin(&[1], 5).expect("free");
    assert_eq!(moved.changes[0].from.as_deref(), Some("2"), "{:?}", moved.changes);
    drop(moved);
    bed.assert_all_back("the next test has ended");

    leave(0, "0-1\n");
    leave(2, "0-3,5\n");
    let running = bed.begin(&[1], 5).expect("free");
    let mut told = lease::put_back_all(&bed.records()).expect("readable");
    told.sort();
    assert_eq!(told.len(), 2, "what runs is not touched: {told:?}");
    assert!(told[0].starts_with("irq 0 is back on cores 0-1"), "{told:?}");
    drop(running);
    bed.assert_all_back("a start has put it back");
}

#[test]
fn a_record_of_an_earlier_version_is_put_back() {
    let bed = Testbed::new("earlier");
    let path = bed.folder.join("1");
    let record = serde_json::json!({
        "source": { "name": "irq 1", "what": { "Interrupt": { "irq": 1, "path": path } } },
        "from": "2\n"
    });
    fs::write(bed.records().join("irq-1"), record.to_string()).expect("written");
    fs::write(&path, "9\n").expect("written");
    let told = lease::put_back_all(&bed.records()).expect("readable");
    assert_eq!(told.len(), 1, "{told:?}");
    bed.assert_all_back("a start has put it back");
}

#[test]
fn a_record_that_is_no_record_changes_nothing() {
    let bed = Testbed::new("damaged");
    let own = std::process::id();
    for text in [
        "{".to_owned(),
        "null".to_owned(),
        // Half a record, and one of a thread that has gone and whose number has another by now.
        r#"{"source":{"name":"irq 0","what":{"Interrupt":{"irq":0,"#.to_owned(),
        format!(
            r#"{{"source":{{"name":"napi/x","what":{{"Thread":{{"pid":{own},"began":1}}}}}},"from":"0"}}"#
        ),
    ] {
        fs::write(bed.records().join("irq-0"), &text).expect("written");
        assert_eq!(lease::put_back_all(&bed.records()).expect("readable"), [""; 0], "{text}");
        bed.assert_all_back(&text);
    }
}

#[test]
fn a_thread_is_told_from_another_by_when_it_began() {
    let own = i32::try_from(std::process::id()).expect("a number");
    let began = lease::thread_began(own).expect("we run");
    assert!(began > 1);
    assert_eq!(lease::thread_began(own), Some(began));
    assert_eq!(lease::thread_began(i32::MAX), None);
}
