//! Operations under way, by the number that the machine gives back with their completions.

use messaging::{BufferId, ReceiveId};

/// What a program asked for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Operation {
    /// The program's word for it.
    pub(crate) context: usize,
    /// Flags of its completion.
    pub(crate) flags: u64,
    /// Whether a success is told; failures always are.
    pub(crate) is_told: bool,
    pub(crate) buffer: BufferId,
    /// Where the buffer begins, for receives of many messages.
    pub(crate) address: usize,
    /// Takes message after message.
    pub(crate) is_multi: bool,
    /// Takes a message that nobody wants: that there is no room for it is no error.
    pub(crate) is_discarded: bool,
    /// Of a receive.
    pub(crate) receive: Option<ReceiveId>,
}

/// Values by number; a number is used again once its value is removed.
#[derive(Debug)]
pub(crate) struct Table<T> {
    places: Vec<Option<T>>,
    free: Vec<u32>,
}

impl<T> Default for Table<T> {
    fn default() -> Self {
        Self { places: Vec::new(), free: Vec::new() }
    }
}

impl<T> Table<T> {
    pub(crate) fn insert(&mut self, value: T) -> u64 {
        if let Some(index) = self.free.pop() {
            self.places[index as usize] = Some(value);
            return index.into();
        }
        self.places.push(Some(value));
        self.places.len() as u64 - 1
    }

    pub(crate) fn find(&self, number: u64) -> Option<&T> {
        self.places.get(number as usize)?.as_ref()
    }

    pub(crate) fn find_mut(&mut self, number: u64) -> Option<&mut T> {
        self.places.get_mut(number as usize)?.as_mut()
    }

    pub(crate) fn remove(&mut self, number: u64) -> Option<T> {
        let value = self.places.get_mut(number as usize)?.take();
        if value.is_some() {
            self.free.push(number as u32);
        }
        value
    }
}

/// The messages of a program that are under way.
pub(crate) type Operations = Table<Operation>;

impl Operations {
    pub(crate) fn set_receive(&mut self, number: u64, receive: ReceiveId) {
        if let Some(operation) = self.find_mut(number) {
            operation.receive = Some(receive);
        }
    }

    /// The receives that the program knows by this word.
    pub(crate) fn receives(&self, context: usize) -> Vec<ReceiveId> {
        let known = self.places.iter().flatten().filter(|known| known.context == context);
        known.filter_map(|known| known.receive).collect()
    }
}
