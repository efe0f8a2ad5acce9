//! The debug pages, and `/v1` for operators.

mod access;
mod debug;
pub mod error;
mod events;
mod history;
mod index;
mod problems;
pub mod query;
mod store_state;
pub mod v1;

pub use self::access::{Access, AccessOptions};
pub use self::debug::{DebugPages, debug};
pub use self::events::{Ends as EventEnds, EventSources, MAX_SUBSCRIBERS, events};
pub use self::history::{History, RecorderSources, record};
pub use self::store_state::StoreState;
pub use self::v1::{V1, v1};
