//! Packs the ban of a rule for the Lua scripts, to which it is the last limit of the rule, and reads its state. A ban
//! denies a key for a while after several denials, its strikes.

use super::format::{LuaModule, Reader, put, put_all};
use weir_limit::{Ban, BanState};

pub(super) const MODULE: LuaModule = LuaModule::new(12, include_str!("../lua/ban.lua"));

/// Appends a ban behind the limits of its rule. `counts_strikes`: denials are strikes.
pub(super) fn write(ban: &Ban, counts_strikes: bool, out: &mut Vec<u8>) {
    let after = if counts_strikes { ban.after } else { 0 };
    out.extend_from_slice(&[MODULE.number, 0]);
    put_all(out, &[after.into(), ban.within, ban.forgets_after()]);
    out.push(ban.lengths.len() as u8);
    ban.lengths.iter().for_each(|&length| put(out, length));
}

/// Reads the state behind those of the limits.
pub(super) fn read(numbers: &mut Reader<'_>) -> Option<BanState> {
    let &[strikes, bans] = numbers.bytes(2)? else { return None };
    let (since, began, until) = (numbers.wide()?, numbers.wide()?, numbers.wide()?);
    (began <= until).then_some(BanState { strikes, bans, since, began, until })
}
