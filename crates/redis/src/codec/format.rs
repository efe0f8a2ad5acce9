//! [`Codec`], which each algorithm implements for Redis: its Lua file, and how its limits and states are packed.

use weir_limit::{LimitState, Micros};

/// A Lua file with the functions of one algorithm, or of one form of it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LuaModule {
    /// The index of the module in the table `algorithms` of the scripts; at most 15, which is that of reservations.
    pub number: u8,
    /// Whether it borrows functions from the module of fixed windows.
    pub borrows: bool,
    pub text: &'static str,
}

impl LuaModule {
    pub const fn new(number: u8, text: &'static str) -> LuaModule {
        LuaModule { number, borrows: false, text }
    }

    /// Returns the bits of this module and of the one it borrows from.
    pub fn bits(&self) -> u16 {
        1 << self.number | if self.borrows { 1 << FIXED_WINDOW } else { 0 }
    }
}

/// The number of the module of fixed windows, which others borrow from.
pub(super) const FIXED_WINDOW: u8 = 1;

/// The form of one algorithm's limits and states in Redis.
pub(super) trait Codec {
    const MODULE: LuaModule;

    /// The modules of the algorithm: one for each form of its limits.
    const MODULES: &'static [LuaModule] = &[Self::MODULE];

    /// Returns the module that charges such a limit.
    fn module(&self) -> LuaModule {
        Self::MODULE
    }

    /// Appends the numbers of the limit that the module reads. `now` is the caller's time.
    fn write_numbers(&self, now: Micros, out: &mut Vec<u8>);

    /// Reads the state among the numbers of all limits; `None` if it is invalid.
    fn read_state(&self, numbers: &mut Reader<'_>) -> Option<LimitState>;

    /// Reads what comes after the numbers of all limits.
    fn read_rest(&self, _state: &mut LimitState, _rest: &mut Reader<'_>) -> Option<()> {
        Some(())
    }

    /// Reads the state if it has a key of its own, which does not exist if `text` is empty.
    fn read_own_key(&self, _text: &[u8]) -> Option<Option<LimitState>> {
        Some(None)
    }
}

/// Appends a number as the scripts read it: 7 bytes, at most 2^52.
pub(crate) fn put(out: &mut Vec<u8>, number: u64) {
    out.extend_from_slice(&number.min(1 << 52).to_le_bytes()[..7]);
}

pub(super) fn put_all(out: &mut Vec<u8>, numbers: &[u64]) {
    numbers.iter().for_each(|&number| put(out, number));
}

/// The unread rest of a reply or a state.
#[derive(Debug)]
pub(crate) struct Reader<'a>(pub &'a [u8]);

impl<'a> Reader<'a> {
    pub fn bytes(&mut self, len: usize) -> Option<&'a [u8]> {
        let (bytes, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(bytes)
    }

    /// Reads a number of 7 bytes.
    pub fn wide(&mut self) -> Option<u64> {
        let mut wide = [0; 8];
        wide[..7].copy_from_slice(self.bytes(7)?);
        Some(u64::from_le_bytes(wide))
    }

    /// Reads a number of 4 bytes.
    pub fn short(&mut self) -> Option<u32> {
        Some(u32::from_le_bytes(self.bytes(4)?.try_into().ok()?))
    }

    /// Reads a number of 2 bytes.
    pub fn half(&mut self) -> Option<u16> {
        Some(u16::from_le_bytes(self.bytes(2)?.try_into().ok()?))
    }

    /// Reads a number of 5 bytes.
    pub fn seconds(&mut self) -> Option<u64> {
        let mut wide = [0; 8];
        wide[..5].copy_from_slice(self.bytes(5)?);
        Some(u64::from_le_bytes(wide))
    }
}
