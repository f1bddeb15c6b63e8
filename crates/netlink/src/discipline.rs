//! Queueing disciplines, classes and filters (`struct tcmsg`): the part that all kinds share.

use crate::attribute::{RawAttribute, attribute, read};
use crate::bytes::text_of;
use crate::encoder::Encoder;
use crate::message::{Message, flag};
use crate::object::{MalformedError, Object, split};

const TCA_KIND: u16 = 1;
const TCA_OPTIONS: u16 = 2;
/// Length of `struct tcmsg`.
const HEADER_BYTES: usize = 20;

/// `TC_H_ROOT`: the parent of what stands at an interface's root.
pub const ROOT: u32 = u32::MAX;

/// Which of the three a message speaks of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DisciplineKind {
    /// A queueing discipline.
    Qdisc,
    /// A class of one.
    Class,
    /// A filter of one.
    Filter,
}

impl DisciplineKind {
    /// Lists those of an interface below a parent; 0 is all of them. The kernel heeds the interface for
    /// classes and filters only, and lists qdiscs of all interfaces.
    #[must_use]
    pub fn dump(self, interface_index: u32, parent: u32) -> Message {
        let new_kind = match self {
            Self::Qdisc => 36,
            Self::Class => 40,
            Self::Filter => 44,
        };
        let body = header(interface_index, 0, parent).to_vec();
        Message { kind: new_kind + 2, flags: flag::DUMP, body }
    }
}

/// A queueing discipline, class or filter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Discipline {
    /// Index of the interface.
    pub index: u32,
    /// Its number: major and minor, 16 bits each.
    pub handle: u32,
    /// What it stands below; [`ROOT`] at the root.
    pub parent: u32,
    /// `fq_codel`, `htb`.
    pub kind: String,
    /// Attributes of its kind.
    pub options: Vec<u8>,
    /// All other attributes, in order: statistics above all.
    pub other: Vec<RawAttribute>,
}

impl Discipline {
    /// The value of the first attribute of a kind among [`other`](Self::other).
    #[must_use]
    pub fn other(&self, kind: u16) -> Option<&[u8]> {
        self.other.iter().find(|one| one.flagged_kind & 0x3fff == kind).map(|one| &one.value[..])
    }

    /// Puts a qdisc of this kind, with the kernel's defaults, in the place of the root's.
    #[must_use]
    pub fn replace_root(interface_index: u32, kind: &str) -> Message {
        let mut encoder = Encoder::default();
        encoder.fixed(&header(interface_index, 0, ROOT));
        encoder.text(TCA_KIND, kind);
        // A name that is too long leaves an empty body, which the kernel refuses.
        let body = encoder.finish().unwrap_or_default();
        Message { kind: Self::NEW_KIND, flags: flag::CREATE | flag::REPLACE, body }
    }

    /// Deletes the root's qdisc; the kernel puts its own choice there.
    #[must_use]
    pub fn delete_root(interface_index: u32) -> Message {
        let body = header(interface_index, 0, ROOT).to_vec();
        Message { kind: Self::NEW_KIND + 1, flags: 0, body }
    }
}

impl Object for Discipline {
    const NAME: &'static str = "qdisc";
    const NEW_KIND: u16 = 36;

    fn parse(body: &[u8]) -> Result<Self, MalformedError> {
        let (header, attributes) = split::<HEADER_BYTES>(Self::NAME, body)?;
        let word =
            |at: usize| u32::from_ne_bytes([at, at + 1, at + 2, at + 3].map(|at| header[at]));
        let missing = MalformedError::Missing { object: Self::NAME, kind: TCA_KIND };
        let kind = attribute(attributes, TCA_KIND).and_then(text_of).ok_or(missing)?;
        let (mut options, mut other) = (Vec::new(), Vec::new());
        read(Self::NAME, attributes, |attribute| {
            match attribute.kind() {
                TCA_KIND => {}
                TCA_OPTIONS => options = attribute.value.to_vec(),
                _other => other.push(attribute.keep()),
            }
            Ok(())
        })?;
        Ok(Self { index: word(4), handle: word(8), parent: word(12), kind, options, other })
    }
}

fn header(index: u32, handle: u32, parent: u32) -> [u8; HEADER_BYTES] {
    let mut bytes = [0; HEADER_BYTES];
    bytes[4..8].copy_from_slice(&index.to_ne_bytes());
    bytes[8..12].copy_from_slice(&handle.to_ne_bytes());
    bytes[12..16].copy_from_slice(&parent.to_ne_bytes());
    bytes
}
