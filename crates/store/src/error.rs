//! Why a store could not answer: the errors in answers, logs and the metrics of failed charges.

use weir_common::named_enum;

named_enum! {
    /// Why a store could not answer.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
    pub enum StoreError, name {
        /// It cannot be reached.
        #[error("the store could not be reached")]
        Unavailable = "unavailable",
        /// It did not answer within the timeout.
        #[error("the store did not answer in time")]
        TimedOut = "timed_out",
        /// The caller's deadline was shorter than its answer.
        #[error("the caller's deadline came before the store's answer")]
        CallerDeadline = "caller_deadline",
        /// It is a replica.
        #[error("the store only answers reads")]
        ReadOnly = "read_only",
        /// It is full.
        #[error("the store has no room left")]
        OutOfMemory = "out_of_memory",
        /// Fewer replicas follow it than it needs to accept writes.
        #[error("the store has too few replicas to accept writes")]
        NoReplicas = "no_replicas",
        /// It accepts no writes because it cannot save them.
        #[error("the store cannot save its data, and accepts no writes")]
        NotSaved = "not_saved",
        /// A part of its cluster is missing.
        #[error("the store's cluster is down")]
        ClusterDown = "cluster_down",
        /// It is a replica that has lost its master.
        #[error("the store has no connection to its master")]
        MasterDown = "master_down",
        /// It has just started.
        #[error("the store is loading its data")]
        Loading = "loading",
        /// It runs a script that takes long.
        #[error("the store is busy with a script")]
        Busy = "busy",
        /// Its user may not run a command, or not use the key.
        #[error("the store does not permit a command or a key to this user")]
        NotPermitted = "not_permitted",
        /// Its time is not in the calendar windows of the caller.
        #[error("the clocks of weir and the store are too far apart for a calendar")]
        ClockSkew = "clock_skew",
        /// The key belongs to another program.
        #[error("the key holds something that is not weir's")]
        WrongType = "wrong_type",
        /// The state of the key is damaged.
        #[error("the key's state cannot be read")]
        Corrupt = "corrupt",
    }
}

impl StoreError {
    /// Returns whether it is certain that nothing was charged.
    pub fn is_refusal(self) -> bool {
        // Without the right to its second write, a script may have made its first.
        !matches!(
            self,
            StoreError::Unavailable
                | StoreError::TimedOut
                | StoreError::CallerDeadline
                | StoreError::NotPermitted
        )
    }
}
