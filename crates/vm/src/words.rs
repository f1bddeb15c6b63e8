//! What to tell a hypervisor that somebody else starts, so that its guest is on a port.

use std::path::Path;

use crate::line::{self, Accelerator, shell_line};

/// A hypervisor, and the words for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Words {
    /// Its name.
    pub hypervisor: &'static str,
    /// Options of its command line; absent where it cannot be at such a port.
    pub options: Option<Vec<String>>,
    /// What to know besides.
    pub note: &'static str,
}

/// The words for the port at `socket`, for a guest of so much memory and so many pairs of queues.
#[must_use]
pub fn of_port(socket: &Path, mac: &str, memory_bytes: u64, queues: u32) -> Vec<Words> {
    let path = socket.display().to_string();
    let escaped = path.replace(',', ",,");
    let mib = memory_bytes.div_ceil(1 << 20);
    let device = |accelerator| line::device(accelerator, queues, mac);
    let qemu = [
        "-machine",
        "memory-backend=mem",
        "-object",
        &format!("memory-backend-memfd,id=mem,size={mib}M,share=on"),
        "-chardev",
        &format!("socket,id=port,path={escaped}"),
        "-netdev",
        &line::netdev(queues),
        "-device",
        &device(Accelerator::Kvm),
    ]
    .map(str::to_owned);
    // Its options are split at commas, without a way to write one.
    let cloud = (!path.contains(',')).then(|| {
        let net = format!(
            "vhost_user=true,socket={path},mac={mac},num_queues={},vhost_mode=client",
            2 * queues
        );
        let memory = format!("size={mib}M,shared=on");
        vec!["--memory".to_owned(), memory, "--net".to_owned(), net]
    });
    vec![
        Words {
            hypervisor: "QEMU",
            options: Some(qemu.to_vec()),
            note: "under TCG (without KVM) add ,vectors=0 to the device: QEMU 7.2 crashes otherwise",
        },
        Words {
            hypervisor: "Cloud Hypervisor",
            options: cloud,
            note: "its memory must be shared; a path with a comma cannot be written",
        },
        Words {
            hypervisor: "Firecracker",
            options: None,
            note: "it has no vhost-user network device: join its TAP device and one of the \
                switch's (port add --type tap) by a bridge (ip link add br0 type bridge)",
        },
    ]
}

/// The words for a port whose rings the guest drives itself (`guest/ptnet`), so many pairs, served at `socket`.
#[must_use]
pub fn of_rings(socket: &Path, queues: u32) -> Vec<Words> {
    let path = socket.display().to_string().replace(',', ",,");
    let machine = ["-machine".to_owned(), "q35".to_owned()];
    let options = machine.into_iter().chain(line::rings_device(&path, queues)).collect();
    vec![Words {
        hypervisor: "QEMU",
        options: Some(options),
        note: "the guest needs the driver guest/ptnet; its memory need not be shared",
    }]
}

impl Words {
    /// Its options as a shell takes them.
    #[must_use]
    pub fn line(&self) -> Option<String> {
        self.options.as_deref().map(shell_line)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_hypervisor_has_shared_memory_of_one_size_and_the_socket() {
        let words = of_port(Path::new("/run/vm.sock"), "52:54:00:01:02:03", 512 << 20, 2);
        let lines: Vec<Option<String>> = words.iter().map(Words::line).collect();
        let qemu = "-machine memory-backend=mem \
            -object memory-backend-memfd,id=mem,size=512M,share=on \
            -chardev socket,id=port,path=/run/vm.sock -netdev vhost-user,id=net,chardev=port,queues=2 \
            -device virtio-net-pci,netdev=net,mac=52:54:00:01:02:03,mq=on";
        let cloud = "--memory size=512M,shared=on --net vhost_user=true,socket=/run/vm.sock,\
            mac=52:54:00:01:02:03,num_queues=4,vhost_mode=client";
        assert_eq!(lines, [Some(qemu.to_owned()), Some(cloud.to_owned()), None]);
    }

    #[test]
    fn a_guest_with_the_ports_rings_gets_its_memory_as_a_device() {
        let line = of_rings(Path::new("/run/a,b.sock"), 1)[0].line().unwrap();
        let wanted = "-machine q35 -chardev socket,id=port,path=/run/a,,b.sock \
            -device pcie-root-port,id=root,chassis=1,pref64-reserve=4G \
            -device ivshmem-doorbell,chardev=port,bus=root,vectors=3";
        assert_eq!(line, wanted);
        let line = of_rings(Path::new("/run/a,b.sock"), 4)[0].line().unwrap();
        assert_eq!(line, wanted.replace("vectors=3", "vectors=9"));
    }

    #[test]
    fn a_comma_in_a_path_is_doubled_or_the_path_is_not_written() {
        let words = of_port(Path::new("/run/a,b c"), "52:54:00:01:02:03", 1, 1);
        assert!(words[0].line().unwrap().contains("'socket,id=port,path=/run/a,,b c'"));
        assert_eq!(words[1].line(), None);
    }
}
