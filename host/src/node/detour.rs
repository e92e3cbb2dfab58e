//! Detours: what no socket of ours takes goes to the cluster's DNS, though no service stands behind the address.
//!
//! kube-proxy translates the address of the cluster's DNS, and the kernel translates a connection once: a NAT
//! rule of ours that leads to that address would be the last one. So the destination in the packet is
//! overwritten before kube-proxy's rules see it, and after connection tracking has seen it: what kube-proxy
//! sees is a query to the cluster's DNS, and what the client gets is a reply from the address that it asked.
//! Of the two, nft can do this and iptables cannot. The table is ours alone, and touched as a whole; in it are
//! those lines only that [`lines`] writes.

use std::io::Write;
use std::net::IpAddr;
use std::process::{Command, Output, Stdio};

use super::plan::Detour;
use super::{Error, Kind, Outcome};

/// The table, in the family `inet`.
const TABLE: &str = "dnsweir";

/// What differs between the table as it is and as it ought to be.
#[derive(Debug, Default)]
pub struct Difference {
    /// Wanted, and not there.
    pub missing: Vec<String>,
    /// There, about one of our addresses, and not wanted.
    pub stale: Vec<String>,
    /// All lines as they ought to be, those about others' addresses first.
    target: Vec<String>,
    /// The table is not that.
    differs: bool,
}

/// Compares what is there with what is wanted for `addresses`.
pub fn compare(wanted: &[Detour], addresses: &[IpAddr]) -> Result<Difference, Error> {
    let found = match list() {
        Ok(found) => found,
        // Where nft is missing, there is no table of ours.
        Err(_) if wanted.is_empty() => Vec::new(),
        Err(error) => return Err(error),
    };
    let wanted: Vec<String> = wanted.iter().flat_map(lines).collect();
    let ours = |line: &&String| address_of(line).is_some_and(|ip| addresses.contains(&ip));
    let mut target: Vec<String> = found.iter().filter(|line| !ours(line)).cloned().collect();
    target.extend(wanted.iter().cloned());
    let without = |one: &[String], other: &[String]| {
        let lines = one.iter().filter(|line| !other.contains(line));
        lines.cloned().collect()
    };
    Ok(Difference {
        missing: without(&wanted, &found),
        stale: without(&found, &target),
        differs: found != target,
        target,
    })
}

/// Makes the table as it ought to be, at once; without lines, there is none.
pub fn settle(difference: &Difference) -> Outcome {
    let mut outcome = Outcome::default();
    if !difference.differs {
        return outcome;
    }
    // Deleting what is not there is an error: it is made first.
    let mut script = format!("table inet {TABLE}\ndelete table inet {TABLE}\n");
    if !difference.target.is_empty() {
        script += &format!(
            "table inet {TABLE} {{ chain detour {{ type filter hook prerouting priority mangle; policy accept;\n{}\n}}\n}}\n",
            difference.target.join("\n")
        );
    }
    match nft(&["-f", "-"], &script) {
        Ok(output) if output.status.success() => {
            let written = difference.missing.iter().map(|line| format!("wrote nft {line}"));
            let deleted = difference.stale.iter().map(|line| format!("deleted nft {line}"));
            outcome.done.extend(written.chain(deleted));
        }
        Ok(output) => outcome
            .errors
            .push(failed(String::from_utf8_lossy(&output.stderr).trim())),
        Err(error) => outcome.errors.push(error),
    }
    outcome
}

/// A detour as nft lists it.
pub fn lines(detour: &Detour) -> Vec<String> {
    let Detour { from, to } = detour;
    let (family, ip, port) = (if to.is_ipv4() { "ip" } else { "ip6" }, from.ip(), from.port());
    ["udp", "tcp"]
        .into_iter()
        .flat_map(|protocol| {
            let query = format!("{family} daddr {ip} {protocol} dport {port}");
            [
                // What a socket takes: the rule that looks for one leaves it untracked.
                format!("{query} ct state invalid,untracked accept"),
                format!("{query} {family} daddr set {to} accept"),
            ]
        })
        .collect()
}

/// The lines of the table that are there.
fn list() -> Result<Vec<String>, Error> {
    let output = nft(&["list", "table", "inet", TABLE], "")?;
    // Without the table, it fails.
    let text = String::from_utf8_lossy(&output.stdout);
    let lines = text.lines().map(str::trim);
    Ok(lines
        .filter(|line| address_of(line).is_some())
        .map(String::from)
        .collect())
}

/// The listener's address of a line.
fn address_of(line: &str) -> Option<IpAddr> {
    let mut words = line.split_ascii_whitespace();
    let (family, daddr) = (words.next()?, words.next()?);
    let ip = words.next()?.parse().ok()?;
    (matches!(family, "ip" | "ip6") && daddr == "daddr").then_some(ip)
}

fn nft(arguments: &[&str], script: &str) -> Result<Output, Error> {
    let ran = (|| {
        let mut child = Command::new("nft")
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()?;
        if let Some(mut stdin) = child.stdin.take() {
            stdin.write_all(script.as_bytes())?;
        }
        child.wait_with_output()
    })();
    ran.map_err(|error| failed(&format!("cannot be run: {error}")))
}

fn failed(why: &str) -> Error {
    Error {
        kind: Kind::Iptables,
        text: format!("nft, table {TABLE}: {why}"),
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use super::*;

    #[test]
    fn lines_say_whose_they_are() {
        let detour = Detour {
            from: SocketAddr::new("fd00:20::10".parse().unwrap(), 53),
            to: "fd00:96::10".parse().unwrap(),
        };
        let lines = lines(&detour);
        assert_eq!(
            lines[1],
            "ip6 daddr fd00:20::10 udp dport 53 ip6 daddr set fd00:96::10 accept"
        );
        assert!(
            lines
                .iter()
                .all(|line| address_of(line) == Some(detour.from.ip()))
        );
        assert_eq!(address_of("type filter hook prerouting priority mangle;"), None);
    }
}
