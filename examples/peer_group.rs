//! A member of a group without a server. Start three of them:
//!
//! ```console
//! $ cargo run --example peer_group --features peer -- 127.0.0.1:5001 127.0.0.1:5002 127.0.0.1:5003
//! $ cargo run --example peer_group --features peer -- 127.0.0.1:5002 127.0.0.1:5001 127.0.0.1:5003
//! $ cargo run --example peer_group --features peer -- 127.0.0.1:5003 127.0.0.1:5001 127.0.0.1:5002
//! ```
//!
//! Two of them may believe at once that they lead, as while a cable is cut.

use std::net::SocketAddr;

use incumbent::peer::{Change, Peer};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut addresses = std::env::args().skip(1).map(|address| address.parse());
    let bind: SocketAddr =
        addresses.next().ok_or("say where to listen, then where the peers are")??;
    let peers = addresses.collect::<Result<Vec<SocketAddr>, _>>()?;

    let peer = Peer::builder().bind(bind).id(bind.to_string()).peers(peers).start()?;
    let mut changes = peer.changes();
    loop {
        tokio::select! {
            Some(change) = changes.next() => match change {
                Change::Added(member) => println!("found {}", member.id),
                Change::Removed(member) => println!("{} is gone", member.id),
                Change::Elected => println!("this member leads, as far as it knows"),
                Change::Resigned => println!("it leads no more"),
                Change::Leader(Some(leader)) => println!("leader: {}", leader.id),
                _ => {}
            },
            _ = tokio::signal::ctrl_c() => break,
        }
    }
    peer.stop().await; // the others elect at once
    Ok(())
}
