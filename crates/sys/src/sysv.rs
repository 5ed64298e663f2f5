//! System V shared memory, message queues and semaphores.
