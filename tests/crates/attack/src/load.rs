//! The servers, and the processes that campaign on them.

pub mod admin;
pub mod candidate;
pub mod choria_like;
pub mod fleet;
pub mod many;
pub mod members;
pub mod server;
