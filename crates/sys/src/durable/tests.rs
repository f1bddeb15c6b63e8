use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::process::Command;

use rustix::thread::CapabilitySet;
use seccompiler::{BpfProgram, SeccompAction, SeccompFilter};

use super::*;
use crate::private::Scratch;

fn scratch() -> Scratch {
    Scratch::new("durable").expect("the place for temporary files is fit")
}

/// What is in a folder but the file by which [`Scratch`] owns it.
fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).unwrap();
    let mut names: Vec<String> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.retain(|name| name != ".owner");
    names.sort_unstable();
    names
}

#[test]
fn a_replaced_file_holds_the_new_contents_and_nothing_stays_beside_it() {
    let scratch = scratch();
    let path = scratch.path().join("file");
    replace(&path, b"first").unwrap();
    let created = fs::metadata(&path).unwrap().permissions().mode();
    assert_eq!(created & 0o111, 0, "no file of data is a program");
    let mut file = replace_with(&path, |file| file.write_all(b"second")).unwrap();
    assert_eq!(fs::read(&path).unwrap(), b"second");
    file.write_all(b" and more").unwrap();
    assert_eq!(fs::read(&path).unwrap(), b"second and more", "it is the file at the name");
    assert_eq!(names(scratch.path()), ["file"]);
    remove(&path).unwrap();
    remove(&path).unwrap();
    assert_eq!(names(scratch.path()), [""; 0]);
}

#[test]
fn a_link_at_the_name_is_replaced_and_not_followed() {
    let scratch = scratch();
    let (kept, path) = (scratch.path().join("kept"), scratch.path().join("file"));
    fs::write(&kept, "kept").unwrap();
    symlink(&kept, &path).unwrap();
    replace(&path, b"new").unwrap();
    assert_eq!(fs::read(&path).unwrap(), b"new");
    assert_eq!(fs::read(&kept).unwrap(), b"kept");
    replace_by_link(&path, "kept").unwrap();
    replace_by_link(&path, "other").unwrap();
    assert_eq!(fs::read_link(&path).unwrap(), Path::new("other"));
    assert_eq!(names(scratch.path()), ["file", "kept"]);
}

#[test]
fn what_a_killed_writer_left_goes_and_what_no_writer_leaves_stays() {
    let scratch = scratch();
    let (kept, path) = (scratch.path().join("kept"), scratch.path().join("file"));
    let beside = scratch.path().join("file.new");
    fs::write(&beside, "half a fi").unwrap();
    replace(&path, b"whole").unwrap();
    assert_eq!(names(scratch.path()), ["file"]);
    fs::write(&kept, "kept").unwrap();
    symlink(&kept, &beside).unwrap();
    let refused = replace(&path, b"new").unwrap_err();
    assert_eq!((refused.step, refused.path.as_path()), (Step::Create, beside.as_path()));
    assert!(refused.is_untouched());
    assert_eq!(fs::read(&kept).unwrap(), b"kept");
    assert_eq!(fs::read(&path).unwrap(), b"whole");
    assert!(fs::symlink_metadata(&beside).unwrap().is_symlink());
}

#[test]
fn a_missing_folder_is_told_before_anything_is_written() {
    let scratch = scratch();
    let path = scratch.path().join("missing/file");
    let refused = replace(&path, b"new").unwrap_err();
    assert_eq!(refused.step, Step::OpenFolder);
    assert_eq!(refused.source.kind(), io::ErrorKind::NotFound);
    assert_eq!(refused.to_string(), format!("{}: cannot open its folder", path.display()));
    assert_eq!(sync_folder(path.parent().unwrap()).unwrap_err().step, Step::OpenFolder);
    assert_eq!(replace(Path::new("/"), b"").unwrap_err().step, Step::OpenFolder);
}

#[test]
fn a_file_that_cannot_be_made_is_named_as_it_was_asked_for() {
    let scratch = scratch();
    let folder = scratch.path().join("folder");
    fs::create_dir(&folder).unwrap();
    fs::set_permissions(&folder, fs::Permissions::from_mode(0o500)).unwrap();
    let path = folder.join("file");
    let refused = thread::scope(|scope| {
        let both = || {
            obey_modes();
            [replace(&path, b"new"), replace_by_link(&path, "other")].map(Result::unwrap_err)
        };
        scope.spawn(both).join().unwrap()
    });
    for error in refused {
        assert_eq!((error.step, error.path.as_path()), (Step::Create, path.as_path()));
        assert_eq!(error.source.kind(), io::ErrorKind::PermissionDenied);
    }
}

#[test]
fn an_error_of_the_contents_leaves_the_old_file() {
    let scratch = scratch();
    let path = scratch.path().join("file");
    replace(&path, b"old").unwrap();
    let fails = |file: &mut File| {
        file.write_all(b"half")?;
        Err(io::ErrorKind::StorageFull.into())
    };
    let refused = replace_with(&path, fails).unwrap_err();
    assert_eq!((refused.step, refused.source.kind()), (Step::Write, io::ErrorKind::StorageFull));
    assert_eq!(fs::read(&path).unwrap(), b"old");
    assert_eq!(names(scratch.path()), ["file"]);
}

/// Tells the second process of the next test where to write.
const FULL: &str = "CLEARSTREAM_TEST_FULL";

#[test]
fn no_room_for_the_new_file_leaves_the_old_one() {
    if let Some(folder) = std::env::var_os(FULL) {
        let path = Path::new(&folder).join("file");
        let refused = replace(&path, &[b'x'; 1 << 20]).unwrap_err();
        assert_eq!(refused.step, Step::Write, "{refused}: {}", refused.source);
        assert_eq!(refused.source.kind(), io::ErrorKind::FileTooLarge);
        assert!(refused.is_untouched());
        return;
    }
    let scratch = scratch();
    let path = scratch.path().join("file");
    replace(&path, b"old").unwrap();
    // A file may have 8 blocks of 512 bytes: the kernel takes some of the bytes and then no more.
    let output = Command::new("sh")
        .args(["-c", "trap '' XFSZ; ulimit -f 8; exec \"$@\"", "sh"])
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", "durable::tests::no_room_for_the_new_file_leaves_the_old_one"])
        .env(FULL, scratch.path())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && said.contains("1 passed"), "{said}");
    assert_eq!(fs::read(&path).unwrap(), b"old");
    assert_eq!(names(scratch.path()), ["file"]);
}

#[test]
fn two_writers_of_one_name_take_turns() {
    const WRITERS: u8 = 4;
    const BYTES: usize = 256 << 10;
    let scratch = scratch();
    let path = scratch.path().join("file");
    replace(&path, &vec![b'a'; BYTES]).unwrap();
    thread::scope(|scope| {
        for writer in 0..WRITERS {
            let path = &path;
            scope.spawn(move || {
                let bytes = vec![b'a' + writer; BYTES];
                for _ in 0..20 {
                    replace(path, &bytes).unwrap();
                    let found = fs::read(path).unwrap();
                    assert_eq!(found.len(), BYTES, "only whole files take the name");
                    assert!(found.iter().all(|byte| *byte == found[0]), "of one writer");
                }
            });
        }
    });
    assert_eq!(names(scratch.path()), ["file"]);
}

/// From now on this thread may read only what the mode of a file lets it, also as root.
fn obey_modes() {
    let mut sets = rustix::thread::capabilities(None).unwrap();
    sets.effective -= CapabilitySet::DAC_OVERRIDE | CapabilitySet::DAC_READ_SEARCH;
    rustix::thread::set_capabilities(None, sets).unwrap();
}

/// From now on `syncfs` is an I/O error for this thread, as of a disk that has gone.
fn break_syncfs() {
    let rules = BTreeMap::from([(libc::SYS_syncfs, Vec::new())]);
    let action = SeccompAction::Errno(libc::EIO as u32);
    let arch = std::env::consts::ARCH.try_into().unwrap();
    let filter = SeccompFilter::new(rules, SeccompAction::Allow, action, arch).unwrap();
    let program: BpfProgram = filter.try_into().unwrap();
    seccompiler::apply_filter(&program).unwrap();
}

#[test]
fn where_the_folder_cannot_be_synced_its_file_system_is() {
    let scratch = scratch();
    let folder = scratch.path().join("folder");
    fs::create_dir(&folder).unwrap();
    fs::set_permissions(&folder, fs::Permissions::from_mode(0o300)).unwrap();
    let path = folder.join("file");
    let (result, refused) = thread::scope(|scope| {
        let both = || {
            obey_modes();
            assert!(fs::read_dir(&folder).is_err(), "the folder cannot be read");
            let result = replace(&path, b"first");
            break_syncfs();
            (result, replace(&path, b"second").unwrap_err())
        };
        scope.spawn(both).join().unwrap()
    });
    fs::set_permissions(&folder, fs::Permissions::from_mode(0o700)).unwrap();
    result.unwrap();
    assert_eq!(refused.step, Step::SyncFolder);
    assert_eq!(refused.source.raw_os_error(), Some(libc::EIO));
    assert!(!refused.is_untouched());
    assert_eq!(fs::read(&path).unwrap(), b"second");
    assert_eq!(names(&folder), ["file"]);
}
