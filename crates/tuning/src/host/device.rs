//! Settings of interfaces.

use std::path::PathBuf;

use settings::{InterfaceKey, Key, RootQdisc};
use sys::SyscallError;
use sys::ethtool::Device;
use sys::ethtool_set;
use sys::flow_rules;
use sys::interface::RouteSocket;

use super::{Host, read_at, read_text, write_at};
use crate::world::WorldError;

impl Host {
    pub(super) fn read_interface(
        &self,
        key: &Key,
        name: &str,
        what: &InterfaceKey,
    ) -> Result<String, WorldError> {
        let refused = |error: SyscallError| of_syscall(key, &error);
        match what {
            InterfaceKey::Mtu => Ok(link(key)?.mtu_and_queue(name).map_err(refused)?.0.to_string()),
            InterfaceKey::TxQueueLength => {
                Ok(link(key)?.mtu_and_queue(name).map_err(refused)?.1.to_string())
            }
            InterfaceKey::Qdisc => {
                let root = link(key)?.root_qdisc(name).map_err(refused)?;
                let root = RootQdisc { kind: &root.kind, is_default: !root.is_configured };
                Ok(root.to_string())
            }
            InterfaceKey::Parameter(parameter) => {
                let device = Device::open(name).map_err(refused)?;
                let known = ethtool_set::parameter(&device, *parameter).map_err(refused)?;
                Ok(known.value.to_string())
            }
            InterfaceKey::Feature(feature) => {
                let device = Device::open(name).map_err(refused)?;
                let state = ethtool_set::feature(&device, feature).map_err(refused)?;
                Ok(if state.is_on { "on" } else { "off" }.to_owned())
            }
            InterfaceKey::RssTable => {
                let device = Device::open(name).map_err(refused)?;
                let table = device.indirection().map_err(refused)?;
                Ok(table.iter().map(u32::to_string).collect::<Vec<_>>().join(" "))
            }
            InterfaceKey::FlowQueue(flow) => {
                let device = Device::open(name).map_err(refused)?;
                let queue = flow_rules::queue_of(&device, *flow).map_err(refused)?;
                Ok(queue.map_or_else(|| "-".to_owned(), |queue| queue.to_string()))
            }
            InterfaceKey::RpsCores(_)
            | InterfaceKey::RfsEntries(_)
            | InterfaceKey::XpsCores(_)
            | InterfaceKey::ThreadedNapi => read_at(key, &self.device_file(key, name, what)?),
            InterfaceKey::Ipv4(setting) => read_at(key, &self.conf_file("ipv4", name, setting)),
            InterfaceKey::Ipv6(setting) => read_at(key, &self.conf_file("ipv6", name, setting)),
            _ => Err(super::unknown(key)),
        }
    }

    pub(super) fn write_interface(
        &self,
        key: &Key,
        name: &str,
        what: &InterfaceKey,
        value: &str,
    ) -> Result<(), WorldError> {
        let refused = |error: SyscallError| of_syscall(key, &error);
        let number =
            || value.parse::<u32>().map_err(|error| WorldError::refused(key, error.to_string()));
        match what {
            InterfaceKey::Mtu => link(key)?.set_mtu(name, number()?).map_err(refused),
            InterfaceKey::TxQueueLength => {
                link(key)?.set_tx_queue(name, number()?).map_err(refused)
            }
            InterfaceKey::Qdisc => self.write_qdisc(key, name, value),
            InterfaceKey::Parameter(parameter) => {
                let device = Device::open(name).map_err(refused)?;
                ethtool_set::set_parameter(&device, *parameter, number()?).map_err(refused)
            }
            InterfaceKey::Feature(feature) => {
                let device = Device::open(name).map_err(refused)?;
                ethtool_set::set_feature(&device, feature, value == "on").map_err(refused)
            }
            InterfaceKey::RssTable => {
                let device = Device::open(name).map_err(refused)?;
                let table: Vec<u32> =
                    value.split(' ').filter_map(|queue| queue.parse().ok()).collect();
                ethtool_set::set_rss_table(&device, &table).map_err(refused)
            }
            InterfaceKey::FlowQueue(flow) => {
                let device = Device::open(name).map_err(refused)?;
                if value == "-" {
                    flow_rules::remove(&device, *flow).map_err(refused)
                } else {
                    flow_rules::direct(&device, *flow, number()?).map_err(refused)
                }
            }
            InterfaceKey::RpsCores(_)
            | InterfaceKey::RfsEntries(_)
            | InterfaceKey::XpsCores(_)
            | InterfaceKey::ThreadedNapi => {
                write_at(key, &self.device_file(key, name, what)?, value)
            }
            InterfaceKey::Ipv4(setting) => {
                write_at(key, &self.conf_file("ipv4", name, setting), value)
            }
            InterfaceKey::Ipv6(setting) => {
                write_at(key, &self.conf_file("ipv6", name, setting), value)
            }
            _ => Err(super::unknown(key)),
        }
    }

    /// The folder of this network namespace, which has every interface by its name.
    fn conf_file(&self, family: &str, name: &str, setting: &str) -> PathBuf {
        self.proc.join("sys/net").join(family).join("conf").join(name).join(setting)
    }

    /// A default comes back by deleting what was configured in its place.
    fn write_qdisc(&self, key: &Key, name: &str, value: &str) -> Result<(), WorldError> {
        let refused = |error: SyscallError| of_syscall(key, &error);
        let mut socket = link(key)?;
        if !RootQdisc::of(value).is_default {
            return socket.replace_root_qdisc(name, value).map_err(refused);
        }
        if socket.root_qdisc(name).map_err(refused)?.is_configured {
            socket.delete_root_qdisc(name).map_err(refused)?;
        }
        Ok(())
    }

    fn device_file(
        &self,
        key: &Key,
        name: &str,
        what: &InterfaceKey,
    ) -> Result<PathBuf, WorldError> {
        let folder = self.sys.join("class/net").join(name);
        let links = topology::interfaces();
        let Some(known) = links.iter().find(|link| link.name == name) else {
            return Err(WorldError::absent(key, format!("there is no interface {name}")));
        };
        let line = |file: &str| read_text(&folder.join(file)).unwrap_or_default().trim().to_owned();
        if line("ifindex") != known.index.to_string() || line("address") != known.address {
            return Err(WorldError::absent(
                key,
                format!("/sys does not show {name} of this network namespace"),
            ));
        }
        Ok(match what {
            InterfaceKey::ThreadedNapi => folder.join("threaded"),
            InterfaceKey::RpsCores(queue) => folder.join(format!("queues/rx-{queue}/rps_cpus")),
            InterfaceKey::RfsEntries(queue) => {
                folder.join(format!("queues/rx-{queue}/rps_flow_cnt"))
            }
            InterfaceKey::XpsCores(queue) => folder.join(format!("queues/tx-{queue}/xps_cpus")),
            _ => return Err(WorldError::absent(key, "no file")),
        })
    }
}

fn link(key: &Key) -> Result<RouteSocket, WorldError> {
    RouteSocket::open().map_err(|error| of_syscall(key, &error))
}

fn of_syscall(key: &Key, error: &SyscallError) -> WorldError {
    use rustix::io::Errno;
    let text = &error.source;
    if error.is_privilege() {
        return WorldError::denied(key, format!("{text}; changing it needs CAP_NET_ADMIN (root)"));
    }
    match Errno::from_io_error(text) {
        Some(Errno::NODEV | Errno::NXIO) => {
            let name = key.interface().unwrap_or("it");
            WorldError::absent(key, format!("there is no interface {name}"))
        }
        Some(Errno::OPNOTSUPP | Errno::NOENT) => {
            WorldError::absent(key, format!("the driver or this kernel does not have it ({text})"))
        }
        _ => WorldError::refused(key, format!("the kernel rejects it: {text}")),
    }
}
