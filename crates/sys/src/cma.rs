//! Cross-memory attach: process_vm_readv.
