//! Names and indices of a host's interfaces.

/// The interfaces of a host.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Interfaces(Vec<(u32, String)>);

impl Interfaces {
    /// From indices and names, as the host lists them.
    #[must_use]
    pub fn new(known: impl IntoIterator<Item = (u32, String)>) -> Self {
        Self(known.into_iter().collect())
    }

    /// For a host that cannot be asked: any indices, each with its own name.
    #[must_use]
    pub fn invented<'a>(names: impl IntoIterator<Item = &'a str>) -> Self {
        let mut known: Vec<(u32, String)> = Vec::new();
        for (index, name) in (1..).zip(names) {
            if known.iter().all(|(_, other)| other != name) {
                known.push((index, name.to_owned()));
            }
        }
        Self(known)
    }

    /// The index of an interface.
    #[must_use]
    pub fn index(&self, name: &str) -> Option<u32> {
        self.0.iter().find(|(_, known)| known == name).map(|(index, _)| *index)
    }

    /// The name of an interface.
    #[must_use]
    pub fn name(&self, index: u32) -> Option<&str> {
        self.0.iter().find(|(known, _)| *known == index).map(|(_, name)| name.as_str())
    }
}
