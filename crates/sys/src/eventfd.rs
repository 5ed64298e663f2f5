//! eventfd objects.
