//! From which memory node a process takes its memory.

use std::ffi::c_ulong;

use crate::SyscallError;

/// `MPOL_PREFERRED` (kernel `include/uapi/linux/mempolicy.h`).
const MPOL_PREFERRED: libc::c_long = 1;
/// Nodes one word of the mask holds; no machine known has more.
const NODES_COUNT_MAX: u32 = c_ulong::BITS;

/// The calling thread, and the programs it starts or becomes, take memory from this node as long as
/// it has any (`set_mempolicy(2)`).
///
/// # Errors
/// There is no such node (`EINVAL`), or the kernel has no memory policies (`ENOSYS`).
pub fn prefer_node(node: u32) -> Result<(), SyscallError> {
    let call = "set_mempolicy";
    let object = format!("node {node}");
    if node >= NODES_COUNT_MAX {
        let source = std::io::Error::from_raw_os_error(libc::EINVAL);
        return Err(SyscallError::new(call, object, source));
    }
    let mask: c_ulong = 1 << node;
    // The kernel reads one bit fewer than it is told.
    let bits = libc::c_long::from(NODES_COUNT_MAX) + 1;
    // SAFETY: `mask` is initialised and lives through the call; the kernel reads `bits - 1` bits,
    // which is its size.
    let answer =
        unsafe { libc::syscall(libc::SYS_set_mempolicy, MPOL_PREFERRED, &raw const mask, bits) };
    if answer == 0 { Ok(()) } else { Err(SyscallError::last(call, object)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_that_is_there_is_taken_and_others_are_refused() {
        std::thread::spawn(|| {
            match prefer_node(0) {
                Ok(()) => {}
                Err(error) => assert_eq!(error.source.raw_os_error(), Some(libc::ENOSYS)),
            }
            for node in [63, 64, u32::MAX] {
                let error = prefer_node(node).unwrap_err();
                let code = error.source.raw_os_error();
                assert!(code == Some(libc::EINVAL) || code == Some(libc::ENOSYS), "{error}");
            }
        })
        .join()
        .unwrap();
    }
}
