//! Unpredictable random numbers.

use rustix::rand::{GetRandomFlags, getrandom};

use crate::OsError;

/// A random number from the kernel, never 0.
///
/// # Errors
/// [`OsError`] of getrandom.
pub fn unguessable() -> Result<u64, OsError> {
    let mut bytes = [0; 8];
    loop {
        // Requests of up to 256 bytes are served completely or fail.
        getrandom(&mut bytes[..], GetRandomFlags::empty())
            .map_err(|e| OsError::new("getrandom", "", e))?;
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
