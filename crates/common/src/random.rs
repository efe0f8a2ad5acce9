//! Random numbers: bytes of the operating system for secrets, and cheap ones that need not be secret.

use std::cell::Cell;
use std::io;

use rustix::io::Errno;
use rustix::rand::{GetRandomFlags, getrandom};

/// Returns a number from 0 to below 1.
///
/// It is the next one of this thread's generator, `SplitMix64` (Steele, Lea and Flood, "Fast splittable
/// pseudorandom number generators", 2014): a request that may be recorded takes one.
pub fn random() -> f64 {
    thread_local! {
        static STATE: Cell<u64> = Cell::new(u64::from_le_bytes(random_bytes()));
    }
    let state = STATE.get().wrapping_add(0x9e37_79b9_7f4a_7c15);
    STATE.set(state);
    // The 53 bits that a float holds.
    (mixed(state) >> 11) as f64 / (1_u64 << 53) as f64
}

fn mixed(state: u64) -> u64 {
    let bits = (state ^ state >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let bits = (bits ^ bits >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ bits >> 31
}

/// Checks that the operating system has random numbers: the program does so at its start.
pub fn check() -> io::Result<()> {
    draw(&mut [0; 32])
}

/// Returns random bytes of the operating system, good enough for secrets. Aborts the process if there are none, which
/// [`check`] has excluded: a secret that can be guessed protects nothing.
pub fn random_bytes<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    match draw(&mut bytes) {
        Ok(()) => bytes,
        Err(_) => std::process::abort(),
    }
}

fn draw(mut rest: &mut [u8]) -> io::Result<()> {
    while !rest.is_empty() {
        match getrandom(&mut *rest, GetRandomFlags::empty()) {
            Ok(drawn) => rest = &mut rest[drawn..],
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_generator_is_split_mix_64() {
        // The first two numbers of the published generator from 0.
        let step = 0x9e37_79b9_7f4a_7c15_u64;
        assert_eq!(mixed(step), 0xe220_a839_7b1d_cdaf);
        assert_eq!(mixed(step.wrapping_mul(2)), 0x6e78_9e6a_a1b9_65f4);
    }

    #[test]
    fn secrets_differ_and_have_no_zeros_at_their_end() {
        let drawn: [[u8; 32]; 2] = [random_bytes(), random_bytes()];
        assert_ne!(drawn[0], drawn[1]);
        assert!(drawn.iter().all(|bytes| bytes[24..] != [0; 8]), "{drawn:?}");
        check().unwrap();
    }

    #[test]
    fn random_numbers_are_spread_from_0_to_1() {
        let mut tenths = [0_u32; 10];
        for _ in 0..10_000 {
            tenths[(random() * 10.0) as usize] += 1;
        }
        // Ten standard deviations.
        assert!(tenths.iter().all(|count| count.abs_diff(1_000) < 300), "{tenths:?}");
    }
}
