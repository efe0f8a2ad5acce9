//! Random bytes of the operating system, for secrets.

use std::io;

use rustix::io::Errno;
use rustix::rand::{GetRandomFlags, getrandom};

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
    fn secrets_differ_and_have_no_zeros_at_their_end() {
        let drawn: [[u8; 32]; 2] = [random_bytes(), random_bytes()];
        assert_ne!(drawn[0], drawn[1]);
        assert!(drawn.iter().all(|bytes| bytes[24..] != [0; 8]), "{drawn:?}");
        check().unwrap();
    }
}
