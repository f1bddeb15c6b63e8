//! Whether this machine's KVM runs a guest: asked by running a small one.
//!
//! Some machines have `/dev/kvm` and make virtual machines, but QEMU cannot run one: virtual machines without nested
//! virtualisation, for example. On others a guest runs until it needs an instruction that KVM has to emulate and does not
//! know. Nothing but a run tells.

mod firmware;

use std::io::{self, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use sys::private::Scratch;
use sys::process::{Ending, Owned};

use crate::VmError;
use crate::line::{Accelerator, version_of};

/// Longest that the small guest may take: it is done in a moment.
const RUN_MAX: Duration = Duration::from_secs(20);

/// How often it is looked whether QEMU has stopped it.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// Long enough for a frequency within 0.01%.
const TSC_MEASURED_OVER: Duration = Duration::from_millis(10);
/// What QEMU says when KVM gives up on a guest; QEMU itself goes on, with the guest stopped.
pub(crate) const KVM_GAVE_UP: &str = "KVM internal error";

/// What runs guests on this machine, and why not KVM if so.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Choice {
    /// What.
    pub accelerator: Accelerator,
    /// Why not KVM: `there is no /dev/kvm`. Absent where it is KVM, or was asked for.
    pub why: Option<String>,
}

/// Takes KVM where it runs a small guest.
#[must_use]
pub fn choose(qemu: &Path) -> Choice {
    match kvm(qemu) {
        Ok(()) => Choice { accelerator: Accelerator::Kvm, why: None },
        Err(why) => Choice { accelerator: Accelerator::Tcg, why: Some(why) },
    }
}

/// Frequency of a guest's time stamp counter, kHz, where its kernel has to be told. Under TCG it is the host's, and a
/// kernel that measures it while QEMU waits for a core may be wrong by a factor, as are all its times then.
#[must_use]
pub fn tsc_khz(accelerator: Accelerator) -> Option<u64> {
    let is_of_host = accelerator == Accelerator::Tcg && cfg!(target_arch = "x86_64");
    is_of_host.then(|| sys::tsc::frequency_khz(TSC_MEASURED_OVER)).flatten()
}

/// Why KVM does not run a guest here, if so.
fn kvm(qemu: &Path) -> Result<(), String> {
    match std::fs::File::options().read(true).write(true).open("/dev/kvm") {
        Ok(_) => runs(qemu, Accelerator::Kvm),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            Err("there is no /dev/kvm".to_owned())
        }
        Err(error) => Err(format!("/dev/kvm: {error}")),
    }
}

/// Runs the small guest; why it did not run, if so.
///
/// # Errors
/// The reason for people.
pub fn runs(qemu: &Path, accelerator: Accelerator) -> Result<(), String> {
    let (code, said) = run_small(qemu, accelerator)
        .map_err(|error| format!("{accelerator} does not run a guest: {error}"))?;
    if code == Some(firmware::EXIT_CODE) {
        return Ok(());
    }
    Err(format!("{accelerator} does not run a guest: {}", first_line(&said)))
}

/// QEMU's exit code, absent where the guest does not come to its end, and what QEMU said.
fn run_small(qemu: &Path, accelerator: Accelerator) -> io::Result<(Option<i32>, Vec<u8>)> {
    let scratch = Scratch::new("vm").map_err(io::Error::other)?;
    let (image, log) = (scratch.path().join("firmware"), scratch.path().join("log"));
    std::fs::File::create_new(&image)?.write_all(&firmware::image())?;
    let mut command = Command::new(qemu);
    let words = match accelerator {
        Accelerator::Kvm => "-accel kvm -cpu host",
        Accelerator::Tcg => "-accel tcg -cpu max",
    };
    command.args("-nodefaults -no-user-config -display none -machine q35 -m 32M".split(' '));
    command.args(words.split(' ')).args(["-device", "isa-debug-exit,iobase=0xf4,iosize=1"]);
    command.arg("-bios").arg(&image).stdin(Stdio::null()).stdout(Stdio::null());
    command.stderr(std::fs::File::create_new(&log)?);
    let mut child = Owned::start(&mut command, Ending::KILL)?;
    let until = Instant::now() + RUN_MAX;
    loop {
        let ended = child.wait_within(LOOK_EVERY)?;
        let said = std::fs::read(&log)?;
        let gave_up = String::from_utf8_lossy(&said).contains(KVM_GAVE_UP);
        if let Some(status) = ended {
            return Ok((status.code(), said));
        }
        if gave_up || Instant::now() > until {
            child.end()?;
            return Ok((None, said));
        }
    }
}

/// What QEMU says first is why; what follows is that it ends.
fn first_line(text: &[u8]) -> String {
    let text = String::from_utf8_lossy(text);
    let line = text.lines().find(|line| !line.trim().is_empty()).unwrap_or("QEMU gives no reason");
    let why = match line.split_once(": ") {
        Some((program, why)) if !program.contains(' ') => why,
        _ => line,
    };
    let why = why.trim();
    units::printable(why.trim_start_matches("error: ")).into_owned()
}

/// QEMU's version.
///
/// # Errors
/// It is not installed, or does not say it.
pub fn qemu_version(qemu: &Path) -> Result<(u32, u32), VmError> {
    let missing = || VmError::NoProgram {
        program: qemu.display().to_string(),
        what: "it runs guests",
        package: "qemu-system-x86",
    };
    let mut command = Command::new(qemu);
    command.arg("--version").stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let child = Owned::start(&mut command, Ending::KILL).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => missing(),
        _ => VmError::NotStarted(error.to_string()),
    })?;
    let told = child.capture(4096).and_then(|child| child.ended_within(RUN_MAX));
    let told = told.map_err(VmError::file("ask for its version", qemu))?;
    let text = String::from_utf8_lossy(&told.stdout);
    version_of(&text).ok_or_else(|| VmError::NotStarted(format!("{}: no version", qemu.display())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn qemu_is_missing_by_name() {
        let error = qemu_version(Path::new("/nonexistent/qemu")).unwrap_err();
        assert!(error.is_missing() && error.to_string().contains("qemu-system-x86"), "{error}");
    }

    #[test]
    fn what_does_not_run_a_guest_is_told() {
        let false_one = Path::new("/bin/false");
        let why = runs(false_one, Accelerator::Kvm).unwrap_err();
        assert_eq!(why, "KVM does not run a guest: QEMU gives no reason");
        let text = b"\nqemu-system-x86_64: error: failed to set MSR 0x10a\nqemu: Assertion\n";
        assert_eq!(first_line(text), "failed to set MSR 0x10a");
        assert_eq!(
            first_line(b"KVM internal error. Suberror: 1\n"),
            "KVM internal error. Suberror: 1"
        );
    }

    #[test]
    fn a_small_guest_runs_under_tcg() {
        assert_eq!(runs(Path::new("qemu-system-x86_64"), Accelerator::Tcg), Ok(()));
    }

    /// In QEMU's place: it goes on after KVM has given up.
    #[test]
    fn a_guest_that_kvm_gives_up_on_is_told_at_once() {
        let scratch = Scratch::new("false-qemu").unwrap();
        let program = scratch.path().join("qemu");
        // Written by another process: no thread that forks meanwhile holds the file open for writing.
        let script = format!("echo '{KVM_GAVE_UP}. Suberror: 1' >&2; exec sleep 1000");
        let made = "printf '#!/bin/sh\\n%s\\n' \"$1\" >\"$2\"; chmod 755 \"$2\"";
        let made = Command::new("sh").args(["-c", made, "sh", &script]).arg(&program).status();
        assert!(made.unwrap().success());
        let began = Instant::now();
        let why = runs(&program, Accelerator::Kvm).unwrap_err();
        assert_eq!(why, "KVM does not run a guest: KVM internal error. Suberror: 1");
        assert!(began.elapsed() < RUN_MAX);
    }
}
