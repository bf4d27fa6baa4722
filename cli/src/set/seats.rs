//! `incumbent run --seats`: an election with several leaders, as a set whose members lead one shard
//! each.

use std::process::ExitCode;

use super::args::{SetRun, ShareArgs};
use super::work::{Naming, OnShardExit};
use crate::error::{CliError, Code};
use crate::run::{OnExit, Run};

/// Runs COMMAND while this process holds one of the seats.
pub async fn run_seats(mut run: Run, seats: u32) -> Result<ExitCode, CliError> {
    let refused =
        |flag: &str| Err(CliError::new(Code::Usage, format!("{flag} cannot be used with --seats")));
    let (http, token_file) = run.candidate.http();
    let http = http.map(str::to_owned);
    let flags = [
        ("--advertise", run.candidate.advertises()),
        ("--checkpoint", run.checkpoint.is_some()),
        ("--http-token-file", token_file.is_some()),
        ("--http-ui", run.candidate.serves_page()),
        ("--ready-when-leading", run.candidate.is_ready_when_leading()),
        ("--on-exit stop", run.on_exit == OnExit::Stop),
        ("a hook, an address or a Service", !run.term.is_empty()),
    ];
    if let Some((flag, _)) = flags.into_iter().find(|(_, given)| *given) {
        return refused(flag);
    }
    if let Some(flag) = run.waiting.given().or(run.moves.priority_flag()) {
        return refused(flag);
    }
    let identity = run.candidate.identity().map(str::to_owned);
    let (site, check, stand_aside) = std::mem::take(&mut run.moves).for_set();
    let on_exit = match run.on_exit {
        OnExit::Restart => OnShardExit::Restart,
        OnExit::Resign | OnExit::Stop => OnShardExit::Exit,
    };
    let share = ShareArgs {
        shards: seats,
        resizing: None,
        weight: 1,
        max_shards: Some(1),
        settle: None,
        moves_at_once: None,
    };
    let set = SetRun {
        name: run.candidate.name,
        program: run.program,
        share,
        on_exit,
        stop: run.stop,
        identity,
        site,
        check,
        stand_aside,
        http,
        lease: run.candidate.lease,
    };
    set.run(run.lock, Naming::Seats).await
}
