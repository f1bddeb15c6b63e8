//! Ranks of one host and its memory: which transport carried a job, and what ranks that die do to the others.

use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::{Duration, Instant};

use sys::private::Scratch;

use crate::scene::{Ran, compiled, mpirun, program, run};

/// Names the use of memory to the provider.
const VARIABLE: &str = "FI_CLEARSTREAM_SHM";

/// A job of two ranks whose every byte is checked.
fn job(name: &str, adapt: impl FnOnce(&mut Command)) -> Ran {
    let scratch = Scratch::new(name).expect("a folder");
    let mut command = mpirun(&scratch, 2);
    adapt(&mut command);
    let ran = run(&scratch, command.arg(program()).arg("1"));
    assert!(ran.output.status.success(), "{}", ran.said());
    assert!(ran.said().contains("correct: 2 ranks"), "{}", ran.said());
    assert_eq!(ran.report.len(), 2, "{:?}", ran.report);
    ran
}

#[test]
fn ranks_of_one_host_share_memory_and_long_messages_are_copied_once() {
    let ran = job("memory-direct", |_| {});
    assert_eq!(ran.counters("memory_peers"), [1, 1], "{:?}", ran.report);
    assert!(ran.counters("memory_pkts").iter().all(|&count| count > 100), "{:?}", ran.report);
    assert_eq!(ran.counters("sends"), [0, 0], "no datagram was sent: {:?}", ran.report);
    assert!(ran.counters("direct_bytes").iter().all(|&bytes| bytes > 1 << 20), "{:?}", ran.report);
}

#[test]
fn without_leave_to_read_the_other_long_messages_go_through_the_rings() {
    let ran = job("memory-rings", |command| {
        command.env(VARIABLE, "rings");
    });
    assert_eq!(ran.counters("sends"), [0, 0], "no datagram was sent: {:?}", ran.report);
    assert_eq!(ran.counters("direct_bytes"), [0, 0]);
}

#[test]
fn memory_that_is_switched_off_is_not_used() {
    let ran = job("memory-off", |command| {
        command.env(VARIABLE, "off");
    });
    assert_eq!(ran.counters("memory_peers"), [0, 0]);
    assert!(!ran.said().contains("shared memory"), "{}", ran.said());
}

/// As a container's filter of system calls: the kernel gives no memory to share.
fn without_system_call(command: &mut Command, number: libc::c_long) {
    // SAFETY: the closure calls `prctl` alone, with memory of its own.
    unsafe { command.pre_exec(move || refuse(number)) };
}

fn refuse(number: libc::c_long) -> std::io::Result<()> {
    let step =
        |code: u32, jt: u8, jf: u8, k: u32| libc::sock_filter { code: code as u16, jt, jf, k };
    let number = u32::try_from(number).expect("a small number");
    let refusal = libc::SECCOMP_RET_ERRNO | libc::EPERM as u32;
    let mut filter = [
        step(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, 0),
        step(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 0, 1, number),
        step(libc::BPF_RET | libc::BPF_K, 0, 0, refusal),
        step(libc::BPF_RET | libc::BPF_K, 0, 0, libc::SECCOMP_RET_ALLOW),
    ];
    let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_mut_ptr() };
    // SAFETY: numbers only.
    let without_privileges = unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) };
    let mode = libc::SECCOMP_MODE_FILTER;
    // SAFETY: a program with its length, which the kernel copies.
    let filtered = unsafe { libc::prctl(libc::PR_SET_SECCOMP, mode, &raw const program) };
    if without_privileges == 0 && filtered == 0 {
        Ok(())
    } else {
        Err(std::io::Error::last_os_error())
    }
}

#[test]
fn ranks_without_memory_to_share_use_udp_and_say_why() {
    let ran = job("memory-refused", |command| {
        without_system_call(command, libc::SYS_memfd_create);
    });
    assert_eq!(ran.counters("memory_peers"), [0, 0]);
    assert!(
        ran.said().contains("go over UDP, without shared memory: memfd_create"),
        "{}",
        ran.said()
    );
}

#[test]
fn ranks_that_may_not_read_each_other_pull_long_messages_through_the_rings() {
    let ran = job("memory-unread", |command| {
        without_system_call(command, libc::SYS_process_vm_readv);
    });
    assert_eq!(ran.counters("sends"), [0, 0], "no datagram was sent: {:?}", ran.report);
    assert_eq!(ran.counters("direct_bytes"), [0, 0]);
}

/// Rank 1 ends or stops itself; with recovery enabled the launcher leaves it to rank 0 to notice.
fn check_loss(name: &str, signal: i32, most: Duration) {
    let scratch = Scratch::new(name).expect("a folder");
    let lost = compiled("lost", &scratch.path().join("lost"));
    let began = Instant::now();
    let ran = run(
        &scratch,
        mpirun(&scratch, 2)
            .args(["--enable-recovery", "-x", "FI_CLEARSTREAM_STOPPED_S"])
            .env("FI_CLEARSTREAM_STOPPED_S", "3")
            .arg(&lost)
            .arg(signal.to_string()),
    );
    // The launcher's own code says nothing: with recovery enabled it is that of a success.
    assert!(ran.said().contains("rank 0 knew after"), "{}", ran.said());
    assert!(began.elapsed() < most, "{:?}: {}", began.elapsed(), ran.said());
}

#[test]
fn a_killed_rank_of_this_host_is_an_error_of_the_others() {
    check_loss("memory-killed", libc::SIGKILL, Duration::from_secs(60));
}

#[test]
fn a_stopped_rank_of_this_host_is_an_error_of_the_others() {
    check_loss("memory-stopped", libc::SIGSTOP, Duration::from_secs(60));
}
