//! LINX for C, `include/linx.h`: programs that were written for liblinx are compiled against it and run on a Crossway node.

mod buffer;
pub mod ffi;
