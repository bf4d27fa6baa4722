//! One client's connection through the proxy.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use serde_json::Value;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::watch;

use super::frame::{Frame, Frames};
use super::request::Request;
use super::trap::{Effect, Rule, Traps};
use super::{Lost, State, Way};

/// The requests whose replies a trap is waiting for, by the subject of the reply.
type Awaited = Mutex<HashMap<String, (Arc<Rule>, Request)>>;

/// Carries frames between a client and the server until either closes the connection, or it is cut.
pub(crate) async fn run(
    client: TcpStream,
    server: SocketAddr,
    state: watch::Receiver<State>,
    traps: Arc<Traps>,
    lost: Arc<Lost>,
) {
    let mut cut = state.clone();
    let cuts = cut.borrow_and_update().cuts;
    let carried = async {
        let Ok(server) = TcpStream::connect(server).await else { return };
        let _ = client.set_nodelay(true);
        let _ = server.set_nodelay(true);
        carry(client, server, state, &traps, &lost).await;
    };
    tokio::select! {
        () = carried => {}
        _ = cut.wait_for(|state| state.cuts != cuts) => {}
    }
}

async fn carry(
    client: TcpStream,
    server: TcpStream,
    state: watch::Receiver<State>,
    traps: &Traps,
    lost: &Lost,
) {
    let awaited = Awaited::default();
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = server.into_split();
    let requests =
        pump(from_client, to_server, Way::ToServer, state.clone(), lost, |frame, out| {
            judge_request(frame, out, traps, &awaited);
        });
    let replies = pump(from_server, to_client, Way::ToClient, state, lost, |frame, out| {
        judge_reply(frame, out, &awaited);
    });
    // NATS has no half-closed connections: the end of one way ends both.
    tokio::select! {
        () = requests => {}
        () = replies => {}
    }
}

/// Reads frames and hands those that are not lost to `judge`, which sends on what shall
/// arrive.
async fn pump(
    source: OwnedReadHalf,
    target: OwnedWriteHalf,
    way: Way,
    mut state: watch::Receiver<State>,
    lost: &Lost,
    judge: impl Fn(Frame, &UnboundedSender<Bytes>),
) {
    let (out, queue) = unbounded_channel();
    let reading = async move {
        let mut frames = Frames::new(source);
        while let Ok(Some(frame)) = frames.next().await {
            if state.borrow().loses(way) {
                lost.one_way(way).fetch_add(1, Ordering::SeqCst);
            } else {
                judge(frame, &out);
            }
        }
        // An end is news too, and passes like a frame; a swallowed one is delivered later.
        let _ = state.wait_for(|state| !state.loses(way)).await;
    };
    tokio::join!(reading, write(queue, target));
}

async fn write(mut queue: UnboundedReceiver<Bytes>, mut target: OwnedWriteHalf) {
    while let Some(bytes) = queue.recv().await {
        if target.write_all(&bytes).await.is_err() {
            return;
        }
    }
}

fn judge_request(frame: Frame, out: &UnboundedSender<Bytes>, traps: &Traps, awaited: &Awaited) {
    let caught =
        Request::parse(&frame).and_then(|request| Some((traps.taking(&request)?, request)));
    let Some((rule, request)) = caught else {
        let _ = out.send(frame.bytes);
        return;
    };
    match rule.effect() {
        Effect::LoseRequest => rule.spring(request),
        Effect::LoseReply => {
            if let Some(reply) = request.reply.clone() {
                let mut awaited = awaited.lock().unwrap_or_else(PoisonError::into_inner);
                awaited.insert(reply, (rule, request));
            }
            let _ = out.send(frame.bytes);
        }
    }
}

fn judge_reply(frame: Frame, out: &UnboundedSender<Bytes>, awaited: &Awaited) {
    let words = frame.words();
    let caught = match words.as_slice() {
        ["MSG" | "HMSG", subject, ..] => {
            awaited.lock().unwrap_or_else(PoisonError::into_inner).remove(*subject)
        }
        ["INFO", ..] => {
            let _ = out.send(without_other_addresses(&frame));
            return;
        }
        _ => None,
    };
    match caught {
        None => {
            let _ = out.send(frame.bytes);
        }
        Some((rule, request)) => rule.spring(request),
    }
}

/// A server sends its clients the addresses of others; through a proxy they must know the proxy
/// alone.
fn without_other_addresses(info: &Frame) -> Bytes {
    let json = info.line().get("INFO".len()..).unwrap_or_default();
    let Ok(Value::Object(mut fields)) = serde_json::from_slice(json) else {
        return info.bytes.clone();
    };
    fields.remove("connect_urls");
    fields.remove("ws_connect_urls");
    format!("INFO {}\r\n", Value::Object(fields)).into()
}
