//! Our own systemd units, and an Ansible playbook that installs them: they run this program, which says everything.

use core::fmt::Write as _;

use super::{Emission, HEAD};
use crate::plan::{Plan, Role};

const APPLY_FILE: &str = "etc/systemd/system/clearstream-gateway@.service";
const WATCH_FILE: &str = "etc/systemd/system/clearstream-gateway-watch@.service";
/// Where the units look for the plan `%i`.
const PLANS: &str = "/etc/clearstream/gateway";

/// The unit that applies the plan and, on a host, the one that watches its gateways.
pub(super) fn emit(plan: &Plan, role: Role<'_>, program: &str, emission: &mut Emission) {
    emission.files.push((APPLY_FILE.to_owned(), apply_unit(program)));
    if matches!(role, Role::Host(_)) {
        emission.files.push((WATCH_FILE.to_owned(), watch_unit(plan, program)));
    }
}

/// The same on all machines of an inventory that has the plan's names.
pub(super) fn emit_playbook(plan: &Plan, program: &str, emission: &mut Emission) {
    emission.files.push((APPLY_FILE.to_owned(), apply_unit(program)));
    emission.files.push((WATCH_FILE.to_owned(), watch_unit(plan, program)));
    emission.files.push(("clearstream-gateway.yml".to_owned(), playbook(plan)));
}

/// The key of the plan's probes, on its machines.
fn key_file(plan: &Plan, instance: &str) -> String {
    let planned = plan.watch.key_file.clone();
    planned.unwrap_or_else(|| format!("{PLANS}/{instance}.key"))
}

fn apply_unit(program: &str) -> String {
    format!(
        "{HEAD}# The plan %i is {PLANS}/%i.toml.\n\
         [Unit]\n\
         Description=Routes over many gateways by the plan %i\n\
         Documentation=man:clearstream-gateway(1)\n\
         Wants=network-online.target\n\
         After=network-online.target\n\n\
         [Service]\n\
         Type=oneshot\n\
         RemainAfterExit=yes\n\
         ExecStart={program} gateway apply {PLANS}/%i.toml\n\
         ExecReload={program} gateway apply {PLANS}/%i.toml\n\
         ExecStop={program} gateway revert\n\
         CapabilityBoundingSet=CAP_NET_ADMIN CAP_DAC_OVERRIDE\n\
         StateDirectory=clearstream/gateway\n\n\
         [Install]\n\
         WantedBy=multi-user.target\n"
    )
}

/// Its routes stay when it ends, so it is started again at once and for ever.
fn watch_unit(plan: &Plan, program: &str) -> String {
    let key = key_file(plan, "%i");
    format!(
        "{HEAD}# The key of the plan's probes is {key}, with mode 600, the same on all hosts: openssl rand -hex 16.\n\
         [Unit]\n\
         Description=Watch over the gateways of the plan %i\n\
         Documentation=man:clearstream-gateway(1)\n\
         Requires=clearstream-gateway@%i.service\n\
         After=clearstream-gateway@%i.service\n\
         StartLimitIntervalSec=0\n\n\
         [Service]\n\
         ExecStart={program} gateway watch {PLANS}/%i.toml --key-file {key}\n\
         Restart=always\n\
         RestartSec=1s\n\
         LimitMEMLOCK=infinity\n\
         CapabilityBoundingSet=CAP_NET_ADMIN CAP_NET_RAW CAP_SYS_NICE CAP_IPC_LOCK CAP_DAC_OVERRIDE\n\
         StateDirectory=clearstream/gateway\n\n\
         [Install]\n\
         WantedBy=multi-user.target\n"
    )
}

fn playbook(plan: &Plan) -> String {
    let name = &plan.name;
    let gateways = plan.gateways.iter().map(|gateway| format!("\"{}\"", gateway.name));
    let gateways: Vec<String> = gateways.collect();
    let mut text = format!(
        "{HEAD}# Beside it: {name}.toml, the plan, and {name}.key, the key of its probes: openssl rand -hex 16.\n\
         - name: Routes over many gateways by the plan {name}\n  hosts: all\n  become: true\n  vars:\n    \
         gateways: [{}]\n  tasks:\n",
        gateways.join(", ")
    );
    let folder = |path: &str| {
        format!(
            "    - name: Make {path}\n      ansible.builtin.file:\n        path: {path}\n        \
             state: directory\n        mode: \"0755\"\n      tags: files\n"
        )
    };
    let copy = |from: &str, to: &str, mode: &str| {
        format!(
            "    - name: Install {to}\n      ansible.builtin.copy:\n        src: {from}\n        dest: {to}\n        \
             mode: \"{mode}\"\n      tags: files\n"
        )
    };
    let key = key_file(plan, name);
    text.push_str(&folder(PLANS));
    text.push_str(&copy(&format!("{name}.toml"), &format!("{PLANS}/{name}.toml"), "0644"));
    text.push_str(&copy(&format!("{name}.key"), &key, "0600"));
    for unit in [APPLY_FILE, WATCH_FILE] {
        text.push_str(&copy(unit, &format!("/{unit}"), "0644"));
    }
    write!(
        text,
        "    - name: Apply the plan now and at boot\n      ansible.builtin.systemd_service:\n        \
         name: clearstream-gateway@{name}.service\n        state: reloaded\n        enabled: true\n        \
         daemon_reload: true\n\
         \x20   - name: Watch its gateways\n      ansible.builtin.systemd_service:\n        \
         name: clearstream-gateway-watch@{name}.service\n        state: restarted\n        enabled: true\n      \
         when: ansible_facts['hostname'] not in gateways\n"
    )
    .ok();
    text
}
