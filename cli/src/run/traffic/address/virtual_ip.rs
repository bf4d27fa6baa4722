//! The address, its network and its interface, as in `10.0.0.5/24@eth0`.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

/// The longest name of an interface.
const LONGEST_NAME: usize = 15;

/// An address that moves, the length of its network's prefix, and the interface that it moves to.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct VirtualIp {
    address: IpAddr,
    prefix: u8,
    interface: String,
}

impl VirtualIp {
    pub fn address(&self) -> IpAddr {
        self.address
    }

    pub fn prefix(&self) -> u8 {
        self.prefix
    }

    pub fn interface(&self) -> &str {
        &self.interface
    }

    /// Whether this address is in the same network.
    pub fn shares_network(&self, address: IpAddr, prefix: u8) -> bool {
        prefix == self.prefix
            && address.is_ipv4() == self.address.is_ipv4()
            && bits(address) & self.mask() == bits(self.address) & self.mask()
    }

    /// The bits of the network.
    fn mask(&self) -> u128 {
        let host = width(self.address) - u32::from(self.prefix);
        u128::MAX.checked_shl(host).unwrap_or(0)
    }

    /// Why the address cannot be one of a host.
    fn fault(&self) -> Option<&'static str> {
        let of_v4 = |address: Ipv4Addr| {
            let first = address.octets()[0];
            (address.is_broadcast() || first == 0 || first >= 240).then_some("is reserved")
        };
        let of_v6 = |address: Ipv6Addr| {
            address.to_ipv4_mapped().is_some().then_some("is an IPv4 address: write it as one")
        };
        let host = bits(self.address) & !self.mask();
        // A network of one or two addresses has hosts only.
        let has_network_address = width(self.address) - u32::from(self.prefix) > 1;
        let highest = !self.mask() & (u128::MAX >> (128 - width(self.address)));
        if self.address.is_unspecified() {
            Some("is no address of a host")
        } else if self.address.is_loopback() {
            Some("is a loopback address")
        } else if self.address.is_multicast() {
            Some("is a multicast address")
        } else if has_network_address && host == 0 {
            Some("is the address of the network itself")
        } else if has_network_address && self.address.is_ipv4() && host == highest {
            Some("is the broadcast address of the network")
        } else {
            match self.address {
                IpAddr::V4(address) => of_v4(address),
                IpAddr::V6(address) => of_v6(address),
            }
        }
    }
}

fn bits(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => u128::from(address.to_bits()),
        IpAddr::V6(address) => address.to_bits(),
    }
}

fn width(address: IpAddr) -> u32 {
    match address {
        IpAddr::V4(_) => Ipv4Addr::BITS,
        IpAddr::V6(_) => Ipv6Addr::BITS,
    }
}

impl FromStr for VirtualIp {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let form = "write ADDRESS/PREFIX@INTERFACE, as in 10.0.0.5/24@eth0";
        let (network, interface) = text.split_once('@').ok_or(form)?;
        let (address, prefix) = network.split_once('/').ok_or(form)?;
        let address: IpAddr =
            address.parse().map_err(|_| format!("{address:?} is no IP address: {form}"))?;
        let longest = width(address);
        let in_range = |prefix: &u8| (1..=longest).contains(&u32::from(*prefix));
        let prefix = prefix.parse().ok().filter(in_range).ok_or_else(|| {
            format!("{prefix:?} is no length of a prefix: write a number from 1 to {longest}")
        })?;
        let is_name = !interface.is_empty()
            && interface.len() <= LONGEST_NAME
            && ![".", ".."].contains(&interface)
            && interface.chars().all(|c| c.is_ascii_graphic() && c != '/');
        if !is_name {
            return Err(format!("{interface:?} is no name of an interface: {form}"));
        }
        let ip = Self { address, prefix, interface: interface.to_owned() };
        match ip.fault() {
            Some(fault) => Err(format!("{address}/{prefix} {fault}")),
            None => Ok(ip),
        }
    }
}

impl fmt::Display for VirtualIp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}@{}", self.address, self.prefix, self.interface)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(text: &str) -> String {
        text.parse::<VirtualIp>().expect_err(text)
    }

    #[test]
    fn addresses_of_hosts_are_taken() {
        for text in [
            "10.0.0.5/24@eth0",
            "10.0.0.0/31@eth0",
            "10.0.0.5/32@bond0.100",
            "169.254.1.1/16@br-lan",
            "2001:db8::5/64@eth0",
            "2001:db8::/127@eth0",
            "fe80::5/128@wlan0",
        ] {
            assert_eq!(text.parse::<VirtualIp>().map(|ip| ip.to_string()), Ok(text.to_owned()));
        }
    }

    #[test]
    fn what_is_no_address_of_a_host_is_refused() {
        for (text, why) in [
            ("", "write ADDRESS/PREFIX@INTERFACE"),
            ("10.0.0.5/24", "write ADDRESS"),
            ("10.0.0.5@eth0", "write ADDRESS"),
            ("10.0.0/24@eth0", "\"10.0.0\" is no IP address"),
            ("fe80::1%eth0/64@eth0", "is no IP address"),
            ("10.0.0.5/0@eth0", "from 1 to 32"),
            ("10.0.0.5/33@eth0", "from 1 to 32"),
            ("2001:db8::5/129@eth0", "from 1 to 128"),
            ("10.0.0.5/a@eth0", "\"a\" is no length"),
            ("10.0.0.5/24@", "is no name of an interface"),
            ("10.0.0.5/24@eth0 ", "is no name"),
            ("10.0.0.5/24@a/b", "is no name"),
            ("10.0.0.5/24@interface-too-long", "is no name"),
            ("0.0.0.0/8@eth0", "is no address of a host"),
            ("::/64@eth0", "is no address of a host"),
            ("0.0.0.7/8@eth0", "is reserved"),
            ("127.0.0.1/8@lo", "loopback"),
            ("::1/128@lo", "loopback"),
            ("224.0.0.18/24@eth0", "multicast"),
            ("ff02::1/64@eth0", "multicast"),
            ("255.255.255.255/32@eth0", "is reserved"),
            ("10.0.0.0/24@eth0", "of the network itself"),
            ("10.0.0.255/24@eth0", "broadcast"),
            ("2001:db8::/64@eth0", "of the network itself"),
            ("::ffff:10.0.0.5/128@eth0", "write it as one"),
        ] {
            let refusal = refusal(text);
            assert!(refusal.contains(why) && !refusal.contains('\n'), "{text}: {refusal}");
        }
    }

    #[test]
    fn any_text_is_parsed_or_refused() {
        bolero::check!().with_type::<String>().for_each(|text| {
            if let Ok(ip) = text.parse::<VirtualIp>() {
                assert_eq!(ip.to_string().parse(), Ok(ip));
            }
        });
    }

    #[test]
    fn networks_are_compared_by_their_bits() {
        let ip: VirtualIp = "2001:db8::5/64@eth0".parse().expect("valid");
        let shares =
            |address: &str, prefix| ip.shares_network(address.parse().expect("an address"), prefix);
        assert!(shares("2001:db8::9", 64));
        assert!(!shares("2001:db8::9", 65) && !shares("2001:db8:0:1::9", 64));
        assert!(!shares("10.0.0.1", 64));
    }
}
