//! `incumbent run`: a command that runs while its campaigner leads, and what becomes of all that it starts.
#![cfg(target_os = "linux")]

mod exits;
mod keep;
mod scene;
mod terminal;
mod terms;
mod tree;
