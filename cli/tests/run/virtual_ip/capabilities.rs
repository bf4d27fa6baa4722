//! What it takes to have an address, and what a command does not get of that.

use std::process::{Command, Output, Stdio};

use incumbent_test_support::{Namespace, not_run, succeeds};

use crate::root::{SharedProgram, not_of_root};

/// CAP_NET_ADMIN and CAP_NET_RAW.
const CAPABILITIES: u64 = 1 << 12 | 1 << 13;
const AS_NOBODY: [&str; 5] = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--"];
const WITH_CAPABILITIES: [&str; 7] = [
    "setpriv",
    "--reuid=65534",
    "--regid=65534",
    "--clear-groups",
    "--inh-caps=+net_admin,+net_raw",
    "--ambient-caps=+net_admin,+net_raw",
    "--",
];
const WITH_HALF: [&str; 7] = [
    "setpriv",
    "--reuid=65534",
    "--regid=65534",
    "--clear-groups",
    "--inh-caps=+net_admin",
    "--ambient-caps=+net_admin",
    "--",
];
/// It cannot take anything from the bounding set.
const AS_BOUNDED_ROOT: [&str; 4] =
    ["setpriv", "--bounding-set=-all,+net_admin,+net_raw", "--inh-caps=-all", "--"];
const SHOW: &str = "grep ^Cap /proc/self/status; ip -oneline address show dev eth0";

/// A host with an interface, and the program where every user can execute it.
struct Host {
    here: Namespace,
    program: SharedProgram,
    /// With the other end of the cable.
    _other: Namespace,
}

impl Host {
    fn create(what: &str) -> Option<Self> {
        let made = Namespace::create().and_then(|here| Ok((here, Namespace::create()?)));
        match made {
            Ok(_) if !succeeds("setpriv", &["true"]) => not_run(what, "no setpriv"),
            Ok((here, other)) => {
                here.cable("eth0", &other, "eth0");
                return Some(Self { here, program: SharedProgram::create(), _other: other });
            }
            Err(why) => not_run(what, &why),
        }
        None
    }

    /// Runs the command of a leader with an address of this host.
    fn run(&self, privileges: &[&str], flags: &[&str]) -> Output {
        let program = self.program.path().display().to_string();
        let words = ["run", "my_app", "--lock", "memory:"];
        let words = [privileges, &[&program], &words, flags, &["--", "sh", "-c", SHOW]].concat();
        let mut command = Command::new(words[0]);
        not_of_root(&mut command).args(&words[1..]).current_dir("/").stdin(Stdio::null());
        self.here.run(|| command.output()).expect("it starts")
    }
}

#[test]
fn the_command_of_a_leader_cannot_change_addresses() {
    let Some(host) = Host::create("the capabilities of a command beside a virtual IP") else {
        return;
    };
    for privileges in [&["env"][..], &WITH_CAPABILITIES, &AS_BOUNDED_ROOT] {
        let output = host.run(privileges, &["--virtual-ip", "10.0.0.5/24@eth0"]);
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(text.contains("10.0.0.5/24"), "{privileges:?}: {output:?}");
        // A user who may take nothing from the bounding set has no other way to them.
        for set in ["CapInh", "CapPrm", "CapEff", "CapAmb"] {
            let line = text.lines().find(|line| line.starts_with(set)).expect(set);
            let found = line.split_whitespace().last().expect(set);
            let found = u64::from_str_radix(found, 16).expect("a number");
            assert_eq!(found & CAPABILITIES, 0, "{privileges:?}: {text}");
        }
    }
    let output = host.run(&["env"], &[]);
    let text = String::from_utf8_lossy(&output.stdout);
    let effective = text.lines().find(|line| line.starts_with("CapEff")).expect("it ran");
    let effective = effective.split_whitespace().last().expect("a number");
    let effective = u64::from_str_radix(effective, 16).expect("a number");
    assert_eq!(
        effective & CAPABILITIES,
        CAPABILITIES,
        "without an address nothing is dropped: {text}"
    );
}

#[test]
fn what_cannot_work_is_refused_before_campaigning() {
    let Some(host) = Host::create("the refusals of a virtual IP") else { return };
    let valid = "10.0.0.5/24@eth0";
    host.here.ip("address add 10.0.0.7/24 dev eth0");
    for (privileges, ip, more, code, why) in [
        (&AS_NOBODY[..], valid, &[][..], 1, "a virtual IP needs CAP_NET_ADMIN"),
        (&WITH_HALF, valid, &[], 1, "a virtual IP needs CAP_NET_RAW"),
        (&["env"], "10.0.0.5/24@eth7", &[], 1, "there is no interface eth7 on this host"),
        (&["env"], "10.0.0.7/24@eth0", &[], 1, "is configured on this host already"),
        (&["env"], valid, &["--lease", "4s"], 1, "needs a lease of 5s or more"),
        (&["env"], "10.0.0.5@eth0", &[], 2, "ADDRESS/PREFIX@INTERFACE"),
        (&["env"], "10.0.0.255/24@eth0", &[], 2, "is the broadcast address of the network"),
    ] {
        let flags = [&["--virtual-ip", ip], more].concat();
        let output = host.run(privileges, &flags);
        let text = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{flags:?}: {text}");
        assert!(text.contains(why), "{flags:?}: {text}");
        assert!(code == 2 || text.trim().lines().count() == 1, "{text}");
        assert!(output.stdout.is_empty(), "{output:?}");
    }
}
