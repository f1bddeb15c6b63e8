//! The keys of a file system.

use super::section::{Section, nearest};
use super::{LabFileError, check_hosts, check_name};
use crate::plan::{FilesystemKind, FilesystemPlan, LabPlan};

/// What may be said of a file system.
pub(super) const KEYS: &[&str] = &["kind", "name", "servers", "clients", "capacity", "forwarder"];

/// What each server may keep, where nothing is said.
const CAPACITY_BYTES_DEFAULT: u64 = 1 << 30;
/// The least with which a server starts.
const CAPACITY_BYTES_MIN: u64 = 256 << 20;

/// Reads a file system; the plan has all hosts, links and switches.
pub(super) fn read_filesystem(
    section: &Section<'_>,
    plan: &LabPlan,
) -> Result<FilesystemPlan, LabFileError> {
    section.only(KEYS)?;
    let kind = match section.required_text("kind")? {
        "moosefs" => FilesystemKind::MooseFs,
        "glusterfs" => FilesystemKind::GlusterFs,
        other => {
            let near = nearest(other, &["moosefs", "glusterfs"]);
            return Err(section.error_at("kind", format!("unknown file system '{other}'{near}")));
        }
    };
    let name = section.text("name")?.unwrap_or("pfs");
    check_name(section, "name", name)?;
    let hosts = |key: &str| -> Result<Vec<String>, LabFileError> {
        let hosts = section.text_list(key)?;
        if hosts.is_empty() {
            return Err(section.error_at(key, format!("{key}: name at least one host")));
        }
        check_hosts(section, key, &hosts, &plan.hosts)?;
        Ok(hosts.into_iter().map(str::to_owned).collect())
    };
    let (servers, clients) = (hosts("servers")?, hosts("clients")?);
    for (key, list) in [("servers", &servers), ("clients", &clients)] {
        for (number, host) in list.iter().enumerate() {
            if list[..number].contains(host) {
                return Err(section.error_at(key, format!("'{host}' is named twice")));
            }
            if !plan.addresses_of(host).any(|address| address.is_ipv4()) {
                return Err(section.error_at(key, format!("'{host}' has no IPv4 address")));
            }
        }
    }
    if let Some(both) = clients.iter().find(|host| servers.contains(host)) {
        let message = format!(
            "'{both}' is already a server; clients must be other hosts, so that their traffic \
             crosses the network"
        );
        return Err(section.error_at("clients", message));
    }
    let capacity_bytes = section.size("capacity")?.unwrap_or(CAPACITY_BYTES_DEFAULT);
    if capacity_bytes < CAPACITY_BYTES_MIN {
        return Err(section.error_at("capacity", "a server needs at least 256MiB"));
    }
    let forwarder = section.text("forwarder")?.map(str::to_owned);
    if let Some(host) = &forwarder {
        if kind != FilesystemKind::MooseFs {
            let message =
                format!("only a file system of kind moosefs can be forwarded, not {kind}");
            return Err(section.error_at("forwarder", message));
        }
        check_hosts(section, "forwarder", &[host.as_str()], &plan.hosts)?;
        if servers.contains(host) || clients.contains(host) {
            let message = format!(
                "'{host}' is already a server or a client; the forwarder must be another host"
            );
            return Err(section.error_at("forwarder", message));
        }
    }
    Ok(FilesystemPlan { kind, name: name.to_owned(), servers, clients, capacity_bytes, forwarder })
}
