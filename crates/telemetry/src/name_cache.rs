//! Caches what is computed from a metric's name, such as its series, for as long as the name is in use.

use std::collections::HashMap;

/// Values by name. A [`sweep`](Self::sweep) drops what was not used since the last one, so its size follows the names.
#[derive(Debug)]
pub struct NameCache<V> {
    values: HashMap<Box<str>, Cached<V>>,
    sweeps: u64,
}

#[derive(Debug)]
struct Cached<V> {
    value: V,
    used_at: u64,
}

impl<V> Default for NameCache<V> {
    fn default() -> NameCache<V> {
        NameCache { values: HashMap::new(), sweeps: 0 }
    }
}

impl<V: Clone> NameCache<V> {
    /// Returns the value of a name; makes it on the first use.
    pub fn get(&mut self, name: &str, make: impl FnOnce(&str) -> V) -> V {
        if let Some(cached) = self.values.get_mut(name) {
            cached.used_at = self.sweeps;
            return cached.value.clone();
        }
        let value = make(name);
        let cached = Cached { value: value.clone(), used_at: self.sweeps };
        self.values.insert(name.into(), cached);
        value
    }

    pub fn sweep(&mut self) {
        let sweeps = self.sweeps;
        self.values.retain(|_, cached| cached.used_at == sweeps);
        self.sweeps += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_made_once_and_unused_names_are_forgotten() {
        let (mut cache, mut made) = (NameCache::default(), 0);
        let mut get = |cache: &mut NameCache<usize>, name: &str| {
            let value = cache.get(name, |name| {
                made += 1;
                name.len()
            });
            assert_eq!(value, name.len());
            made
        };
        assert_eq!(get(&mut cache, "one"), 1);
        assert_eq!(get(&mut cache, "one"), 1);
        assert_eq!(get(&mut cache, "three"), 2);
        cache.sweep();
        assert_eq!(get(&mut cache, "one"), 2);
        cache.sweep();
        assert_eq!(cache.values.len(), 1);
        assert_eq!(get(&mut cache, "three"), 3);
    }
}
