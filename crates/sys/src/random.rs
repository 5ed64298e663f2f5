//! Unpredictable random numbers.

use rustix::rand::{GetRandomFlags, getrandom};

use crate::OsError;

/// Fills `bytes`, at most 256, with random numbers that are good enough for keys.
///
/// # Errors
/// [`OsError`] of getrandom.
pub fn fill(bytes: &mut [u8]) -> Result<(), OsError> {
    // Requests of up to 256 bytes are served completely or fail.
    getrandom(bytes, GetRandomFlags::empty()).map_err(|e| OsError::new("getrandom", "", e))?;
    Ok(())
}

/// A random number from the kernel, never 0.
///
/// # Errors
/// [`OsError`] of getrandom.
pub fn unguessable() -> Result<u64, OsError> {
    let mut bytes = [0; 8];
    loop {
        fill(&mut bytes)?;
        let number = u64::from_ne_bytes(bytes);
        if number != 0 {
            return Ok(number);
        }
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn two_numbers_differ() {
        assert_ne!(super::unguessable().unwrap(), super::unguessable().unwrap());
    }
}
