//! Everything for operators, on the debug port: the debug pages, the web page, and the JSON API `/v1`.

mod access;
mod change_log;
mod control_changes;
mod debug;
pub mod error;
mod history;
mod index;
mod problems;
pub mod query;
mod sources;
mod store_state;
mod store_watch;
pub mod v1;

pub use self::access::{Access, AccessOptions};
pub use self::change_log::ChangeLog;
pub use self::debug::{DebugPages, debug};
pub use self::history::History;
pub use self::history::recorder::record;
pub use self::sources::Sources;
pub use self::store_state::StoreState;
pub use self::store_watch::StoreWatch;
pub use self::v1::v1;
