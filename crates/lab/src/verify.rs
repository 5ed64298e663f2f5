//! Verification before any measurement: each direction of a channel that the workload uses carries random content of
//! various sizes, which is compared byte by byte and by CRC-32. A case that fails is not measured.

use crossway_loops::Loops;
use crossway_loops::payload::next_random;

use crate::role::RoleError;
use crossway_records::inputs::Inputs;

const MOST_MESSAGES: usize = 64;
const LEAST_MESSAGES: usize = 8;
const ABOUT_BYTES: usize = 2 << 20;

/// Sends or receives the agreed messages on one channel. Returns their number and the CRC-32 over their CRC-32 values.
pub(crate) fn run(
    role: &mut Loops,
    channel: u16,
    sends: bool,
    sender: u16,
) -> Result<(u32, u32), RoleError> {
    let size = if sends { role.sent_bytes() } else { role.received_bytes() };
    let seed = seed_of(&role.task().inputs, sender);
    let acknowledged = role.lossy();
    let in_place = role.in_place();
    let (tx, rx) = role
        .halves(usize::from(channel))
        .ok_or_else(|| RoleError::Wrong(format!("there is no channel {channel} to verify")))?;
    let mut chain = crc32fast::Hasher::new();
    let mut scratch = vec![0; size.max(1)];
    let mut ack = [0; 1];
    let lengths = lengths(size, seed);
    for (number, &len) in lengths.iter().enumerate() {
        let content = content(len, seed.wrapping_add(number as u64));
        chain.update(&crc32fast::hash(&content).to_be_bytes());
        if sends {
            if in_place {
                tx.send_in_place(len, &mut scratch, &mut |m| m.copy_from_slice(&content))?;
            } else {
                tx.send(&content, None)?;
            }
            tx.flush()?;
            if acknowledged {
                rx.recv(&mut ack, None)?;
            }
            continue;
        }
        let mut compared = Ok(());
        rx.recv_in_place(&mut scratch[..len], &mut |got| {
            compared = compare(number, got, &content);
        })?;
        compared?;
        if acknowledged {
            tx.send(&ack, None)?;
            tx.flush()?;
        }
    }
    Ok((lengths.len() as u32, chain.finalize()))
}

/// All messages that both ends agree on for the verification, for a caller that passes the messages to a contender's
/// program.
pub(crate) fn agreed(inputs: &Inputs, sender: u16) -> Vec<Vec<u8>> {
    let seed = seed_of(inputs, sender);
    let lengths = lengths(inputs.size_bytes as usize, seed);
    (0u64..).zip(lengths).map(|(number, len)| content(len, seed.wrapping_add(number))).collect()
}

/// The CRC-32 over the CRC-32 values of messages.
pub(crate) fn chain(messages: &[Vec<u8>]) -> u32 {
    let mut chain = crc32fast::Hasher::new();
    messages.iter().for_each(|message| chain.update(&crc32fast::hash(message).to_be_bytes()));
    chain.finalize()
}

fn seed_of(inputs: &Inputs, sender: u16) -> u64 {
    inputs.seed ^ u64::from(sender).rotate_right(16)
}

/// The lengths of the messages in bytes: the full size first and last, random lengths in between.
fn lengths(size: usize, seed: u64) -> Vec<usize> {
    let count = (ABOUT_BYTES / size.max(1)).clamp(LEAST_MESSAGES, MOST_MESSAGES);
    let mut state = seed;
    (0..count)
        .map(|n| match n {
            _ if size == 0 => 0,
            0 => size,
            n if n == count - 1 => size,
            _ => 1 + (next_random(&mut state) % size as u64) as usize,
        })
        .collect()
}

fn content(len: usize, seed: u64) -> Vec<u8> {
    let mut state = seed;
    let mut bytes = vec![0; len.next_multiple_of(8)];
    for word in bytes.as_chunks_mut::<8>().0 {
        *word = next_random(&mut state).to_le_bytes();
    }
    bytes.truncate(len);
    bytes
}

/// Returns an error if a message differs from the expected one.
pub(crate) fn compare(number: usize, got: &[u8], wanted: &[u8]) -> Result<(), RoleError> {
    if got == wanted && crc32fast::hash(got) == crc32fast::hash(wanted) {
        return Ok(());
    }
    Err(RoleError::Wrong(if got.len() != wanted.len() {
        let (got, wanted) = (got.len(), wanted.len());
        format!("verification: message {number} has {got} bytes instead of {wanted}")
    } else {
        let at = got.iter().zip(wanted).position(|(a, b)| a != b).unwrap_or(0);
        format!(
            "verification: message {number} ({} bytes) has wrong content from offset {at} on",
            got.len()
        )
    }))
}
