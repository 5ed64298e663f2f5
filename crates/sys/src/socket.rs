//! Socket options and calls that the standard library lacks.
