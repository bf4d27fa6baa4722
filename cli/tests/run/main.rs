//! `incumbent run`: a command that runs while its campaigner leads, and what becomes of all that it starts.
#![cfg(target_os = "linux")]

mod disk;
mod exits;
mod foreign;
mod guard;
mod http;
mod inherits;
mod keep;
mod root;
mod scene;
mod signals;
mod stuck;
mod systemd;
mod terminal;
mod terms;
mod tree;
