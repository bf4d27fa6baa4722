//! Network namespaces: hosts of their own, for addresses and links that a test changes.

use std::fs::{self, File};
use std::os::fd::AsRawFd;
use std::process::{Command, id};

use nix::sched::{CloneFlags, setns, unshare};

/// The namespace of the calling thread.
const OF_THREAD: &str = "/proc/thread-self/ns/net";

/// A network namespace, with the loopback interface up. It ends with its last process and socket.
#[derive(Debug)]
pub struct Namespace(File);

impl Namespace {
    /// A new one, or why there can be none.
    pub fn create() -> Result<Self, String> {
        let before = File::open(OF_THREAD).expect("/proc");
        unshare(CloneFlags::CLONE_NEWNET).map_err(|error| {
            format!("cannot create a network namespace, which takes root: {error}")
        })?;
        // Addresses of the test are usable at once.
        for scope in ["all", "default"] {
            let file = format!("/proc/sys/net/ipv6/conf/{scope}/accept_dad");
            let _ = fs::write(file, "0"); // without IPv6 its tests fail by themselves
        }
        let namespace = Self(File::open(OF_THREAD).expect("/proc"));
        setns(&before, CloneFlags::CLONE_NEWNET).expect("the namespace of before");
        match Command::new("ip").arg("-V").output() {
            Ok(_) => namespace.ip("link set lo up"),
            Err(error) => return Err(format!("ip of iproute2: {error}")),
        }
        Ok(namespace)
    }

    /// What `inside` does in the namespace: its sockets and processes stay there.
    pub fn run<T>(&self, inside: impl FnOnce() -> T) -> T {
        let before = File::open(OF_THREAD).expect("/proc");
        self.enter();
        let result = inside();
        setns(&before, CloneFlags::CLONE_NEWNET).expect("the namespace of before");
        result
    }

    /// Moves the calling thread there for good.
    pub fn enter(&self) {
        setns(&self.0, CloneFlags::CLONE_NEWNET).expect("a namespace of the test");
    }

    /// Its file, for programs that enter it, as `nsenter --net=PATH`.
    pub fn path(&self) -> String {
        format!("/proc/{}/fd/{}", id(), self.0.as_raw_fd())
    }

    /// Moves the calling thread to the namespace of this file for good.
    pub fn enter_path(path: &str) {
        Self(File::open(path).expect("a namespace of the test")).enter();
    }

    /// Runs `ip` with these words.
    pub fn ip(&self, words: &str) {
        let output = self.run(|| Command::new("ip").args(words.split(' ')).output());
        let output = output.expect("ip, which ran before");
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "ip {words}: {error}");
    }

    /// Lays a cable from an interface here to one of another namespace. Both are up.
    pub fn cable(&self, interface: &str, other: &Self, its_interface: &str) {
        let there = other.path();
        self.ip(&format!("link add {interface} type veth peer name {its_interface} netns {there}"));
        self.ip(&format!("link set {interface} up"));
        other.ip(&format!("link set {its_interface} up"));
    }
}
