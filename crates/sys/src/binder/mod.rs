//! Binder (`drivers/android/binder.c`): messages that the kernel copies straight into memory that
//! the receiver maps.
//!
//! A [`Port`] is an open device: it sends one-way transactions to handles, and receives into a
//! memory that only the kernel writes. Handles of other ports come in messages. The first ones come
//! from the device's *context manager*, which all reach by the handle 0 ([`start_manager`]).
//! Devices are made in a binderfs; a kernel without one has those that were named when the driver
//! was loaded.

use std::collections::VecDeque;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::path::Path;
use std::thread::ThreadId;

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags};

use crate::OsError;
use crate::blocking::Switched;
use crate::error::last_errno;

mod devices;
mod introductions;
#[cfg(test)]
mod tests;
mod wire;

use wire::{command, returned};

pub use devices::{FIXED_DEVICE, add_device, file_system, fixed_devices};
pub use introductions::{Role, start_manager};

/// The largest memory in bytes that a port can receive into. One-way messages can fill half of it.
pub const LARGEST_MEMORY: usize = 4 << 20;
/// The handle of the context manager.
pub const MANAGER: u32 = 0;

/// Something that a port has received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A message with this code; [`Port::message`] is its content until the next call that
    /// receives.
    Message(u32),
    /// The port behind this handle, which this one holds, was closed.
    Ended(u32),
}

/// Memory that the kernel writes messages into.
#[derive(Debug)]
struct Memory {
    start: *mut libc::c_void,
    bytes: usize,
}

// SAFETY: nothing but the kernel writes to the memory, and it belongs to one port.
unsafe impl Send for Memory {}
// SAFETY: as above; shared references only read messages that the kernel does not change any more.
unsafe impl Sync for Memory {}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: this mapping was made by `Port::open`, and no reference to it outlives the port.
        let _ = unsafe { rustix::mm::munmap(self.start, self.bytes) };
    }
}

/// An open device, with the memory for what it receives. One thread at a time uses it.
#[derive(Debug)]
pub struct Port {
    // Before the descriptor: the driver regards a port as open until both are gone.
    memory: Memory,
    file: Switched,
    /// The thread that has told the driver that it receives.
    receives: Option<ThreadId>,
    /// Commands for the next call.
    commands: Vec<u8>,
    events: VecDeque<Event>,
    /// The received message that has not been given back: offset in the memory, and length.
    held: Option<(usize, usize)>,
    /// How the driver answered the last message that was sent.
    answer: Option<Result<(), Errno>>,
}

impl Port {
    /// Opens a device, with a memory of this size for what it receives; at most [`LARGEST_MEMORY`]
    /// bytes.
    ///
    /// # Errors
    /// There is no such device, this user may not open it, or it is no Binder device.
    pub fn open(device: &Path, bytes: usize) -> Result<Port, OsError> {
        let failed = |call| move |e: Errno| OsError::new(call, device.display(), e);
        let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let fd = rustix::fs::open(device, flags, Mode::empty()).map_err(failed("open"))?;
        let mut version = 0_i32;
        // SAFETY: this request writes one 32-bit number.
        if unsafe { libc::ioctl(fd.as_raw_fd(), wire::VERSION as _, &raw mut version) } == -1 {
            return Err(failed("ioctl(BINDER_VERSION)")(last_errno()));
        }
        if version != wire::OF_64_BITS {
            return Err(failed("ioctl(BINDER_VERSION)")(Errno::PROTONOSUPPORT));
        }
        // SAFETY: a new mapping at an address that the kernel chooses.
        let start = unsafe {
            rustix::mm::mmap(
                std::ptr::null_mut(),
                bytes,
                ProtFlags::READ,
                MapFlags::PRIVATE,
                &fd,
                0,
            )
        };
        let file = Switched::new(fd).map_err(failed("fcntl"))?;
        let memory = Memory { start: start.map_err(failed("mmap"))?, bytes };
        Ok(Port {
            memory,
            file,
            receives: None,
            commands: Vec::with_capacity(256),
            events: VecDeque::new(),
            held: None,
            answer: None,
        })
    }

    /// Makes this port the device's context manager.
    ///
    /// # Errors
    /// The device has one (`EBUSY`), or had one of another user (`EPERM`).
    fn become_manager(&self) -> Result<(), OsError> {
        let nothing = 0_i32;
        // SAFETY: this request reads one 32-bit number.
        let done = unsafe {
            libc::ioctl(
                self.file.as_fd().as_raw_fd(),
                wire::SET_CONTEXT_MANAGER as _,
                &raw const nothing,
            )
        };
        if done == -1 { Err(OsError::last("ioctl(BINDER_SET_CONTEXT_MGR)", "")) } else { Ok(()) }
    }

    /// Introduces this port to the context manager by a message with this code, whose content is an
    /// object of this port.
    ///
    /// # Errors
    /// `EPIPE`: there is no manager.
    pub fn introduce(&mut self, code: u32) -> Result<(), Errno> {
        self.transact(MANAGER, code, &wire::own_object(1), &[0])
    }

    /// Passes the port behind one handle on to the port behind another one.
    fn pass_on(&mut self, handle: u32, to: u32, code: u32) -> Result<(), Errno> {
        self.transact(to, code, &wire::foreign_object(handle), &[0])
    }

    /// The handle of the port that the message contains that was just received, which it holds from
    /// now on; `None` if it contains none.
    ///
    /// # Errors
    /// The driver refuses the handle.
    pub fn introduced(&mut self) -> Result<Option<u32>, Errno> {
        let Some(handle) = wire::handle_in(self.message()) else { return Ok(None) };
        // Before the message is given back, which drops its reference.
        self.hold(handle)?;
        Ok(Some(handle))
    }

    /// Keeps a handle, and watches its port.
    fn hold(&mut self, handle: u32) -> Result<(), Errno> {
        self.command(command::ACQUIRE, &handle.to_ne_bytes());
        let mut argument = [0; 12];
        argument[..4].copy_from_slice(&handle.to_ne_bytes());
        argument[4..].copy_from_slice(&u64::from(handle).to_ne_bytes());
        self.command(command::REQUEST_DEATH, &argument);
        self.exchange(false, true)
    }

    /// Sends a message to a handle, without waiting.
    ///
    /// # Errors
    /// `EPIPE`: its port is closed. `ENOBUFS`: its memory is full, or the driver refuses the
    /// message for another reason, which it does not tell.
    #[inline]
    pub fn send(&mut self, to: u32, code: u32, message: &[u8]) -> Result<(), Errno> {
        self.transact(to, code, message, &[])
    }

    #[inline]
    fn transact(&mut self, to: u32, code: u32, data: &[u8], offsets: &[u64]) -> Result<(), Errno> {
        let of_data = (data.as_ptr() as u64, data.len());
        let of_offsets = (offsets.as_ptr() as u64, size_of_val(offsets));
        self.command(command::TRANSACTION, &wire::transaction(to, code, of_data, of_offsets));
        self.answer = None;
        // The driver answers in the same call, so the mode does not matter. The addresses are valid
        // during the first call only, which takes all commands, or fails.
        loop {
            let outcome = self.exchange(true, self.file.is_nonblocking());
            if let Some(answer) = self.answer.take() {
                return answer;
            }
            outcome?;
        }
    }

    /// Gives the message that was received last back to the driver, which sends the next one only
    /// then.
    fn give_back(&mut self) {
        if let Some((offset, _)) = self.held.take() {
            let address = self.memory.start as u64 + offset as u64;
            self.command(command::FREE_BUFFER, &address.to_ne_bytes());
        }
    }

    /// Gives the message that was received last back at once, so that the descriptor polls readable
    /// if there is another one.
    ///
    /// # Errors
    /// The call fails.
    pub fn release(&mut self) -> Result<(), Errno> {
        self.give_back();
        if self.commands.is_empty() { Ok(()) } else { self.exchange(false, true) }
    }

    /// Waits for the next event; with `nonblocking`, EAGAIN if there is none. Gives the message
    /// before back.
    ///
    /// # Errors
    /// `EAGAIN`, or the call fails.
    #[inline]
    pub fn receive(&mut self, nonblocking: bool) -> Result<Event, Errno> {
        self.give_back();
        loop {
            if let Some(event) = self.events.pop_front() {
                return Ok(event);
            }
            let own = std::thread::current().id();
            if self.receives != Some(own) {
                self.command(command::ENTER_LOOPER, &[]);
                self.receives = Some(own);
            }
            self.exchange(true, nonblocking)?;
        }
    }

    /// The content of the message that was received last.
    #[inline]
    pub fn message(&self) -> &[u8] {
        let Some((offset, bytes)) = self.held.filter(|(_, bytes)| *bytes > 0) else { return &[] };
        // SAFETY: `note` has checked that the range lies within the memory. The kernel has put a
        // message there, and does not touch it until it is given back, which needs `&mut self`.
        unsafe { std::slice::from_raw_parts(self.memory.start.cast::<u8>().add(offset), bytes) }
    }

    #[inline]
    fn command(&mut self, number: u32, argument: &[u8]) {
        debug_assert_eq!(argument.len(), wire::argument_bytes(number));
        self.commands.extend_from_slice(&number.to_ne_bytes());
        self.commands.extend_from_slice(argument);
    }

    /// Passes the commands to the driver, and, if `reads`, takes what it returns.
    #[inline]
    fn exchange(&mut self, reads: bool, nonblocking: bool) -> Result<(), Errno> {
        if reads {
            self.file.set(nonblocking)?;
        }
        let mut buffer = [0_u8; 256];
        let mut written = 0;
        let outcome = loop {
            let mut call = wire::WriteRead {
                write_size: (self.commands.len() - written) as u64,
                write_consumed: 0,
                write_buffer: self.commands[written..].as_ptr() as u64,
                read_size: if reads { buffer.len() as u64 } else { 0 },
                read_consumed: 0,
                read_buffer: buffer.as_mut_ptr() as u64,
            };
            // SAFETY: the structure describes the commands, which live until the call returns, as
            // does the data that a transaction among them names (its slice is borrowed by
            // `transact`), and a buffer that is ours to fill.
            let done = unsafe {
                libc::ioctl(self.file.as_fd().as_raw_fd(), wire::WRITE_READ as _, &raw mut call)
            };
            let errno = last_errno();
            written += call.write_consumed as usize;
            let read = buffer.get(..call.read_consumed as usize).unwrap_or_default();
            let noted = self.note_all(read);
            if done != -1 {
                break noted;
            }
            // A signal: go on, unless something has come.
            if errno != Errno::INTR || !read.is_empty() {
                break noted.and(Err(errno));
            }
            if written > self.commands.len() {
                break Err(Errno::IO);
            }
        };
        if written >= self.commands.len() || outcome.is_err_and(|errno| errno != Errno::AGAIN) {
            self.commands.clear();
        } else {
            self.commands.drain(..written);
        }
        outcome
    }

    #[inline]
    fn note_all(&mut self, mut returns: &[u8]) -> Result<(), Errno> {
        while let Some((number, rest)) = returns.split_first_chunk::<4>() {
            let number = u32::from_ne_bytes(*number);
            let argument = rest.get(..wire::argument_bytes(number)).ok_or(Errno::IO)?;
            self.note(number, argument)?;
            returns = &rest[argument.len()..];
        }
        Ok(())
    }

    #[inline]
    fn note(&mut self, number: u32, argument: &[u8]) -> Result<(), Errno> {
        match number {
            returned::TRANSACTION => {
                let (code, address, bytes) =
                    wire::received(argument.try_into().map_err(|_| Errno::IO)?);
                let offset = (address as usize).wrapping_sub(self.memory.start as usize);
                let end = offset.checked_add(bytes as usize).ok_or(Errno::IO)?;
                if end > self.memory.bytes {
                    return Err(Errno::IO);
                }
                self.held = Some((offset, bytes as usize));
                self.events.push_back(Event::Message(code));
            }
            returned::TRANSACTION_COMPLETE => self.answer = Some(Ok(())),
            returned::DEAD_REPLY => self.answer = Some(Err(Errno::PIPE)),
            returned::FAILED_REPLY => self.answer = Some(Err(Errno::NOBUFS)),
            returned::DEAD_BINDER => {
                self.command(command::DEAD_DONE, argument);
                let handle = argument.first_chunk().map_or(0, |bytes| u64::from_ne_bytes(*bytes));
                self.events.push_back(Event::Ended(handle as u32));
            }
            // The driver holds our object for another process, and wants to hear that we know.
            returned::INCREFS => self.command(command::INCREFS_DONE, argument),
            returned::ACQUIRE => self.command(command::ACQUIRE_DONE, argument),
            returned::ERROR => {
                let errno = argument.first_chunk().map_or(0, |bytes| i32::from_ne_bytes(*bytes));
                return Err(Errno::from_raw_os_error(errno.abs()));
            }
            _ => {}
        }
        Ok(())
    }
}

impl AsFd for Port {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}
