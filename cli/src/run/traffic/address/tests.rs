//! An address that moves between two hosts with a cable, each in a network namespace.

use std::future::Future;
use std::net::{IpAddr, Ipv6Addr, SocketAddrV6};
use std::thread;

use incumbent::clock::sleep_until;
use incumbent::protocol::{Timing, TimingOptions};
use incumbent_test_support::{Namespace, not_run};
use parking_lot::RwLock;
use rustix::net::{AddressFamily, SendFlags, SocketType, ipproto, sendto, socket, sockopt};
use tokio::runtime::Builder;
use tokio::time::timeout;

use super::neighbours::Mac;
use super::netlink::lifetime;
use super::*;

const LEASE: Duration = Duration::from_secs(30);
const ADDRESSES: [&str; 2] = ["10.0.0.5/24@eth0", "2001:db8::5/64@eth0"];

/// Two hosts, each with an interface `eth0`. The test runs on the first.
struct Hosts {
    here: Namespace,
    other: Namespace,
}

/// Held for as long as a test has networks: for writing by one that has to be alone.
static NETWORKS: RwLock<()> = RwLock::new(());

/// Runs a test for each address, beside others.
fn on_hosts<F: Future<Output = ()>>(name: &str, test: impl Fn(Hosts, VirtualIp) -> F + Sync) {
    let _beside = NETWORKS.read();
    on_new_hosts(name, test);
}

/// Runs a test for each address, on a thread of its own as only that changes its namespace.
fn on_new_hosts<F: Future<Output = ()>>(name: &str, test: impl Fn(Hosts, VirtualIp) -> F + Sync) {
    for ip in ADDRESSES {
        let run = || {
            let (here, other) = match (Namespace::create(), Namespace::create()) {
                (Ok(here), Ok(other)) => (here, other),
                (Err(why), _) | (_, Err(why)) => return not_run(name, &why),
            };
            here.cable("eth0", &other, "eth0");
            here.ip("address add 10.0.0.1/24 dev eth0");
            here.ip("address add 2001:db8::1/64 dev eth0 nodad");
            other.ip("address add 10.0.0.2/24 dev eth0");
            other.ip("address add 2001:db8::2/64 dev eth0 nodad");
            here.enter();
            let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
            runtime.block_on(test(Hosts { here, other }, ip.parse().expect("valid")));
        };
        thread::scope(|scope| scope.spawn(run).join()).unwrap_or_else(|_| panic!("{name}: {ip}"));
    }
}

impl Hosts {
    /// The hardware address of who answers the other host.
    async fn answers(&self, ip: &VirtualIp) -> Option<Mac> {
        self.ear(ip).await.probe().await.expect("a probe")
    }

    /// Hears what the other host hears.
    async fn ear(&self, ip: &VirtualIp) -> Neighbours {
        let netlink = self.other.run(|| Netlink::open().expect("a socket"));
        let link = netlink.link("eth0").await.expect("eth0");
        self.other.run(|| Neighbours::open(&link, ip.address()).expect("a socket"))
    }
}

async fn own_mac() -> Mac {
    Netlink::open().expect("a socket").link("eth0").await.expect("eth0").mac
}

fn soon() -> Instant {
    BootClock.now() + LEASE
}

#[test]
fn the_address_is_announced_extended_and_withdrawn() {
    on_hosts("a virtual IP", async |hosts, ip| {
        let mut target = AddressTarget::new(ip.clone());
        assert_eq!(target.check(LEASE).await, Ok(()));
        assert_eq!(target.withdraw().await, Ok(()));
        assert_eq!(hosts.answers(&ip).await, None);
        let ear = hosts.ear(&ip).await;
        for _ in 0..2 {
            assert_eq!(target.direct(soon()).await, Ok(()));
            assert_eq!(ear.answer().await.expect("a socket"), own_mac().await);
            assert_eq!(hosts.answers(&ip).await, Some(own_mac().await));
        }
        assert_eq!(target.check(LEASE).await, Ok(()), "what is ours is no conflict");
        for _ in 0..2 {
            assert_eq!(target.withdraw().await, Ok(()));
            assert_eq!(hosts.answers(&ip).await, None);
        }
        // The kernel had removed it, as a renewal was late.
        let ear = hosts.ear(&ip).await;
        assert_eq!(target.extend(soon()).await, Ok(()));
        assert_eq!(ear.answer().await.expect("a socket"), own_mac().await);
        assert_eq!(hosts.answers(&ip).await, Some(own_mac().await));
    });
}

#[test]
fn a_later_run_removes_what_was_left_but_nothing_else() {
    on_hosts("a stale virtual IP", async |hosts, ip| {
        let mut killed = AddressTarget::new(ip.clone());
        assert_eq!(killed.direct(soon()).await, Ok(()));
        assert_eq!(AddressTarget::new(ip.clone()).clean().await, Ok(false));
        assert!(hosts.answers(&ip).await.is_some(), "the other process is alive");
        let mut standby = AddressTarget::new(ip.clone());
        let refused = standby.direct(soon()).await.expect_err("a claim");
        assert!(refused.contains("another candidate of this host has"), "{refused}");
        assert_eq!(standby.withdraw().await, Ok(()), "it ends");
        assert!(hosts.answers(&ip).await.is_some(), "the other process keeps it");
        drop(killed);
        assert_eq!(AddressTarget::new(ip.clone()).clean().await, Ok(true));
        assert_eq!(hosts.answers(&ip).await, None);
        for lifetime in ["forever", "100"] {
            let (address, prefix) = (ip.address(), ip.prefix());
            hosts.here.ip(&format!(
                "address add {address}/{prefix} dev eth0 valid_lft {lifetime} preferred_lft 0"
            ));
            let mut target = AddressTarget::new(ip.clone());
            assert_eq!(target.clean().await, Ok(true));
            let why = target.check(LEASE).await.expect_err("a conflict");
            assert!(why.contains("is configured on this host already"), "{why}");
            assert_eq!(target.direct(soon()).await.expect_err("a conflict"), why);
            assert_eq!(target.extend(soon()).await.expect_err("a conflict"), why);
            assert_eq!(target.withdraw().await, Ok(()));
            assert_eq!(hosts.answers(&ip).await, Some(own_mac().await), "it is another's");
            hosts.here.ip(&format!("address del {address}/{prefix} dev eth0"));
        }
    });
}

#[test]
fn an_address_of_another_host_refuses_the_term() {
    on_hosts("the virtual IP of another host", async |hosts, ip| {
        let (address, prefix) = (ip.address(), ip.prefix());
        hosts.other.ip(&format!("address add {address}/{prefix} dev eth0"));
        let mut target = AddressTarget::new(ip.clone());
        assert_eq!(target.check(LEASE).await, Ok(()), "it may be the leader");
        let why = target.direct(soon()).await.expect_err("a conflict");
        let netlink = hosts.other.run(|| Netlink::open().expect("a socket"));
        let other = netlink.link("eth0").await.expect("eth0").mac;
        assert!(why.contains(&format!("in use by another host on eth0, with {other}")), "{why}");
        let netlink = Netlink::open().expect("a socket");
        assert!(netlink.addresses(&ip).await.expect("a list").is_absent());
    });
}

#[test]
fn an_advertisement_from_off_the_link_is_no_answer() {
    on_hosts("a forged advertisement", async |hosts, ip| {
        let IpAddr::V6(address) = ip.address() else { return };
        hosts.here.cable("eth1", &hosts.other, "eth1");
        hosts.here.ip("address add 2001:db8:1::1/64 dev eth1 nodad");
        hosts.other.ip("address add 2001:db8:1::2/64 dev eth1 nodad");
        let link = Netlink::open().expect("a socket").link("eth0").await.expect("eth0");
        let ear = Neighbours::open(&link, ip.address()).expect("a socket");
        let netlink = hosts.other.run(|| Netlink::open().expect("a socket"));
        for (number, interface, hops) in [(1, "eth1", 255), (2, "eth0", 254), (3, "eth0", 255)] {
            let link = netlink.link(interface).await.expect(interface);
            let mut message = vec![136, 0, 0, 0, 0x20, 0, 0, 0];
            message.extend(address.octets());
            message.extend([2, 1, 2, 0, 0, 0, 0, number]);
            hosts.other.run(|| {
                let (kind, icmp) = (SocketType::RAW, Some(ipproto::ICMPV6));
                let socket = socket(AddressFamily::INET6, kind, icmp).expect("a socket");
                sockopt::set_ipv6_multicast_hops(&socket, hops).expect("a number of hops");
                let all_nodes = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);
                let to = SocketAddrV6::new(all_nodes, 0, 0, link.index);
                sendto(&socket, &message, SendFlags::empty(), &to).expect("it is sent");
            });
        }
        let answer = timeout(Duration::from_secs(30), ear.answer()).await.expect("the last one");
        assert_eq!(answer.expect("a socket").to_string(), "02:00:00:00:00:03");
    });
}

#[test]
fn an_interface_that_cannot_carry_it_is_refused() {
    on_hosts("the interface of a virtual IP", async |hosts, ip| {
        let on = |interface: &str| {
            let text = format!("{}/{}@{interface}", ip.address(), ip.prefix());
            AddressTarget::new(text.parse().expect("valid"))
        };
        let refused = async |interface: &str, why: &str| {
            let mut target = on(interface);
            let refusal = target.check(LEASE).await.expect_err(interface);
            assert!(refusal.contains(why) && !refusal.contains('\n'), "{refusal}");
            assert_eq!(target.direct(soon()).await.expect_err(interface), refusal);
            assert_eq!(target.extend(soon()).await.expect_err(interface), refusal);
            assert_eq!(target.withdraw().await, Ok(()));
        };
        refused("eth1", "there is no interface eth1").await;
        refused("lo", "the interface lo is not one of an Ethernet").await;
        hosts.other.ip("link set eth0 down");
        refused("eth0", "the interface eth0 has no carrier").await;
        hosts.here.ip("link set eth0 down");
        refused("eth0", "the interface eth0 is down").await;
        let why = on("eth0").check(SHORTEST_LEASE - Duration::from_millis(1)).await;
        assert!(why.expect_err("too short").contains("a lease of 5s or more"));
    });
}

#[test]
fn the_kernel_removes_it_before_the_end_where_nobody_does() {
    // The kernel is late while it creates and removes the networks of other tests.
    let _alone = NETWORKS.write();
    on_new_hosts("the lifetime of a virtual IP", async |hosts, ip| {
        let netlink = Netlink::open().expect("a socket");
        // Others that end shortly before have the kernel look again a second later.
        let decoy: VirtualIp = match ip.address().is_ipv4() {
            true => "10.0.0.6/24@eth0".parse().expect("valid"),
            false => "2001:db8::6/64@eth0".parse().expect("valid"),
        };
        for lease in [5000, 6200, 7300] {
            let until = BootClock.now() + Duration::from_millis(lease);
            let mut decoy = AddressTarget::new(decoy.clone());
            assert_eq!(decoy.direct(until - Duration::from_millis(300)).await, Ok(()));
            let mut target = AddressTarget::new(ip.clone());
            assert_eq!(target.direct(until).await, Ok(()));
            assert!(hosts.answers(&ip).await.is_some());
            sleep_until(BootClock, until).await;
            assert!(netlink.addresses(&ip).await.expect("a list").is_absent(), "{lease}ms");
        }
        // The route to the network is not of this address.
        let mut target = AddressTarget::new(ip.clone());
        assert_eq!(target.direct(BootClock.now() + LEASE).await, Ok(()));
        assert_eq!(target.withdraw().await, Ok(()));
        assert!(hosts.answers(&ip).await.is_none());
        let own: VirtualIp = match ip.address().is_ipv4() {
            true => "10.0.0.1/24@eth0".parse().expect("valid"),
            false => "2001:db8::1/64@eth0".parse().expect("valid"),
        };
        assert!(hosts.answers(&own).await.is_some());
    });
}

#[test]
fn too_little_time_adds_nothing() {
    on_hosts("the end of a term with a virtual IP", async |hosts, ip| {
        let mut target = AddressTarget::new(ip.clone());
        for left in [0, 1000, 2300] {
            let until = BootClock.now() + Duration::from_millis(left);
            let why = target.direct(until).await.expect_err("too late");
            assert!(why.contains("too little is left of the term"), "{why}");
            assert_eq!(target.extend(until).await, Ok(()), "it stays as it is");
            assert_eq!(hosts.answers(&ip).await, None);
        }
    });
}

#[test]
fn lifetimes_leave_the_kernel_time() {
    for (millis, seconds) in [(0, 0), (2300, 0), (2500, 1), (4500, 2), (10_000, 7)] {
        assert_eq!(lifetime(Duration::from_millis(millis)), seconds, "{millis}");
    }
    assert_eq!(lifetime(Duration::MAX / 8), u32::MAX - 1);
}

#[test]
fn an_address_lasts_until_a_renewal_that_is_late() {
    for (with_choria, shortest) in [(false, SHORTEST_LEASE), (true, Duration::from_secs(7))] {
        for lease in (0..60_000).map(|more| shortest + Duration::from_millis(more)) {
            let grace = Some(Duration::ZERO);
            let options = TimingOptions { with_choria, grace, ..TimingOptions::default() };
            let timing = Timing::new(options, lease).expect("valid");
            // The candidate has this long to kill what it runs.
            let kill = (lease / 24).clamp(Duration::from_millis(40), Duration::from_secs(1));
            let lasts = Duration::from_secs(lifetime(timing.validity() - kill).into());
            assert!(lasts > timing.renewal() + Duration::from_millis(200), "{lease:?}: {lasts:?}");
        }
    }
}
