//! The subcommands for operators: they read and change a running weir through `/v1`.

pub(super) mod api_client;
pub(super) mod change;
pub(super) mod controls;
pub(super) mod describe;
pub(super) mod state;
pub(super) mod top;
pub(super) mod unblock;
