//! Records in one vector, found by index or by a handle that becomes invalid when its record is
//! removed, and doubly linked lists through them. Nothing is allocated once the vector has grown to
//! the largest number of records alive at once.

/// No record.
pub(crate) const NONE: u32 = u32::MAX;

/// Records with stable indices.
#[derive(Debug)]
pub(crate) struct Slab<T> {
    places: Vec<Place<T>>,
    free: u32,
    count: usize,
}

#[derive(Debug)]
struct Place<T> {
    generation: u32,
    next_free: u32,
    value: Option<T>,
}

impl<T> Slab<T> {
    pub(crate) fn new() -> Self {
        Self { places: Vec::new(), free: NONE, count: 0 }
    }

    /// Number of live records.
    pub(crate) fn count(&self) -> usize {
        self.count
    }

    pub(crate) fn insert(&mut self, value: T) -> u32 {
        self.count += 1;
        if self.free == NONE {
            let index = u32::try_from(self.places.len()).expect("callers bound their records");
            self.places.push(Place { generation: 1, next_free: NONE, value: Some(value) });
            return index;
        }
        let index = self.free;
        let place = &mut self.places[index as usize];
        self.free = place.next_free;
        place.value = Some(value);
        index
    }

    /// Removes a live record and invalidates handles to it.
    pub(crate) fn remove(&mut self, index: u32) -> T {
        let place = &mut self.places[index as usize];
        place.generation = place.generation.wrapping_add(1);
        place.next_free = self.free;
        self.free = index;
        self.count -= 1;
        place.value.take().expect("only live records are removed")
    }

    /// A handle by which others may name this live record.
    pub(crate) fn handle(&self, index: u32) -> u64 {
        u64::from(self.places[index as usize].generation) << 32 | u64::from(index)
    }

    /// The index of a live record; none for an outdated or invented handle.
    pub(crate) fn find(&self, handle: u64) -> Option<u32> {
        let index = (handle & u64::from(u32::MAX)) as u32;
        let place = self.places.get(index as usize)?;
        let is_live = u64::from(place.generation) == handle >> 32 && place.value.is_some();
        is_live.then_some(index)
    }

    /// Indices of live records, in ascending order.
    pub(crate) fn indices(&self) -> impl Iterator<Item = u32> {
        let live = self.places.iter().enumerate().filter(|(_, place)| place.value.is_some());
        live.map(|(index, _)| index as u32)
    }
}

impl<T> std::ops::Index<u32> for Slab<T> {
    type Output = T;

    fn index(&self, index: u32) -> &T {
        self.places[index as usize].value.as_ref().expect("only live records are looked up")
    }
}

impl<T> std::ops::IndexMut<u32> for Slab<T> {
    fn index_mut(&mut self, index: u32) -> &mut T {
        self.places[index as usize].value.as_mut().expect("only live records are looked up")
    }
}

/// A record's neighbours in a list.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Link {
    prev: u32,
    next: u32,
    linked: bool,
}

impl Link {
    /// The link of a record that is in no list.
    pub(crate) const OUT: Self = Self { prev: NONE, next: NONE, linked: false };

    pub(crate) fn is_linked(&self) -> bool {
        self.linked
    }
}

/// A record with list link number `N`.
pub(crate) trait Linked<const N: usize> {
    fn link(&mut self) -> &mut Link;
}

/// A container of [`Linked`] records, so that lists run through slabs and plain vectors alike.
pub(crate) trait Records<const N: usize> {
    fn link(&mut self, index: u32) -> &mut Link;
}

impl<const N: usize, T: Linked<N>> Records<N> for Slab<T> {
    fn link(&mut self, index: u32) -> &mut Link {
        self[index].link()
    }
}

impl<const N: usize, T: Linked<N>> Records<N> for Vec<T> {
    fn link(&mut self, index: u32) -> &mut Link {
        self[index as usize].link()
    }
}

/// Implements `Linked` for a record type, one field per link number.
macro_rules! linked {
    ($record:ty, $($number:literal => $field:ident),+) => {
        $(impl $crate::slab::Linked<$number> for $record {
            fn link(&mut self) -> &mut $crate::slab::Link {
                &mut self.$field
            }
        })+
    };
}
pub(crate) use linked;

impl Link {
    pub(crate) fn next(&self) -> u32 {
        self.next
    }
}

/// A list through link `N` of records.
#[derive(Debug, Clone, Copy)]
pub(crate) struct List<const N: usize> {
    head: u32,
    tail: u32,
}

impl<const N: usize> List<N> {
    pub(crate) const EMPTY: Self = Self { head: NONE, tail: NONE };

    pub(crate) fn is_empty(&self) -> bool {
        self.head == NONE
    }

    /// The first record, or [`NONE`].
    pub(crate) fn front(&self) -> u32 {
        self.head
    }

    pub(crate) fn first(&self) -> Option<u32> {
        (self.head != NONE).then_some(self.head)
    }

    pub(crate) fn push_back(&mut self, records: &mut impl Records<N>, index: u32) {
        *records.link(index) = Link { prev: self.tail, next: NONE, linked: true };
        match self.tail {
            NONE => self.head = index,
            tail => records.link(tail).next = index,
        }
        self.tail = index;
    }

    /// Inserts `index` before `before`, or at the end if that is [`NONE`].
    pub(crate) fn insert_before(&mut self, records: &mut impl Records<N>, before: u32, index: u32) {
        if before == NONE {
            return self.push_back(records, index);
        }
        let prev = records.link(before).prev;
        *records.link(index) = Link { prev, next: before, linked: true };
        records.link(before).prev = index;
        match prev {
            NONE => self.head = index,
            prev => records.link(prev).next = index,
        }
    }

    pub(crate) fn remove(&mut self, records: &mut impl Records<N>, index: u32) {
        let link = std::mem::replace(records.link(index), Link::OUT);
        match link.prev {
            NONE => self.head = link.next,
            prev => records.link(prev).next = link.next,
        }
        match link.next {
            NONE => self.tail = link.prev,
            next => records.link(next).prev = link.prev,
        }
    }

    pub(crate) fn pop_front(&mut self, records: &mut impl Records<N>) -> Option<u32> {
        let index = self.first()?;
        self.remove(records, index);
        Some(index)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug)]
    struct Item {
        link: Link,
    }
    linked!(Item, 0 => link);

    #[test]
    fn lists_behave_like_vectors() {
        bolero::check!().with_type::<Vec<(u8, u8)>>().for_each(|steps| {
            let mut slab = Slab::new();
            let mut list = List::<0>::EMPTY;
            let mut oracle: Vec<u32> = Vec::new();
            for &(step, position) in steps {
                let at = usize::from(position) % (oracle.len() + 1);
                match step % 3 {
                    0 => {
                        let index = slab.insert(Item { link: Link::OUT });
                        list.push_back(&mut slab, index);
                        oracle.push(index);
                    }
                    1 => {
                        let index = slab.insert(Item { link: Link::OUT });
                        let before = oracle.get(at).copied().unwrap_or(NONE);
                        list.insert_before(&mut slab, before, index);
                        oracle.insert(at, index);
                    }
                    _ if at < oracle.len() => {
                        let handle = slab.handle(oracle[at]);
                        assert_eq!(slab.find(handle), Some(oracle[at]));
                        list.remove(&mut slab, oracle[at]);
                        slab.remove(oracle.remove(at));
                        assert_eq!(slab.find(handle), None, "a handle outlived its record");
                    }
                    _ => {}
                }
                let mut seen = Vec::new();
                let mut index = list.front();
                while index != NONE {
                    seen.push(index);
                    index = slab[index].link.next();
                }
                assert_eq!(seen, oracle);
                assert_eq!(slab.count(), oracle.len());
            }
        });
    }

    #[test]
    fn made_up_handles_find_nothing() {
        let mut slab = Slab::new();
        let index = slab.insert(7);
        bolero::check!().with_type::<u64>().for_each(|&handle| {
            assert_eq!(slab.find(handle).is_some(), handle == slab.handle(index));
        });
    }
}
