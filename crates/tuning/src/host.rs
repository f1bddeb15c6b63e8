//! This host: the settings as the calling thread's network namespace has them.
//!
//! Kernel settings are files below `/proc/sys`, device settings go through rtnetlink, `SIOCETHTOOL`
//! and `/sys`. A file below `/sys/class/net` is touched only where it speaks of the very device of
//! this namespace: `/sys` shows the devices of whichever namespace mounted it.

mod device;
mod files;
mod threads;

use std::fs;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use settings::{InterfaceKey, Key, Parameter, catalogue};

use crate::journal::Header;
use crate::world::{World, WorldError};

/// Longest file read, bytes.
const FILE_BYTES_MAX: u64 = 64 << 10;

/// The settings of this host.
#[derive(Debug, Clone)]
pub struct Host {
    proc: PathBuf,
    sys: PathBuf,
    /// Where the files that survive a reboot go.
    root: PathBuf,
}

impl Default for Host {
    fn default() -> Self {
        Self::at(Path::new("/proc"), Path::new("/sys"), Path::new("/"))
    }
}

impl Host {
    /// With other roots: of `/proc`, of `/sys`, and of the files that survive a reboot.
    #[must_use]
    pub fn at(proc: &Path, sys: &Path, root: &Path) -> Self {
        Self { proc: proc.to_owned(), sys: sys.to_owned(), root: root.to_owned() }
    }

    /// This host, with its persisted files below another root.
    #[must_use]
    pub fn with_root(root: &Path) -> Self {
        Self { root: root.to_owned(), ..Self::default() }
    }

    /// A journal's first line for this host and boot.
    #[must_use]
    pub fn header(&self, now_unix_ms: u64) -> Header {
        let uname = rustix::system::uname();
        Header::new(
            self.boot_id(),
            namespace(),
            uname.nodename().to_string_lossy().into_owned(),
            now_unix_ms,
        )
    }

    /// This boot's random name; empty where the kernel does not tell.
    #[must_use]
    pub fn boot_id(&self) -> String {
        let line = read_text(&self.proc.join("sys/kernel/random/boot_id")).unwrap_or_default();
        line.trim().to_owned()
    }

    fn sysctl_path(&self, name: &str) -> PathBuf {
        self.proc.join("sys").join(name.replace('.', "/"))
    }

    fn governor_path(&self, core: u32) -> PathBuf {
        self.sys.join(format!("devices/system/cpu/cpu{core}/cpufreq/scaling_governor"))
    }

    fn quota_path(&self, group: &str) -> PathBuf {
        self.sys.join("fs/cgroup").join(group.trim_start_matches('/')).join("cpu.max")
    }

    fn interrupt_path(&self, irq: u32) -> PathBuf {
        self.proc.join(format!("irq/{irq}/smp_affinity_list"))
    }
}

impl World for Host {
    fn read(&mut self, key: &Key) -> Result<String, WorldError> {
        let raw = match key {
            Key::Sysctl(name) => self.read_sysctl(key, name)?,
            Key::Interface { name, what } => self.read_interface(key, name, what)?,
            Key::InterruptAffinity(irq) => read_at(key, &self.interrupt_path(*irq))?,
            Key::ThreadAffinity(name) => self.read_thread(key, name)?,
            Key::Governor(core) => read_at(key, &self.governor_path(*core))?,
            Key::CpuQuota(group) => read_at(key, &self.quota_path(group))?,
            Key::File(file) => files::read(key, &self.root.join(file.path()))?,
            _ => return Err(unknown(key)),
        };
        key.check(&raw).map_err(|error| WorldError::refused(key, error.to_string()))
    }

    fn write(&mut self, key: &Key, value: &str) -> Result<(), WorldError> {
        match key {
            Key::Sysctl(name) => {
                let is_global = catalogue::sysctl(name).is_some_and(|known| known.is_global);
                write_text(&self.sysctl_path(name), value)
                    .map_err(|error| WorldError::of_io(key, &error, is_global))
            }
            Key::Interface { name, what } => self.write_interface(key, name, what, value),
            Key::InterruptAffinity(irq) => write_at(key, &self.interrupt_path(*irq), value),
            Key::ThreadAffinity(name) => self.write_thread(key, name, value),
            Key::Governor(core) => write_at(key, &self.governor_path(*core), value),
            Key::CpuQuota(group) => write_at(key, &self.quota_path(group), value),
            Key::File(file) => files::write(key, &self.root.join(file.path()), value),
            _ => Err(unknown(key)),
        }
    }

    fn side_effects(&self, key: &Key) -> Vec<Key> {
        match key {
            // `tcp_set_default_congestion_control` (kernel net/ipv4/tcp_cong.c) allows what it sets.
            Key::Sysctl(name) if name == "net.ipv4.tcp_congestion_control" => {
                vec![Key::Sysctl("net.ipv4.tcp_allowed_congestion_control".to_owned())]
            }
            // `inet_forward_change` (kernel net/ipv4/devinet.c), `addrconf_fixup_forwarding`
            // (net/ipv6/addrconf.c): every interface and the default follow.
            Key::Sysctl(name) if name == "net.ipv4.ip_forward" => self.forwarding("ipv4"),
            Key::Sysctl(name) if name == "net.ipv6.conf.all.forwarding" => self.forwarding("ipv6"),
            // Drivers spread an unconfigured table anew over another number of queues.
            Key::Interface { name, what: InterfaceKey::Parameter(parameter) }
                if is_channels(*parameter) =>
            {
                vec![Key::Interface { name: name.clone(), what: InterfaceKey::RssTable }]
            }
            _ => Vec::new(),
        }
    }

    fn objection(&mut self, key: &Key, to: &str) -> Option<WorldError> {
        let path = match key {
            Key::Sysctl(name) => self.sysctl_path(name),
            Key::InterruptAffinity(irq) => self.interrupt_path(*irq),
            Key::Governor(core) => self.governor_path(*core),
            Key::CpuQuota(group) => self.quota_path(group),
            _ => return None,
        };
        if let Err(error) = may_write(&path) {
            let is_global = matches!(key, Key::Sysctl(name)
                if catalogue::sysctl(name).is_some_and(|known| known.is_global));
            return Some(WorldError::of_io(key, &error, is_global));
        }
        let Key::Sysctl(name) = key else { return None };
        if name != "net.ipv4.tcp_congestion_control" {
            return None;
        }
        let words = |name: &str| {
            let text = read_text(&self.sysctl_path(name)).unwrap_or_default();
            text.split_ascii_whitespace().map(str::to_owned).collect::<Vec<_>>()
        };
        if !words("net.ipv4.tcp_available_congestion_control").iter().any(|known| known == to) {
            return Some(WorldError::refused(key, format!("this kernel has no '{to}' loaded")));
        }
        let allowed = "net.ipv4.tcp_allowed_congestion_control";
        let would_grow = !words(allowed).iter().any(|known| known == to);
        (would_grow && may_write(&self.sysctl_path(allowed)).is_err()).then(|| {
            WorldError::denied(
                key,
                format!("setting it would also allow '{to}' on the whole machine, which cannot be undone from a network namespace"),
            )
        })
    }
}

impl Host {
    /// What turning forwarding on or off for a host sets as well.
    fn forwarding(&self, family: &str) -> Vec<Key> {
        let folder = self.proc.join("sys/net").join(family).join("conf");
        let entries = fs::read_dir(folder).into_iter().flatten().flatten();
        let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
        let each = names.filter(|name| name != "all" && name != "default");
        let mut texts: Vec<String> =
            each.map(|name| format!("{name}/{family}/forwarding")).collect();
        texts.push(format!("net.{family}.conf.default.forwarding"));
        if family == "ipv4" {
            texts.push("net.ipv4.conf.all.accept_redirects".to_owned());
        }
        texts.iter().filter_map(|text| text.parse().ok()).collect()
    }

    fn read_sysctl(&self, key: &Key, name: &str) -> Result<String, WorldError> {
        let is_global = catalogue::sysctl(name).is_some_and(|known| known.is_global);
        read_text(&self.sysctl_path(name)).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound if is_global => WorldError::absent(
                key,
                "not here: this setting is machine-wide and visible only in the initial network \
                 namespace",
            ),
            _ => WorldError::of_io(key, &error, is_global),
        })
    }
}

fn is_channels(parameter: Parameter) -> bool {
    use Parameter as P;
    matches!(parameter, P::ChannelsReceive | P::ChannelsTransmit | P::ChannelsCombined)
}

/// The inode number of the calling thread's network namespace; 0 where `/proc` is not mounted.
#[must_use]
pub fn namespace() -> u64 {
    use std::os::unix::fs::MetadataExt;
    fs::metadata("/proc/thread-self/ns/net").map_or(0, |known| known.ino())
}

fn may_write(path: &Path) -> io::Result<()> {
    rustix::fs::access(path, rustix::fs::Access::WRITE_OK).map_err(io::Error::from)
}

pub(crate) fn read_text(path: &Path) -> io::Result<String> {
    let mut bytes = Vec::new();
    fs::File::open(path)?.take(FILE_BYTES_MAX).read_to_end(&mut bytes)?;
    String::from_utf8(bytes).map_err(|_not_text| io::ErrorKind::InvalidData.into())
}

/// One `write(2)`: the kernel takes a setting in a single call.
pub(crate) fn write_text(path: &Path, value: &str) -> io::Result<()> {
    let mut file = fs::OpenOptions::new().write(true).open(path)?;
    file.write_all(format!("{value}\n").as_bytes())
}

fn unknown(key: &Key) -> WorldError {
    WorldError::absent(key, "this program does not handle such a setting")
}

fn read_at(key: &Key, path: &Path) -> Result<String, WorldError> {
    read_text(path).map_err(|error| WorldError::of_io(key, &error, false))
}

fn write_at(key: &Key, path: &Path, value: &str) -> Result<(), WorldError> {
    write_text(path, value).map_err(|error| WorldError::of_io(key, &error, false))
}
