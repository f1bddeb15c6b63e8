//! Labs in a plain chroot, where the kernel refuses what they are made of.

use std::process::Command;

use testkit::lab_bed::{self, LabBed};

/// `$0` a folder that is no mount point, with all of `/` below it; the rest is run in it.
const SCRIPT: &str = "
    for each in /* ; do
        if [ -L $each ]; then cp -P $each $0$each
        elif [ -d $each ]; then mkdir -p $0$each && mount --rbind $each $0$each
        fi
    done
    exec chroot \"$@\"";

#[test]
fn root_in_a_chroot_the_reason_is_named() {
    if !rustix::process::geteuid().is_root() {
        println!("skipped: only root can become another user");
        return;
    }
    let bed = LabBed::file("chroot", "delay = \"1ms\"");
    let root = std::env::temp_dir().join(format!("chroot-{}", std::process::id()));
    std::fs::create_dir(&root).expect("a folder of our own");
    let inside = |options: &[&str], arguments: &[&str]| {
        let root = root.to_str().expect("a plain path");
        Command::new("unshare")
            .args(["--mount", "--propagation", "private", "sh", "-c", SCRIPT, root])
            .args(options)
            .args([root, crate::PROGRAM, "lab"])
            .args(arguments)
            .output()
            .expect("unshare is part of util-linux")
    };
    // Root's lab comes up, and no program can be given a view of its own.
    let up = inside(&[], &["up", bed.path()]);
    assert_eq!(lab_bed::code(&up), 0, "{}", lab_bed::complaint(&up));
    let exec = inside(&[], &["exec", &bed.name, "near", "--", "true"]);
    let detached = inside(&[], &["exec", "--detach", &bed.name, "near", "--", "true"]);
    inside(&[], &["down", &bed.name]);
    for refused in [exec, detached] {
        let line = lab_bed::complaint(&refused);
        assert!(!refused.status.success() && line.contains("this runs in a chroot"), "{line}");
        assert!(line.contains("pivot_root"), "{line}");
    }
    // Never what is in them: seen from here, nothing is mounted there.
    for entry in std::fs::read_dir(&root).expect("ours") {
        let path = entry.expect("ours").path();
        std::fs::remove_file(&path).or_else(|_| std::fs::remove_dir(&path)).expect("empty");
    }
    std::fs::remove_dir(&root).expect("empty now");
}
