//! Assembles the Lua scripts that charge keys, from the files in `lua/`.
//!
//! `prelude.lua`, the files of the algorithms that a call needs, `rules.lua` and `charge.lua` make one script, which
//! charges any rule: helpers and constants are declared once, in the prelude, and are visible to all of them. With
//! `reserve.lua` in place of `charge.lua` it makes the operations about reservations and no others. `counter.lua`,
//! `lone_gcra.lua`, `windows.lua` and `lone_reserve.lua` are scripts for the most common calls. They repeat a few lines
//! of the others on purpose: Redis runs the whole text at each call, and every shared function would be created again
//! even where it is not needed. The latter two follow `prelude.lua`, too; the others would cost more with it.

use std::collections::HashMap;

use super::codec::algorithms::COUNTERS;
use super::codec::modules;
use super::codec::reservation::RESERVATIONS;

const COUNTER: &str = include_str!("lua/counter.lua");
const LONE_GCRA: &str = include_str!("lua/lone_gcra.lua");
const WINDOWS: &str = include_str!("lua/windows.lua");
const PRELUDE: &str = include_str!("lua/prelude.lua");
const RULES: &str = include_str!("lua/rules.lua");
const CHARGE: &str = include_str!("lua/charge.lua");
const RESERVE: &str = include_str!("lua/reserve.lua");
const LONE_RESERVE: &str =
    concat!(include_str!("lua/records.lua"), include_str!("lua/lone_reserve.lua"));

/// Resets a key of which hits can be reserved.
pub(super) const RESET: &str = include_str!("lua/reset.lua");
/// Reads the state of a key for operators.
pub(super) const READ: &str = include_str!("lua/read.lua");

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum ScriptKind {
    Counter,
    Gcra,
    Windows,
    /// Charges the algorithms whose bits are set, and no others: a script creates its functions at each run.
    Charge(u16),
    /// Reserves and settles hits of these algorithms.
    Reserve(u16),
}

fn script(kind: ScriptKind) -> Script {
    let text = match kind {
        ScriptKind::Counter => COUNTER.to_owned(),
        ScriptKind::Gcra => LONE_GCRA.to_owned(),
        ScriptKind::Windows => [PRELUDE, WINDOWS].concat(),
        ScriptKind::Charge(bits) => with_modules(bits, CHARGE),
        ScriptKind::Reserve(COUNTERS) => [PRELUDE, LONE_RESERVE].concat(),
        ScriptKind::Reserve(bits) => with_modules(bits | RESERVATIONS, RESERVE),
    };
    let hash = redis::Script::new(&text).get_hash().to_owned();
    Script { text, hash }
}

fn with_modules(bits: u16, main: &str) -> String {
    let mut text = PRELUDE.to_owned();
    for module in modules().filter(|module| bits & 1 << module.number != 0) {
        text.push_str("do\n");
        text.push_str(module.text);
        text.push_str("end\n");
    }
    text + RULES + main
}

/// The scripts that a connection has used so far, and whether each was sent.
#[derive(Debug, Default)]
pub(super) struct Scripts(HashMap<ScriptKind, (Script, bool)>);

impl Scripts {
    /// Returns a script, and whether its text was sent on this connection. If not, the first call sends it: an unknown
    /// hash would be refused, and later calls of the same round trip made before it.
    pub fn get(&mut self, kind: ScriptKind) -> (&Script, bool) {
        let (script, sent) = self.0.entry(kind).or_insert_with(|| (script(kind), false));
        (script, std::mem::replace(sent, true))
    }
}

#[derive(Debug)]
pub(super) struct Script {
    pub text: String,
    /// The SHA-1 of the text, for `EVALSHA`.
    pub hash: String,
}
