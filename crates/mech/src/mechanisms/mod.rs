//! One file per mechanism.
