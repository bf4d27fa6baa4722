//! A child process that ends with its owner, or with the process that started it.

use std::io;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::thread;

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};

/// A running child. Dropping it kills it, paused or not.
#[derive(Debug)]
pub struct Process(Child);

impl Process {
    /// Starts a program with its standard error going to the file `log`; `describe` adds arguments
    /// and environment.
    ///
    /// # Errors
    ///
    /// Those of opening the log and of starting the program.
    pub fn spawn(
        program: &Path,
        log: &Path,
        describe: impl FnOnce(&mut Command),
    ) -> io::Result<Self> {
        let log = std::fs::OpenOptions::new().create(true).append(true).open(log)?;
        let mut command = tied_to_us(program);
        describe(&mut command);
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        launch(command).map(Self)
    }

    /// The number that the operating system gave it.
    pub fn id(&self) -> u32 {
        self.0.id()
    }

    /// How it ended, once it has.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        self.0.try_wait().ok().flatten()
    }

    /// Sends a signal to it.
    pub fn signal(&self, signal: Signal) {
        // Our own child that we have not waited for: its id is not reused.
        let _ = kill_process(Pid::from_child(&self.0), signal);
    }

    /// Pauses it; returns once it is stopped.
    pub fn pause(&self) {
        self.signal(Signal::STOP);
        let events = WaitIdOptions::STOPPED | WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
        let _ = waitid(WaitId::Pid(Pid::from_child(&self.0)), events);
    }

    /// Lets it continue after [`pause`](Self::pause).
    pub fn resume(&self) {
        self.signal(Signal::CONT);
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A command that the kernel kills when the thread that starts it ends, if `setpriv` is there to
/// request that.
fn tied_to_us(program: &Path) -> Command {
    static SETPRIV: OnceLock<bool> = OnceLock::new();
    let setpriv = SETPRIV.get_or_init(|| {
        let probe = Command::new("setpriv")
            .args(["--pdeathsig", "KILL", "true"])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status();
        probe.is_ok_and(|status| status.success())
    });
    if *setpriv {
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL", "--"]).arg(program);
        command
    } else {
        Command::new(program)
    }
}

type Order = (Command, Sender<io::Result<Child>>);

/// Starts a command from a thread that lasts as long as the process: the kernel means the *thread*
/// by "parent", and the thread of one test may end while a server that several share continues.
fn launch(command: Command) -> io::Result<Child> {
    static LAUNCHER: OnceLock<Mutex<Sender<Order>>> = OnceLock::new();
    let launcher = LAUNCHER.get_or_init(|| {
        let (orders, inbox) = channel::<Order>();
        thread::spawn(move || {
            for (mut command, answer) in inbox {
                let _ = answer.send(command.spawn());
            }
        });
        Mutex::new(orders)
    });
    let gone = || io::Error::other("the launching thread is gone");
    let (answer, child) = channel();
    let orders = launcher.lock().unwrap_or_else(PoisonError::into_inner).clone();
    orders.send((command, answer)).map_err(|_| gone())?;
    child.recv().map_err(|_| gone())?
}

/// The environment of an `incumbent` that sets up or observes, for `envs`: its `--timeout`, as a
/// busy machine may stand still for half a minute. A candidate goes without, and tries until its
/// lock responds.
pub const REQUESTS: (&str, &str) = ("INCUMBENT_TIMEOUT", "50s");

/// Runs a program without its output. Returns whether there is one, and it succeeds.
pub fn succeeds(program: &str, args: &[&str]) -> bool {
    let mut command = Command::new(program);
    let status = command.args(args).stdout(Stdio::null()).stderr(Stdio::null()).status();
    status.is_ok_and(|status| status.success())
}
