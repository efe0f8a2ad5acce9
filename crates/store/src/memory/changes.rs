//! The list of a shard's keys that changed since they were last saved.

use super::fingerprint::Print;

/// Changes listed by any shard, however few keys it may hold.
const MIN_LISTED: usize = 1024;

/// The keys of a shard that changed since they were last saved: charged, inserted or removed.
///
/// A slot is marked as listed, so that a key that is charged often is listed once. The list is as long
/// as the shard may have keys. It is full if more keys than that came and went, or if nothing takes it
/// because a disk hangs: then it is emptied, and the whole store has to be saved.
#[derive(Debug)]
pub(super) struct Changes {
    prints: Vec<Print>,
    max: usize,
    is_full: bool,
}

/// What changed since the last look.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Changed {
    /// The fingerprints of changed keys, maybe repeated.
    Keys(Vec<Print>),
    /// More than could be listed.
    TooMany,
}

impl Changes {
    /// Lists the changes of a shard that holds up to `cap` keys.
    pub fn new(cap: usize) -> Changes {
        Changes { prints: Vec::new(), max: cap.max(MIN_LISTED), is_full: false }
    }

    /// Lists a key, unless the list is full.
    pub fn list(&mut self, print: &Print) {
        if self.is_full {
            return;
        }
        if self.prints.len() < self.max {
            self.prints.push(*print);
        } else {
            self.is_full = true;
            self.prints = Vec::new();
        }
    }

    /// Empties the list. The slots stay marked until they are copied.
    pub fn take(&mut self) -> Changed {
        if std::mem::take(&mut self.is_full) {
            return Changed::TooMany;
        }
        // As many again find room, so that charges seldom wait for memory.
        let room = Vec::with_capacity((2 * self.prints.len()).min(self.max));
        Changed::Keys(std::mem::replace(&mut self.prints, room))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_list_takes_no_memory() {
        let mut changes = Changes::new(7);
        let print = |i: u8| [i; 11];
        changes.list(&print(1));
        changes.list(&print(2));
        assert_eq!(changes.take(), Changed::Keys(vec![print(1), print(2)]));
        for _ in 0..MIN_LISTED + 9 {
            changes.list(&print(3));
        }
        assert_eq!(changes.prints.capacity(), 0);
        assert_eq!(changes.take(), Changed::TooMany);
        changes.list(&print(4));
        assert_eq!(changes.take(), Changed::Keys(vec![print(4)]));
    }
}
