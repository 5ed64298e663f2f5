//! LINX for C (`include/linx.h`): programs written for liblinx can be compiled with this header and run on a Crossway
//! node.

mod buffer;
pub mod ffi;
