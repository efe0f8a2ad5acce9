//! Benchmarks of weir: see CONTRIBUTING.md.
