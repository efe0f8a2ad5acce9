//! Connections of clients: sockets, TLS, what bounds them, and the threads that serve them.
//!
//! | file | task |
//! | --- | --- |
//! | `sockets` | TCP and Unix sockets: listeners and connections |
//! | `tls` | certificates, their replacement, handshakes, encrypted connections |
//! | `connections` | the open connections of a listener, and which one is evicted for a newcomer |
//! | `accept` | the accept loop of a listener |
//! | `workers` | the serving threads, and the distribution of connections |
//! | `budget` | the memory that clients may use |

mod accept;
mod budget;
mod connections;
mod sockets;
pub(crate) mod tls;
mod workers;

pub use self::accept::accept;
pub use self::budget::{BudgetLimits, ConnectionBudget, MemoryBudget, Reservation};
pub use self::connections::{
    ConnectionCounts, ConnectionHandle, ConnectionLimits, Connections, ListenerMetrics,
};
pub use self::sockets::{Address, BoundSocket, DetachedSocket, Listener, Socket, to_canonical};
pub use self::workers::Workers;
