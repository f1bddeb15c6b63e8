//! Which of the program's descriptors are netmap's, and which of its epoll sets watch one.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use crate::descriptor::Descriptor;

/// A descriptor of netmap in a program's epoll set.
#[derive(Debug, Clone)]
pub struct Interest {
    /// The program's number.
    pub fd: i32,
    /// What it is.
    pub descriptor: Arc<Descriptor>,
    /// What is asked for, `EPOLL*`.
    pub events: u32,
    /// What the program wants to hear.
    pub data: u64,
}

/// Descriptors and epoll sets, by the program's numbers.
#[derive(Debug)]
pub struct Table {
    /// How many there are: programs that use no netmap pay one load a call.
    count: AtomicUsize,
    open: RwLock<Open>,
}

#[derive(Debug)]
struct Open {
    descriptors: BTreeMap<i32, Arc<Descriptor>>,
    sets: BTreeMap<i32, Vec<Interest>>,
}

impl Table {
    /// Empty.
    #[must_use]
    pub const fn new() -> Self {
        let open = Open { descriptors: BTreeMap::new(), sets: BTreeMap::new() };
        Self { count: AtomicUsize::new(0), open: RwLock::new(open) }
    }

    /// Whether any descriptor is netmap's.
    #[inline]
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.count.load(Ordering::Relaxed) == 0
    }

    /// What that number is, if netmap's.
    #[must_use]
    pub fn get(&self, fd: i32) -> Option<Arc<Descriptor>> {
        if self.is_empty() {
            return None;
        }
        self.read(|open| open.descriptors.get(&fd).cloned())
    }

    /// That number is this from now on; what it was before.
    pub fn insert(&self, fd: i32, descriptor: Arc<Descriptor>) -> Option<Arc<Descriptor>> {
        self.write(|open| open.descriptors.insert(fd, descriptor))
    }

    /// That number is nothing any more; what it was before, to be dropped by the caller.
    pub fn remove(&self, fd: i32) -> (Option<Arc<Descriptor>>, Vec<Interest>) {
        if self.is_empty() {
            return (None, Vec::new());
        }
        self.write(|open| {
            let gone = open.descriptors.remove(&fd);
            let mut interests = open.sets.remove(&fd).unwrap_or_default();
            for set in open.sets.values_mut() {
                interests.extend(set.extract_if(.., |interest| interest.fd == fd));
            }
            open.sets.retain(|_, set| !set.is_empty());
            (gone, interests)
        })
    }

    /// Everything that is open.
    #[must_use]
    pub fn all(&self) -> Vec<Arc<Descriptor>> {
        self.read(|open| open.descriptors.values().cloned().collect())
    }

    /// The numbers from `first` to `last` that are netmap's, or an epoll set's that watches one.
    #[must_use]
    pub fn within(&self, first: u32, last: u32) -> Vec<i32> {
        if self.is_empty() {
            return Vec::new();
        }
        let is_within = |fd: &i32| u32::try_from(*fd).is_ok_and(|fd| (first..=last).contains(&fd));
        self.read(|open| {
            open.descriptors.keys().chain(open.sets.keys()).copied().filter(is_within).collect()
        })
    }

    /// The descriptors of netmap that an epoll set watches; none when there are none.
    #[must_use]
    pub fn interests(&self, set: i32) -> Vec<Interest> {
        if self.is_empty() {
            return Vec::new();
        }
        self.read(|open| open.sets.get(&set).cloned().unwrap_or_default())
    }

    /// Notes an interest. The kernel does not hear of it: whoever waits for the set asks here too.
    pub fn watch(&self, set: i32, interest: Interest) {
        self.write(|open| {
            let interests = open.sets.entry(set).or_default();
            interests.retain(|known| known.fd != interest.fd);
            interests.push(interest);
        });
    }

    /// Forgets an interest.
    pub fn unwatch(&self, set: i32, fd: i32) -> Vec<Interest> {
        self.write(|open| {
            let Some(interests) = open.sets.get_mut(&set) else { return Vec::new() };
            let gone = interests.extract_if(.., |interest| interest.fd == fd).collect();
            if interests.is_empty() {
                open.sets.remove(&set);
            }
            gone
        })
    }

    fn read<T>(&self, with: impl FnOnce(&Open) -> T) -> T {
        with(&self.open.read().unwrap_or_else(PoisonError::into_inner))
    }

    fn write<T>(&self, with: impl FnOnce(&mut Open) -> T) -> T {
        let mut open = self.open.write().unwrap_or_else(PoisonError::into_inner);
        let answer = with(&mut open);
        self.count.store(open.descriptors.len(), Ordering::Relaxed);
        answer
    }
}

impl Default for Table {
    fn default() -> Self {
        Self::new()
    }
}
