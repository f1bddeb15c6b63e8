//! `vm run`: boots a guest.

use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use packet_switch::{Name, PortName};
use serde_json::json;
use units::{parse_byte_size, parse_duration, show_byte_size};
use vm::accelerator::{Choice, choose, qemu_version, tsc_khz};
use vm::keeper::mac_of_device;
use vm::line::{self, Accelerator, DeviceQueue, DiskFormat, MachineConfig, PortType, QUEUES_MAX};
use vm::{Machine, Start};

use crate::VerbResult;
use crate::exit::{Exit, VerbError};

/// Range of a guest's memory: the least that a kernel boots with, and a bound against typing errors.
const MEMORY_BYTES: std::ops::RangeInclusive<u64> = (32 << 20)..=(16 << 40);
const CORES_MAX: u32 = 255;

#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  \
    clearstream vm run one --port vale0:one\n  \
    clearstream vm run big --port vale0:big --disk debian.qcow2 --memory 2G --cores 4\n  \
    clearstream vm run fast --port vale0:fast --type ptnet\n  \
    clearstream vm run twin --port vale0:twin --type ptnet --trust twins\n  \
    clearstream vm run gate --passthrough eth1\n  \
    clearstream vm run one --port vale0:one --print\n\n\
    The first line printed is QEMU's command line. Without --kernel and --disk the image of `vm image`\n\
    is booted, and the command returns once the guest's shell answers (with --no-wait at once). The\n\
    network device is eth0, without an address; each guest has its own hardware address. An\n\
    uncompressed kernel (vmlinux) boots fastest. Under TCG a boot takes between seconds and a minute.\n\n\
    With --trust, ptnet guests of one user on one switch share a memory; a group has at most 7. A frame\n\
    between two of them is not copied: its buffer changes hands. All other frames are copied, and ports\n\
    outside the group stay protected. Within the group, no guest is protected from another.\n\n\
    With --passthrough no switch is involved: the guest alone has the queue, with the device's\n\
    hardware address, MTU and carrier, and drives rings of its own (ptnet). Frames are copied once\n\
    between the queue and these rings. The device must be up. It is the host's again when the guest\n\
    ends, however it ends. Needs CAP_NET_ADMIN, CAP_NET_RAW and CAP_BPF.")]
pub(super) struct RunArgs {
    /// Name of the guest: letters, digits, '-', '_' and '.'.
    name: String,
    /// Port to create for the guest; it is removed when the guest ends.
    #[arg(long, value_name = "SWITCH:PORT", required_unless_present = "passthrough")]
    port: Option<PortName>,
    /// A queue of a network device to hand to the guest instead of a port [default queue: 0].
    #[arg(long, value_name = "DEVICE[:QUEUE]", conflicts_with_all = ["port", "port_type"])]
    passthrough: Option<DeviceQueue>,
    /// How the guest is connected: virtio needs no special driver, ptnet needs the module of
    /// guest/ptnet.
    #[arg(long = "type", value_name = "virtio|ptnet", default_value = "virtio",
          value_parser = ["virtio", "ptnet"])]
    port_type: String,
    /// Trust group of the guest (--type ptnet): frames between its guests are handed over without a
    /// copy, and each of them can read and write the others' rings and buffers.
    #[arg(long, value_name = "GROUP", conflicts_with = "passthrough")]
    trust: Option<Name>,
    /// A kernel to boot.
    #[arg(long, value_name = "FILE")]
    kernel: Option<PathBuf>,
    /// Initial RAM file system.
    #[arg(long, value_name = "FILE", requires = "kernel")]
    initrd: Option<PathBuf>,
    /// A disk, raw or qcow2, as /dev/vda; the guest boots from it if no kernel is given.
    #[arg(long, value_name = "FILE")]
    disk: Option<PathBuf>,
    /// Additional kernel parameters.
    #[arg(long, value_name = "WORDS", default_value = "", hide_default_value = true)]
    append: String,
    /// Memory of the guest.
    #[arg(long, value_name = "SIZE", default_value = "256M", value_parser = parse_byte_size)]
    memory: u64,
    /// Number of cores of the guest.
    #[arg(long, value_name = "N", default_value_t = 1,
          value_parser = clap::value_parser!(u32).range(1..=i64::from(CORES_MAX)))]
    cores: u32,
    /// Number of queue pairs of its network device, at most 16, with --type ptnet 8 [default: one per
    /// core; with --trust and --passthrough only one is possible].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=i64::from(QUEUES_MAX)))]
    queues: Option<u32>,
    /// What runs the guest: auto is KVM where KVM can run a small test guest, otherwise TCG.
    #[arg(long, value_name = "auto|kvm|tcg", default_value = "auto", value_parser = ["auto", "kvm", "tcg"])]
    accelerator: String,
    /// The QEMU program.
    #[arg(long, value_name = "PROGRAM", default_value = "qemu-system-x86_64")]
    qemu: PathBuf,
    /// Where `vm image` keeps the image [default: that of vm image].
    #[arg(long, value_name = "DIR", conflicts_with_all = ["kernel", "disk"])]
    image: Option<PathBuf>,
    /// Longest time to wait until the guest is ready.
    #[arg(long, value_name = "TIME", default_value = "5m", value_parser = parse_duration)]
    wait: Duration,
    /// Return as soon as QEMU runs.
    #[arg(long, conflicts_with = "wait")]
    no_wait: bool,
    /// End the guest when this process ends, however it ends.
    #[arg(long = "while", value_name = "PID", value_parser = clap::value_parser!(i32).range(1..))]
    owner: Option<i32>,
    /// Only print QEMU's command line.
    #[arg(long)]
    print: bool,
}

pub(super) fn run(args: &RunArgs, switch: &Path, json: bool) -> VerbResult {
    let (config, why) = config(args, switch)?;
    let mut out = crate::out::stdout();
    if args.print {
        let words = line::qemu(&config, &Machine::folder_of(&config.name)?);
        match json {
            true => writeln!(out, "{}", json!({ "line": words }))?,
            false => writeln!(out, "{}", line::shell_line(&words))?,
        }
        return Ok(Exit::Ok);
    }
    let began = Instant::now();
    let start = Start { config: &config, program: &super::program(), owner: args.owner };
    let machine = Machine::start(start)?;
    let words = machine.line();
    if !json {
        writeln!(out, "{}", line::shell_line(&words))?;
    }
    let waits = config.has_shell && !args.no_wait;
    if waits {
        machine.wait_until_ready(args.wait)?;
    }
    let took = began.elapsed();
    let state = machine.state();
    let MachineConfig { name, port, passthrough, accelerator, .. } = &config;
    if json {
        let line = json!({ "name": name, "port": port, "passthrough": passthrough, "pid": state.keeper.pid,
            "qemu_pid": state.qemu.pid, "line": words, "accelerator": accelerator, "no_kvm": why,
            "ready": state.is_ready, "ready_after_s": waits.then_some(took.as_secs_f64()) });
        writeln!(out, "{line}")?;
        return Ok(Exit::Ok);
    }
    let why = why.map(|why| format!(" ({why})")).unwrap_or_default();
    let after =
        if waits { format!(", ready after {:.1} s", took.as_secs_f64()) } else { String::new() };
    let memory = show_byte_size(config.memory_bytes);
    let cores =
        if config.cores == 1 { "1 core".to_owned() } else { format!("{} cores", config.cores) };
    let network = config.network();
    writeln!(out, "guest {name} is up on {network}: {cores}, {memory}, {accelerator}{why}{after}")?;
    Ok(Exit::Ok)
}

/// The requested machine, and why it does not use KVM if it does not.
fn config(args: &RunArgs, switch: &Path) -> Result<(MachineConfig, Option<String>), VerbError> {
    if !MEMORY_BYTES.contains(&args.memory) {
        let said = show_byte_size(args.memory);
        return Err(VerbError::usage(format!("--memory {said}: expected 32 MiB to 16 TiB")));
    }
    let port_type = match (&args.passthrough, args.port_type.as_str()) {
        (Some(_), _) | (None, "ptnet") => PortType::Ptnet,
        _ => PortType::Virtio,
    };
    let queues = queues(args, port_type)?;
    if args.trust.is_some() && port_type != PortType::Ptnet {
        return Err(VerbError::usage(
            "--trust needs --type ptnet: guests of other types share no memory",
        ));
    }
    let mac = match (&args.passthrough, &args.port) {
        (Some(queue), _) => mac_of_device(&queue.device)?,
        (None, port) => port.as_ref().map(line::mac_of).unwrap_or_default(),
    };
    let qemu_version = qemu_version(&args.qemu)?;
    let Choice { accelerator, why } = match args.accelerator.as_str() {
        "kvm" => Choice { accelerator: Accelerator::Kvm, why: None },
        "tcg" => Choice { accelerator: Accelerator::Tcg, why: None },
        _ => choose(&args.qemu),
    };
    let ours = args.kernel.is_none() && args.disk.is_none();
    let (kernel, initrd) = if ours {
        let folder = args.image.clone().unwrap_or_else(vm::image::default_folder);
        let image = vm::image::find(&folder)?;
        if let (PortType::Ptnet, Some(why)) = (port_type, image.no_ptnet) {
            return Err(vm::VmError::NoDriver(why).into());
        }
        (Some(image.kernel), Some(image.initrd))
    } else {
        (
            args.kernel.as_deref().map(given).transpose()?,
            args.initrd.as_deref().map(given).transpose()?,
        )
    };
    let config = MachineConfig {
        name: args.name.clone(),
        port: args.port.clone(),
        passthrough: args.passthrough.clone(),
        port_type,
        trust: args.trust.clone(),
        switch: switch.to_owned(),
        kernel,
        initrd,
        disk: args.disk.as_deref().map(disk).transpose()?,
        memory_bytes: args.memory,
        cores: args.cores,
        queues,
        mac,
        append: args.append.clone(),
        has_shell: ours,
        accelerator,
        tsc_khz: tsc_khz(accelerator),
        qemu: args.qemu.clone(),
        qemu_version,
    };
    Ok((config, why))
}

/// Pairs of queues of its device: as many as it is given, or as it has cores.
fn queues(args: &RunArgs, port_type: PortType) -> Result<u32, VerbError> {
    let most = port_type.queues_max(args.trust.is_some() || args.passthrough.is_some());
    let wanted = args.queues.unwrap_or(args.cores.min(most));
    if wanted <= most {
        return Ok(wanted);
    }
    Err(VerbError::usage(match (&args.trust, &args.passthrough) {
        (Some(_), _) => "--queues: a guest in a trust group has one pair of queues".to_owned(),
        (_, Some(_)) => "--queues: one queue of the device is passed through".to_owned(),
        _ => format!("--queues: a ptnet device has at most {most} pairs of queues"),
    }))
}

/// The absolute path of a file that QEMU reads, because QEMU runs in another directory.
fn given(path: &Path) -> Result<PathBuf, VerbError> {
    let unreadable = |error| VerbError::unreadable(path, &error);
    std::fs::File::open(path).map_err(unreadable)?;
    std::path::absolute(path).map_err(unreadable)
}

fn disk(path: &Path) -> Result<(PathBuf, DiskFormat), VerbError> {
    let unreadable = |error| VerbError::unreadable(path, &error);
    let mut first = Vec::new();
    std::fs::File::open(path)
        .and_then(|file| file.take(4).read_to_end(&mut first))
        .map_err(unreadable)?;
    Ok((given(path)?, DiskFormat::of(&first)))
}
