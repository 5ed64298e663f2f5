//! The numbers and structures of the driver's interface (linux/android/binder.h, binderfs.h),
//! protocol version 8.

/// Builds the number of an ioctl or command: direction, size in bytes of its argument, group,
/// number.
const fn number(direction: u32, bytes: usize, group: u8, nr: u32) -> u32 {
    direction << 30 | (bytes as u32) << 16 | (group as u32) << 8 | nr
}
const NONE: u32 = 0;
const WRITE: u32 = 1;
const READ: u32 = 2;

/// Size in bytes of the argument of an ioctl, command or return with this number.
pub(super) const fn argument_bytes(number: u32) -> usize {
    (number >> 16 & 0x3fff) as usize
}

/// `struct binder_write_read`.
#[repr(C)]
pub(super) struct WriteRead {
    pub(super) write_size: u64,
    pub(super) write_consumed: u64,
    pub(super) write_buffer: u64,
    pub(super) read_size: u64,
    pub(super) read_consumed: u64,
    pub(super) read_buffer: u64,
}

/// `struct binderfs_device`.
#[repr(C)]
pub(super) struct Device {
    pub(super) name: [u8; 256],
    pub(super) major: u32,
    pub(super) minor: u32,
}

pub(super) const WRITE_READ: u32 = number(READ | WRITE, size_of::<WriteRead>(), b'b', 1);
pub(super) const SET_CONTEXT_MANAGER: u32 = number(WRITE, 4, b'b', 7);
pub(super) const VERSION: u32 = number(READ | WRITE, 4, b'b', 9);
pub(super) const ADD_DEVICE: u32 = number(READ | WRITE, size_of::<Device>(), b'b', 1);
/// The version of the protocol whose numbers have 64 bits; there is no other one since Linux 5.17.
pub(super) const OF_64_BITS: i32 = 8;

/// Size in bytes of `struct binder_transaction_data`.
pub(super) const TRANSACTION_BYTES: usize = 64;
/// Commands, from the program to the driver.
pub(super) mod command {
    use super::{NONE, TRANSACTION_BYTES, WRITE, number};
    pub(in super::super) const TRANSACTION: u32 = number(WRITE, TRANSACTION_BYTES, b'c', 0);
    pub(in super::super) const FREE_BUFFER: u32 = number(WRITE, 8, b'c', 3);
    pub(in super::super) const ACQUIRE: u32 = number(WRITE, 4, b'c', 5);
    pub(in super::super) const INCREFS_DONE: u32 = number(WRITE, 16, b'c', 8);
    pub(in super::super) const ACQUIRE_DONE: u32 = number(WRITE, 16, b'c', 9);
    pub(in super::super) const ENTER_LOOPER: u32 = number(NONE, 0, b'c', 12);
    pub(in super::super) const REQUEST_DEATH: u32 = number(WRITE, 12, b'c', 14);
    pub(in super::super) const DEAD_DONE: u32 = number(WRITE, 8, b'c', 16);
}

/// Returns, from the driver to the program.
pub(super) mod returned {
    use super::{NONE, READ, TRANSACTION_BYTES, number};
    pub(in super::super) const ERROR: u32 = number(READ, 4, b'r', 0);
    pub(in super::super) const TRANSACTION: u32 = number(READ, TRANSACTION_BYTES, b'r', 2);
    pub(in super::super) const DEAD_REPLY: u32 = number(NONE, 0, b'r', 5);
    pub(in super::super) const TRANSACTION_COMPLETE: u32 = number(NONE, 0, b'r', 6);
    pub(in super::super) const INCREFS: u32 = number(READ, 16, b'r', 7);
    pub(in super::super) const ACQUIRE: u32 = number(READ, 16, b'r', 8);
    pub(in super::super) const DEAD_BINDER: u32 = number(READ, 8, b'r', 15);
    pub(in super::super) const FAILED_REPLY: u32 = number(NONE, 0, b'r', 17);
}

/// Flag of a transaction that no reply follows.
const ONE_WAY: u32 = 1;
/// Types of objects in a transaction: one of the sender's own, and one of another process
/// (`B_PACK_CHARS`).
const OWN_OBJECT: u32 = u32::from_be_bytes([b's', b'b', b'*', 0x85]);
const FOREIGN_OBJECT: u32 = u32::from_be_bytes([b's', b'h', b'*', 0x85]);
/// Size in bytes of `struct flat_binder_object`.
pub(super) const OBJECT_BYTES: usize = 24;

/// A `struct flat_binder_object` for an own object with this address and cookie.
pub(super) fn own_object(name: u64) -> [u8; OBJECT_BYTES] {
    object(OWN_OBJECT, name, name)
}

/// A `struct flat_binder_object` for another process's object, to be passed on.
pub(super) fn foreign_object(handle: u32) -> [u8; OBJECT_BYTES] {
    let mut object = object(FOREIGN_OBJECT, 0, 0);
    object[8..12].copy_from_slice(&handle.to_ne_bytes());
    object
}

fn object(kind: u32, name: u64, cookie: u64) -> [u8; OBJECT_BYTES] {
    let mut object = [0; OBJECT_BYTES];
    object[..4].copy_from_slice(&kind.to_ne_bytes());
    object[8..16].copy_from_slice(&name.to_ne_bytes());
    object[16..].copy_from_slice(&cookie.to_ne_bytes());
    object
}

/// The handle in a `struct flat_binder_object` that the driver has translated for its receiver.
pub(super) fn handle_in(object: &[u8]) -> Option<u32> {
    let kind = u32::from_ne_bytes(object.get(..4)?.try_into().ok()?);
    let handle = u32::from_ne_bytes(object.get(8..12)?.try_into().ok()?);
    (object.len() >= OBJECT_BYTES && kind == FOREIGN_OBJECT).then_some(handle)
}

/// A one-way transaction to `handle`: `struct binder_transaction_data` with the addresses of the
/// data and of the offsets of the objects in it.
pub(super) fn transaction(
    handle: u32,
    code: u32,
    (data, data_bytes): (u64, usize),
    (offsets, offsets_bytes): (u64, usize),
) -> [u8; TRANSACTION_BYTES] {
    let mut bytes = [0; TRANSACTION_BYTES];
    bytes[..4].copy_from_slice(&handle.to_ne_bytes());
    bytes[16..20].copy_from_slice(&code.to_ne_bytes());
    bytes[20..24].copy_from_slice(&ONE_WAY.to_ne_bytes());
    for (at, value) in
        [(32, data_bytes as u64), (40, offsets_bytes as u64), (48, data), (56, offsets)]
    {
        bytes[at..at + 8].copy_from_slice(&value.to_ne_bytes());
    }
    bytes
}

/// What a receiver needs of a `struct binder_transaction_data`: the code, and address and length of
/// the data.
pub(super) fn received(bytes: &[u8; TRANSACTION_BYTES]) -> (u32, u64, u64) {
    let eight = |at: usize| u64::from_ne_bytes(std::array::from_fn(|i| bytes[at + i]));
    let code = u32::from_ne_bytes(std::array::from_fn(|i| bytes[16 + i]));
    (code, eight(48), eight(32))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The numbers that the kernel's headers define (as `gcc -E` shows them).
    #[test]
    fn numbers_are_those_of_the_headers() {
        assert_eq!(WRITE_READ, 0xc030_6201);
        assert_eq!(SET_CONTEXT_MANAGER, 0x4004_6207);
        assert_eq!(VERSION, 0xc004_6209);
        assert_eq!(ADD_DEVICE, 0xc108_6201);
        assert_eq!(command::TRANSACTION, 0x4040_6300);
        assert_eq!(command::FREE_BUFFER, 0x4008_6303);
        assert_eq!(command::REQUEST_DEATH, 0x400c_630e);
        assert_eq!(returned::TRANSACTION, 0x8040_7202);
        assert_eq!(returned::DEAD_BINDER, 0x8008_720f);
        assert_eq!(argument_bytes(returned::TRANSACTION), TRANSACTION_BYTES);
    }

    #[test]
    fn an_object_of_another_process_has_a_handle_and_an_own_one_has_none() {
        assert_eq!(handle_in(&own_object(7)), None);
        let object = foreign_object(7);
        assert_eq!(handle_in(&object), Some(7));
        assert_eq!(handle_in(&object[..20]), None);
    }
}
