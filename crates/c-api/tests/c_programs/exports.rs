//! The names that a shared library puts into a program: its dynamic symbol table, read from the ELF file.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use super::{folder, library};

/// A section type: the dynamic symbols.
const SHT_DYNSYM: u32 = 11;
/// Bytes of a symbol in a 64-bit file.
const SYMBOL_BYTES: usize = 24;
/// Symbols of no section are what the library needs from others.
const SHN_UNDEF: u16 = 0;

/// A 64-bit little-endian ELF file.
struct Elf(Vec<u8>);

impl Elf {
    fn read(path: &Path) -> Self {
        let bytes = std::fs::read(path).expect("a library");
        assert_eq!(bytes[..6], *b"\x7fELF\x02\x01", "{}: 64-bit, little-endian", path.display());
        Self(bytes)
    }

    fn number<const N: usize>(&self, offset: usize) -> [u8; N] {
        self.0[offset..offset + N].try_into().expect("N bytes")
    }

    fn u16(&self, offset: usize) -> u16 {
        u16::from_le_bytes(self.number(offset))
    }

    fn u32(&self, offset: usize) -> u32 {
        u32::from_le_bytes(self.number(offset))
    }

    fn place(&self, offset: usize) -> usize {
        u64::from_le_bytes(self.number(offset)) as usize
    }

    fn text(&self, offset: usize) -> String {
        let rest = &self.0[offset..];
        let end = rest.iter().position(|byte| *byte == 0).expect("a string ends");
        String::from_utf8_lossy(&rest[..end]).into_owned()
    }

    /// Offset of a section's header.
    fn section(&self, index: usize) -> usize {
        self.place(40) + index * usize::from(self.u16(58))
    }

    /// Global symbols that it defines.
    fn exports(&self) -> BTreeSet<String> {
        let count = usize::from(self.u16(60));
        let symbols = (0..count).map(|index| self.section(index));
        let symbols = symbols.into_iter().find(|at| self.u32(at + 4) == SHT_DYNSYM);
        let symbols = symbols.expect("a dynamic symbol table");
        let names = self.place(self.section(self.u32(symbols + 40) as usize) + 24);
        let (table, bytes) = (self.place(symbols + 24), self.place(symbols + 32));
        let defined = (table..table + bytes).step_by(SYMBOL_BYTES).filter(|symbol| {
            let is_local = self.0[symbol + 4] >> 4 == 0;
            !is_local && self.u16(symbol + 6) != SHN_UNDEF
        });
        defined.map(|symbol| self.text(names + self.u32(symbol) as usize)).collect()
    }
}

/// The C library that this test itself uses.
fn libc() -> PathBuf {
    let maps = std::fs::read_to_string("/proc/self/maps").expect("a process has maps");
    let files = maps.lines().filter_map(|line| line.split_whitespace().nth(5));
    let mut files = files.filter(|path| path.contains("/libc.so") || path.contains("/libc-"));
    files.next().expect("the C library is loaded").into()
}

/// Functions that the header declares and does not define.
fn declared() -> BTreeSet<String> {
    let header = std::fs::read_to_string(folder("include/clearstream_user.h")).expect("a header");
    let lines = header.lines().filter(|line| !line.starts_with([' ', '/', '#', 's', '}', '{']));
    let structs = header.lines().filter(|line| line.starts_with("struct "));
    let declarations = lines.chain(structs).filter(|line| line.ends_with(");"));
    let name = |line: &str| {
        let before = line.split('(').next()?;
        Some(before.rsplit([' ', '*']).next()?.to_owned())
    };
    declarations.filter_map(name).collect()
}

#[test]
fn the_library_exports_what_its_header_declares_and_no_name_of_the_c_library() {
    let theirs = Elf::read(&libc()).exports();
    assert!(theirs.contains("poll") && theirs.len() > 1000, "the C library's own names are read");
    let ours = Elf::read(&library()).exports();
    let taken_over: Vec<&String> = ours.intersection(&theirs).collect();
    assert!(taken_over.is_empty(), "names of the C library: {taken_over:?}");
    assert!(declared().contains("cs_connect") && declared().len() >= 8, "{:?}", declared());
    assert_eq!(ours, declared(), "left: exported, right: declared");
}
