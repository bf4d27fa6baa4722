//! `--http` of a member: its shards, health and metrics over HTTP.

use std::sync::Arc;

use axum::extract::State;
use axum::routing::get;
use axum::{Json, Router};
use incumbent::Set;
use serde_json::{Value, json};
use tokio::sync::SetOnce;

use crate::candidate::{Health, Probe, probes};
use crate::error::CliError;
use crate::http::{HTTP, HttpListener, ServedHttp, metrics};

/// What is served once the lock was reached.
struct StartedSet {
    set: Set,
    health: Arc<Health>,
}

type Started = Arc<SetOnce<StartedSet>>;

/// The HTTP server of a member. It serves from the start, before the lock was reached.
pub struct Server {
    started: Started,
    _serves: ServedHttp,
}

impl Server {
    /// Must be called before the member starts, which looks for a metrics recorder once.
    pub async fn start(address: &str) -> Result<Self, CliError> {
        let listener = HttpListener::bind(HTTP, address, None, None).await?;
        let started = Started::default();
        let shards = Router::new().route("/shards", get(shards)).with_state(Arc::clone(&started));
        let probed = Arc::clone(&started);
        let probes = probes(Health::is_ready, &[], move |of| Some(probed.get()?.answer(of)));
        let routes = listener.routes(probes, shards.merge(metrics()?));
        Ok(Self { started, _serves: listener.serve(routes) })
    }

    /// Serves this member from now on.
    pub fn serve(&self, set: Set, health: Arc<Health>) {
        let _ = self.started.set(StartedSet { set, health }); // an error: already set
    }
}

/// What a member leads, in a few words.
pub fn summary(set: &Set) -> String {
    let (led, all) = (set.shards().len(), set.status().len());
    format!("leads {led} of {all}")
}

async fn shards(State(started): State<Started>) -> Json<Value> {
    let Some(StartedSet { set, .. }) = started.get() else { return Json(Value::Null) };
    let led = set.shards();
    let led = led.iter().map(|led| json!({"shard": led.shard, "token": led.token.0}));
    let status = set.status();
    let all = status.iter().map(|status| {
        let leader = status.leader.as_ref();
        let token = status.token.or(leader.and_then(|leader| leader.token));
        json!({
            "shard": status.shard,
            "leader": leader.map(|leader| &*leader.identity),
            "token": token.map(|token| token.0),
            "mine": status.token.is_some(),
        })
    });
    Json(json!({
        "set": set.name(),
        "identity": set.identity(),
        "standing": set.readiness().as_str(),
        "led": led.collect::<Vec<_>>(),
        "shards": all.collect::<Vec<_>>(),
    }))
}

impl StartedSet {
    /// One line: that each shard is well and the first one passes, or the problem.
    fn answer(&self, of_first: Probe) -> Result<String, String> {
        let elections = (0..).map_while(|shard| Some((shard, self.set.election(shard)?)));
        for (shard, election) in elections {
            let of_shard = |why: String| format!("shard {shard}: {why}");
            self.health.is_alive(election).map_err(of_shard)?;
        }
        // Every member takes part in each election: one of them shows whether the lock responds.
        if let Some(first) = self.set.election(0) {
            of_first(&self.health, first)?;
        }
        Ok(format!("ok: {}", summary(&self.set)))
    }
}
