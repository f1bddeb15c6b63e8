//! From what a guest is to be to QEMU's command line.

use std::path::{Path, PathBuf};

use packet_switch::{Name, PortName};
use serde::{Deserialize, Serialize};

use crate::VmError;
use crate::ptnet::{RING_QUEUES_MAX, vectors};

/// Most pairs of queues of a guest, those of its port.
pub const QUEUES_MAX: u32 = 16;

/// What a guest is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MachineConfig {
    /// Under which it is up, at most once for a user.
    pub name: String,
    /// The port of the switch that its network device is connected to; none where that is a queue of the host's.
    pub port: Option<PortName>,
    /// The queue that is passed through to it instead, by rings that it drives itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub passthrough: Option<DeviceQueue>,
    /// How it is connected to it.
    #[serde(default)]
    pub port_type: PortType,
    /// The trust group that its port is a member of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trust: Option<Name>,
    /// Where the switch is asked.
    pub switch: PathBuf,
    /// What it boots; from its disk where absent.
    pub kernel: Option<PathBuf>,
    /// The file system in memory that the kernel begins with.
    pub initrd: Option<PathBuf>,
    /// A disk's file, and whether that is in QEMU's own format or raw.
    pub disk: Option<(PathBuf, DiskFormat)>,
    /// Memory, bytes.
    pub memory_bytes: u64,
    /// Cores.
    pub cores: u32,
    /// Pairs of queues of its network device.
    pub queues: u32,
    /// Hardware address of its network device.
    pub mac: String,
    /// Words for the kernel besides ours.
    pub append: String,
    /// Whether its second serial port has a shell as [`crate::serial`] knows it.
    pub has_shell: bool,
    /// What runs its instructions.
    pub accelerator: Accelerator,
    /// Frequency of the counter by which it tells the time ([`tsc_khz`](crate::accelerator::tsc_khz)), kHz.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tsc_khz: Option<u64>,
    /// QEMU's program.
    pub qemu: PathBuf,
    /// QEMU's version: major and minor.
    pub qemu_version: (u32, u32),
}

impl MachineConfig {
    /// What its network device is connected to, for people: `vale0:one`, `eth0 queue 0`.
    #[must_use]
    pub fn network(&self) -> String {
        let queue = self.passthrough.as_ref().map(DeviceQueue::to_string);
        queue.or_else(|| Some(self.port.as_ref()?.to_string())).unwrap_or_default()
    }
}

/// A queue of a network device of the host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceQueue {
    /// The interface.
    pub device: String,
    /// Number of the queue.
    pub queue: u32,
}

impl std::fmt::Display for DeviceQueue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} queue {}", self.device, self.queue)
    }
}

/// Longest name of an interface, bytes, as the kernel's.
const INTERFACE_BYTES_MAX: usize = 15;

/// `eth0` or `eth0:2`: the kernel allows no colon in a name.
impl std::str::FromStr for DeviceQueue {
    type Err = VmError;

    fn from_str(text: &str) -> Result<Self, VmError> {
        let (device, queue) = text.split_once(':').unwrap_or((text, "0"));
        let is_plain = |c: char| !c.is_whitespace() && !c.is_control() && c != '/';
        let is_name = (1..=INTERFACE_BYTES_MAX).contains(&device.len())
            && device.chars().all(is_plain)
            && !matches!(device, "." | "..");
        match queue.parse() {
            Ok(queue) if is_name => Ok(Self { device: device.to_owned(), queue }),
            _ => {
                let text = units::printable(text);
                Err(VmError::Invalid(format!("'{text}' is not DEVICE[:QUEUE], such as eth0:2")))
            }
        }
    }
}

/// How a guest is connected to its port.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PortType {
    /// By vhost-user: the guest has a virtio-net device, and needs no driver of ours.
    #[default]
    Virtio,
    /// The guest drives the port's rings itself, by `guest/ptnet`.
    Ptnet,
    /// To no port: its virtio-net device is a TAP device of the host, which QEMU makes under the guest's name. What ports
    /// are compared with.
    Tap,
}

impl PortType {
    /// Most pairs of queues of a guest that is connected so. A member of a trust group and a guest to which a device's
    /// queue is passed through are `limited` to one pair.
    #[must_use]
    pub fn queues_max(self, limited: bool) -> u32 {
        match self {
            Self::Virtio => QUEUES_MAX,
            Self::Ptnet if !limited => RING_QUEUES_MAX,
            Self::Ptnet | Self::Tap => 1,
        }
    }
}

impl std::fmt::Display for PortType {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(match self {
            Self::Virtio => "virtio",
            Self::Ptnet => "ptnet",
            Self::Tap => "tap",
        })
    }
}

/// What the file of a disk is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DiskFormat {
    /// The disk's bytes.
    Raw,
    /// QEMU's own.
    Qcow2,
}

impl DiskFormat {
    /// By the first bytes of the file. Told to QEMU, or a guest could make its raw disk look like the other format.
    #[must_use]
    pub fn of(first_bytes: &[u8]) -> Self {
        if first_bytes.starts_with(b"QFI\xfb") { Self::Qcow2 } else { Self::Raw }
    }

    fn word(self) -> &'static str {
        match self {
            Self::Raw => "raw",
            Self::Qcow2 => "qcow2",
        }
    }
}

/// What runs a guest's instructions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Accelerator {
    /// The processor itself.
    Kvm,
    /// QEMU, which translates them.
    Tcg,
}

impl std::fmt::Display for Accelerator {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Kvm => "KVM",
            Self::Tcg => "TCG",
        })
    }
}

/// Names within a guest's folder.
pub(crate) mod names {
    pub(crate) const PORT: &str = "port.sock";
    pub(crate) const CONSOLE: &str = "console.sock";
    pub(crate) const CONSOLE_LOG: &str = "console.log";
    pub(crate) const SHELL: &str = "shell.sock";
    pub(crate) const MONITOR: &str = "qmp.sock";
}

/// QEMU's command line, its program first; `folder` is the guest's.
#[must_use]
pub fn qemu(config: &MachineConfig, folder: &Path) -> Vec<String> {
    let mut line = vec![config.qemu.display().to_string()];
    let mut say = |words: &[&str]| line.extend(words.iter().map(|&word| word.to_owned()));
    let memory = config.memory_bytes.to_string();
    let at = |name: &str| escaped(&folder.join(name));
    say(&["-name", &escaped(Path::new(&config.name)), "-nodefaults", "-no-user-config"]);
    say(&["-display", "none", "-machine", "q35,memory-backend=mem"]);
    match config.accelerator {
        Accelerator::Kvm => say(&["-accel", "kvm", "-cpu", "host"]),
        // Under TCG copies by rep movs are slow.
        Accelerator::Tcg => say(&["-accel", "tcg,thread=multi", "-cpu", "max,-erms,-fsrm"]),
    }
    say(&["-smp", &config.cores.to_string(), "-m", &format!("{memory}B")]);
    // Shared and sealed: the switch reaches it by its descriptor.
    say(&["-object", &format!("memory-backend-memfd,id=mem,size={memory}B,share=on")]);
    if let Some(kernel) = &config.kernel {
        say(&["-kernel", &kernel.display().to_string(), "-append", &kernel_words(config)]);
    }
    if let Some(initrd) = &config.initrd {
        say(&["-initrd", &initrd.display().to_string()]);
    }
    if let Some((disk, format)) = &config.disk {
        say(&["-drive", &format!("file={},format={},if=virtio", escaped(disk), format.word())]);
    }
    say(&["-qmp", &format!("unix:{},server=on,wait=off", at(names::MONITOR))]);
    let log = at(names::CONSOLE_LOG);
    let console = at(names::CONSOLE);
    let log = format!("logfile={log},logappend=on");
    let chardev = format!("socket,id=console,server=on,wait=off,path={console},{log}");
    say(&["-chardev", &chardev, "-serial", "chardev:console"]);
    let chardev = format!("socket,id=shell,server=on,wait=off,path={}", at(names::SHELL));
    say(&["-chardev", &chardev, "-serial", "chardev:shell"]);
    match config.port_type {
        PortType::Virtio => {
            // A switch that is started anew finds its guest again.
            let again = reconnect(config.qemu_version);
            say(&["-chardev", &format!("socket,id=port,path={},{again}", at(names::PORT))]);
            say(&["-netdev", &netdev(config.queues)]);
            say(&["-device", &device(config.accelerator, config.queues, &config.mac)]);
        }
        PortType::Ptnet => {
            // The keeper serves it as long as QEMU runs; QEMU 7.2 hangs where it is to connect again.
            let device = rings_device(&at(names::PORT), config.queues);
            say(&device.each_ref().map(String::as_str));
        }
        PortType::Tap => {
            // Without vhost-net, which works with KVM only.
            let netdev = format!("tap,id=net,ifname={},script=no,downscript=no", config.name);
            say(&["-netdev", &netdev]);
            say(&["-device", &format!("virtio-net-pci,netdev=net,mac={}", config.mac)]);
        }
    }
    line
}

/// The device whose memory is a port's with so many pairs of queues, served at the socket `path` (with commas doubled).
pub(crate) fn rings_device(path: &str, queues: u32) -> [String; 6] {
    let vectors = vectors(queues);
    [
        "-chardev".to_owned(),
        format!("socket,id=port,path={path}"),
        "-device".to_owned(),
        // Above 4 GiB, or firmware makes the memory uncacheable.
        "pcie-root-port,id=root,chassis=1,pref64-reserve=4G".to_owned(),
        "-device".to_owned(),
        format!("ivshmem-doorbell,chardev=port,bus=root,vectors={vectors}"),
    ]
}

/// What connects to the port, by the chardev `port`.
pub(crate) fn netdev(queues: u32) -> String {
    format!("vhost-user,id=net,chardev=port,queues={queues}")
}

pub(crate) fn device(accelerator: Accelerator, queues: u32, mac: &str) -> String {
    let mut device = format!("virtio-net-pci,netdev=net,mac={mac}");
    if accelerator == Accelerator::Tcg {
        // QEMU 7.2 crashes with vhost-user, MSI-X and TCG together.
        device += ",vectors=0";
    }
    if queues > 1 {
        device += ",mq=on";
    }
    device
}

/// How often QEMU looks for the port's socket while nobody serves it.
fn reconnect(version: (u32, u32)) -> &'static str {
    if version >= (9, 2) { "reconnect-ms=200" } else { "reconnect=1" }
}

fn kernel_words(config: &MachineConfig) -> String {
    let mut words = "console=ttyS0 quiet mitigations=off random.trust_cpu=on".to_owned();
    if config.accelerator == Accelerator::Tcg {
        // Timers are not on time under TCG, which the kernel would take for broken ones.
        words += " nokaslr no_timer_check tsc=reliable";
    }
    if let Some(khz) = config.tsc_khz {
        words += &format!(" tsc_early_khz={khz}");
    }
    if !config.append.is_empty() {
        words += " ";
        words += &config.append;
    }
    words
}

/// A path as a value of one of QEMU's options, where a comma would end it.
fn escaped(path: &Path) -> String {
    path.display().to_string().replace(',', ",,")
}

/// A command line as a shell takes it.
#[must_use]
pub fn shell_line<T: AsRef<str>>(words: &[T]) -> String {
    let words: Vec<String> = words.iter().map(|word| quoted(word.as_ref())).collect();
    words.join(" ")
}

/// One word as a shell takes it.
#[must_use]
pub fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=,+@%".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', "'\\''"))
}

/// A hardware address of the locally administered range that QEMU uses, always the same for a port: guests of one switch
/// have different ones but for one chance in 16 million a pair.
#[must_use]
pub fn mac_of(port: &PortName) -> String {
    // FNV-1a.
    let hash = port.to_string().bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    let [a, b, c, ..] = (hash ^ (hash >> 24)).to_le_bytes();
    format!("52:54:00:{a:02x}:{b:02x}:{c:02x}")
}

/// The bytes of a hardware address.
///
/// # Errors
/// It is none.
pub(crate) fn mac_bytes(mac: &str) -> Result<[u8; 6], VmError> {
    let is_byte = |part: &str| part.len() == 2 && part.chars().all(|c| c.is_ascii_hexdigit());
    let byte = |part: &str| u8::from_str_radix(part, 16).ok().filter(|_| is_byte(part));
    let bytes: Option<Vec<u8>> = mac.split(':').map(byte).collect();
    let bytes = bytes.and_then(|bytes| bytes.try_into().ok());
    bytes.ok_or_else(|| VmError::Invalid(format!("'{mac}' is not a hardware address")))
}

/// The version that `qemu --version` says: major and minor.
#[must_use]
pub fn version_of(text: &str) -> Option<(u32, u32)> {
    let (_, rest) = text.split_once("version ")?;
    let mut numbers = rest.split(|c: char| !c.is_ascii_digit());
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

#[cfg(test)]
mod tests;
