//! POSIX message queues.
