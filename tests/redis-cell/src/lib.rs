//! Builds redis-cell, with which tests/e2e/resp/cell.rs compares CL.THROTTLE.
