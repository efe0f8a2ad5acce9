//! Connections of clients: sockets, TLS, what bounds them, and the threads that serve them.
//!
//! | file | task |
//! | --- | --- |
//! | `listen` | binds TCP and Unix sockets, which listen later |
//! | `accept` | accepts connections, does their TLS handshake, and hands them to the threads that serve them |
//! | `connections` | the open connections of a listener, and which one is evicted (closed for a new one) at the limit |
//! | `stream` | a connection, plain or with TLS, and the deadline of writing |
//! | `client_memory` | the memory that clients may use |
//! | `tls` | certificates, their replacement, handshakes |
//! | `token_file` | files with the tokens and passwords that clients send |

mod accept;
mod client_memory;
mod connections;
mod listen;
mod stream;
pub(crate) mod tls;
pub(crate) mod token_file;

pub use self::accept::{Listener, Opener, Workers, accept};
pub use self::client_memory::{ClientMemory, ConnectionMemory, HeldMemory};
pub use self::connections::{
    ConnectionCounts, ConnectionHandle, ConnectionLimits, Connections, ListenerMetrics,
};
pub use self::listen::{Address, BoundSocket, bind, bind_path};
pub use self::stream::{DetachedStream, Stream, TlsStream, WriteDeadline};
