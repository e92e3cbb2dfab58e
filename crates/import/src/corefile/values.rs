//! Parses values in a Corefile: Go durations, numbers, server addresses.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

/// Parses a Go duration such as `1m30s`, `500ms` or `1.5h`; `None` if it is invalid or negative.
pub fn duration(text: &str) -> Option<Duration> {
    if text == "0" {
        return Some(Duration::ZERO);
    }
    let mut total = 0.0;
    let mut rest = text;
    while !rest.is_empty() {
        let digits = rest.find(|character: char| !character.is_ascii_digit() && character != '.')?;
        let (number, unit) = rest.split_at(digits);
        let end = unit
            .find(|character: char| character.is_ascii_digit())
            .unwrap_or(unit.len());
        let (unit, after) = unit.split_at(end);
        let seconds = match unit {
            "ns" => 1e-9,
            "us" | "µs" | "μs" => 1e-6,
            "ms" => 1e-3,
            "s" => 1.0,
            "m" => 60.0,
            "h" => 3600.0,
            _ => return None,
        };
        total += number.parse::<f64>().ok()? * seconds;
        rest = after;
    }
    (!text.is_empty() && total < 1e9).then(|| Duration::from_secs_f64(total))
}

/// Clears the host bits of a network, as Go does. Anything else is returned unchanged.
pub fn network(text: &str) -> String {
    let read = || {
        let (address, length) = text.split_once('/')?;
        let length: u32 = length.parse().ok()?;
        Some(match address.parse().ok()? {
            IpAddr::V4(address) => {
                let mask = u32::MAX.checked_shl(32u32.checked_sub(length)?).unwrap_or(0);
                format!("{}/{length}", Ipv4Addr::from_bits(address.to_bits() & mask))
            }
            IpAddr::V6(address) => {
                let mask = u128::MAX.checked_shl(128u32.checked_sub(length)?).unwrap_or(0);
                format!("{}/{length}", Ipv6Addr::from_bits(address.to_bits() & mask))
            }
        })
    };
    read().unwrap_or_else(|| text.to_owned())
}

/// Parses the address of an HTTP server: `:9253`, `localhost:9153`, `169.254.20.10:8080`. In Go, wildcards of
/// either family stand for both, as `[::]` in `admin`.
pub fn server(text: &str) -> Option<SocketAddr> {
    let (host, port) = text.rsplit_once(':')?;
    let port = port.parse().ok()?;
    let ip: IpAddr = match host {
        "" => Ipv6Addr::UNSPECIFIED.into(),
        "localhost" => Ipv4Addr::LOCALHOST.into(),
        _ => host.trim_start_matches('[').trim_end_matches(']').parse().ok()?,
    };
    match ip.is_unspecified() {
        true => Some(SocketAddr::new(Ipv6Addr::UNSPECIFIED.into(), port)),
        false => Some(SocketAddr::new(ip, port)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_those_of_go() {
        for (text, milliseconds) in [
            ("0", 0),
            ("0s", 0),
            ("500ms", 500),
            ("1m30s", 90_000),
            ("1.5h", 5_400_000),
            ("10s", 10_000),
        ] {
            assert_eq!(
                duration(text),
                Some(Duration::from_millis(milliseconds)),
                "{text}"
            );
        }
        for text in ["", "10", "s", "-1s", "1d", "1s2", "1..s", "99999999999h"] {
            assert_eq!(duration(text), None, "{text}");
        }
    }

    #[test]
    fn networks_are_read_as_go_does() {
        for (text, read) in [
            ("10.1.2.3/8", "10.0.0.0/8"),
            ("10.1.2.3/32", "10.1.2.3/32"),
            ("10.1.2.3/0", "0.0.0.0/0"),
            ("fd00::1/8", "fd00::/8"),
            ("10.1.2.3/33", "10.1.2.3/33"),
            ("10.1.2.3", "10.1.2.3"),
        ] {
            assert_eq!(network(text), read);
        }
    }

    #[test]
    fn servers_are_addresses_with_ports() {
        for (text, address) in [
            (":9253", "[::]:9253"),
            ("0.0.0.0:9253", "[::]:9253"),
            ("[::]:9253", "[::]:9253"),
            ("localhost:9153", "127.0.0.1:9153"),
            ("[::1]:80", "[::1]:80"),
            ("169.254.20.10:8080", "169.254.20.10:8080"),
        ] {
            assert_eq!(server(text), address.parse().ok(), "{text}");
        }
        for text in ["", "8080", "example.org:80", "127.0.0.1:x"] {
            assert_eq!(server(text), None, "{text}");
        }
    }
}
