//! `doctor` of elections by a quorum of peers.

use incumbent_test_support::Port;

use crate::doctor::{doctor, line};
use crate::shell::Shell;

#[tokio::test]
async fn peers_are_counted_without_being_disturbed() {
    let shell = Shell::bare();
    let ports = [Port::pick(), Port::pick(), Port::pick()].map(|port| port.number());
    let peers = ports.map(|port| format!("127.0.0.1:{port}")).join(",");
    let lock = |at: usize| format!("peer:127.0.0.1:{}?quorum=3&lease=2s&peers={peers}", ports[at]);
    let told = doctor(&shell, &["--lock", &lock(0)], 1);
    line(&told, "ok       address ", &format!("a member can listen on 127.0.0.1:{}", ports[0]));
    line(&told, "ok       quorum ", "of 3 voters 2 must run");
    line(&told, "warning  peers ", "0 of 3 are heard, and nobody leads without 2");

    let campaign = |at| shell.start(&["campaign", "my_app", "--lock", &lock(at)]);
    let mut members = [0, 1, 2].map(campaign);
    members[0].line_with("lead");
    let told = doctor(&shell, &["--lock", &lock(0)], 0);
    line(&told, "ok       address ", "somebody listens on");
    line(&told, "ok       peers ", "3 of 3 are heard: a majority");
    for member in members {
        member.end_by("TERM");
    }
}

#[test]
fn an_address_of_another_machine_and_a_name_that_is_none_are_errors() {
    let shell = Shell::bare();
    let lock = "peer:192.0.2.1:12345?quorum=4&dns=absent.invalid:12345&id=c&voters=a,b";
    let told = doctor(&shell, &["--lock", lock, "--timeout", "1s"], 2);
    line(&told, "error    address ", "a member cannot listen on 192.0.2.1:12345");
    line(&told, "error    peers ", "the peers' name absent.invalid cannot be resolved");
    line(&told, "warning  quorum ", "of 4 voters 3 must run: 3 stand as many failures");
    line(&told, "error    quorum ", "\"c\" is none of the voters");
}
