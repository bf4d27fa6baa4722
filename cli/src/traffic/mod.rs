//! What directs requests to the host of the leader.

pub mod service;
