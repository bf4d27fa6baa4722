//! What may notice that a rule is broken.

use std::fmt;
use std::io::Read;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// Something that fails when a promise is broken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Instrument {
    /// Random schedules in `tests/crates/sim`.
    Simulation,
    /// Random schedules of sets alone, in `tests/crates/sim`.
    Sets,
    /// Random schedules of a quorum of peers alone, there.
    Quorum,
    /// Every schedule of small elections, in `tests/crates/model`.
    Model,
    /// Single scenarios of the protocol machine.
    Scenarios,
    /// Single decisions of the protocol and the driver: when to hand over and to whom, drains,
    /// health, what a sentinel is told.
    Decisions,
    /// The NATS lock against real servers.
    Locks,
    /// Elections in process.
    Elections,
    /// Elections on several locks.
    Several,
    /// Records in objects of Kubernetes, read and written.
    Records,
    /// Locks on Kubernetes, against a real API server.
    Objects,
    /// Scenarios of a quorum of peers, in virtual time.
    Voters,
    /// Locks on object storage, against real stores.
    Stores,
    /// Locks in databases, against real servers and files.
    Databases,
    /// The models of locks beside the locks themselves.
    Differential,
    /// The command line, its sentinels and its guards, as real processes.
    Programs,
}

/// The result of an instrument.
pub enum Verdict {
    /// It noticed: what, and after how long.
    Noticed(String, Duration),
    Unnoticed(Duration),
}

/// An instrument that neither ends nor fails within this time has met a candidate that hangs.
const TIMEOUT: Duration = Duration::from_secs(300);

impl Instrument {
    pub fn builds_all_features(self) -> bool {
        self.runs().contains("--all-features")
    }

    pub fn draws_schedules(self) -> bool {
        matches!(self, Self::Simulation | Self::Sets | Self::Quorum | Self::Model)
    }

    /// What builds it, without running it.
    fn builds(self) -> Vec<&'static str> {
        let of_cargo = self.runs().split_whitespace().take_while(|argument| *argument != "--");
        match self {
            Self::Simulation | Self::Sets | Self::Quorum => {
                of_cargo.map(|a| if a == "run" { "build" } else { a }).collect()
            }
            _ => of_cargo.chain(["--no-run"]).collect(),
        }
    }

    /// What builds and runs it.
    fn runs(self) -> &'static str {
        match self {
            // Schedules of each fleet: the rarest mutation needs some hundreds of one.
            Self::Simulation => "run --package incumbent-sim -- --from 0 --schedules 4000",
            Self::Sets => {
                "run --package incumbent-sim -- --from 0 --schedules 300 \
                 --fleet sets"
            }
            Self::Quorum => {
                "run --package incumbent-sim -- --from 0 --schedules 300 \
                 --fleet quorum"
            }
            Self::Model => {
                "test --package incumbent-model --test check -- \
                 at_most_one_leads checkpoint_is_kept"
            }
            Self::Scenarios => "test --workspace --all-features --test protocol",
            Self::Decisions => {
                "test --workspace --all-features --lib -- protocol:: set:: driver:: schedule:: \
                 etcd::"
            }
            Self::Locks => {
                "test --workspace --all-features --test nats -- lock:: queue_groups:: \
                 roll_call::a_call late_writes::one_server"
            }
            Self::Elections => "test --workspace --all-features --test memory",
            Self::Several => "test --workspace --all-features --test multi_lock -- needs::",
            Self::Records => "test --workspace --all-features --lib -- kubernetes::",
            // Those that need neither many terms nor long leases.
            Self::Objects => {
                "test --workspace --all-features --test kubernetes -- admission:: \
                 answers:: fresh:: record:: service:: conditional \
                 an_eviction_leaves_a_holder_that_nobody_renews \
                 a_renewal_does_not_bring_a_deleted_object_back \
                 a_lease_of_coordinated_elections_is_left_alone \
                 a_pod_with_the_leaders_name_is_not_the_leader a_refused_token_is_read_again \
                 a_silent_watch_of_a_leader"
            }
            Self::Voters => {
                "test --no-default-features --features peer --test peer -- \
                 an_election_that_voters_cannot_remember delayed_messages:: replay:: signed::"
            }
            Self::Stores => {
                "test --no-default-features --features object-store --test \
                 object_storage -- foreign_objects_are_kept late_writes::object_of_s3 \
                 an_older_entry_of_the_same_candidate_is_not_its_term \
                 a_go_leader_is_waited_for a_slow_store a_store_that_ignores \
                 a_write_keeps_its_revision"
            }
            Self::Databases => {
                "test --no-default-features --features sql,tower,url --test sql -- \
                 a_missing_row_proves_nothing a_row_from_before_a_failover \
                 a_leader_whose_runtime_is_blocked one_leader_of_ten another_boot_identifier \
                 fence:: sqlite::members_of_a_set names:: restored:: synchronous:: trust:: \
                 a_restored_backup the_server_calls_no_row_expired"
            }
            Self::Differential => {
                "test --package incumbent-differential --test stores -- \
                 a_bucket_does a_table a_sqlite_file an_object a_lease a_key"
            }
            Self::Programs => {
                "test --workspace --all-features --bin incumbent --test sentinel --test run \
                 -- crashes:: foreign:: guard:: messages:: sandbox:: \
                 set::commands::shard_whose_command_ends tree::killed_reaper \
                 tree::lock_is_not_released tree::nothing_is_released \
                 tree::process_left_behind tree::suspended_guard_of_a_killed watchdog::"
            }
        }
    }

    /// Runs it on the sources in `tree`.
    ///
    /// # Errors
    /// What does not build shows nothing.
    pub fn look(self, tree: &Path) -> Result<Verdict, String> {
        let built = cargo(tree, &self.builds()).output().map_err(|error| error.to_string())?;
        if !built.status.success() {
            return Err(String::from_utf8_lossy(&built.stderr).into_owned());
        }
        let began = Instant::now();
        let runs: Vec<_> = self.runs().split_whitespace().collect();
        let mut child = cargo(tree, &runs)
            .process_group(0)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .map_err(|error| error.to_string())?;
        let mut stdout = child.stdout.take();
        let reader = thread::spawn(move || {
            let mut said = Vec::new();
            if let Some(stdout) = &mut stdout {
                // What was read before an error is as good.
                let _ = stdout.read_to_end(&mut said);
            }
            String::from_utf8_lossy(&said).into_owned()
        });
        let succeeded = ends(&mut child, began + TIMEOUT).map_err(|error| error.to_string())?;
        let took = began.elapsed();
        let said = reader.join().unwrap_or_default();
        Ok(match succeeded {
            Some(true) => Verdict::Unnoticed(took),
            Some(false) => Verdict::Noticed(gist(&said), took),
            None => Verdict::Noticed("it hangs".to_owned(), took),
        })
    }
}

fn cargo(tree: &Path, args: &[&str]) -> Command {
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    // What is built here is broken: cargo would take it to be fresh in the checkout, were it in the
    // same place.
    cargo.env("CARGO_TARGET_DIR", tree.join("target")).env("RUST_BACKTRACE", "0");
    cargo.current_dir(tree).args(args).stdin(Stdio::null());
    cargo
}

/// Whether it succeeds; `None` if it does not end in time.
fn ends(child: &mut Child, by: Instant) -> std::io::Result<Option<bool>> {
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status.success()));
        }
        if Instant::now() >= by {
            // With the tests that it runs: they would continue, and keep its output open.
            Command::new("kill").args(["-KILL", "--", &format!("-{}", child.id())]).status()?;
            child.wait()?;
            return Ok(None);
        }
        thread::sleep(Duration::from_millis(20));
    }
}

/// Which test failed, or after how many schedules one did.
fn gist(said: &str) -> String {
    let failed = said.lines().filter_map(|line| line.strip_suffix(" ... FAILED"));
    let mut failed = failed.map(|line| line.trim_start_matches("test "));
    let schedules = said.lines().find_map(|line| line.strip_prefix("found after "));
    let schedules = schedules.and_then(|rest| rest.split(',').next());
    match (failed.next(), schedules) {
        (Some(test), _) => match failed.count() {
            0 => format!("`{test}`"),
            more => format!("`{test}` and {more} more"),
        },
        (None, Some(schedules)) => schedules.to_owned(),
        (None, None) => "it fails".to_owned(),
    }
}

impl fmt::Display for Instrument {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Simulation => "simulation",
            Self::Sets => "simulation of sets",
            Self::Quorum => "simulation of a quorum",
            Self::Model => "model check",
            Self::Scenarios => "scenarios",
            Self::Decisions => "tests of decisions",
            Self::Locks => "lock tests",
            Self::Elections => "conformance tests",
            Self::Several => "tests of several locks",
            Self::Records => "tests of records",
            Self::Objects => "tests on Kubernetes",
            Self::Voters => "voters in virtual time",
            Self::Stores => "tests on object stores",
            Self::Databases => "tests on databases",
            Self::Differential => "models beside stores",
            Self::Programs => "tests of programs",
        })
    }
}
