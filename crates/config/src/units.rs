//! Durations and sizes, which always have a unit: `"1800ms"`, `"32MiB"`.

use std::ops::RangeInclusive;
use std::time::Duration;

use kdl::KdlValue;

use super::kind::{Kind, Takes, Wrong};

/// Milliseconds in each unit of time, the longest first.
const TIMES: [(&str, u64); 5] = [
    ("d", 86_400_000),
    ("h", 3_600_000),
    ("m", 60_000),
    ("s", 1000),
    ("ms", 1),
];

/// Bytes in each unit of size, the largest first.
const SIZES: [(&str, u64); 4] = [("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10), ("B", 1)];

/// Shorthand for bounds.
pub const fn ms(count: u64) -> Duration {
    Duration::from_millis(count)
}

/// Shorthand for bounds.
pub const fn s(count: u64) -> Duration {
    Duration::from_secs(count)
}

/// Reads a duration within `bounds`.
pub fn duration(bounds: RangeInclusive<Duration>) -> impl Kind<Duration> {
    move |value: &KdlValue| {
        let takes = || Takes::Duration(spell_duration(*bounds.start()), spell_duration(*bounds.end()));
        match value.as_string().map(|text| count(text, &TIMES)) {
            Some(Some(milliseconds)) if bounds.contains(&ms(milliseconds)) => Ok(ms(milliseconds)),
            Some(Some(_)) => Err(Wrong::taking("is out of range", takes())),
            _ => Err(Wrong::taking("is not a duration", takes())),
        }
    }
}

/// Reads a duration within `bounds` for use as a TTL, in whole seconds (RFC 1035 section 3.2.1).
pub(super) fn ttl(bounds: RangeInclusive<Duration>) -> impl Kind<Duration> {
    let duration = duration(bounds);
    move |value: &KdlValue| match duration(value) {
        Ok(time) if time.subsec_millis() != 0 => Err(Wrong::new(
            "is not a TTL",
            "a TTL counts whole seconds: write \"1s\" or more, or \"0s\"",
        )),
        other => other,
    }
}

/// Reads a number of bytes within `bounds`.
pub(super) fn size(bounds: RangeInclusive<usize>) -> impl Kind<usize> {
    move |value: &KdlValue| {
        let takes = || Takes::Size(spell_size(*bounds.start()), spell_size(*bounds.end()));
        match value.as_string().map(|text| count(text, &SIZES)) {
            Some(Some(bytes)) => match usize::try_from(bytes) {
                Ok(bytes) if bounds.contains(&bytes) => Ok(bytes),
                _ => Err(Wrong::taking("is out of range", takes())),
            },
            _ => Err(Wrong::taking("is not a size", takes())),
        }
    }
}

/// Writes a duration in the largest unit that makes it whole.
pub fn spell_duration(time: Duration) -> String {
    spell(u64::try_from(time.as_millis()).unwrap_or(u64::MAX), "0s", &TIMES)
}

/// Writes a size in the largest unit that makes it whole.
pub fn spell_size(bytes: usize) -> String {
    spell(bytes as u64, "0B", &SIZES)
}

/// Parses a whole number with a unit; saturates if it is too large, `None` for anything else.
fn count(text: &str, units: &[(&str, u64)]) -> Option<u64> {
    let digits = text.find(|c: char| !c.is_ascii_digit())?;
    let (number, unit) = text.split_at(digits);
    let (_, factor) = units.iter().find(|(name, _)| *name == unit)?;
    if number.is_empty() {
        return None;
    }
    // There are only digits, so parsing can only overflow.
    Some(number.parse::<u64>().unwrap_or(u64::MAX).saturating_mul(*factor))
}

fn spell(count: u64, zero: &str, units: &[(&str, u64)]) -> String {
    if count == 0 {
        return zero.to_owned();
    }
    let whole = units.iter().find(|(_, factor)| count.is_multiple_of(*factor));
    whole
        .map(|(unit, factor)| format!("{}{unit}", count / factor))
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn read<T>(kind: impl Kind<T>, text: &str) -> Result<T, String> {
        kind(&KdlValue::String(text.into())).map_err(|wrong| wrong.problem)
    }

    proptest! {
        #[test]
        fn what_is_spelled_is_read_back(milliseconds in any::<u32>(), bytes in any::<u32>()) {
            let time = ms(milliseconds.into());
            prop_assert_eq!(read(duration(ms(0)..=Duration::MAX), &spell_duration(time)), Ok(time));
            let bytes = bytes as usize;
            prop_assert_eq!(read(size(0..=usize::MAX), &spell_size(bytes)), Ok(bytes));
        }
    }
}
