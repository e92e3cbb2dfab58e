//! Values of a configuration, and their conversion to Rust types.

use std::fmt;
use std::net::IpAddr;
use std::time::Duration;

use crate::bindings::dnsweir::filter::types as raw;
use crate::{Class, NameBuf, NameError, Prefix, PrefixError, Rcode, Type};

/// A value as written in the configuration.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Value<'a> {
    /// `#null`
    Null,
    /// `#true` or `#false`
    Boolean(bool),
    /// `60`
    Integer(i64),
    /// `0.5`
    Decimal(f64),
    /// `"text"`, or a bare word
    Text(&'a str),
    /// `(data)"PATH"`: the index of the file, which [`Data`](crate::Data) reads.
    Data(u32),
}

impl<'a> Value<'a> {
    pub(crate) fn from_raw(value: &'a raw::Value) -> Value<'a> {
        match value {
            raw::Value::Null => Value::Null,
            raw::Value::Boolean(value) => Value::Boolean(*value),
            raw::Value::Integer(value) => Value::Integer(*value),
            raw::Value::Decimal(value) => Value::Decimal(*value),
            raw::Value::Text(value) => Value::Text(value),
            raw::Value::Data(index) => Value::Data(*index),
        }
    }
}

impl Value<'_> {
    /// Returns the value paired with this word.
    ///
    /// # Errors
    /// A list of the valid words, as help for the user.
    ///
    /// ```
    /// use dnsweir_filter::Value;
    ///
    /// let modes = [("monitor", false), ("enforce", true)];
    /// assert_eq!(Value::Text("enforce").one_of(&modes), Ok(true));
    /// assert_eq!(Value::Text("off").one_of(&modes), Err("\"monitor\" or \"enforce\"".into()));
    /// ```
    pub fn one_of<T: Clone>(self, words: &[(&str, T)]) -> Result<T, String> {
        let found = words.iter().find(|(word, _)| self == Value::Text(word));
        found.map(|(_, meaning)| meaning.clone()).ok_or_else(|| {
            let words = words.iter().map(|(word, _)| format!("\"{word}\""));
            words.collect::<Vec<_>>().join(" or ")
        })
    }
}

/// As it would be written in the configuration, on one line. A long text, which may be a whole file, is cut.
impl fmt::Display for Value<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::Null => f.write_str("#null"),
            Value::Boolean(true) => f.write_str("#true"),
            Value::Boolean(false) => f.write_str("#false"),
            Value::Integer(value) => write!(f, "{value}"),
            Value::Decimal(_) => f.write_str("a decimal number"),
            Value::Data(_) => f.write_str("(data)"),
            Value::Text(value) => {
                f.write_str("\"")?;
                let mut letters = value.chars();
                for letter in letters.by_ref().take(SHOWN) {
                    write!(f, "{}", if letter.is_control() { ' ' } else { letter })?;
                }
                f.write_str(if letters.next().is_some() { "…\"" } else { "\"" })
            }
        }
    }
}

/// The maximum number of characters of a text in a message.
const SHOWN: usize = 60;

/// A type that a value of the configuration can be read as.
///
/// ```
/// use dnsweir_filter::{FromValue, Value};
///
/// enum Mode { Monitor, Enforce }
///
/// impl FromValue for Mode {
///     const EXPECTED: &'static str = "a mode";
///     fn from_value(value: Value<'_>) -> Result<Mode, String> {
///         match value {
///             Value::Text("monitor") => Ok(Mode::Monitor),
///             Value::Text("enforce") => Ok(Mode::Enforce),
///             _ => Err("write \"monitor\" or \"enforce\"".into()),
///         }
///     }
/// }
/// ```
pub trait FromValue: Sized {
    /// The expected kind of value for error messages, with its article: `a duration`.
    const EXPECTED: &'static str;

    /// Reads a value.
    ///
    /// # Errors
    /// What would be right, as help for the user; may be empty.
    fn from_value(value: Value<'_>) -> Result<Self, String>;
}

impl FromValue for bool {
    const EXPECTED: &'static str = "#true or #false";

    fn from_value(value: Value<'_>) -> Result<bool, String> {
        match value {
            Value::Boolean(value) => Ok(value),
            _ => Err(String::new()),
        }
    }
}

impl FromValue for String {
    const EXPECTED: &'static str = "text";

    fn from_value(value: Value<'_>) -> Result<String, String> {
        match value {
            Value::Text(text) => Ok(text.to_owned()),
            _ => Err("put it in quotes".to_owned()),
        }
    }
}

macro_rules! integers {
    ($($integer:ty)*) => {$(
        impl FromValue for $integer {
            const EXPECTED: &'static str = "a whole number";

            fn from_value(value: Value<'_>) -> Result<$integer, String> {
                match value {
                    Value::Integer(value) => <$integer>::try_from(value)
                        .map_err(|_| format!("from {} to {}", <$integer>::MIN, <$integer>::MAX)),
                    _ => Err(String::new()),
                }
            }
        }
    )*};
}

integers! { u8 u16 u32 u64 i64 }

/// A number with a unit: `"250ms"`, `"30s"`, `"5m"`, `"1h"`, `"1d"`.
impl FromValue for Duration {
    const EXPECTED: &'static str = "a duration";

    fn from_value(value: Value<'_>) -> Result<Duration, String> {
        let help = || "a number and a unit of ms, s, m, h or d: \"30s\"".to_owned();
        let Value::Text(text) = value else {
            return Err(help());
        };
        let unit = text
            .find(|letter: char| !letter.is_ascii_digit())
            .ok_or_else(help)?;
        let milliseconds = match &text[unit..] {
            "ms" => 1,
            "s" => 1000,
            "m" => 60_000,
            "h" => 3_600_000,
            "d" => 86_400_000,
            _ => return Err(help()),
        };
        let number: u64 = text[..unit].parse().map_err(|_| help())?;
        let all = number
            .checked_mul(milliseconds)
            .ok_or_else(|| "that is longer than any clock runs".to_owned())?;
        Ok(Duration::from_millis(all))
    }
}

/// A TTL of a record: in whole seconds, at most 2 147 483 647 (RFC 2181 section 8).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ttl(Duration);

impl Ttl {
    /// One minute.
    pub const MINUTE: Ttl = Ttl(Duration::from_secs(60));
    /// One hour.
    pub const HOUR: Ttl = Ttl(Duration::from_secs(3600));
}

impl From<Ttl> for Duration {
    fn from(ttl: Ttl) -> Duration {
        ttl.0
    }
}

impl FromValue for Ttl {
    const EXPECTED: &'static str = "a TTL";

    fn from_value(value: Value<'_>) -> Result<Ttl, String> {
        let time = Duration::from_value(value)?;
        if time.subsec_nanos() != 0 {
            return Err("TTLs count whole seconds".to_owned());
        }
        if time.as_secs() > i32::MAX as u64 {
            return Err("at most 2147483647s".to_owned());
        }
        Ok(Ttl(time))
    }
}

macro_rules! parsed {
    ($($type:ty: $expected:literal, $help:expr;)*) => {$(
        impl FromValue for $type {
            const EXPECTED: &'static str = $expected;

            fn from_value(value: Value<'_>) -> Result<$type, String> {
                match value {
                    Value::Text(text) => text.parse().map_err($help),
                    _ => Err("put it in quotes".to_owned()),
                }
            }
        }
    )*};
}

parsed! {
    NameBuf: "a domain name", |reason: NameError| reason.to_string();
    Prefix: "an address prefix", |reason: PrefixError| reason.to_string();
    IpAddr: "an IP address", |_| "such as \"192.0.2.1\" or \"2001:db8::1\", without port or prefix".to_owned();
    Type: "a record type", |_| "such as \"AAAA\", or \"TYPE65\" by number".to_owned();
    Class: "a class", |_| "\"IN\", \"CH\" or \"HS\", or \"CLASS1\" by number".to_owned();
    Rcode: "a response code", |_| "such as \"NOERROR\", \"SERVFAIL\" or \"NXDOMAIN\"".to_owned();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_show_the_beginning_of_a_text() {
        assert_eq!(Value::Text("a\nb").to_string(), "\"a b\"");
        let long = Value::Text(&"ä".repeat(100_000)).to_string();
        assert_eq!(long, format!("\"{}…\"", "ä".repeat(60)));
    }

    #[test]
    fn values_are_read_strictly() {
        assert_eq!(
            Duration::from_value(Value::Text("250ms")),
            Ok(Duration::from_millis(250))
        );
        assert_eq!(
            Duration::from_value(Value::Text("2d")),
            Ok(Duration::from_secs(172_800))
        );
        for text in [
            "",
            "s",
            "30",
            "-1s",
            "1.5s",
            "1 s",
            "1w",
            "+1s",
            "99999999999999999999s",
            "18446744073709551615d",
        ] {
            assert!(Duration::from_value(Value::Text(text)).is_err(), "{text:?}");
        }
        assert!(Duration::from_value(Value::Integer(30)).is_err());
        assert_eq!(
            Ttl::from_value(Value::Text("1m")).map(Duration::from),
            Ok(Duration::from_secs(60))
        );
        assert!(Ttl::from_value(Value::Text("1500ms")).is_err());
        assert!(Ttl::from_value(Value::Text("2147483648s")).is_err());
        assert_eq!(u16::from_value(Value::Integer(65_535)), Ok(u16::MAX));
        assert_eq!(
            u16::from_value(Value::Integer(65_536)),
            Err("from 0 to 65535".into())
        );
        assert!(u16::from_value(Value::Text("1")).is_err());
        assert!(bool::from_value(Value::Text("true")).is_err());
        assert!(IpAddr::from_value(Value::Text("192.0.2.1:53")).is_err());
        assert_eq!(Rcode::from_value(Value::Text("servfail")), Ok(Rcode::SERVFAIL));
    }
}
