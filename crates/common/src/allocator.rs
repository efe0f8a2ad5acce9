//! Returns to the system what glibc's allocator keeps for reuse. Called after many connections have closed.

/// Returns unused memory to the system. Takes up to some milliseconds a gigabyte, while threads that allocate wait.
pub fn trim() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    {
        #[expect(unsafe_code, reason = "no safe function does it; this one has no condition")]
        unsafe extern "C" {
            safe fn malloc_trim(pad: usize) -> std::ffi::c_int;
        }
        malloc_trim(0);
    }
}
