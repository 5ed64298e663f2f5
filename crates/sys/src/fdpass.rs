//! A UNIX socket pair that carries length-prefixed text and descriptors (SCM_RIGHTS).
