//! The scripts, put together from their files.

use std::collections::HashMap;

use super::codec::modules;

/// The script of lone fixed windows.
const COUNTER: &str = include_str!("lua/counter.lua");
/// That of lone gcra limits, and that of several fixed windows, where hits are taken.
const LONE_GCRA: &str = include_str!("lua/lone_gcra.lua");
const WINDOWS: &str = include_str!("lua/windows.lua");
const PRELUDE: &str = include_str!("lua/prelude.lua");
const CHARGE: &str = include_str!("lua/charge.lua");

/// Which script a call runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum ScriptKind {
    Counter,
    Gcra,
    Windows,
    /// Of the algorithms whose bits are set. Only those that are needed: a script defines its
    /// functions anew each time it runs.
    Charge(u16),
}

/// A script's text, and the hash that it is called by.
fn script(kind: ScriptKind) -> Script {
    match kind {
        ScriptKind::Counter => Script::new(COUNTER.to_owned()),
        ScriptKind::Gcra => Script::new(LONE_GCRA.to_owned()),
        ScriptKind::Windows => Script::new(WINDOWS.to_owned()),
        ScriptKind::Charge(bits) => {
            let mut text = PRELUDE.to_owned();
            for module in modules().filter(|module| module.is_in(bits)) {
                text.push_str("do\n");
                text.push_str(module.text);
                text.push_str("end\n");
            }
            text.push_str(CHARGE);
            Script::new(text)
        }
    }
}

/// The scripts a lane has used so far.
#[derive(Debug, Default)]
pub(super) struct Scripts(HashMap<ScriptKind, (Script, bool)>);

impl Scripts {
    /// The script, and whether the server has been told it on this connection. If not, it is told
    /// with the first call: were that refused, others of the same trip would be made before it.
    pub fn get(&mut self, kind: ScriptKind) -> (&Script, bool) {
        let (script, told) = self.0.entry(kind).or_insert_with(|| (script(kind), false));
        (script, std::mem::replace(told, true))
    }
}

#[derive(Debug)]
pub(super) struct Script {
    pub text: String,
    /// What it is called by.
    pub hash: String,
}

impl Script {
    fn new(text: String) -> Script {
        let hash = redis::Script::new(&text).get_hash().to_owned();
        Script { text, hash }
    }
}
