//! Testbeds in use: creates what a [`Testbed`](crate::testbed::Testbed) describes, connects to its hosts, and removes
//! it.

mod container;
mod error;
mod reboot;
mod running;
mod setup;
mod tipc;

pub(crate) use container::Containers;
pub(crate) use error::TestbedError;
pub(crate) use running::LiveTestbed;
pub(crate) use setup::TestbedSetup;
