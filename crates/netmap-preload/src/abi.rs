//! Numbers of netmap's interface to programs (API 14): requests, modes, flags, and where fields lie.
//!
//! From the netmap project's `net/netmap.h` and `net/netmap_legacy.h`; offsets are those of x86-64 and
//! aarch64, where `char*`, `ssize_t` and `struct timeval` are 8, 8 and 16 bytes long.

/// Version of the interface that answers say.
pub const API: u16 = 14;
/// Oldest and newest version that a request may be of.
pub const API_RANGE: std::ops::RangeInclusive<u16> = 14..=15;
/// The same for [`REGIF`] and [`GINFO`], whose argument no newer version changes any more.
pub const LEGACY_API_RANGE: std::ops::RangeFrom<u32> = 11..;

/// `NIOCCTRL`.
pub const CTRL: u64 = 0xc058_6997;
/// `NIOCTXSYNC`.
pub const TXSYNC: u64 = 0x6994;
/// `NIOCRXSYNC`.
pub const RXSYNC: u64 = 0x6995;
/// `NIOCGINFO`.
pub const GINFO: u64 = 0xc03c_6991;
/// `NIOCREGIF`.
pub const REGIF: u64 = 0xc03c_6992;

/// `NETMAP_REQ_REGISTER`.
pub const REGISTER: u16 = 1;
/// `NETMAP_REQ_PORT_INFO_GET`.
pub const PORT_INFO_GET: u16 = 2;
/// `NETMAP_REQ_VALE_ATTACH`.
pub const VALE_ATTACH: u16 = 3;
/// `NETMAP_REQ_VALE_DETACH`.
pub const VALE_DETACH: u16 = 4;
/// `NETMAP_REQ_VALE_LIST`.
pub const VALE_LIST: u16 = 5;
/// `NETMAP_REQ_PORT_HDR_SET`.
pub const PORT_HDR_SET: u16 = 6;
/// `NETMAP_REQ_PORT_HDR_GET`.
pub const PORT_HDR_GET: u16 = 7;
/// `NETMAP_REQ_VALE_NEWIF`.
pub const VALE_NEWIF: u16 = 8;
/// `NETMAP_REQ_VALE_DELIF`.
pub const VALE_DELIF: u16 = 9;
/// `NETMAP_REQ_VALE_POLLING_ENABLE`.
pub const POLLING_ENABLE: u16 = 10;
/// `NETMAP_REQ_VALE_POLLING_DISABLE`.
pub const POLLING_DISABLE: u16 = 11;
/// `NETMAP_REQ_POOLS_INFO_GET`.
pub const POOLS_INFO_GET: u16 = 12;
/// `NETMAP_REQ_SYNC_KLOOP_START`.
pub const SYNC_KLOOP_START: u16 = 13;
/// `NETMAP_REQ_SYNC_KLOOP_STOP`.
pub const SYNC_KLOOP_STOP: u16 = 14;
/// `NETMAP_REQ_CSB_ENABLE`.
pub const CSB_ENABLE: u16 = 15;

/// Bytes of a request's body; `None` when there is no such request.
#[must_use]
pub fn body_bytes(kind: u16) -> Option<usize> {
    Some(match kind {
        REGISTER => 56,
        PORT_INFO_GET => 32,
        VALE_ATTACH => 64,
        VALE_DETACH | VALE_LIST | PORT_HDR_SET | PORT_HDR_GET | SYNC_KLOOP_START => 8,
        VALE_NEWIF | POLLING_ENABLE | POLLING_DISABLE => 16,
        POOLS_INFO_GET => 64,
        VALE_DELIF | SYNC_KLOOP_STOP | CSB_ENABLE => 0,
        _ => return None,
    })
}

/// Fields of `struct nmreq_register`.
pub mod register {
    /// Where the interface descriptor lies.
    pub const OFFSET: usize = 0;
    /// Bytes to map.
    pub const MEMSIZE: usize = 8;
    /// Slots of a transmit ring; of a receive ring 4 bytes on.
    pub const TX_SLOTS: usize = 16;
    /// Slots of a receive ring.
    pub const RX_SLOTS: usize = 20;
    /// Transmit rings; receive rings 2 bytes on.
    pub const TX_RINGS: usize = 24;
    /// Host rings to transmit; those to receive 2 bytes on.
    pub const HOST_TX_RINGS: usize = 28;
    /// Which memory.
    pub const MEM_ID: usize = 32;
    /// Which ring.
    pub const RING_ID: usize = 34;
    /// `NR_REG_*`.
    pub const MODE: usize = 36;
    /// Buffers beyond those of the rings.
    pub const EXTRA_BUFS: usize = 40;
    /// `NR_*` flags.
    pub const FLAGS: usize = 48;
}

/// Fields of `struct nmreq_port_info_get`.
pub mod port_info {
    /// Bytes to map.
    pub const MEMSIZE: usize = 0;
    /// Slots of a transmit ring.
    pub const TX_SLOTS: usize = 8;
    /// Slots of a receive ring.
    pub const RX_SLOTS: usize = 12;
    /// Four counts of rings, 2 bytes each.
    pub const TX_RINGS: usize = 16;
    /// Which memory.
    pub const MEM_ID: usize = 24;
}

/// `NR_REG_ALL_NIC`: all rings.
pub const ALL_NIC: u32 = 1;
/// `NR_REG_SW`: the host's rings.
pub const SW: u32 = 2;
/// `NR_REG_NIC_SW`: both.
pub const NIC_SW: u32 = 3;
/// `NR_REG_ONE_NIC`: one pair.
pub const ONE_NIC: u32 = 4;
/// `NR_REG_PIPE_MASTER`, of the older interface.
pub const PIPE_MASTER: u32 = 5;
/// `NR_REG_PIPE_SLAVE`, of the older interface.
pub const PIPE_SLAVE: u32 = 6;
/// `NR_REG_NULL`: memory only.
pub const NULL: u32 = 7;
/// `NR_REG_ONE_SW`: one pair of the host's.
pub const ONE_SW: u32 = 8;

/// `NR_MONITOR_TX`.
pub const MONITOR_TX: u64 = 0x100;
/// `NR_MONITOR_RX`.
pub const MONITOR_RX: u64 = 0x200;
/// `NR_ZCOPY_MON`.
pub const ZCOPY_MON: u64 = 0x400;
/// `NR_EXCLUSIVE`.
pub const EXCLUSIVE: u64 = 0x800;
/// `NR_RX_RINGS_ONLY`.
pub const RX_RINGS_ONLY: u64 = 0x2000;
/// `NR_TX_RINGS_ONLY`.
pub const TX_RINGS_ONLY: u64 = 0x4000;
/// `NR_ACCEPT_VNET_HDR`.
pub const ACCEPT_VNET_HDR: u64 = 0x8000;
/// `NR_DO_RX_POLL`.
pub const DO_RX_POLL: u64 = 0x1_0000;
/// `NR_NO_TX_POLL`.
pub const NO_TX_POLL: u64 = 0x2_0000;

/// `NS_BUF_CHANGED`.
pub const BUF_CHANGED: u16 = 0x01;
/// `NS_FORWARD`: a slot that is given back goes to the other side, where its ring says [`ring::FORWARD`].
pub const FORWARD: u16 = 0x04;
/// `NS_INDIRECT`.
pub const INDIRECT: u16 = 0x10;
/// `NS_MOREFRAG`.
pub const MORE_FRAGMENTS: u16 = 0x20;
/// `NS_RFRAGS`: in a slot that came through a switch, how many slots its packet has.
pub const FRAGMENT_COUNT: u16 = 0xff00;
/// `NS_REPORT`: the sender wants to hear soon when the slot is done; here it always does.
pub const REPORT: u16 = 0x02;
/// `NS_TXMON`: on a monitor's ring, of a frame that the watched port sent.
pub const SENT: u16 = 0x40;
/// Most slots of a packet, `NETMAP_MAX_FRAGS`.
pub const FRAGMENTS_MAX: u32 = 64;

/// Words of 4 bytes in the header of `struct netmap_ring`.
pub mod ring {
    /// Bytes of the header; slots follow.
    pub const HEADER_BYTES: usize = 256;
    /// Bytes of a slot.
    pub const SLOT_BYTES: usize = 16;
    /// Low half of `buf_ofs`; the high one follows.
    pub const BUF_OFS: usize = 0;
    /// `num_slots`.
    pub const NUM_SLOTS: usize = 2;
    /// `nr_buf_size`.
    pub const BUF_SIZE: usize = 3;
    /// `ringid` below, `dir` above.
    pub const RING_ID: usize = 4;
    /// `head`.
    pub const HEAD: usize = 5;
    /// `cur`.
    pub const CUR: usize = 6;
    /// `tail`.
    pub const TAIL: usize = 7;
    /// `flags`.
    pub const FLAGS: usize = 8;
    /// `NR_FORWARD` of the flags: slots given back may go to the other side.
    pub const FORWARD: u32 = 4;
    /// `ts`: seconds and microseconds, 8 bytes each.
    pub const TIMESTAMP: usize = 10;
}

/// Words of 4 bytes in `struct netmap_if`.
pub mod interface {
    /// Bytes before the offsets of the rings.
    pub const HEADER_BYTES: usize = 56;
    /// `ni_version`, after 16 bytes of name.
    pub const VERSION: usize = 4;
    /// `ni_flags`.
    pub const FLAGS: usize = 5;
    /// `ni_tx_rings`, then `ni_rx_rings`.
    pub const TX_RINGS: usize = 6;
    /// `ni_bufs_head`.
    pub const BUFS_HEAD: usize = 8;
    /// `ni_host_tx_rings`, then `ni_host_rx_rings`.
    pub const HOST_TX_RINGS: usize = 9;
    /// `NI_PRIV_MEM` of `ni_flags`: the memory is this port's alone.
    pub const PRIVATE_MEMORY: u32 = 1;
}
