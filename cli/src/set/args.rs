//! The flags and the manual of `incumbent set run`.

use std::time::Duration;

use clap::Args;

use super::work::OnShardExit;
use crate::candidate::CheckArgs;
use crate::lock::LeaseArgs;
use crate::output::time_format::parse_up_to_a_day;
use crate::run::{Program, StopArgs};

/// Run COMMAND for each shard of the set NAME that this process leads.
///
/// Of all processes that run this with one NAME, on any number of hosts, at most one has COMMAND
/// running for a shard, and each has about the same number of shards. COMMAND is started when this
/// process becomes the leader of a shard, and stopped before another one does. While the server is
/// unreachable it retries, unless `--timeout` is given.
#[derive(Debug, Args)]
#[command(after_long_help = MANUAL)]
pub struct SetRun {
    /// The set. Shard K of it is the election NAME.K.
    #[arg(index = 1)]
    pub name: String,
    #[command(flatten)]
    pub program: Program,
    #[command(flatten)]
    pub share: ShareArgs,
    /// What to do when the COMMAND of a shard ends by itself.
    #[arg(long, value_enum, default_value_t = OnShardExit::GiveUp, value_name = "WHAT")]
    pub on_exit: OnShardExit,
    #[command(flatten)]
    pub stop: StopArgs,
    /// The identity, by which members know each other: it must be unique in the set [default: the
    /// host's name and a random number].
    #[arg(long)]
    pub identity: Option<String>,
    /// Where this member runs, such as a zone.
    #[arg(long, value_name = "NAME")]
    pub site: Option<String>,
    #[command(flatten)]
    pub check: CheckArgs,
    /// Begin by standing aside: lead only the shards that no member that is ready does.
    #[arg(long)]
    pub stand_aside: bool,
    /// Serve HTTP at this port of the loopback address, at this address and port, or at this Unix
    /// socket.
    ///
    /// GET /shards: the set as JSON: name, identity, standing, the shards that this member leads,
    /// each with its token (led), and all shards with their leader and, if known, its token
    /// (shards). GET /livez, /readyz, /healthz, /metrics: as with `incumbent run`, for all shards,
    /// and answered to the same requests.
    #[arg(long, value_name = "[ADDRESS:]PORT|unix:PATH")]
    pub http: Option<String>,
    #[command(flatten)]
    pub lease: LeaseArgs,
}

/// The part of the set that this member leads.
#[derive(Debug, Args)]
pub struct ShareArgs {
    /// How many shards the set has: 1 to 100000, the same for each member.
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = parse_shards)]
    pub shards: u32,
    /// While the number of shards changes between --shards and M, a multiple of it: lead a shard
    /// only while no member with M shards leads a part of it.
    ///
    /// To go from 64 shards to 128, or from 128 to 64, replace each member by one with `--shards 64
    /// --resizing 128`. Once `incumbent set info` shows no other one, replace these by members with
    /// the new number. COMMAND gets the number of the shard as of --shards. If such a member is
    /// killed, its shards are left to their leases, as with --no-sentinel.
    #[arg(long, value_name = "M", allow_negative_numbers = true, value_parser = parse_shards)]
    pub resizing: Option<u32>,
    /// How much this member leads, compared with the others: 1 to 1000.
    #[arg(
        long,
        value_name = "N",
        default_value_t = 1,
        allow_negative_numbers = true,
        value_parser = parse_weight
    )]
    pub weight: u32,
    /// The most shards that this member leads at once [default: all].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub max_shards: Option<u32>,
    /// For how long no member has come or gone before shards move to members that lead less
    /// [default: two leases]. At most a day.
    #[arg(long, value_name = "DURATION", value_parser = parse_up_to_a_day)]
    pub settle: Option<Duration>,
    /// How many shards of the set move at once [default: a tenth of them].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub moves_at_once: Option<u32>,
}

/// The range is checked with the other numbers.
fn parse_shards(text: &str) -> Result<u32, &'static str> {
    text.parse().map_err(|_| "give 1 to 100000")
}

/// The library checks the range.
fn parse_weight(text: &str) -> Result<u32, &'static str> {
    text.parse().map_err(|_| "give 1 to 1000")
}

const MANUAL: &str = "\
What COMMAND sees:
  {shard} in an argument of COMMAND is replaced by the number of the shard, 0 and up.
  INCUMBENT_SET
      NAME.
  INCUMBENT_SHARDS
      The number of shards.
  INCUMBENT_IDENTITY
      The identity, shown as the holder.
  INCUMBENT_SHARD
      The number of the shard.
  INCUMBENT_ELECTION
      The election of the shard, NAME.K.
  INCUMBENT_TOKEN
      The fencing token of the term, greater than that of every earlier term of the shard. Send \
      it with each write, and refuse smaller ones at the destination.
  INCUMBENT_DEADLINE_FILE
      As with `incumbent run`.
  Variables with credentials of the lock are not inherited, unless --pass-env names them: see \
  `incumbent run`. Standard output and error are passed through, those of all shards together. \
  Standard input is empty.

What is stopped:
  COMMAND and all its descendants, as `incumbent run` does it: by a guard process of each \
  COMMAND (`run-guard` in a process list), also when incumbent itself is killed, hangs, or is \
  suspended. If a guard is killed, COMMAND is killed with it, and this member stops.

Signals:
  SIGTERM, SIGINT and SIGQUIT stop all shards, in order; a second one ends their drains. \
  SIGUSR1, SIGUSR2 and SIGHUP are forwarded to each COMMAND once it has a handler for them.

Exit codes:
  128 and the number of a signal that ended incumbent, after it stopped each COMMAND and \
  released its shards. With --on-exit exit, COMMAND's own. 127: no such \
  command, 126: not executable; both before campaigning. Else 1 failed, 2 usage, 3 no such \
  bucket or namespace, 4 no server reachable at the start, 5 permission denied.

Examples:
  incumbent set run indexers --shards 64 -- ./indexer --part {shard}
  incumbent set run indexers --shards 64 --weight 2 --drain 2m -- ./indexer --part {shard}";
