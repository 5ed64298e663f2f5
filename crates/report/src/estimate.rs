//! A figure over trials: its median, interval and number of trials.

pub use crossway_records::stats::Estimate;
