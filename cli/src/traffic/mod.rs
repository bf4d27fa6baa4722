//! Requests that follow the leader.

pub mod address;
