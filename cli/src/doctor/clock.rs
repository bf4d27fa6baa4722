//! The rate of this machine's clock, which all leases depend on.

use std::path::Path;
use std::time::Duration;

use rustix::time::{ClockId, DynamicClockId, clock_gettime, clock_gettime_dynamic};
use tokio::time::{Instant, sleep_until};

use super::report::Report;

const CHECK: &str = "clock rate";

/// Two clocks may differ by 1 part in 500, so each may be off by half of that.
const MAX_PPM: f64 = 1_000.0;
const FAR_TOO_MUCH_PPM: f64 = 2_000.0;

/// The minimum duration of the measurement: reading the clocks takes well below a microsecond.
const MEASURED_FOR: Duration = Duration::from_millis(250);

/// How often both clocks are read at once; the closest pair counts.
const READINGS: usize = 16;

/// The default of chronyd's maxslewrate.
const CHRONY_DEFAULT_PPM: f64 = 83_333.0;

const RUNNING_CHRONY: [&str; 2] = ["/run/chrony/chronyd.pid", "/run/chronyd.pid"];
const CHRONY_FILES: [&str; 2] = ["/etc/chrony/chrony.conf", "/etc/chrony.conf"];
const CHRONY_DIRECTORIES: [&str; 2] = ["/etc/chrony/conf.d", "/etc/chrony.d"];
const SOURCE: &str = "/sys/devices/system/clocksource/clocksource0/current_clocksource";

/// The clock of leases, and the raw clock that is never slewed, read at one moment, in nanoseconds.
#[derive(Debug, Clone, Copy)]
struct Reading {
    leases: i128,
    raw: i128,
    /// The maximum time between both reads.
    doubt: i128,
}

/// A clock that is measured during the other checks.
pub struct Watched {
    first: Reading,
    until: Instant,
}

impl Watched {
    pub fn begin() -> Self {
        Self { first: Reading::take(), until: Instant::now() + MEASURED_FOR }
    }

    pub async fn finish(self, report: &mut Report) {
        sleep_until(self.until).await;
        let last = Reading::take();
        check_rate(self.first.rate_until(last), report);
        if let Ok(source) = std::fs::read_to_string(SOURCE) {
            check_source(source.trim(), report);
        }
        if RUNNING_CHRONY.iter().any(|file| Path::new(file).exists()) {
            check_chrony(&chrony_settings(), report);
        }
    }
}

impl Reading {
    fn take() -> Self {
        let readings = (0..READINGS).map(|_| {
            let before = nanos(clock_gettime(ClockId::MonotonicRaw));
            // Read as `incumbent::clock::BootClock` does.
            let leases = clock_gettime_dynamic(DynamicClockId::Boottime)
                .unwrap_or_else(|_| clock_gettime(ClockId::Monotonic));
            let doubt = nanos(clock_gettime(ClockId::MonotonicRaw)) - before;
            Self { leases: nanos(leases), raw: before + doubt / 2, doubt }
        });
        readings.min_by_key(|reading| reading.doubt).unwrap_or(Self { leases: 0, raw: 0, doubt: 0 })
    }

    /// How much faster the clock of leases ran since, and the uncertainty, both in parts per
    /// million; `None` if no time has passed.
    fn rate_until(self, later: Self) -> Option<(f64, f64)> {
        let (leases, raw) = (later.leases - self.leases, later.raw - self.raw);
        let per_million = |nanos: i128| nanos as f64 * 1e6 / raw as f64;
        (raw > 0).then(|| (per_million(leases - raw), per_million((self.doubt + later.doubt) / 2)))
    }
}

fn nanos(time: rustix::time::Timespec) -> i128 {
    i128::from(time.tv_sec) * 1_000_000_000 + i128::from(time.tv_nsec)
}

fn check_rate(rate: Option<(f64, f64)>, report: &mut Report) {
    let Some((ppm, doubt)) = rate else {
        return report.unknown(CHECK, "it did not advance during the measurement");
    };
    let least = ppm.abs() - doubt;
    let which = if ppm < 0.0 { "slow" } else { "fast" };
    let slewed = format!(
        "it is slewed, and runs {which} by {:.0} parts per million; leases allow for 1 in 500 between two clocks; \
         slew it by less (chrony: maxslewrate 500), or step it before elections begin",
        ppm.abs()
    );
    if least > FAR_TOO_MUCH_PPM {
        report.error(CHECK, slewed);
    } else if least > MAX_PPM {
        report.warning(CHECK, slewed);
    } else {
        let most = ppm.abs() + doubt;
        report.ok(CHECK, format!("slewed by at most {most:.0} parts per million now"));
    }
}

/// The clock of a hypervisor stops while the hypervisor pauses the machine.
fn check_source(source: &str, report: &mut Report) {
    if source.starts_with("kvm-clock") || source.starts_with("hyperv") || source == "xen" {
        report.unknown(
            CHECK,
            format!(
                "whether the hypervisor pauses this machine (clock source {source}): then the clock stops, and a leader \
                 continues past its deadline; fence writes with the token"
            ),
        );
    }
}

fn check_chrony(settings: &str, report: &mut Report) {
    let limit = chrony_limit(settings);
    let most = limit.unwrap_or(CHRONY_DEFAULT_PPM);
    if most > MAX_PPM {
        let origin = if limit.is_some() { "" } else { " by default" };
        report.warning(
            CHECK,
            format!(
                "chronyd runs here and may slew the clock by up to {most:.0} parts per million{origin}: write `maxslewrate 500` into \
                 its chrony.conf, and restart it"
            ),
        );
    }
}

/// The last valid setting of maxslewrate.
fn chrony_limit(settings: &str) -> Option<f64> {
    let mut limits = settings.lines().filter_map(|line| {
        let mut words = line.split_whitespace();
        let is_it = words.next()?.eq_ignore_ascii_case("maxslewrate");
        words.next().filter(|_| is_it)?.parse().ok()
    });
    limits.rfind(|ppm: &f64| ppm.is_finite() && *ppm >= 0.0)
}

/// All configuration files of chronyd that are readable.
fn chrony_settings() -> String {
    let listed = CHRONY_DIRECTORIES.iter().filter_map(|at| std::fs::read_dir(at).ok());
    let included = listed.flatten().flatten().map(|entry| entry.path());
    let files = CHRONY_FILES.iter().map(|file| Path::new(file).to_owned()).chain(included);
    files.filter_map(|file| std::fs::read_to_string(file).ok()).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report_of(by: impl Fn(&mut Report)) -> String {
        let mut report = Report::default();
        by(&mut report);
        format!("{report:?}")
    }

    #[test]
    fn clock_that_is_slewed_too_much_is_reported() {
        let at = |leases, raw| Reading { leases, raw, doubt: 0 };
        let rate = |ppm: i128| at(0, 0).rate_until(at(1_000_000_000 + ppm * 1_000, 1_000_000_000));
        assert!(report_of(|report| check_rate(rate(50), report)).contains("Ok"));
        assert!(report_of(|report| check_rate(rate(-50), report)).contains("at most 50 parts"));
        let slewed = report_of(|report| check_rate(rate(1_500), report));
        assert!(slewed.contains("Warning") && slewed.contains("runs fast by 1500"), "{slewed}");
        let slewed = report_of(|report| check_rate(rate(-83_333), report));
        assert!(slewed.contains("Error") && slewed.contains("maxslewrate 500"), "{slewed}");
        assert!(
            report_of(|report| check_rate(at(5, 5).rate_until(at(5, 5)), report))
                .contains("Unknown")
        );
        let unsure = Some((5_000.0, 4_500.0));
        assert!(
            report_of(|report| check_rate(unsure, report)).contains("Ok"),
            "within the uncertainty of the measurement"
        );
    }

    #[test]
    fn clocks_of_this_machine_can_be_compared() {
        let first = Reading::take();
        std::thread::sleep(Duration::from_millis(20));
        let (ppm, doubt) = first.rate_until(Reading::take()).expect("time has passed");
        assert!(ppm.is_finite() && doubt >= 0.0, "{ppm} {doubt}");
    }

    #[test]
    fn chrony_without_a_limit_is_reported() {
        assert_eq!(chrony_limit("pool a\n# maxslewrate 1\n MaxSlewRate 500 \n"), Some(500.0));
        assert_eq!(chrony_limit("maxslewrate\nmaxslewrate x\nmaxslewrate -1\n"), None);
        let silent = report_of(|report| check_chrony("makestep 1 3", report));
        assert!(
            silent.contains("Warning") && silent.contains("83333 parts per million by default")
        );
        assert!(report_of(|report| check_chrony("maxslewrate 5000", report)).contains("Warning"));
        assert!(!report_of(|report| check_chrony("maxslewrate 500", report)).contains("Warning"));
    }

    #[test]
    fn clock_of_a_hypervisor_is_reported() {
        assert!(report_of(|report| check_source("kvm-clock", report)).contains("Unknown"));
        assert!(!report_of(|report| check_source("tsc", report)).contains("Unknown"));
    }
}
