//! Programs on a `tipcd` that is a process of its own: everything that a socket can do, errors included.

mod connections;
mod groups;
mod hostile;
mod messages;
mod site;
mod topology;
mod two_nodes;
