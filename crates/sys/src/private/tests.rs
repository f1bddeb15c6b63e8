use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};

use super::*;

fn scratch() -> Scratch {
    Scratch::new("test").expect("the place for temporary files is fit")
}

fn mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

#[test]
fn a_link_a_file_and_a_folder_open_to_others_are_refused_and_left() {
    let scratch = scratch();
    let at = |name: &str| scratch.path().join(name);
    fs::create_dir(at("kept")).unwrap();
    fs::write(at("kept/file"), "kept").unwrap();
    symlink(at("kept"), at("link")).unwrap();
    fs::create_dir(at("open")).unwrap();
    mode(&at("open"), 0o777);
    fs::create_dir(at("group")).unwrap();
    mode(&at("group"), 0o770);
    fs::write(at("plain"), "").unwrap();
    for (name, why) in [
        ("link", "is a symbolic link"),
        ("open", "is writable by others"),
        ("group", "is writable by others"),
        ("plain", "is not a folder"),
    ] {
        let refusal = Folder::at(&at(name)).unwrap_err().to_string();
        assert!(refusal.contains(why) && refusal.contains("neither used nor changed"), "{refusal}");
        let parent = Folder::at(scratch.path()).unwrap();
        assert!(parent.folder(name).is_err());
        assert!(parent.folder_or_new(name).is_err());
    }
    assert_eq!(fs::read_to_string(at("kept/file")).unwrap(), "kept");
    // Only ours, but below one in which others rename.
    fs::create_dir(at("open/ours")).unwrap();
    assert!(Folder::at(&at("open/ours")).is_ok());
    assert!(Folder::reached(&at("open/ours")).is_err());
    mode(&at("open"), 0o1777);
    assert!(Folder::reached(&at("open/ours")).is_ok(), "in a sticky one nobody else renames");
}

#[test]
fn a_name_is_not_followed_out_of_the_folder() {
    let scratch = scratch();
    let outside = scratch.path().join("outside");
    fs::write(&outside, "outside").unwrap();
    let folder = Folder::at(scratch.path()).unwrap().folder_or_new("inside").unwrap();
    symlink(&outside, folder.path().join("link")).unwrap();
    assert!(folder.read("link").is_err());
    assert!(folder.append("link").is_err());
    folder.write("link", b"ours").unwrap();
    assert_eq!(folder.read("link").unwrap(), "ours", "it took the link's place");
    for way in ["../outside", "..", ".", "", "a/b"] {
        assert!(folder.read(way).is_err(), "{way:?}");
        assert!(folder.create(way).is_err(), "{way:?}");
        assert!(folder.remove(way).is_err(), "{way:?}");
        assert!(folder.folder(way).is_err(), "{way:?}");
    }
    // Another name of a file elsewhere.
    fs::hard_link(&outside, folder.path().join("hard")).unwrap();
    assert!(folder.read("hard").is_err() && folder.append("hard").is_err());
    folder.write("hard", b"ours").unwrap();
    assert_eq!(fs::read_to_string(&outside).unwrap(), "outside");
    // A pipe that nobody writes to keeps nobody waiting.
    let pipe = folder.path().join("pipe");
    rustix::fs::mknodat(CWD, &pipe, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
    assert!(folder.read("pipe").is_err());
}

#[test]
fn a_tree_is_removed_without_what_its_links_name() {
    let scratch = scratch();
    let outside = scratch.path().join("outside");
    fs::create_dir(&outside).unwrap();
    fs::write(outside.join("file"), "").unwrap();
    let folder = Folder::at(scratch.path()).unwrap();
    fs::create_dir_all(scratch.path().join("tree/a/b")).unwrap();
    fs::write(scratch.path().join("tree/a/b/c"), "").unwrap();
    symlink(&outside, scratch.path().join("tree/a/link")).unwrap();
    symlink(&outside, scratch.path().join("link")).unwrap();
    folder.remove("tree").unwrap();
    folder.remove("link").unwrap();
    folder.remove("none").unwrap();
    assert_eq!(folder.names().unwrap(), [".owner", "outside"]);
    assert!(outside.join("file").exists());
    fs::create_dir_all(scratch.path().join("deep/".repeat(70))).unwrap();
    assert!(folder.remove("deep").is_err(), "bounded");
    fs::remove_dir_all(scratch.path().join("deep")).unwrap();
}

/// On the same device, so that only its mount tells it apart.
#[test]
fn a_bind_mount_in_a_tree_is_left_with_all_below_it_root() {
    use rustix::mount::{MountPropagationFlags, mount_bind, mount_change};
    if !rustix::process::geteuid().is_root() {
        println!("skipped: only root can mount");
        return;
    }
    let scratch = scratch();
    let outside = scratch.path().join("outside");
    let inside = scratch.path().join("tree/inside");
    fs::create_dir(&outside).unwrap();
    fs::write(outside.join("file"), "").unwrap();
    fs::create_dir_all(&inside).unwrap();
    let removed = std::thread::scope(|scope| {
        let mounted = scope.spawn(|| {
            // SAFETY: no memory is passed; the mounts are this thread's own and end with it.
            assert_eq!(unsafe { libc::unshare(libc::CLONE_NEWNS) }, 0);
            let private = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
            mount_change("/", private).unwrap();
            mount_bind(&outside, &inside).unwrap();
            Folder::at(scratch.path()).unwrap().remove("tree")
        });
        mounted.join().unwrap()
    });
    let error = removed.unwrap_err().to_string();
    assert_eq!(error, "inside: something is mounted there");
    assert!(outside.join("file").exists());
}

#[test]
fn a_scratch_folder_is_closed_to_others_and_goes() {
    let scratch = scratch();
    let path = scratch.path().to_owned();
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o7777, 0o700);
    fs::write(path.join("file"), "").unwrap();
    drop(scratch);
    assert!(!path.exists());
}

#[test]
fn outputs_where_others_write_follow_no_link_and_empty_no_file_of_two_names() {
    let scratch = scratch();
    let victim = scratch.path().join("victim");
    fs::write(&victim, "kept").unwrap();
    let shared = scratch.path().join("shared");
    fs::create_dir(&shared).unwrap();
    mode(&shared, 0o1777);
    symlink(&victim, shared.join("link")).unwrap();
    fs::hard_link(&victim, shared.join("hard")).unwrap();
    for name in ["link", "hard"] {
        let path = shared.join(name);
        for refusal in [create(&path), append_to(&path), open_existing(&path)] {
            let refusal = refusal.unwrap_err().to_string();
            assert!(refusal.contains("left alone"), "{refusal}");
        }
    }
    assert!(create_new(&shared.join("link")).is_err());
    assert_eq!(fs::read_to_string(&victim).unwrap(), "kept");
    let path = shared.join("plain");
    for round in ["first and longer", "second"] {
        create(&path).unwrap().write_all(round.as_bytes()).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), round);
    }
    create_new(&path).unwrap().write_all(b"new").unwrap();
    append_to(&path).unwrap().write_all(b"er").unwrap();
    assert_eq!(fs::read_to_string(&path).unwrap(), "newer");
    // In a folder of one's own a link is the user's wish.
    symlink(&victim, scratch.path().join("link")).unwrap();
    create(&scratch.path().join("link")).unwrap().write_all(b"new").unwrap();
    assert_eq!(fs::read_to_string(&victim).unwrap(), "new");
}

#[test]
fn what_a_killed_process_left_goes_with_the_next_folder_of_its_purpose() {
    let purpose = format!("left{}", std::process::id());
    let first = Scratch::new(&purpose).expect("the place for temporary files is fit");
    let place = first.path().parent().expect("it is in one").to_owned();
    let at = |end: &str| place.join(format!("clearstream-{purpose}-{end}"));
    // As SIGKILL leaves them: locked no more, or not yet.
    let (killed, young) = (at("0123456789abcdef"), at("00000000000000aa"));
    fs::create_dir_all(killed.join("switch/ports")).unwrap();
    fs::write(killed.join(".owner"), "").unwrap();
    fs::create_dir(&young).unwrap();
    // Not ours to judge.
    let (full, named, other) = (at("00000000000000bb"), at("notes"), at("0123456789abcdef0"));
    fs::create_dir(&full).unwrap();
    fs::write(full.join("kept"), "").unwrap();
    fs::create_dir(&named).unwrap();
    fs::create_dir(&other).unwrap();
    for folder in [&killed, &young, &full, &named, &other] {
        mode(folder, 0o700);
    }
    let second = Scratch::new(&purpose).unwrap();
    assert!(!killed.exists() && !young.exists());
    assert!(first.path().exists() && second.path().exists(), "their owners live");
    for kept in [full, named, other] {
        assert!(kept.exists(), "{}", kept.display());
        fs::remove_dir_all(kept).unwrap();
    }
}
