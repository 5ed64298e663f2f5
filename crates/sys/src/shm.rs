//! Anonymous and named shared memory, mapped.
