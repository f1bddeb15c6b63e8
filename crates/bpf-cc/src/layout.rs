//! Where the running kernel has the members of its congestion control structure.

use crate::btf::Btf;

/// What a registration has to fill.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Layout {
    /// Number of `struct tcp_congestion_ops`.
    pub(crate) structure: u32,
    /// Number of the map's value type.
    pub(crate) value: u32,
    /// Bytes of the map's value.
    pub(crate) value_bytes: usize,
    /// Where in the value the count of users and the state stand.
    pub(crate) users_offset: usize,
    /// Members: name, number, place in the map's value, bytes.
    members: Vec<(String, u32, usize, usize)>,
}

impl Layout {
    /// The layout in a kernel that takes congestion controls as BPF programs (Linux 5.6).
    pub(crate) fn of(kernel: &Btf<'_>) -> Option<Self> {
        let structure = kernel.structure("tcp_congestion_ops")?;
        let value = kernel.structure("bpf_struct_ops_tcp_congestion_ops")?;
        let bytes = |bits: u32| usize::try_from(bits / 8).ok();
        let data = bytes(kernel.field(value, "data")?.offset_bits)?;
        // Since Linux 6.9 the count stands in a structure `common`.
        let users = kernel.field(value, "refcnt").or_else(|| kernel.field(value, "common"))?;
        let members = kernel.members(structure)?;
        let members = (0..).zip(members).filter_map(|(number, member)| {
            let size = usize::try_from(kernel.size_bytes(member.type_id)?).ok()?;
            Some((member.name.to_owned(), number, data + bytes(member.offset_bits)?, size))
        });
        Some(Self {
            structure,
            value,
            value_bytes: usize::try_from(kernel.size_bytes(value)?).ok()?,
            users_offset: bytes(users.offset_bits)?,
            members: members.collect(),
        })
    }

    /// A member's number in the structure and its place in the map's value.
    pub(crate) fn member(&self, name: &str) -> Option<(u32, std::ops::Range<usize>)> {
        let (_, number, offset, size) = self.members.iter().find(|member| member.0 == name)?;
        Some((*number, *offset..offset.checked_add(*size)?))
    }
}
