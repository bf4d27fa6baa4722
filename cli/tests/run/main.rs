//! `incumbent run`: a command that runs while its campaigner leads, and what becomes of all that it starts.
#![cfg(target_os = "linux")]

mod exits;
mod http;
mod keep;
mod scene;
mod systemd;
mod terminal;
mod terms;
mod tree;
