//! What must be removed if this process dies: a lease per named kernel object, a reaper process, a sweep at start.
