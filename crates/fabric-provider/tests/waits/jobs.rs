//! Jobs on this host.

use crate::scene::{built, compiled, mpirun, program, run};
use sys::private::Scratch;

/// Every byte is checked by the program; the provider's own counters say that it carried them.
fn check(ranks: u32) {
    let scratch = Scratch::new(&format!("provider-job-{ranks}")).expect("a folder");
    let ran = run(&scratch, mpirun(&scratch, ranks).arg(program()).arg("1"));
    assert!(ran.output.status.success(), "{}", ran.said());
    assert!(ran.said().contains(&format!("correct: {ranks} ranks")), "{}", ran.said());
    let sent_pkts = ran.counters("sent_pkts");
    assert_eq!(sent_pkts.len(), ranks as usize, "{:?}", ran.report);
    assert!(sent_pkts.iter().all(|&count| count > 1000), "{sent_pkts:?}");
    assert!(ran.counters("forged_pkts").iter().all(|&count| count == 0), "{:?}", ran.report);
}

#[test]
fn two_ranks_of_stock_open_mpi_exchange_every_kind_of_message() {
    check(2);
}

#[test]
fn four_ranks_of_stock_open_mpi_exchange_every_kind_of_message() {
    check(4);
}

/// Open MPI's `osc/rdma` over its `btl/ofi`: puts, gets and atomic operations are the provider's.
#[test]
fn one_sided_operations_of_four_ranks_are_correct_through_the_provider() {
    let scratch = Scratch::new("provider-window").expect("a folder");
    let program = compiled("window", &built(&format!("mpi-window-{}", std::process::id())));
    let mut command = mpirun(&scratch, 4);
    command.args(["--mca", "osc", "rdma", "--mca", "btl", "self,ofi"]);
    command.args(["--mca", "btl_ofi_provider_include", "clearstream"]);
    let ran = run(&scratch, command.arg(program));
    assert!(ran.output.status.success(), "{}", ran.said());
    assert!(ran.said().contains("correct: 4 ranks"), "{}", ran.said());
    // Three of four ranks fetch from another's memory, 500 times each.
    assert!(ran.counters("served_requests").iter().sum::<u64>() >= 1500, "{:?}", ran.report);
}

/// Without the library the same command line fails: a job that ends well went over the provider.
#[test]
fn a_job_without_the_library_fails_and_does_not_fall_back_to_tcp() {
    let scratch = Scratch::new("provider-missing").expect("a folder");
    let mut command = mpirun(&scratch, 2);
    let empty = scratch.path().join("empty");
    std::fs::create_dir(&empty).expect("a folder");
    let ran = run(&scratch, command.env("FI_PROVIDER_PATH", empty).arg(program()).arg("1"));
    assert!(!ran.output.status.success(), "{}", ran.said());
    assert!(!ran.said().contains("correct"), "{}", ran.said());
}

/// Open MPI's `osc/pt2pt` ignores that a null buffer is refused and would wait for ever.
#[test]
fn a_rank_with_a_null_buffer_ends_its_job_and_says_why() {
    let scratch = Scratch::new("provider-bottom").expect("a folder");
    let program = compiled("bottom", &built(&format!("mpi-bottom-{}", std::process::id())));
    let began = std::time::Instant::now();
    let ran = run(&scratch, mpirun(&scratch, 2).args(["--mca", "osc", "pt2pt"]).arg(program));
    assert!(!ran.output.status.success(), "{}", ran.said());
    assert!(ran.said().contains("MPI_BOTTOM"), "{}", ran.said());
    assert!(ran.said().lines().all(|line| line != "put"), "{}", ran.said());
    assert!(began.elapsed().as_secs() < 60, "{:?}", began.elapsed());
}

/// Short messages of a burst leave several with one send, in order, and none waits for the next call of a rank that
/// computes.
#[test]
fn a_burst_of_short_messages_leaves_in_few_sends_and_without_further_calls() {
    let scratch = Scratch::new("provider-burst").expect("a folder");
    let program = compiled("burst", &built(&format!("mpi-burst-{}", std::process::id())));
    let mut command = mpirun(&scratch, 2);
    command.args(["-x", "FI_CLEARSTREAM_SHM"]).env("FI_CLEARSTREAM_SHM", "off");
    let ran = run(&scratch, command.arg(program));
    assert!(ran.output.status.success(), "{}", ran.said());
    let said = ran.said();
    let latest_us = said.lines().find_map(|line| line.strip_prefix("latest ")?.parse::<u64>().ok());
    assert!(latest_us.is_some_and(|latest_us| latest_us < 1_000_000), "{said}");
    let sends: u64 = ran.counters("sends").iter().sum();
    let sent_pkts: u64 = ran.counters("sent_pkts").iter().sum();
    assert!(sent_pkts > 200 * 64 && 2 * sends < sent_pkts, "{sends} of {sent_pkts}");
}
