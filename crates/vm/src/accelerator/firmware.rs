//! The small guest: firmware that goes through what a kernel's first moments ask of a processor, and says that it got there.
//!
//! From real mode it enters protected and 64-bit mode with page tables of its own, and there it does what KVM emulates on
//! machines that let no guest run by itself: a locked 16-byte compare-and-swap, which Linux's allocator uses. Where the
//! emulation lacks it, an ordinary guest dies in its first second.

/// Bytes of the firmware, whose end is that of the first 4 GiB.
const BYTES: usize = 64 << 10;
/// Where a processor begins.
const RESET_AT: usize = BYTES - 16;
/// `jmp 0`, where [`CODE`] is.
const JUMP: [u8; 3] = [0xe9, 0x0d, 0x00];
/// What the guest writes to the device `isa-debug-exit` at port 0xf4, and QEMU's exit code then.
const SAYS: u8 = 0x10;
pub(super) const EXIT_CODE: i32 = ((SAYS as i32) << 1) | 1;

/// Its instructions and their table of segments.
#[rustfmt::skip]
const CODE: [u8; 238] = [
    // In real mode: the table of segments, then protected mode.
    0xfa,                                                       // cli
    0x2e, 0x66, 0x0f, 0x01, 0x16, 0xe8, 0x00,                   // lgdtl cs:[0xe8]
    0x0f, 0x20, 0xc0,                                           // mov eax, cr0
    0x0c, 0x01,                                                 // or al, 1
    0x0f, 0x22, 0xc0,                                           // mov cr0, eax
    0x66, 0xea, 0x18, 0x00, 0xff, 0xff, 0x08, 0x00,             // ljmp 8:0xffff0018
    // 32 bits. Page tables, empty but for the first 2 MiB and those of the firmware.
    0xb8, 0x10, 0x00, 0x00, 0x00,                               // mov eax, 16
    0x8e, 0xd8,                                                 // mov ds, eax
    0x8e, 0xc0,                                                 // mov es, eax
    0x8e, 0xd0,                                                 // mov ss, eax
    0x31, 0xc0,                                                 // xor eax, eax
    0xbf, 0x00, 0x10, 0x00, 0x00,                               // mov edi, 0x1000
    0xb9, 0x00, 0x0c, 0x00, 0x00,                               // mov ecx, 0xc00
    0xfc,                                                       // cld
    0xf3, 0xab,                                                 // rep stosd
    0xc7, 0x05, 0x00, 0x10, 0, 0, 0x03, 0x20, 0, 0,             // mov dword [0x1000], 0x2003
    0xc7, 0x05, 0x00, 0x20, 0, 0, 0x03, 0x30, 0, 0,             // mov dword [0x2000], 0x3003
    0xc7, 0x05, 0x00, 0x30, 0, 0, 0x83, 0x00, 0, 0,             // mov dword [0x3000], 0x83
    0xc7, 0x05, 0x18, 0x20, 0, 0, 0x03, 0x40, 0, 0,             // mov dword [0x2018], 0x4003
    0xbf, 0x00, 0x40, 0x00, 0x00,                               // mov edi, 0x4000
    0xb9, 0x00, 0x04, 0x00, 0x00,                               // mov ecx, 0x400
    0xf3, 0xab,                                                 // rep stosd
    0xc7, 0x05, 0xf8, 0x4f, 0, 0, 0x83, 0x00, 0xe0, 0xff,       // mov dword [0x4ff8], 0xffe00083
    0xb8, 0x00, 0x10, 0x00, 0x00,                               // mov eax, 0x1000
    0x0f, 0x22, 0xd8,                                           // mov cr3, eax
    0x0f, 0x20, 0xe0,                                           // mov eax, cr4
    0x83, 0xc8, 0x20,                                           // or eax, 0x20: PAE
    0x0f, 0x22, 0xe0,                                           // mov cr4, eax
    0xb9, 0x80, 0x00, 0x00, 0xc0,                               // mov ecx, 0xc0000080: EFER
    0x0f, 0x32,                                                 // rdmsr
    0x80, 0xcc, 0x01,                                           // or ah, 1: long mode
    0x0f, 0x30,                                                 // wrmsr
    0x0f, 0x20, 0xc0,                                           // mov eax, cr0
    0x0d, 0x00, 0x00, 0x00, 0x80,                               // or eax, 0x80000000: paging
    0x0f, 0x22, 0xc0,                                           // mov cr0, eax
    0xea, 0x9f, 0x00, 0xff, 0xff, 0x18, 0x00,                   // ljmp 24:0xffff009f
    // 64 bits. The 16 bytes at 0x5000 are 0 and become 1.
    0xbc, 0x00, 0x80, 0x00, 0x00,                               // mov esp, 0x8000
    0x31, 0xc0,                                                 // xor eax, eax
    0x31, 0xd2,                                                 // xor edx, edx
    0xbb, 0x01, 0x00, 0x00, 0x00,                               // mov ebx, 1
    0x31, 0xc9,                                                 // xor ecx, ecx
    0xf0, 0x48, 0x0f, 0xc7, 0x0c, 0x25, 0x00, 0x50, 0, 0,       // lock cmpxchg16b [0x5000]
    0x75, 0x04,                                                 // jnz to the halt
    0xb0, SAYS,                                                 // mov al, SAYS
    0xe6, 0xf4,                                                 // out 0xf4, al
    0xf4,                                                       // hlt
    0xeb, 0xfd,                                                 // and again
    0x8d, 0xb6, 0, 0, 0, 0,                                     // up to a multiple of 8
    // Segments: none, code of 32 bits, data, code of 64 bits; then their table's length less one, and its place.
    0, 0, 0, 0, 0, 0, 0, 0,
    0xff, 0xff, 0, 0, 0, 0x9b, 0xcf, 0,
    0xff, 0xff, 0, 0, 0, 0x93, 0xcf, 0,
    0xff, 0xff, 0, 0, 0, 0x9b, 0xaf, 0,
    0x1f, 0x00, 0xc8, 0x00, 0xff, 0xff,
];

/// What QEMU's `-bios` takes.
pub(super) fn image() -> Vec<u8> {
    // `hlt` everywhere else.
    let mut firmware = vec![0xf4; BYTES];
    firmware[..CODE.len()].copy_from_slice(&CODE);
    firmware[RESET_AT..][..JUMP.len()].copy_from_slice(&JUMP);
    firmware
}
