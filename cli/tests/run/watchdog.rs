//! `--watchdog`, against a driver of a watchdog in user space: the kernel passes the system calls
//! of the program on to it by FUSE, with the requests and sizes of `linux/watchdog.h`.

use std::ffi::OsStr;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use fuser::{
    BackgroundSession, Config, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags,
    Generation, INodeNo, IoctlFlags, LockOwner, OpenFlags, ReplyAttr, ReplyEmpty, ReplyEntry,
    ReplyIoctl, ReplyOpen, ReplyWrite, Request, WriteFlags,
};
use incumbent_test_support::eventually;
use parking_lot::Mutex;
use rustix::process::{Signal, kill_process};
use tempfile::TempDir;

use crate::env::{Candidate, TRY, TestEnv};

const SETTIMEOUT_AND_MAGICCLOSE: u32 = 0x0080 | 0x0100;
/// `_IOR('W', 0, struct watchdog_info)`, `_IOR('W', 5, int)` and `_IOWR('W', 6, int)`.
const GETSUPPORT: u32 = 0x8028_5700;
const KEEPALIVE: u32 = 0x8004_5705;
const SETTIMEOUT: u32 = 0xc004_5706;

/// What the driver does, and was told.
#[derive(Debug, Clone, Default)]
struct State {
    options: u32,
    /// The shortest timeout that it sets, in seconds.
    shortest: i32,
    /// The longest; it refuses others.
    longest: i32,
    timeout: i32,
    is_open: bool,
    armed: bool,
    may_stop: bool,
    fed: u32,
}

struct Driver(Arc<Mutex<State>>);

impl Driver {
    fn attr(inode: INodeNo) -> FileAttr {
        let is_root = inode == INodeNo::ROOT;
        FileAttr {
            ino: inode,
            size: 0,
            blocks: 0,
            atime: UNIX_EPOCH,
            mtime: UNIX_EPOCH,
            ctime: UNIX_EPOCH,
            crtime: UNIX_EPOCH,
            kind: if is_root { FileType::Directory } else { FileType::RegularFile },
            perm: 0o700,
            nlink: 1,
            uid: 0,
            gid: 0,
            rdev: 0,
            flags: 0,
            blksize: 512,
        }
    }
}

impl Filesystem for Driver {
    fn lookup(&self, _: &Request, _: INodeNo, name: &OsStr, reply: ReplyEntry) {
        match name == "watchdog" {
            true => reply.entry(&Duration::ZERO, &Self::attr(INodeNo(2)), Generation(0)),
            false => reply.error(Errno::ENOENT),
        }
    }

    fn getattr(&self, _: &Request, inode: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        reply.attr(&Duration::ZERO, &Self::attr(inode));
    }

    fn open(&self, _: &Request, _: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        let mut state = self.0.lock();
        if state.is_open {
            return reply.error(Errno::EBUSY);
        }
        (state.is_open, state.armed, state.may_stop) = (true, true, false);
        reply.opened(FileHandle(0), FopenFlags::FOPEN_DIRECT_IO);
    }

    fn write(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        _: u64,
        data: &[u8],
        _: WriteFlags,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        self.0.lock().may_stop = data.contains(&b'V');
        reply.written(data.len() as u32);
    }

    fn ioctl(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        _: IoctlFlags,
        request: u32,
        data: &[u8],
        _: u32,
        reply: ReplyIoctl,
    ) {
        let mut state = self.0.lock();
        match request {
            GETSUPPORT => {
                let mut info = [0; 40];
                info[..4].copy_from_slice(&state.options.to_ne_bytes());
                reply.ioctl(0, &info);
            }
            KEEPALIVE => {
                state.fed += 1;
                reply.ioctl(0, &[0; 4]);
            }
            SETTIMEOUT => {
                let asked = i32::from_ne_bytes(data.try_into().expect("an int"));
                if asked > state.longest {
                    return reply.error(Errno::EINVAL);
                }
                state.timeout = asked.max(state.shortest);
                reply.ioctl(0, &state.timeout.to_ne_bytes());
            }
            _ => reply.error(Errno::ENOTTY),
        }
    }

    fn flush(&self, _: &Request, _: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        reply.ok();
    }

    fn release(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        _: OpenFlags,
        _: Option<LockOwner>,
        _: bool,
        reply: ReplyEmpty,
    ) {
        let mut state = self.0.lock();
        state.is_open = false;
        state.armed = !state.may_stop;
        reply.ok();
    }
}

/// A watchdog of the machine, `/dev/watchdog9` for the programs that `contained` starts.
struct Device {
    state: Arc<Mutex<State>>,
    place: TempDir,
    _session: BackgroundSession,
}

/// Mounts the device and what sysfs says of it over those of the machine, which has none.
const MOUNT: &str = "set -e; place=$1 nowayout=$2; shift 2
    mount -t tmpfs dev $place/dev
    for one in null zero random urandom tty; do
        : > $place/dev/$one; mount --bind /dev/$one $place/dev/$one
    done
    ln -s /proc/self/fd $place/dev/fd
    : > $place/dev/watchdog9; mount --bind $place/fuse/watchdog $place/dev/watchdog9
    mount --rbind $place/dev /dev
    mount -t tmpfs sys /sys/class/watchdog
    mkdir /sys/class/watchdog/watchdog9; echo $nowayout > /sys/class/watchdog/watchdog9/nowayout
    exec \"$@\"";

impl Device {
    /// `None` where this user may not mount, or the kernel has no watchdogs.
    fn new() -> Option<Self> {
        let mut may = Command::new("unshare");
        let may = may.args(["--mount", "true"]).stderr(Stdio::null()).status();
        let has_class = PathBuf::from("/sys/class/watchdog").is_dir();
        if !has_class || !may.is_ok_and(|status| status.success()) {
            return None;
        }
        let place = tempfile::tempdir().expect("a directory");
        for name in ["dev", "fuse"] {
            std::fs::create_dir(place.path().join(name)).expect("a directory");
        }
        let options = SETTIMEOUT_AND_MAGICCLOSE;
        let state =
            Arc::new(Mutex::new(State { options, shortest: 1, longest: 6553, ..State::default() }));
        let driver = Driver(Arc::clone(&state));
        let session = fuser::spawn_mount(driver, place.path().join("fuse"), &Config::default());
        Some(Self { state, place, _session: session.ok()? })
    }

    fn contained(&self, nowayout: &str, command: &Command) -> Command {
        let mut contained = Command::new("unshare");
        contained.args(["--mount", "sh", "-c", MOUNT, "sh"]).arg(self.place.path()).arg(nowayout);
        contained.arg(command.get_program()).args(command.get_args());
        contained
    }

    fn start(&self, env: &TestEnv, script: &str) -> Candidate {
        self.start_with(env, &[], script)
    }

    fn start_with(&self, env: &TestEnv, flags: &[&str], script: &str) -> Candidate {
        let flags = [&["--watchdog", "/dev/watchdog9"], flags].concat();
        let command = env.command("my_app", &flags, &["sh", "-c", script]);
        Candidate::start(self.contained("0", &command))
    }

    fn state(&self) -> State {
        self.state.lock().clone()
    }

    async fn disarmed(&self) {
        let is_disarmed = async || {
            let state = self.state();
            (!state.armed && !state.is_open).then_some(())
        };
        eventually("the device is disarmed", is_disarmed).await;
    }
}

const LEASE: Duration = Duration::from_secs(10);
const SERVE: &str = "echo up; exec sleep 1000";

#[tokio::test]
async fn device_is_armed_while_the_command_runs() {
    let Some(device) = Device::new() else { return };
    let env = TestEnv::with_ttl(LEASE).await;
    let mut run = device.start(&env, SERVE);
    run.wait_for_line("up").await;
    let state = device.state();
    assert!(state.armed && state.is_open, "{state:?}");
    // A lease less an eighth, and less the time to kill the command.
    assert_eq!(state.timeout, 8, "{state:?}");
    eventually("it is fed", async || (device.state().fed >= 2).then_some(())).await;
    assert!(device.state().armed);
    run.signal(Signal::TERM);
    assert_eq!(run.exit_code().await, Some(143));
    device.disarmed().await;
}

#[tokio::test]
async fn device_is_disarmed_before_and_after_the_command() {
    let Some(device) = Device::new() else { return };
    let env = TestEnv::with_ttl(LEASE).await;
    let mut run = device.start(&env, "echo up; exit 7");
    assert_eq!(run.exit_code().await, Some(7));
    device.disarmed().await;
    let flags = ["--watchdog", "/dev/watchdog9", "--on-won", "exit 1"];
    let flags = [&flags[..], &TRY].concat();
    let command = env.command("my_app", &flags, &["true"]);
    let mut refused = Candidate::start(device.contained("0", &command));
    assert_eq!(refused.exit_code().await, Some(1), "{}", refused.stderr());
    device.disarmed().await;
}

/// When the last renewal is too old to arm the device for, the next one is waited for.
#[tokio::test]
async fn device_is_armed_late_after_a_renewal() {
    let Some(device) = Device::new() else { return };
    let env = TestEnv::with_ttl(LEASE).await;
    let flags = ["--on-won", "sleep 2.5", "--on-exit", "restart"];
    let mut run = device.start_with(&env, &flags, "echo $INCUMBENT_TOKEN");
    let token = run.line().await;
    for _ in 0..4 {
        assert_eq!(run.line().await, token, "{}", run.stderr());
    }
}

#[tokio::test]
async fn device_with_a_short_timeout_is_used() {
    let Some(device) = Device::new() else { return };
    device.state.lock().longest = 6;
    let env = TestEnv::with_ttl(LEASE).await;
    let mut run = device.start(&env, SERVE);
    run.wait_for_line("up").await;
    assert_eq!(device.state().timeout, 6);
}

#[tokio::test]
async fn guard_of_a_killed_candidate_disarms_the_device() {
    let Some(device) = Device::new() else { return };
    let env = TestEnv::with_ttl(LEASE).await;
    let mut run = device.start(&env, SERVE);
    run.wait_for_line("up").await;
    run.signal(Signal::KILL);
    run.wait_for_no_descendants().await;
    device.disarmed().await;
}

#[tokio::test]
async fn candidate_of_a_killed_guard_disarms_the_device() {
    let Some(device) = Device::new() else { return };
    let env = TestEnv::with_ttl(LEASE).await;
    let mut run = device.start(&env, "setsid sleep 1000 & echo up; exec sleep 1000");
    run.wait_for_line("up").await;
    kill_process(run.guard(), Signal::KILL).expect("it runs");
    assert_eq!(run.exit_code().await, Some(1));
    run.wait_for_no_descendants().await;
    device.disarmed().await;
}

/// All of this program is killed, and a process of the command lives on.
#[tokio::test]
async fn device_stays_armed_while_work_may_be_alive() {
    let Some(device) = Device::new() else { return };
    let env = TestEnv::with_ttl(LEASE).await;
    let mut run = device.start(&env, "setsid sleep 1000 & echo up; exec sleep 1000");
    run.wait_for_line("up").await;
    let (guard, reaper) = run.guard_and_reaper();
    for pid in [run.pid(), reaper, guard] {
        kill_process(pid, Signal::STOP).expect("it runs");
    }
    for pid in [run.pid(), reaper, guard] {
        kill_process(pid, Signal::KILL).expect("it runs");
    }
    eventually("it is closed", async || (!device.state().is_open).then_some(())).await;
    let state = device.state();
    assert!(state.armed && !run.descendants().is_empty(), "{state:?}");
}

#[tokio::test]
async fn device_that_does_not_fit_is_refused_in_one_line() {
    let Some(device) = Device::new() else { return };
    let env = TestEnv::with_ttl(LEASE).await;
    let refused = async |path: &str, nowayout: &str, lease: &str| {
        let flags = ["--watchdog", path, "--lease", lease];
        let command = env.command("my_app", &flags, &["true"]);
        let mut run = Candidate::start(device.contained(nowayout, &command));
        assert_eq!(run.exit_code().await, Some(2), "{}", run.stderr());
        let line = run.stderr();
        assert_eq!(line.lines().count(), 1, "{line}");
        let state = device.state();
        assert!(!state.armed && !state.is_open, "{state:?}");
        line
    };
    let path = "/dev/watchdog9";
    let change = |change: fn(&mut State)| change(&mut device.state.lock());
    let line = refused(path, "1", "10s").await;
    assert!(line.contains("nowayout forbids to disarm it"), "{line}");
    let line = refused("/dev/null", "0", "10s").await;
    assert!(line.contains("use /dev/watchdog or /dev/watchdogN"), "{line}");
    for path in ["/dev/watchdog009", "/dev/watchdog+9"] {
        let line = refused(path, "0", "10s").await;
        assert!(line.contains("use /dev/watchdog or /dev/watchdogN"), "{line}");
    }
    let line = refused("/dev/watchdog8", "0", "10s").await;
    assert!(line.contains("modprobe softdog nowayout=0"), "{line}");
    let line = refused(path, "0", "2s").await;
    assert!(line.contains("its timeout of 1s does not fit into a lease of 2s"), "{line}");
    change(|state| state.longest = 3);
    let line = refused(path, "0", "10s").await;
    assert!(line.contains("its driver sets no timeout of"), "{line}");
    change(|state| (state.shortest, state.longest) = (60, 6553));
    let line = refused(path, "0", "10s").await;
    assert!(line.contains("its timeout of 60s does not fit into a lease of 10s"), "{line}");
    change(|state| (state.shortest, state.options) = (1, 0x0080));
    let line = refused(path, "0", "10s").await;
    assert!(line.contains("its driver does not support magic close"), "{line}");
    change(|state| (state.is_open, state.options) = (true, SETTIMEOUT_AND_MAGICCLOSE));
    let command = env.command("my_app", &["--watchdog", path], &["true"]);
    let mut run = Candidate::start(device.contained("0", &command));
    assert_eq!(run.exit_code().await, Some(2));
    assert!(run.stderr().contains("another program has it"), "{}", run.stderr());
    change(|state| state.is_open = false);
}
