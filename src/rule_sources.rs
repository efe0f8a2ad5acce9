//! Where rules come from: `watch` reads files when they change, `xds` receives rules from a management server, and
//! `loader` compiles and activates them.

pub(crate) mod loader;
pub(crate) mod watch;
pub(crate) mod xds;
