use super::*;

fn config() -> MachineConfig {
    MachineConfig {
        name: "one".to_owned(),
        port: "vale0:one".parse().ok(),
        passthrough: None,
        port_type: PortType::Virtio,
        trust: None,
        switch: "/run/switch".into(),
        kernel: Some("/g/vmlinux".into()),
        initrd: Some("/g/initrd.gz".into()),
        disk: None,
        memory_bytes: 256 << 20,
        cores: 1,
        queues: 1,
        mac: "52:54:00:00:00:01".to_owned(),
        append: String::new(),
        has_shell: true,
        accelerator: Accelerator::Tcg,
        tsc_khz: Some(2_400_000),
        qemu: "qemu-system-x86_64".into(),
        qemu_version: (7, 2),
    }
}

/// What follows an option, each time it is given.
fn after<'a>(line: &'a [String], option: &str) -> Vec<&'a str> {
    let pairs = line.windows(2).filter(|pair| pair[0] == option);
    pairs.map(|pair| pair[1].as_str()).collect()
}

#[test]
fn a_guest_under_tcg_has_shared_memory_and_no_msi_x() {
    let line = qemu(&config(), Path::new("/run/vms/one"));
    assert_eq!(line[0], "qemu-system-x86_64");
    assert_eq!(after(&line, "-accel"), ["tcg,thread=multi"]);
    assert_eq!(after(&line, "-machine"), ["q35,memory-backend=mem"]);
    assert_eq!(after(&line, "-m"), ["268435456B"]);
    let memory = "memory-backend-memfd,id=mem,size=268435456B,share=on";
    assert_eq!(after(&line, "-object"), [memory]);
    let device = "virtio-net-pci,netdev=net,mac=52:54:00:00:00:01,vectors=0";
    assert_eq!(after(&line, "-device"), [device]);
    assert_eq!(after(&line, "-netdev"), ["vhost-user,id=net,chardev=port,queues=1"]);
    assert_eq!(
        after(&line, "-chardev"),
        [
            "socket,id=console,server=on,wait=off,path=/run/vms/one/console.sock,\
             logfile=/run/vms/one/console.log,logappend=on",
            "socket,id=shell,server=on,wait=off,path=/run/vms/one/shell.sock",
            "socket,id=port,path=/run/vms/one/port.sock,reconnect=1",
        ]
    );
    assert_eq!(after(&line, "-qmp"), ["unix:/run/vms/one/qmp.sock,server=on,wait=off"]);
    assert_eq!(after(&line, "-serial"), ["chardev:console", "chardev:shell"]);
    let words = after(&line, "-append")[0];
    assert!(
        words.contains("no_timer_check") && words.ends_with(" tsc_early_khz=2400000"),
        "{words}"
    );
    assert!(after(&line, "-drive").is_empty());
}

#[test]
fn a_guest_under_kvm_has_the_hosts_processor_and_msi_x() {
    let config = MachineConfig {
        accelerator: Accelerator::Kvm,
        tsc_khz: None,
        cores: 4,
        queues: 4,
        append: "nosmp panic=1".to_owned(),
        qemu_version: (10, 0),
        ..config()
    };
    let line = qemu(&config, Path::new("/f"));
    assert_eq!((after(&line, "-accel"), after(&line, "-cpu")), (vec!["kvm"], vec!["host"]));
    assert_eq!(after(&line, "-smp"), ["4"]);
    assert_eq!(after(&line, "-netdev"), ["vhost-user,id=net,chardev=port,queues=4"]);
    let device = "virtio-net-pci,netdev=net,mac=52:54:00:00:00:01,mq=on";
    assert_eq!(after(&line, "-device"), [device]);
    assert!(after(&line, "-chardev")[2].ends_with(",reconnect-ms=200"));
    let words = "console=ttyS0 quiet mitigations=off random.trust_cpu=on nosmp panic=1";
    assert_eq!(after(&line, "-append"), [words]);
}

#[test]
fn a_ptnet_guest_has_the_ports_memory_as_a_device_with_doorbells() {
    let config = MachineConfig { port_type: PortType::Ptnet, ..config() };
    let line = qemu(&config, Path::new("/f"));
    // QEMU must not connect again.
    assert_eq!(after(&line, "-chardev")[2], "socket,id=port,path=/f/port.sock");
    let devices = [
        "pcie-root-port,id=root,chassis=1,pref64-reserve=4G",
        "ivshmem-doorbell,chardev=port,bus=root,vectors=3",
    ];
    assert_eq!(after(&line, "-device"), devices);
    assert!(after(&line, "-netdev").is_empty());
}

#[test]
fn a_guest_beside_the_switch_has_a_tap_device_under_its_own_name() {
    let config = MachineConfig { port_type: PortType::Tap, ..config() };
    let line = qemu(&config, Path::new("/f"));
    assert_eq!(after(&line, "-netdev"), ["tap,id=net,ifname=one,script=no,downscript=no"]);
    assert_eq!(after(&line, "-device"), ["virtio-net-pci,netdev=net,mac=52:54:00:00:00:01"]);
    assert_eq!(after(&line, "-chardev").len(), 2);
}

#[test]
fn a_guest_of_before_there_were_types_has_a_virtio_device() {
    let mut old = serde_json::to_value(config()).unwrap();
    assert_eq!(old.as_object_mut().unwrap().remove("port_type").unwrap(), "virtio");
    assert_eq!(serde_json::from_value::<MachineConfig>(old).unwrap(), config());
}

#[test]
fn queues_are_read_as_they_are_written_and_shown_as_ports_are() {
    let of = |text: &str| text.parse::<DeviceQueue>();
    let queue = |device: &str, queue| DeviceQueue { device: device.to_owned(), queue };
    assert_eq!(of("eth0").unwrap(), queue("eth0", 0));
    assert_eq!(of("eth0.7:12").unwrap(), queue("eth0.7", 12));
    for wrong in [
        "",
        ":1",
        "eth0:",
        "eth0:x",
        "eth0:-1",
        "eth0:1:2",
        "a/b",
        "..",
        "a b",
        "sixteen-letters-",
        "eth0:4294967296",
    ] {
        let error = of(wrong).unwrap_err();
        assert!(error.is_usage() && !error.to_string().contains('\n'), "{wrong}: {error}");
    }
    let config = MachineConfig { passthrough: Some(queue("eth0", 2)), port: None, ..config() };
    assert_eq!(config.network(), "eth0 queue 2");
    assert_eq!(self::config().network(), "vale0:one");
}

#[test]
fn a_disk_boots_without_a_kernel_and_its_format_is_told() {
    let disk = Some(("/d/a,b.img".into(), DiskFormat::Raw));
    let config = MachineConfig { kernel: None, initrd: None, disk, ..config() };
    let line = qemu(&config, Path::new("/f"));
    assert_eq!(after(&line, "-drive"), ["file=/d/a,,b.img,format=raw,if=virtio"]);
    assert!(after(&line, "-append").is_empty() && after(&line, "-kernel").is_empty());
    assert_eq!(DiskFormat::of(b"QFI\xfb\0\0"), DiskFormat::Qcow2);
    assert_eq!(DiskFormat::of(b"QF"), DiskFormat::Raw);
}

#[test]
fn a_printed_line_is_what_a_shell_reads_back() {
    let words = ["a", "", "two words", "it's", "$HOME;`x`", "x=y,z/1:2"];
    let line = shell_line(&words);
    assert_eq!(line, "a '' 'two words' 'it'\\''s' '$HOME;`x`' x=y,z/1:2");
    let script = format!("for word in {line}; do printf '%s|' \"$word\"; done");
    let output = std::process::Command::new("sh").args(["-c", &script]).output().unwrap();
    let read: Vec<_> = std::str::from_utf8(&output.stdout).unwrap().split('|').collect();
    assert_eq!(read[..words.len()], words);
}

#[test]
fn versions_are_read_as_distributions_write_them() {
    let debian = "QEMU emulator version 7.2.22 (Debian 1:7.2+dfsg-7+deb12u18)\nCopyright";
    assert_eq!(version_of(debian), Some((7, 2)));
    assert_eq!(version_of("QEMU emulator version 10.0.2"), Some((10, 0)));
    assert_eq!(version_of("QEMU emulator version x"), None);
    assert_eq!(version_of(""), None);
}

#[test]
fn ports_have_addresses_of_their_own() {
    let of = |name: &str| mac_of(&name.parse().unwrap());
    let names: Vec<String> = (0..200).map(|number| format!("vale0:vm{number}")).collect();
    let all: std::collections::BTreeSet<String> = names.iter().map(|name| of(name)).collect();
    assert_eq!(all.len(), names.len());
    assert!(all.iter().all(|mac| mac.starts_with("52:54:00:") && mac.len() == 17));
    assert_eq!(of("vale0:a"), of("vale0:a"));
    assert!(all.iter().all(|mac| mac_bytes(mac).is_ok()));
    assert_eq!(mac_bytes("52:54:00:0a:FF:01").unwrap(), [0x52, 0x54, 0, 0xa, 0xff, 1]);
    for wrong in ["", "52:54:00:00:00", "52:54:00:00:00:1", "+2:54:00:00:00:01"] {
        assert!(mac_bytes(wrong).is_err(), "{wrong}");
    }
}
