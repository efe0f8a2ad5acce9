//! The password of the port.

use std::sync::Arc;

use arc_swap::ArcSwapOption;

/// The password, which may be replaced while connections are served. None: the port needs none.
#[derive(Debug, Default)]
pub struct Password(ArcSwapOption<Vec<u8>>);

impl Password {
    pub fn set(&self, password: Option<Vec<u8>>) {
        self.0.store(password.map(Arc::new));
    }

    pub(super) fn load(&self) -> Option<Arc<Vec<u8>>> {
        self.0.load_full()
    }
}
