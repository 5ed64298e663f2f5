//! 64-bit words that processes share: in sealed anonymous memory, or in a file of this user.

use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rustix::fs::{FallocateFlags, FlockOperation, SealFlags};
use rustix::io::Errno;

use crate::OsError;
use crate::shm::{self, Mapping};

/// The size of `words` words in bytes, rounded up to whole pages.
const fn bytes(words: usize) -> usize {
    (words * 8).div_ceil(4096) * 4096
}

/// How often a file that is being removed is opened again, and the time between.
const TRIES: u32 = 50;
const PAUSE: Duration = Duration::from_millis(1);

fn open(path: &Path, create: bool) -> std::io::Result<File> {
    let mut options = File::options();
    options.read(true).write(true).create(create).mode(0o600);
    options.custom_flags(libc::O_NOFOLLOW | libc::O_CLOEXEC);
    options.open(path)
}

/// Makes a file of `before` bytes one of `len` bytes, for all of which there is room: where a page cannot be stored, an access
/// to it raises SIGBUS.
fn reserve(file: &File, before: u64, len: u64) -> std::io::Result<()> {
    match rustix::fs::fallocate(file, FallocateFlags::empty(), 0, len) {
        // A file system that cannot promise room.
        Err(Errno::OPNOTSUPP | Errno::NOSYS) if before < len => file.set_len(len),
        Ok(()) | Err(Errno::OPNOTSUPP | Errno::NOSYS) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Removes a file of words ([`SharedWords::in_file`]) unless a process has it mapped.
pub fn remove_unused(path: &Path) {
    let Ok(file) = open(path, false) else { return };
    let is_same = || {
        let (own, named) = (file.metadata().ok()?, std::fs::symlink_metadata(path).ok()?);
        Some((own.dev(), own.ino()) == (named.dev(), named.ino()))
    };
    // With this lock, nobody has the file mapped, and whoever opens it now sees that it has lost its name.
    if rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok()
        && is_same() == Some(true)
    {
        let _ = std::fs::remove_file(path);
    }
}

fn descriptor(label: &str, words: usize) -> Result<OwnedFd, OsError> {
    shm::create_sealable(label, bytes(words))
}

/// Words that both sides may change. Values written by the other side are untrusted.
#[derive(Debug)]
pub struct SharedWords {
    mapping: Mapping,
    words: usize,
}

impl SharedWords {
    /// Creates `words` words, all 0, and the descriptor from which another process maps them.
    ///
    /// # Errors
    /// [`OsError`] of the call that failed.
    pub fn create(label: &str, words: usize) -> Result<(Self, OwnedFd), OsError> {
        let fd = descriptor(label, words)?;
        shm::seal(&fd, shm::SEALS)?;
        Ok((Self { mapping: Mapping::lazily(&fd, bytes(words), true)?, words }, fd))
    }

    /// Creates words that are read-only for processes that map the descriptor later.
    ///
    /// # Errors
    /// [`OsError`] of the call that failed.
    pub fn create_for_readers(label: &str, words: usize) -> Result<(Self, OwnedFd), OsError> {
        let fd = descriptor(label, words)?;
        let mapping = Mapping::lazily(&fd, bytes(words), true)?;
        // This mapping was made before the seal and stays writable.
        shm::seal(&fd, shm::SEALS | SealFlags::FUTURE_WRITE)?;
        Ok((Self { mapping, words }, fd))
    }

    /// Maps the words behind a descriptor.
    ///
    /// # Errors
    /// [`OsError`], also when the memory is not sealed or has another size.
    pub fn open(fd: impl AsFd, words: usize) -> Result<Self, OsError> {
        checked(&fd, words)?;
        Ok(Self { mapping: Mapping::lazily(fd, bytes(words), true)?, words })
    }

    /// Maps the words in a file, which is created if it does not exist, with words that are 0. Its folder must be private to
    /// this user: whoever may write the file can make accesses to the words raise SIGBUS.
    ///
    /// As long as a process has them mapped, it holds a lock on the file, by which [`remove_unused`] sees that it is in use.
    ///
    /// # Errors
    /// [`OsError`], also when the file belongs to another user, others may write it, or it has another size.
    pub fn in_file(path: &Path, words: usize) -> Result<Self, OsError> {
        let failed = |call| move |e: std::io::Error| OsError::new(call, path.display(), e);
        for _ in 0..TRIES {
            let file = open(path, true).map_err(failed("open"))?;
            let about = file.metadata().map_err(failed("fstat"))?;
            if about.uid() != crate::proc::effective_user() || about.mode() & 0o077 != 0 {
                let why = "it is not a file of this user alone; remove it";
                return Err(failed("cannot use")(std::io::Error::other(why)));
            }
            // The mapping keeps the open file, and so this lock, after the descriptor is closed.
            if let Err(error) = rustix::fs::flock(&file, FlockOperation::NonBlockingLockShared) {
                if error != Errno::AGAIN {
                    return Err(failed("flock")(error.into()));
                }
                // It is being removed.
                std::thread::sleep(PAUSE);
                continue;
            }
            let len = bytes(words) as u64;
            match file.metadata().map_err(failed("fstat"))? {
                about if about.nlink() == 0 => continue,
                // Another process may do the same at this moment.
                about if about.len() == 0 || about.len() == len => {
                    if let Err(error) = reserve(&file, about.len(), len) {
                        drop(file);
                        remove_unused(path);
                        return Err(failed("fallocate")(error));
                    }
                }
                about => {
                    let why = format!("it has {} bytes instead of {len}", about.len());
                    return Err(failed("cannot use")(std::io::Error::other(why)));
                }
            }
            return Ok(Self { mapping: Mapping::lazily(&file, bytes(words), true)?, words });
        }
        Err(failed("lock")(Errno::AGAIN.into()))
    }

    /// Replaces the words by others, all 0, that no other process sees, and releases the file that they were in.
    ///
    /// # Errors
    /// [`OsError`] of mmap; then nothing has changed.
    pub fn leave(&self) -> Result<(), OsError> {
        self.mapping.replace_by_zeros()
    }

    /// Whether there is a word with this index.
    pub const fn has(&self, index: usize) -> bool {
        index < self.words
    }

    /// The word with this index. Panics if there is none.
    #[inline]
    pub fn word(&self, index: usize) -> &AtomicU64 {
        at(&self.mapping, self.words, index)
    }
}

/// Words that only the other side can change.
#[derive(Debug)]
pub struct WatchedWords {
    mapping: Mapping,
    words: usize,
}

impl WatchedWords {
    /// Maps the words behind a descriptor for reading.
    ///
    /// # Errors
    /// [`OsError`], also when the memory is not sealed or has another size.
    pub fn open(fd: impl AsFd, words: usize) -> Result<Self, OsError> {
        checked(&fd, words)?;
        Ok(Self { mapping: Mapping::lazily(fd, bytes(words), false)?, words })
    }

    /// The value of the word with this index. Panics if there is none.
    #[inline]
    pub fn load(&self, index: usize) -> u64 {
        at(&self.mapping, self.words, index).load(Ordering::Acquire)
    }
}

fn checked(fd: &impl AsFd, words: usize) -> Result<(), OsError> {
    if shm::is_sealed(fd.as_fd(), bytes(words))? {
        return Ok(());
    }
    let why = std::io::Error::other(format!(
        "the memory is not sealed, or its size is not {words} words"
    ));
    Err(OsError::new("mmap", "shared words", why))
}

#[inline]
fn at(mapping: &Mapping, words: usize, index: usize) -> &AtomicU64 {
    assert!(index < words, "word {index} of {words}");
    // SAFETY: the mapping holds at least `words` aligned words, initialised by the kernel to 0, and lives as long as
    // the reference. Every access in every process is atomic; a read-only mapping is only loaded from
    // (`WatchedWords::load`).
    unsafe { mapping.start().cast::<AtomicU64>().add(index).as_ref() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stored_words_are_visible_to_the_other_side() {
        let (mine, fd) = SharedWords::create("crossway-test", 3).unwrap();
        let theirs = SharedWords::open(&fd, 3).unwrap();
        theirs.word(2).store(7, Ordering::Release);
        assert_eq!(mine.word(2).load(Ordering::Acquire), 7);
        assert!(SharedWords::open(&fd, 3 * 4096).is_err(), "another size");
    }

    #[test]
    fn every_word_in_a_file_has_its_room() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("words");
        // As a process leaves it that is killed after it has made the file.
        open(&path, true).unwrap().set_len(bytes(600) as u64).unwrap();
        let words = SharedWords::in_file(&path, 600).unwrap();
        let about = std::fs::metadata(&path).unwrap();
        assert!(about.blocks() * 512 >= bytes(600) as u64, "{} blocks", about.blocks());
        assert_eq!(words.word(599).load(Ordering::Acquire), 0);
    }

    #[test]
    fn words_in_a_file_are_those_of_every_process_of_the_user() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("words");
        let mine = SharedWords::in_file(&path, 600).unwrap();
        mine.word(599).store(7, Ordering::Release);
        assert_eq!(SharedWords::in_file(&path, 600).unwrap().word(599).load(Ordering::Acquire), 7);
        assert!(SharedWords::in_file(&path, 6).is_err(), "another size");
        std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o620))
            .unwrap();
        assert!(SharedWords::in_file(&path, 600).is_err(), "the group may write it");
        let link = dir.path().join("link");
        std::os::unix::fs::symlink(&path, &link).unwrap();
        assert!(SharedWords::in_file(&link, 600).is_err(), "a link");
    }

    #[test]
    fn a_file_is_removed_only_if_nobody_has_it_mapped() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("words");
        let mine = SharedWords::in_file(&path, 3).unwrap();
        mine.word(2).store(7, Ordering::Release);
        let theirs = SharedWords::in_file(&path, 3).unwrap();
        theirs.leave().unwrap();
        assert_eq!(theirs.word(2).load(Ordering::Acquire), 0);
        theirs.word(2).store(8, Ordering::Release);
        assert_eq!(mine.word(2).load(Ordering::Acquire), 7);
        remove_unused(&path);
        assert!(path.exists(), "one still has it");
        drop(mine);
        remove_unused(&path);
        assert!(!path.exists());
        remove_unused(&path);
        assert_eq!(SharedWords::in_file(&path, 3).unwrap().word(2).load(Ordering::Acquire), 0);
    }

    #[test]
    fn readers_cannot_map_for_writing() {
        let (mine, fd) = SharedWords::create_for_readers("crossway-test", 512).unwrap();
        assert!(SharedWords::open(&fd, 512).is_err());
        let theirs = WatchedWords::open(&fd, 512).unwrap();
        mine.word(511).fetch_add(5, Ordering::Release);
        assert_eq!(theirs.load(511), 5);
    }
}
