//! Times and lifetimes.

use std::time::Duration;

use super::hostile::{FEW, Mutations, Text};
use crate::backends::nats::time::{FOREVER, lifetime, since_epoch};
use crate::lock::codec::ceil_seconds;

/// The end of the year 9999, and a day for zones.
const END: Duration = Duration::from_secs(253_402_300_800 + 86_400);

#[test]
fn any_text_is_a_time_or_refused() {
    bolero::check!().with_iterations(FEW).with_type::<Text>().for_each(|text| {
        let text = text.get();
        if let Some(time) = since_epoch(&text) {
            assert!(time < END, "{text:?} is {time:?}");
            assert!(text.starts_with(|c: char| c.is_ascii_digit()), "{text:?} is {time:?}");
        }
    });
}

#[test]
fn times_round_trip() {
    type Input = (u64, u32, Mutations);
    bolero::check!().with_iterations(FEW).with_type::<Input>().for_each(
        |(at, nanos, mutations)| {
            let time = Duration::new(at % 253_402_300_800, nanos % 1_000_000_000);
            let text = written(time);
            assert_eq!(since_epoch(&text), Some(time), "{text}");
            let mut bytes = text.into_bytes();
            mutations.apply(&mut bytes);
            if let Ok(text) = str::from_utf8(&bytes)
                && let Some(time) = since_epoch(text)
            {
                assert!(time < END, "{text:?} is {time:?}");
            }
        },
    );
}

#[test]
fn any_text_is_a_lifetime_or_refused() {
    bolero::check!().with_iterations(FEW).with_type::<Text>().for_each(|text| {
        let text = text.get();
        let Some(life) = lifetime(&text) else { return };
        assert!(life <= FOREVER, "{text:?} is {life:?}");
        for sign in ["-", "NaN", "inf"] {
            assert!(!text.contains(sign), "{text:?} is {life:?}");
        }
    });
}

#[test]
fn lifetimes_are_rounded_up() {
    bolero::check!().with_iterations(FEW).with_type::<(u64, u32)>().for_each(|(secs, nanos)| {
        let meant = Duration::new(*secs, nanos % 1_000_000_000);
        let written = ceil_seconds(meant);
        assert!(written >= 1 && written >= meant.as_secs());
        assert_eq!(lifetime(&written.to_string()), Some(Duration::from_secs(written).min(FOREVER)));
    });
}

/// Formats a time by counting years and months one by one.
fn written(time: Duration) -> String {
    let (mut days, in_day) = (time.as_secs() / 86_400, time.as_secs() % 86_400);
    let leap = |year: u64| {
        year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400))
    };
    let mut year = 1970;
    while days >= 365 + u64::from(leap(year)) {
        days -= 365 + u64::from(leap(year));
        year += 1;
    }
    let february = 28 + u64::from(leap(year));
    let mut month = 1;
    for length in [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31] {
        if days < length {
            break;
        }
        days -= length;
        month += 1;
    }
    let (hour, minute, second) = (in_day / 3600, in_day / 60 % 60, in_day % 60);
    let (day, nanos) = (days + 1, time.subsec_nanos());
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{nanos:09}Z")
}
