//! What is done to elections, their servers and the network between them.

mod filter;
pub mod namespaces;
pub mod net;
pub mod strike;
pub mod table;
