//! The watchdog device of the machine, which resets it unless it is fed in time.
//!
//! The guard arms it before the command starts, feeds it at each renewal, and disarms it when
//! nothing of the command is left. So the machine is reset before the lease ends if the guard, or
//! the kernel, hangs while processes of the command may be alive.

use std::io;
use std::path::Path;
use std::time::Duration;

use incumbent::clock::{BootClock, Clock, Instant};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use watchdog_device::{OptionFlags, Watchdog};

use crate::error::{CliError, Code};
use crate::output;
use crate::process::StopTimes;
use crate::run::Grace;

/// A device and its timeout.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WatchdogDevice {
    /// Of `/dev/watchdogN`; none of `/dev/watchdog`.
    number: Option<u8>,
    /// In seconds.
    timeout: u16,
    /// How much earlier than the reset the command is killed.
    margin: Duration,
}

/// A device that resets the machine at `fires_at`. It stays armed if it is dropped.
pub struct ArmedDevice {
    device: Watchdog,
    timeout: Duration,
    margin: Duration,
    /// The reset is not earlier.
    fires_at: Instant,
}

/// Why a device cannot be armed.
pub enum NotArmed {
    /// It is as it was.
    Untouched(io::Error),
    /// It resets the machine.
    CannotDisarm(io::Error),
}

impl WatchdogDevice {
    /// Checks that the device fits the lease, and that it can be left. Leaves it disarmed.
    pub fn check(path: &Path, lease: Duration, grace: &Grace) -> Result<Self, CliError> {
        let refused = |why: String| {
            CliError::new(Code::Usage, format!("--watchdog {}: {why}", path.display()))
        };
        let number = path.to_str().and_then(|path| path.strip_prefix("/dev/watchdog"));
        let number = match number {
            Some("") => None,
            Some(digits) if digits.parse().is_ok_and(|number: u8| number.to_string() == digits) => {
                digits.parse().ok()
            }
            _ => return Err(refused("use /dev/watchdog or /dev/watchdogN".to_owned())),
        };
        // The first one has both names.
        let of_kernel = format!("/sys/class/watchdog/watchdog{}", number.unwrap_or(0));
        match std::fs::read_to_string(format!("{of_kernel}/nowayout")).as_deref().map(str::trim) {
            Ok("0") => {}
            Ok(_) => {
                let why = "nowayout forbids to disarm it: load its driver with nowayout=0";
                return Err(refused(why.to_owned()));
            }
            Err(error) => {
                return Err(refused(format!(
                    "{of_kernel}/nowayout: {error}: load the driver of a watchdog, such as softdog \
                     with `modprobe softdog nowayout=0`"
                )));
            }
        }
        let most = grace.longest_watchdog(lease);
        let longest = u16::try_from(most.as_secs()).unwrap_or(u16::MAX);
        let margin = grace.total() - grace.stop;
        let mut wanted = Self { number, timeout: longest, margin };
        let opened = wanted.open();
        let mut device = opened.map_err(|error| match error.kind() {
            io::ErrorKind::ResourceBusy => refused(format!(
                "{error}: another program has it, such as systemd with RuntimeWatchdogSec"
            )),
            _ => refused(error.to_string()),
        })?;
        let mut set = wanted.configure(&device);
        // A driver refuses what is longer than its longest timeout.
        while set.as_ref().is_err_and(is_invalid) {
            let shorter = Self { timeout: wanted.timeout.saturating_sub(1), ..wanted.clone() };
            if !grace.fits_watchdog(lease, shorter.timeout()) {
                let (shortest, lease) = (wanted.timeout, humantime::format_duration(lease));
                set = Err(io::Error::other(format!(
                    "its driver sets no timeout of {shortest}s to {longest}s, as a lease of {lease} \
                     needs: use a shorter lease"
                )));
                break;
            }
            wanted = shorter;
            set = wanted.configure(&device);
        }
        device.magic_close().map_err(|error| refused(format!("it cannot be disarmed: {error}")))?;
        drop(device);
        wanted.timeout = set.map_err(|error| refused(error.to_string()))?;
        match grace.fits_watchdog(lease, wanted.timeout()) {
            true if wanted.timeout <= longest => Ok(wanted),
            _ => Err(refused(format!(
                "its timeout of {}s does not fit into a lease of {} with a grace of {}: raise the \
                 lease, or lower the grace",
                wanted.timeout,
                humantime::format_duration(lease),
                humantime::format_duration(grace.stop)
            ))),
        }
    }

    fn timeout(&self) -> Duration {
        Duration::from_secs(self.timeout.into())
    }

    /// Whether the device, armed after this `delay`, resets the machine by then.
    pub fn fires_before(&self, end: Instant, delay: Duration) -> bool {
        BootClock.now() + delay + self.timeout() <= end
    }

    fn open(&self) -> io::Result<Watchdog> {
        self.number.map_or_else(Watchdog::new, Watchdog::new_by_id)
    }

    /// Sets the timeout. Returns the one that was set, in seconds.
    fn configure(&self, device: &Watchdog) -> io::Result<u16> {
        for (needed, name) in
            [(OptionFlags::SetTimeout, "a timeout"), (OptionFlags::MagicClose, "magic close")]
        {
            if !device.is_option_supported(&needed)? {
                return Err(io::Error::other(format!("its driver does not support {name}")));
            }
        }
        let set = device.set_timeout(self.timeout.into())?;
        u16::try_from(set)
            .ok()
            .filter(|set| *set > 0)
            .ok_or_else(|| io::Error::other(format!("its driver set a timeout of {set}s")))
    }

    /// Arms the device.
    pub fn arm(&self) -> Result<ArmedDevice, NotArmed> {
        let device = self.open().map_err(NotArmed::Untouched)?;
        let (timeout, margin) = (self.timeout(), self.margin);
        let armed = ArmedDevice { device, timeout, margin, fires_at: BootClock.now() + timeout };
        match self.configure(&armed.device) {
            Ok(set) if set == self.timeout => Ok(armed),
            set => {
                let other = || io::Error::other("its timeout is another one than at the start");
                armed.disarm().map_err(NotArmed::CannotDisarm)?;
                Err(NotArmed::Untouched(set.err().unwrap_or_else(other)))
            }
        }
    }

    /// Disarms the device after the one that armed it was killed.
    pub fn disarm(&self) -> io::Result<()> {
        self.open()?.magic_close()
    }
}

impl ArmedDevice {
    /// Feeds the device, unless the reset could then be later than `until` allows. Returns the
    /// schedule by which the command has ended before the reset.
    pub fn feed(&mut self, until: StopTimes) -> StopTimes {
        let fires_at = BootClock.now() + self.timeout;
        if !self.is_too_late(until) {
            match self.device.keep_alive() {
                Ok(()) => self.fires_at = fires_at,
                Err(error) => {
                    output::note(format!("incumbent: the watchdog cannot be fed: {error}"));
                }
            }
        }
        self.bound(until)
    }

    /// The schedule by which the command has ended before the reset.
    pub fn bound(&self, until: StopTimes) -> StopTimes {
        bounded(until, self.kill_by())
    }

    /// Whether the reset may be later than this schedule allows.
    pub fn is_too_late(&self, until: StopTimes) -> bool {
        BootClock.now() + self.timeout > until.kill_at
    }

    /// When the command is killed at the latest.
    pub fn kill_by(&self) -> Instant {
        self.fires_at - self.margin
    }

    /// Disarms the device. To be called when nothing of the command is left.
    pub fn disarm(mut self) -> io::Result<()> {
        self.device.magic_close()
    }
}

/// Whether a driver refused a value.
fn is_invalid(error: &io::Error) -> bool {
    error.raw_os_error() == Some(Errno::INVAL.raw_os_error())
}

/// The schedule, no later than this end.
fn bounded(until: StopTimes, end: Instant) -> StopTimes {
    let kill_at = end.min(until.kill_at);
    let stop = until.kill_at.saturating_since(until.ask_at);
    StopTimes { ask_at: kill_at - stop, kill_at }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn command_has_its_grace_before_the_reset() {
        let at = |seconds| Instant::from_origin(SECOND * seconds);
        let until = StopTimes { ask_at: at(18), kill_at: at(20) };
        assert_eq!(bounded(until, at(30)), until);
        let earlier = StopTimes { ask_at: at(13), kill_at: at(15) };
        assert_eq!(bounded(until, at(15)), earlier);
    }

    /// A renewal may fail once, and its response may take an eighth of the lease.
    #[test]
    fn longest_timeout_ends_before_the_lease_and_fits_the_grace() {
        for lease in [3, 4, 5, 10, 15, 60, 3600] {
            let lease = SECOND * lease;
            let grace = Grace::new(lease, None).unwrap();
            let longest = grace.longest_watchdog(lease);
            assert!(longest + lease / 8 < lease, "{lease:?}");
            let whole = Duration::from_secs(longest.as_secs());
            assert!(grace.fits_watchdog(lease, whole), "{lease:?}");
            assert!(!grace.fits_watchdog(lease, lease / 3), "{lease:?}");
        }
        let grace = Grace::new(SECOND * 2, None).unwrap();
        assert!(!grace.fits_watchdog(SECOND * 2, SECOND));
    }
}
