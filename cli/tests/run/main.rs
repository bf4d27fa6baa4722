//! `incumbent run`: the command of a leader, its lifetime, and the lifetime of its descendants.
#![cfg(target_os = "linux")]

mod check;
mod checkpoint;
mod cron;
mod drain;
mod env;
mod exits;
mod fence;
mod foreign;
mod guard;
mod hooks;
mod http;
mod http_actions;
mod http_events;
mod http_wait;
mod inheritance;
mod moves;
mod observe;
mod proxy;
mod root;
mod sandbox;
mod set;
mod systemd;
mod terminal;
mod terms;
mod tree;
mod virtual_ip;
mod wait_limit;
mod watchdog;
