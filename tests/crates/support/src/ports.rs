//! Free ports of the loopback interface.

use std::collections::HashSet;
use std::net::{Ipv4Addr, TcpListener};
use std::sync::{Mutex, PoisonError};

/// Below the ports that operating systems give to outgoing connections, so that none of those takes
/// the port of a server while it is down for a restart.
const RANGE: std::ops::Range<u16> = 20_000..32_000;

static TAKEN: Mutex<Option<HashSet<u16>>> = Mutex::new(None);

/// A port that is this value's within the process until it is dropped. Another process may still
/// take it, so a server that cannot bind it is started again on another.
#[derive(Debug)]
pub struct Port(u16);

impl Port {
    /// A free port.
    ///
    /// # Panics
    ///
    /// Where a thousand of them were taken.
    pub fn pick() -> Self {
        let mut taken = TAKEN.lock().unwrap_or_else(PoisonError::into_inner);
        let taken = taken.get_or_insert_default();
        for _ in 0..1000 {
            let port = fastrand::u16(RANGE);
            if !taken.contains(&port) && TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok() {
                taken.insert(port);
                return Self(port);
            }
        }
        panic!("no free port of 127.0.0.1 between {} and {}", RANGE.start, RANGE.end);
    }

    /// Its number.
    pub fn number(&self) -> u16 {
        self.0
    }
}

impl Drop for Port {
    fn drop(&mut self) {
        let mut taken = TAKEN.lock().unwrap_or_else(PoisonError::into_inner);
        taken.get_or_insert_default().remove(&self.0);
    }
}
