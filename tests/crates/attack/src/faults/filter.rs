//! What a link drops, as a program of the kernel's packet filter ("classic" BPF) for `tc filter …
//! bpf`: that loses packets without a trace on kernels without `netem`, and without any tool to
//! drop them by address.

use std::net::Ipv4Addr;

const LOAD_HALF: u16 = 0x28;
const LOAD_WORD: u16 = 0x20;
const JUMP_EQUAL: u16 = 0x15;
const JUMP_AT_LEAST: u16 = 0x35;
const RETURN: u16 = 0x06;

/// Where in an Ethernet frame the type is, and in an IPv4 packet within it the destination.
const TYPE: u32 = 12;
const DESTINATION: u32 = 30;
const IPV4: u32 = 0x0800;
/// The filter's own word for "a random number": SKF_AD_OFF + SKF_AD_RANDOM.
const RANDOM: u32 = 0xffff_f000 + 56;
/// TC_ACT_SHOT and TC_ACT_UNSPEC.
const DROP: u32 = 2;
const PASS: u32 = u32::MAX;

/// A program that drops what goes to one of `to`, and this many packets of a hundred; nothing if it
/// would drop nothing.
pub(super) fn program(to: &[Ipv4Addr], percent: u8) -> Option<String> {
    if to.is_empty() && percent == 0 {
        return None;
    }
    // Jumps count the instructions that they leap over; the last two are "pass" and "drop".
    let random = if percent > 0 { 2 } else { 0 };
    let mut left = to.len() + random + 1;
    let mut code = vec![(LOAD_HALF, 0, 0, TYPE), (JUMP_EQUAL, 0, left, IPV4)];
    code.push((LOAD_WORD, 0, 0, DESTINATION));
    left -= 1;
    for address in to {
        code.push((JUMP_EQUAL, left, 0, u32::from(*address)));
        left -= 1;
    }
    if percent > 0 {
        let threshold = u32::MAX / 100 * u32::from(percent.min(100));
        code.push((LOAD_WORD, 0, 0, RANDOM));
        code.push((JUMP_AT_LEAST, 0, 1, threshold));
    }
    code.push((RETURN, 0, 0, PASS));
    code.push((RETURN, 0, 0, DROP));
    let instructions: Vec<_> = code
        .iter()
        .map(|(code, yes, no, operand)| format!("{code} {yes} {no} {operand}"))
        .collect();
    Some(format!("{},{}", instructions.len(), instructions.join(",")))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs a program on a packet: as much of the machine as the programs use.
    fn drops(program: &str, to: Ipv4Addr, kind: u32, random: u32) -> bool {
        let code: Vec<Vec<u32>> = program
            .split(',')
            .skip(1)
            .map(|line| line.split(' ').map(|word| word.parse().unwrap()).collect())
            .collect();
        let (mut at, mut value) = (0, 0);
        loop {
            let [code, yes, no, operand] = code[at][..] else { panic!("{program}") };
            at += 1;
            let skip = |condition: bool| (if condition { yes } else { no }) as usize;
            match (u16::try_from(code).unwrap(), operand) {
                (LOAD_HALF, TYPE) => value = kind,
                (LOAD_WORD, DESTINATION) => value = u32::from(to),
                (LOAD_WORD, RANDOM) => value = random,
                (JUMP_EQUAL, operand) => at += skip(value == operand),
                (JUMP_AT_LEAST, operand) => at += skip(value >= operand),
                (RETURN, operand) => return operand == DROP,
                other => panic!("{other:?}"),
            }
        }
    }

    #[test]
    fn the_filter_drops_the_selected_packets_only() {
        let address = |last| Ipv4Addr::new(198, 18, 3, last);
        assert_eq!(program(&[], 0), None);
        for count in 1..6 {
            let cut: Vec<_> = (0..count).map(|n| address(10 + n)).collect();
            for percent in [0, 30] {
                let program = program(&cut, percent).unwrap();
                for to in &cut {
                    assert!(drops(&program, *to, IPV4, u32::MAX), "{program}");
                }
                assert!(!drops(&program, address(99), IPV4, u32::MAX), "{program}");
                assert!(!drops(&program, cut[0], 0x0806, 0), "ARP goes through: {program}");
                assert_eq!(drops(&program, address(99), IPV4, 5), percent > 0, "{program}");
            }
        }
        let lossy = program(&[], 30).unwrap();
        assert!(drops(&lossy, address(1), IPV4, u32::MAX / 100 * 29));
        assert!(!drops(&lossy, address(1), IPV4, u32::MAX / 100 * 31));
    }
}
